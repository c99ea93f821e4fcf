"""What is told before a campaign: limits of FTS, what storages allow, and the proxy that FTS has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dc_inject.backends.fts import Delegation, FtsBackend
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.model.ports import LinkQueue
from dc_inject.storage import FileStatus, Reach

from .conftest import DESTINATION, LINK, SOURCE
from .service import FakeFts
from .store import Store


def test_limits_come_from_whoever_may_be_asked(fts: FakeFts, backend: FtsBackend) -> None:
    link, other = (
        LINK._replace(source="davs://a:1/x", destination="davs://b:2/y"),
        LINK._replace(source="davs://c/x"),
    )
    told = {str(limit): (limit.most, limit.origin) for limit in backend.limits([link, other])}
    assert told == {
        "davs://a -> davs://b": (17, "optimizer"),
        "davs://c -> davs://b": (130, "default"),
        "out of davs://a": (200, "default"),
        "out of davs://c": (200, "default"),
        "into davs://b": (200, "default"),
    }
    rows = [
        {"source": "*", "destination": "*", "max_active": 100},
        {"source": "davs://a", "destination": "*", "max_active": 40},
    ]
    storages = {"davs://b": {"se_info": {"inbound_max_active": 30, "outbound_max_active": None}}}
    fts.instead += [("GET", "/config/links", (200, rows)), ("GET", "/config/se", (200, storages))]
    told = {str(limit): (limit.most, limit.origin) for limit in backend.limits([link, other, link])}
    assert told == {
        "davs://a -> davs://b": (40, "config"),
        "davs://c -> davs://b": (100, "config"),
        "out of davs://a": (200, "default"),
        "out of davs://c": (200, "default"),
        "into davs://b": (30, "config"),
    }


def test_queues_are_what_the_optimizer_tells_of_the_last_minutes(fts: FakeFts, backend: FtsBackend) -> None:
    link = LINK._replace(source="davs://a:1/x", destination="davs://b:2/y")
    row = {
        "source_se": "davs://a", "dest_se": "davs://b", "active": 20, "queue_size": 900,
        "throughput": 3e8, "filesize_avg": 2e9, "datetime": "2027-02-08T10:20:00",
    }  # fmt: skip
    older = row | {"throughput": 1e8, "filesize_avg": 0.0, "queue_size": 5, "datetime": "2027-02-08T10:15:00"}
    yesterday = row | {"throughput": 9e9, "datetime": "2027-02-07T10:15:00"}
    foreign = row | {"dest_se": "davs://c"}
    fts.instead += [("GET", "/optimizer/evolution", (200, [foreign, yesterday, row, older]))]
    at = datetime(2027, 2, 8, 10, 20, tzinfo=UTC)
    assert backend.queues([link]) == {link: LinkQueue(900, 2e8, 2 * 10**9, at, 20)}
    fts.instead += [("GET", "/optimizer/evolution", (200, []))]
    assert backend.queues([link]) == {}


@pytest.mark.parametrize("field", ["active", "queue_size", "filesize_avg", "throughput", "datetime"])
@pytest.mark.parametrize("value", [1e308, -1, "NaN", "Infinity", [], 10**30])
def test_a_queue_in_numbers_that_cannot_be_is_not_understood(
    fts: FakeFts, backend: FtsBackend, field: str, value: object
) -> None:
    """Nobody plans with them: one answer must not stop a campaign."""
    link = LINK._replace(source="davs://a:1/x", destination="davs://b:2/y")
    row = {
        "source_se": "davs://a", "dest_se": "davs://b", "active": 20, "queue_size": 900,
        "throughput": 3e8, "filesize_avg": 2e9, "datetime": "2027-02-08T10:20:00", field: value or [[]],
    }  # fmt: skip
    fts.instead += [("GET", "/optimizer/evolution", (200, [row]))]
    with pytest.raises(ServiceError):
        backend.queues([link])


def test_storages_are_asked_as_sources_and_as_destinations(backend: FtsBackend, store: Store) -> None:
    source, destination, none = backend.storages([SOURCE, SOURCE], [DESTINATION, "davs://gone/x"])
    assert (source.prefix, source.role, source.reachable) == (SOURCE, "source", True)
    assert source.reach == Reach(True, True, store.free)
    assert source.verbs == store.allowed
    assert (destination.role, destination.reach) == ("destination", Reach(False, True, store.free))
    assert (none.prefix, none.reachable) == ("davs://gone/x", True)


def test_one_that_is_down_is_asked_once_and_one_that_refuses_is_there(backend: FtsBackend, store: Store) -> None:
    down, refused = Temporary("no connection"), NeedsOperator("403", hold="credentials")

    def fault(verb: str, url: str) -> None:
        if url == SOURCE:
            raise down
        if verb == "reachable":
            raise refused

    store.fault = fault
    source, destination = backend.storages([SOURCE], [DESTINATION])
    assert (source.reachable, source.error, set(source.verbs.values())) == (False, down, {None})
    assert (destination.reachable, destination.error, destination.verbs) == (None, refused, store.allowed)
    assert ("verbs", SOURCE) not in store.asked


def test_looks_tell_what_stands_in_the_way(backend: FtsBackend, store: Store) -> None:
    error = Temporary("no connection")

    def fault(_verb: str, url: str) -> None:
        if url.endswith("f2"):
            raise error

    store.fault = fault
    seen = backend.stat_sources([f"{SOURCE}/f1", f"{SOURCE}/f2", f"{SOURCE}/gone"])
    assert seen == [FileStatus(True, 1001, nearline=False), error, FileStatus(False)]
    store.tapes.add(f"{SOURCE}/f1")
    assert backend.stat_sources([f"{SOURCE}/f1"]) == [FileStatus(True, 1001, nearline=True)]


def test_with_a_token_no_proxy_is_needed(backend: FtsBackend) -> None:
    assert backend.delegation() == Delegation(needed=False)


def test_with_a_certificate_the_proxy_that_fts_has_is_told(make: Any) -> None:
    until = datetime(2027, 2, 8, 22, tzinfo=UTC)

    class Client:
        def needs_delegation(self) -> bool:
            return True

        def delegated_until(self) -> datetime:
            return until

    assert make(make=lambda *_: Client()).delegation() == Delegation(True, until)
