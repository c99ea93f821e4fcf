"""FTS's own client, made safe for a daemon: it never prompts, and keeps every answer of the service.

The requests are those of the `fts3` package. What it makes of an answer is too little to decide by: it drops the
message of most errors, and all states when one job of many is unknown. So status and message are noted here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from fts3.rest.client import Delegator, Submitter
from fts3.rest.client.context import Context
from fts3.rest.client.easy import JobIdGenerator, new_job, new_transfer
from fts3.rest.client.request import Request

from dc_inject import __version__
from dc_inject.backends.fts.errors import FtsCallRecord
from dc_inject.model import Bundle, Injection, JobOptions, naming
from dc_inject.model.naming import Origin
from dc_inject.model.redaction import scrub
from dc_inject.planning.lifetime import get_queue_time
from dc_inject.storage.types import Access
from dc_inject.system.transport import TOTAL, Adapter, ExchangeLimits, Session

FIELDS = (
    "file_state",
    "filesize",
    "user_filesize",
    "reason",
    "source_surl",
    "staging_start",
    "staging_finished",
    "archive_finish_time",
)  # of each file, when they are asked for
DELEGATED_FOR = timedelta(hours=12)  # at most: never longer than the proxy itself
DELEGATE_BELOW = timedelta(hours=6)
# It warns of each client without a certificate, which a token does not need.
logging.getLogger("fts3").setLevel(logging.ERROR)

_AGENT = f"dc-inject/{__version__}"


class _Request(Request):  # type: ignore[misc]  # fts3 has no types
    """Requests through the gate, that note what was answered; a multi-status is an answer, not an error."""

    def __init__(self, record: FtsCallRecord, *args: Any, **kwargs: Any) -> None:
        self._record = record
        super().__init__(*args, **kwargs)

    def method(
        self, method: str, url: str, body: str | None = None, headers: Mapping[str, str] | None = None, **_: Any
    ) -> str:
        """Send one request as the client's own would; that one takes a token from ~/.netrc and has no bounds."""
        self._record.requests += 1
        self._record.begin()
        token = {"Authorization": f"Bearer {self.fts_access_token}"} if self.fts_access_token else {}
        with Session(Adapter(ExchangeLimits(self.timeout * TOTAL))) as session:
            response = session.request(
                method,
                str(url),
                data=body,
                headers={"Accept": "application/json", **(headers or {}), **token},
                verify=self.capath,
                timeout=(self.connectTimeout, self.timeout),
                cert=(self.ucert, self.ukey) if self.ucert else None,
            )
            text = response.text
        self._handle_error(url, response.status_code, text)
        return text

    def _handle_error(self, url: str, code: int, response_body: str | None = None) -> None:
        self._record.answered(code, response_body or "")
        if code != 207:
            super()._handle_error(url, code, response_body)


class _Context(Context):  # type: ignore[misc]  # fts3 has no types
    """A context that cannot ask for the password of a key: there may be no user to answer."""

    def _read_passwd_from_stdin(self, *_: object, **__: object) -> bytes:
        return b""


class _Delegator(Delegator):  # type: ignore[misc]  # fts3 has no types
    """A delegator that knows the time zone of what it reads."""

    def _get_remaining_life(self, delegation_id: str) -> timedelta | None:
        until = self.until(delegation_id)
        return None if until is None else until - datetime.now(UTC)

    def until(self, delegation_id: str | None = None) -> datetime | None:
        info = self.get_info(delegation_id)
        if not info:
            return None
        return datetime.strptime(info["termination_time"], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)


class Client:
    """One thread's client of an FTS service; making it asks the service who it is."""

    def __init__(self, endpoint: str, access: Access, record: FtsCallRecord, timeout: float, trust: str) -> None:
        """Take the endpoint, what opens it, where to note answers, seconds to wait, and the authorities' path."""
        self._context = _Context(
            endpoint,
            ucert=access.certificate or None,
            ukey=access.key or None,
            fts_access_token=access.token or None,
            capath=trust,
            request_class=partial(_Request, record),
            connectTimeout=min(timeout, 10.0),
            timeout=timeout,
            user_agent=_AGENT,
        )
        self._record = record

    def needs_delegation(self) -> bool:
        """Return whether FTS acts with a proxy that has to be delegated to it."""
        return bool(self._context.has_certificate())

    def version(self) -> str:
        """Return the version of the server, or of its interface where it does not report it."""
        info = self._context.get_endpoint_info()
        number = info.get("core") if isinstance(info.get("core"), Mapping) else info["api"]
        return scrub(".".join(str(number[part]) for part in ("major", "minor", "patch")))

    def whoami(self) -> Mapping[str, Any]:
        """Return what FTS knows of us."""
        info: Mapping[str, Any] = json.loads(self._context.get("/whoami"))
        return info

    def get(self, path: str) -> Any:  # noqa: ANN401  JSON
        """Return the answer at a path."""
        return json.loads(self._context.get(path))

    def submit(self, injection: Injection, tokens: tuple[str, str] | None, origin: Origin | None) -> str:
        """Submit the job of an injection, with tokens for source and destination; its id comes from the key."""
        job = _job(injection, tokens, origin)
        return str(Submitter(self._context).submit(transfers=job["files"], **job["params"]))

    def statuses(self, ids: Sequence[str], *, files: bool) -> list[Mapping[str, Any]]:
        """Return the rows of jobs, also of those that are unknown, with the states of their files if asked for."""
        fields = f"?files={','.join(FIELDS)}" if files else ""
        return _rows(json.loads(self._context.get(f"/jobs/{','.join(ids)}{fields}")))

    def cancel(self, ids: Sequence[str]) -> list[Mapping[str, Any]]:
        """Cancel jobs; return a row for each, or none where the service has no answer."""
        try:
            return _rows(Submitter(self._context).cancel(",".join(ids)))
        except ValueError:
            if self._record.status == 304:  # a job that is over: such an answer has no body
                return []
            raise

    def delegated_until(self) -> datetime | None:
        """Return until when the proxy is good that FTS has of us; None when it has none."""
        return _Delegator(self._context).until()

    def delegate(self, *, force: bool = False) -> None:
        """Let FTS act with our proxy, if what it has will not last."""
        if self.needs_delegation():
            _Delegator(self._context).delegate(
                lifetime=DELEGATED_FOR, force=force, delegate_when_lifetime_lt=DELEGATE_BELOW
            )


def _job(injection: Injection, tokens: tuple[str, str] | None, origin: Origin | None) -> dict[str, Any]:
    """Return the job of an injection; its files wait in the queue, or for tape, within its lifetime."""
    options, lifetime = injection.job or JobOptions(), round(injection.lifetime.total_seconds())
    staged_for = {"activity": injection.activity, "campaign": injection.campaign} if options.recalls else None
    members = injection.item.members if isinstance(injection.item, Bundle) else ()
    opens = {} if tokens is None else {"source_token": tokens[0], "destination_token": tokens[1]}
    transfers = [
        new_transfer(
            member.name,
            copy,
            checksum=member.checksum or "ADLER32",  # FTS's word for "of that kind, ask the source"
            filesize=member.bytes,
            activity=injection.activity,
            scitag=options.scitag,
            staging_metadata=staged_for,
            **opens,
        )
        for member, copy in zip(members, naming.copies(injection), strict=True)
    ]
    job: dict[str, Any] = new_job(
        transfers,
        verify_checksum=str(options.verify),
        overwrite=False,
        retry=options.retry or -1,  # 0 means the server's default, not none
        priority=injection.service_priority,
        metadata=naming.metadata(injection, origin),
        max_time_in_queue=get_queue_time(injection.lifetime),
        bring_online=lifetime if options.recalls else None,
        copy_pin_lifetime=lifetime if options.recalls else None,
        archive_timeout=lifetime if options.archives else None,
        id_generator=JobIdGenerator.deterministic,
        sid=injection.key,
    )
    return job


def _rows(answer: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401  JSON
    """Return the rows of an answer; that on one job is the row itself."""
    rows = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(row, dict) for row in rows):
        raise TypeError("jobs are wanted")
    return rows
