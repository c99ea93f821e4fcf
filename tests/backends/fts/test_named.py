"""FTS services that RSEs name: asked only if the person has named them, and left alone when they fail."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from dc_inject.backends.fts.connection import Connection
from dc_inject.backends.fts.limits import REST, NamedServices
from dc_inject.backends.sim import SimClock
from dc_inject.credentials.trust import Destinations
from dc_inject.model.errors import Permanent, ServiceError

from ..support import Heard, fts3_or_skip
from .keys import Keys
from .service import FakeFts

PAIR = ("davs://a", "davs://b")
ROW = {
    "source_se": "davs://a", "dest_se": "davs://b", "active": 20, "actual_active": 12, "queue_size": 900,
    "throughput": 3e8, "filesize_avg": 2e9, "datetime": "2027-02-08T10:00:00", "rationale": "Good link efficiency",
}  # fmt: skip


def services(clock: SimClock, keys: Keys, *named: str, **more: Any) -> NamedServices:
    connect = partial(Connection, timeout=30.0, clock=clock, observer=Heard(), credentials=keys, **more)
    return NamedServices(clock, Destinations(named).allow, connect)


def test_an_fts_that_is_named_tells_its_queues_and_decisions(fts: FakeFts, clock: SimClock, keys: Keys) -> None:
    fts3_or_skip()
    fts.instead += [("GET", "/optimizer/evolution", (200, [ROW]))]
    found = services(clock, keys, fts.url).queues(fts.url, [PAIR])[PAIR]
    assert (found.waiting, found.limit, found.by) == (900, 20, fts.url)
    assert found.decision == "Good link efficiency"


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://evil.example.org:8446",
        "http://127.0.0.1:1",
        "http://evil.example.org",
        "root://fts.example.org",
        "https://fts3.example.org:8449/fts3/ftsmon/",
        "fts.example.org",
        "https://fts.example.org@evil.example.org",
        "https://fts.example.org\\@evil.example.org",
    ],
)
def test_no_other_one_gets_a_connection(clock: SimClock, keys: Keys, endpoint: str, wording) -> None:
    def make(*_: object) -> None:
        raise AssertionError("credentials would have been sent")

    found = services(clock, keys, "fts.example.org", make=make)
    wording(found.refusal(endpoint))
    with pytest.raises(Permanent):
        found.queues(endpoint, [PAIR])


def test_the_refusal_says_how_to_name_it(clock: SimClock, keys: Keys) -> None:
    said = services(clock, keys).refusal("https://fts.example.org:8446")
    assert "dc-inject --trust-host fts.example.org" in said


def test_one_that_fails_is_left_alone_for_a_while(fts: FakeFts, clock: SimClock, keys: Keys) -> None:
    fts3_or_skip()
    fts.instead += [("GET", "/optimizer/evolution", (403, {"message": "no right"}))]
    found = services(clock, keys, fts.url)
    with pytest.raises(ServiceError, match="no right"):
        found.queues(fts.url, [PAIR])
    assert "no right" in found.refusal(fts.url)
    clock.advance(clock.now() + REST + timedelta(seconds=1))
    assert found.refusal(fts.url) == ""
