"""Reading what is known of RSEs, and who we are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Any

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.connection import ASK
from dc_inject.model import Entry, Link
from dc_inject.model.errors import NeedsOperator, Permanent, Temporary

from .conftest import DESTINATION, SOURCE
from .fake import BORN, GB, FakeClient, FakeRse, FakeRucio
from .support import Heard

OTHER = "T1_UK_RAL_Disk"

# ---------------------------------------------------------------------------------------- sites


def test_facts_are_read_in_few_calls_and_attributes_only_once(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.rses[link.destination] = FakeRse(space=5 * GB, quota=3 * GB, write=False, kind="TAPE")
    facts = backend.sites([link.source, link.destination, "NOWHERE"])
    told = facts[link.destination]
    assert (told.readable, told.writable, told.tape, told.site) == (True, False, True, "T1_DE_KIT")
    assert (told.free, told.quota_left, dict(told.missing)) == (5 * GB, 3 * GB - 1, {})
    assert told.free_at == BORN.replace(tzinfo=UTC)
    assert facts["NOWHERE"].exists is False
    first = len(server.calls)
    server.clock.time += timedelta(minutes=1)
    backend.sites([link.source, link.destination])
    assert len(server.calls) - first == 3 + 2  # RSEs, quotas, global quotas, and the space of each


@pytest.fixture
def attributes(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The names that RSEs have as attributes, where that is not just their own."""
    changed: dict[str, set[str]] = {}
    listed = FakeClient.list_rses

    def list_rses(self: FakeClient, expression: str | None = None) -> Iterator[dict[str, Any]]:
        meant = (expression or "").split("|")
        rows = [r for r in listed(self) if not expression or changed.get(r["rse"], {r["rse"]}).intersection(meant)]
        if not rows:
            raise rucio.InvalidRSEExpression("RSE Expression resulted in an empty set.")
        yield from rows

    monkeypatch.setattr(FakeClient, "list_rses", list_rses)
    monkeypatch.setattr(
        FakeClient, "list_rse_attributes", lambda _self, rse: dict.fromkeys(changed.get(rse, {rse}), True)
    )
    return changed


@pytest.mark.parametrize(
    ("changed", "means"),
    [
        ({OTHER: {OTHER, DESTINATION}}, (DESTINATION, OTHER)),
        ({SOURCE: {SOURCE, DESTINATION}}, (DESTINATION, SOURCE)),
        ({DESTINATION: set()}, ()),
        ({DESTINATION: set(), OTHER: {DESTINATION}}, (OTHER,)),
    ],
)
def test_a_name_that_means_other_rses_or_none_is_told_until_it_is_put_right(
    backend: RucioBackend,
    server: FakeRucio,
    attributes: dict[str, set[str]],
    changed: dict[str, set[str]],
    means: tuple[str, ...],
) -> None:
    """Another RSE, of the menu or not, has an attribute of that name, or the RSE lacks its own."""
    server.rses[OTHER] = FakeRse()
    attributes |= changed
    facts = backend.sites((SOURCE, DESTINATION))
    assert (facts[SOURCE].means, facts[SOURCE].ambiguity) == ((SOURCE,), "")
    assert facts[DESTINATION].means == means
    assert facts[DESTINATION].ambiguity
    attributes.clear()
    server.clock.time += timedelta(minutes=15)
    assert backend.sites((SOURCE, DESTINATION))[DESTINATION].ambiguity == ""


def test_many_names_are_known_to_mean_themselves_alone_by_one_call(
    backend: RucioBackend, server: FakeRucio
) -> None:
    for number in range(48):
        server.rses[f"X{number:02}"] = FakeRse()
    for _ in range(2):
        facts = backend.sites(server.rses)
        server.clock.time += timedelta(hours=2)
        backend.check()  # reads all else anew
    assert all(facts[name].means == (name,) for name in server.rses)
    assert sum(call[0] == "list_rses" and bool(call[1]) for call in server.calls) == 1


def test_a_name_whose_meaning_cannot_be_read_is_not_taken_for_a_good_one(
    backend: RucioBackend, server: FakeRucio, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = FakeClient.list_rses

    def list_rses(self: FakeClient, expression: str | None = None) -> Iterator[dict[str, Any]]:
        if expression:
            raise rucio.DatabaseException("busy")
        return listed(self)

    monkeypatch.setattr(FakeClient, "list_rses", list_rses)
    with pytest.raises(Temporary):
        backend.sites(link.ends)


def test_the_tightest_quota_counts_and_none_set_is_nothing_left(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.rses["UNSET"] = FakeRse(quota=None)
    server.rses["FREE"] = FakeRse(quota=math.inf)
    server.limits = [{"rse_expression": link.destination, "bytes_remaining": 7}]
    facts = backend.sites(server.rses)
    left = {name: fact.quota_left for name, fact in facts.items()}
    assert left == {link.source: 10**15 - 1, link.destination: 6, "UNSET": 0, "FREE": None}


def test_an_administrator_has_no_quota(backend: RucioBackend, server: FakeRucio, link: Link) -> None:
    server.attributes = [{"key": "admin", "value": True}]
    assert backend.sites([link.source])[link.source].quota_left is None


@pytest.mark.parametrize(
    ("method", "signal"), [("get_rse_usage", "free"), ("get_local_account_usage", "quota_left")]
)
def test_a_signal_that_cannot_be_read_is_missing_and_says_why(
    backend: RucioBackend, server: FakeRucio, link: Link, method: str, signal: str
) -> None:
    server.faults[method] = [rucio.DatabaseException("busy")] * ASK
    told = backend.sites([link.source])[link.source]
    assert getattr(told, signal) is None
    assert "busy" in told.missing[signal]
    assert told.writable


def test_a_report_of_space_of_days_ago_is_no_signal(backend: RucioBackend, server: FakeRucio, link: Link) -> None:
    server.rses[link.source].reported = BORN - timedelta(days=2)
    told = backend.sites([link.source])[link.source]
    assert told.free is None
    assert "2027-02-06" in told.missing["free"]


# ---------------------------------------------------------------------------------------- who am I


def test_check_tells_who_we_are(backend: RucioBackend) -> None:
    told = backend.check()
    assert (told.service, told.version, told.vo, told.account) == ("rucio", "41.5.1", "def", "dcops")
    assert (told.address, told.admin, told.may_end) == ("http://rucio.example.org:8080", False, True)
    assert told == backend.check()


def test_the_right_to_end_is_found_out_without_harm(backend: RucioBackend, server: FakeRucio) -> None:
    before = {rule: server.told(found) for rule, found in server.rules.items()}
    server.may_end = False
    assert backend.check().may_end is False
    server.may_end = True
    server.faults["update_replication_rule"] = [rucio.DatabaseException("busy")] * 2
    assert backend.check().may_end is True
    server.faults["update_replication_rule"] = [rucio.DatabaseException("busy")] * 3
    assert backend.check().may_end is None
    assert before == {rule: server.told(found) for rule, found in server.rules.items()}


@pytest.mark.parametrize("attributes", [[{"key": "admin", "value": True}], [{"key": "admin", "value": "1"}]])
def test_an_administrator_is_recognised(
    backend: RucioBackend, server: FakeRucio, attributes: list[dict[str, object]]
) -> None:
    server.attributes = attributes
    assert backend.check().admin


def test_root_is_an_administrator(backend: RucioBackend, server: FakeRucio) -> None:
    server.account = "root"
    assert backend.check().admin


@pytest.mark.parametrize(
    ("error", "hold"),
    [(rucio.CannotAuthenticate("no"), "credentials"), (rucio.DatabaseException("x"), "api-errors")],
)
def test_at_start_any_trouble_is_fatal_with_address_and_hint(
    backend: RucioBackend, server: FakeRucio, error: Exception, hold: str
) -> None:
    server.faults["whoami"] = [error] * ASK
    with pytest.raises(NeedsOperator, match=r"rucio\.example\.org:8080") as caught:
        backend.check()
    assert caught.value.hold == hold
    assert caught.value.hint


def test_expressions_mean_sorted_names_or_are_refused(backend: RucioBackend, link: Link) -> None:
    assert backend.resolve("*") == (link.destination, link.source)
    with pytest.raises(Permanent):
        backend.resolve("tier=17")


@pytest.mark.parametrize("method", ["get_locks_for_dids", "list_rses", "whoami"])
def test_an_answer_of_an_unforeseen_form_is_no_traceback(
    server: FakeRucio, heard: Heard, entries: list[Entry], method: str, wording
) -> None:
    class Odd(FakeClient):
        pass

    setattr(Odd, method, lambda *_: [{"what": "is this?"}])
    backend = RucioBackend(
        campaign="test", clock=server.clock, observer=heard, make=lambda record, _: Odd(server, record)
    )
    ask = {
        "get_locks_for_dids": lambda: backend.observe(entries),
        "list_rses": lambda: backend.sites(["X"]),
        "whoami": backend.check,
    }
    with pytest.raises((Temporary, NeedsOperator)) as refused:
        ask[method]()
    wording(refused.value)


def test_every_call_is_told_to_the_observer(backend: RucioBackend, entries: list[Entry], heard: Heard) -> None:
    assert backend.observe(entries)
    assert heard.requests == heard.events
    assert all(request.service == "rucio" and request.seconds >= 0 for request in heard.requests)
    assert {request.result for request in heard.requests} == {"ok"}
