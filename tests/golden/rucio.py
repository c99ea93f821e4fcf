"""Rucio's REST interface in front of the Rucio in memory, which goes on with the time of a simulated world."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import unquote_plus

from rucio.common import exception
from rucio.common.utils import render_json

from tests.backends import fake

from .wire import Answer, Request

ASKS = ("/dids/bulkmeta", "/locks/bulk_locks_for_dids", "/replicas/")
_STATUS = {
    "RuleNotFound": 404, "DataIdentifierNotFound": 404, "RSENotFound": 404, "AccessDenied": 401,
    "DuplicateRule": 409, "DataIdentifierAlreadyExists": 409, "InsufficientAccountLimit": 409,
}  # fmt: skip
Body = dict[str, Any]
Do = Callable[[Any, tuple[str, ...], dict[str, str], Body], Any]


class Plain:
    """An answer that is one JSON value, not a stream of rows."""

    def __init__(self, value: Any, status: int = 200) -> None:
        self.value, self.status = value, status


_ROUTES: list[tuple[str, str, Do]] = [
    ("GET", "/ping", lambda c, _p, _q, _b: Plain(c.ping())),
    ("GET", "/accounts/whoami", lambda c, _p, _q, _b: Plain(c.whoami())),
    ("GET", "/accounts/([^/]+)/attr/", lambda c, p, _q, _b: c.list_account_attributes(*p)),
    ("GET", "/accounts/([^/]+)/usage/local", lambda c, p, _q, _b: c.get_local_account_usage(*p)),
    ("GET", "/accounts/([^/]+)/usage/global", lambda c, p, _q, _b: c.get_global_account_usage(*p)),
    ("GET", "/rses/", lambda c, _p, q, _b: c.list_rses(q.get("expression"))),
    ("GET", "/rses/([^/]+)/attr/", lambda c, p, _q, _b: Plain(c.list_rse_attributes(*p))),
    ("GET", "/rses/([^/]+)/usage", lambda c, p, _q, _b: c.get_rse_usage(*p)),
    ("GET", "/rses/([^/]+)/protocols", lambda c, p, _q, _b: Plain(c.get_protocols(*p))),
    ("GET", "/rses/([^/]+)/distances/([^/]+)", lambda c, p, _q, _b: Plain(c.get_distance(*p))),
    ("POST", "/locks/bulk_locks_for_dids", lambda c, _p, _q, b: iter(c.get_locks_for_dids(b["dids"]))),
    ("GET", "/locks/([^/]+)", lambda c, p, _q, _b: c.get_dataset_locks_by_rse(*p)),
    ("POST", "/dids/bulkmeta", lambda c, _p, _q, b: c.get_metadata_bulk(b["dids"], plugin=b["plugin"])),
    ("POST", "/replicas/datasets_bulk", lambda c, _p, _q, b: c.list_dataset_replicas_bulk(b["dids"])),
    ("GET", "/dids/([^/]+)/([^/]+)/files", lambda c, p, _q, _b: c.list_files(*p)),
    ("GET", "/dids/([^/]+)/([^/]+)/dids", lambda c, p, _q, _b: c.list_content(*p)),
    (
        "POST", "/dids/([^/]+)/([^/]+)",
        lambda c, p, _q, b: Plain(c.add_dataset(*p, lifetime=b["lifetime"], files=b["dids"]), 201),
    ),
    (
        "POST", "/dids/([^/]+)/([^/]+)/meta/([^/]+)",
        lambda c, p, _q, b: Plain(c.set_metadata(*p, b["value"]), 201),
    ),
    ("POST", "/dids/bulkfiles", lambda c, _p, _q, b: c.bulk_list_files(**b)),
    (
        "POST", "/replicas/list",
        lambda c, _p, _q, b: c.list_replicas(
            b["dids"], rse_expression=b["rse_expression"], all_states=b["all_states"],
            resolve_archives=b["resolve_archives"],
        ),
    ),
    ("GET", "/rules/([^/]+)/([^/]+)/history", lambda c, p, _q, _b: c.list_replication_rule_full_history(*p)),
    ("GET", "/rules/([^/]+)/locks", lambda c, p, _q, _b: c.list_replica_locks(*p)),
    ("GET", "/rules/([^/]+)", lambda c, p, _q, _b: Plain(c.get_replication_rule(*p))),
    ("PUT", "/rules/([^/]+)", lambda c, p, _q, b: Plain(c.update_replication_rule(*p, b["options"]))),
    ("DELETE", "/rules/([^/]+)", lambda c, p, _q, b: Plain(c.delete_replication_rule(*p, **b))),
    ("GET", "/rules/", lambda c, _p, q, _b: c.list_replication_rules(q)),
    ("POST", "/rules/", lambda c, _p, _q, b: Plain(c.add_replication_rule(**b), 201)),
]  # fmt: skip


class Server(fake.FakeRucio):
    """Files arrive at a pace of their destination; some never do."""

    seen: datetime | None = None
    minutes: dict[str, float]  # that a rule takes, by its destination; 0: its last file is stuck

    def answer(self, request: Request) -> Answer:
        """Answer one request, as of now."""
        self.progress()
        if request.path == "/auth/userpass":
            return Answer(200, b"", {"X-Rucio-Auth-Token": "token", "X-Rucio-Auth-Token-Expires": _LATER})
        record = SimpleNamespace(secrets=set(), unanswered=False)
        client: Any = fake.FakeClient(self, record)  # type: ignore[arg-type]  # all that it takes of one
        body = json.loads(request.body) if request.body else {}
        try:
            told = _route(request)(client, body)
            rows = list(told) if isinstance(told, Iterator) else None
        except exception.RucioException as error:
            name, message = type(error).__name__, str(error.args[0] if error.args else "")
            head = {"ExceptionClass": name, "ExceptionMessage": message, "Content-Type": "application/json"}
            text = json.dumps({"ExceptionClass": name, "ExceptionMessage": message})
            return Answer(_STATUS.get(name, 400), text.encode(), head)
        if rows is not None:
            text = "".join(f"{_row(row)}\n" for row in rows)
            return Answer(200, text.encode(), {"Content-Type": "application/x-json-stream"})
        return Answer(told.status, _row(told.value).encode(), {"Content-Type": "application/json"})

    def progress(self) -> None:
        """Do what conveyors, judge and reaper did since the last request."""
        now = self.clock.now().replace(tzinfo=None)
        if now == self.seen:
            return
        self.seen = now
        for rule in self.rules.values():
            destination = rule.row["rse_expression"]
            if destination not in self.minutes or rule.row["account"] != self.account:
                continue
            wanted = self.minutes[destination]
            age = (now - rule.row["created_at"]) / timedelta(minutes=1)
            files = list(rule.files)
            count = len(files) if wanted and age >= wanted else int(age / (wanted or 10) * len(files))
            for file in files[: count if wanted else min(count, len(files) - 1)]:
                rule.files[file] = "OK"
                self.replicas.setdefault(destination, set()).add(file)
            if not wanted and age > 20:
                rule.files[files[-1]] = "STUCK"
        self.clean()


_LATER = "Tue, 09 Feb 2027 23:00:00 UTC"


def _row(value: Any) -> str:
    return str(render_json(value=value)).removeprefix('{"value": ')[:-1]


def _route(request: Request) -> Callable[[Any, Body], Any]:
    for method, pattern, do in _ROUTES:
        found = re.fullmatch(pattern, request.path)
        if found and method == request.method:
            parts = tuple(unquote_plus(part) for part in found.groups())
            return lambda client, body, do=do, parts=parts: do(client, parts, request.query, body)  # type: ignore[misc]
    raise AssertionError(f"no such route: {request.method} {request.path}")


def counted_ids() -> Any:
    """Let the rules of the Rucio in memory have numbers."""
    numbers = itertools.count(1)
    return mock.patch.object(fake, "uuid", SimpleNamespace(uuid4=lambda: uuid.UUID(int=next(numbers))))
