"""Whatever FTS answers: back comes a value that the ledger can keep, or a ServiceError, never a secret."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import strategies as st

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.fts.jobs import read_metadata
from dc_inject.backends.sim import SimClock
from dc_inject.ledger import Ledger
from dc_inject.model import Bundle, File, JobOptions, Link, naming
from dc_inject.model.errors import ServiceError
from dc_inject.system.transport import Session
from tests.backends.fts.keys import TOKEN, Keys
from tests.backends.fts.service import FakeFts
from tests.backends.fts.store import Store
from tests.backends.support import CYCLE, Heard, injection, live

from .broken import MUTATIONS, VALUES, Breaker, Mutation, no_secret
from .cases import fuzz
from .ledgers import accepted, kept_open, tried

requests = pytest.importorskip("fts3.rest.client.request", reason="needs the extra `fts`").requests

SOURCE, DESTINATION = "davs://a:1094/data", "davs://b:1095/dc"
LINK = Link(SOURCE, DESTINATION, "fts")
METHODS = (
    "check",
    "submit",
    "again",
    "observe",
    "observe",
    "observe",
    "end",
    "limits",
    "queues",
    "queues",
    "delegation",
    "ours",
    "ours",
)
STATUSES = (
    200,
    200,
    200,
    200,
    200,
    207,
    304,
    400,
    401,
    403,
    404,
    404,
    409,
    413,
    414,
    418,
    419,
    429,
    500,
    502,
    503,
)


def _injection(number: int) -> Any:
    members = tuple(File(f"{SOURCE}/f{n}", 1000 + n) for n in range(2 * number, 2 * number + 2))
    item = Bundle(f"bundle {number}", sum(m.bytes for m in members), 2, members=members)
    return injection(item, LINK, job=JobOptions())


INJECTIONS = [_injection(number) for number in range(3)]


class _Web:
    """Answers requests in the place of a server; from some moment on with something wrong."""

    def __init__(self, fts: FakeFts) -> None:
        self.fts = fts
        self.breaker = Breaker()
        self.status: int | None = None  # in place of the true one, of the first answer
        self.cut: int | None = None  # where its text ends

    def request(self, method: str, url: str, data: Any = None, **_: Any) -> Any:
        """Answer as requests.request does."""
        parts = urlsplit(url)
        if parts.path.startswith("/config") or parts.path.startswith("//config"):
            status, told = 200, _CONFIG[parts.path.rpartition("/")[2]]
        else:
            path = "/" + parts.path.lstrip("/")
            body = data.encode() if isinstance(data, str) else data or b""
            status, told = self.fts.answer(method, path, parse_qs(parts.query), body)
        told = self.breaker(told)
        try:
            text = told if isinstance(told, str) and "<" in told else json.dumps(told)
        except (TypeError, ValueError):  # dates and bytes are Rucio's; numbers with more digits than Python writes
            text = "<html>" + repr(type(told))
        if self.status is not None:
            status, self.status = self.status, None
        if self.cut is not None:
            text, self.cut = text[: self.cut], None
        return SimpleNamespace(status_code=status, text=text)


_CONFIG: dict[str, Any] = {
    "links": [{"source": "davs://a", "destination": "*", "max_active": 20}],
    "se": {"davs://b": {"se_info": {"inbound_max_active": 30}}},
}


def _ask(method: str, backend: FtsBackend, entries: list[Any], ledger: Any) -> None:
    now = CYCLE.start
    match method:
        case "check":
            no_secret(backend.check())
        case "submit":
            ledger.answer(backend.submit(INJECTIONS), now, {})
        case "again":
            backend.submit(INJECTIONS[:2])
            ledger.answer(backend.submit(INJECTIONS), now, {})
        case "observe":
            accepted(ledger, entries)
            seen = backend.observe(entries)
            no_secret(*(one.error for one in seen))
            ledger.observe(seen, now)
            for name in (name for one in seen for name in one.unfit):
                ledger.quarantine(name, DESTINATION, "it failed at its source", now)
        case "end":
            no_secret(*(outcome.error for outcome in backend.end(entries)))
        case "limits":
            backend.limits([LINK])
        case "queues":
            backend.queues([LINK])
        case "delegation":
            backend.delegation()
        case "ours":
            no_secret(*backend.ours())


@fuzz(
    400,
    method=st.sampled_from(METHODS),
    mutations=MUTATIONS,
    status=st.none() | st.none() | st.none() | st.sampled_from(STATUSES),
    cut=st.none() | st.none() | st.none() | st.integers(0, 400),
)
def test_whatever_fts_answers(method: str, mutations: list[Mutation], status: int | None, cut: int | None) -> None:
    """An answer with something wrong in it is a value that can be kept, or trouble of the service."""
    store = Store(free=10**15)
    for number in range(6):
        store.put(f"{SOURCE}/f{number}", 1000 + number)
    web = _Web(FakeFts(store))
    clock = SimClock(CYCLE.start)
    with mock.patch.object(Session, "request", lambda _, *words, **more: web.request(*words, **more)):
        backend = FtsBackend(
            "https://fts.example.org:8446",
            campaign="test",
            clock=clock,
            observer=Heard(),
            credentials=Keys(),
            storage=store,
        )
        entries: list[Any] = []
        if method in {"observe", "end", "ours"}:
            entries = live(INJECTIONS, backend.submit(INJECTIONS))
            web.fts.start()
            web.fts.finish(lambda file: "SOURCE [2] no such file" if file["source_surl"].endswith("3") else "")
        web.breaker, web.status, web.cut = Breaker(mutations), status, cut
        with tried(_ledger()) as ledger:
            try:
                _ask(method, backend, entries, ledger)
            except ServiceError as error:
                no_secret(str(error).replace(TOKEN, "hunter2"), error.hint)


@functools.lru_cache
def _ledger() -> Ledger:
    return kept_open(INJECTIONS)


@fuzz(
    150,
    value=st.recursive(
        st.sampled_from(VALUES) | st.text(max_size=30),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["job_metadata", "dc_inject", "campaign", "key", "contact"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    ),
)
def test_whatever_a_job_says_of_itself(value: Any) -> None:
    """Metadata is ours or not, and no other exception."""
    said = read_metadata({"job_metadata": value})
    assert not said or said["dc_inject"] == 1


@fuzz(150, contact=st.text(max_size=3000), campaign=st.from_regex(naming.NAME, fullmatch=True))
def test_metadata_of_any_contact_is_ours_and_short_enough(contact: str, campaign: str) -> None:
    """However long and odd a contact is, a job says whose it is within what FTS takes."""
    made = naming.metadata(replace(INJECTIONS[0], contact=contact, campaign=campaign))
    text = json.dumps(made)
    assert len(text) <= naming.METADATA_LIMIT
    assert read_metadata({"job_metadata": json.loads(text)})["campaign"] == campaign
    assert read_metadata({"job_metadata": text})["key"] == INJECTIONS[0].key
