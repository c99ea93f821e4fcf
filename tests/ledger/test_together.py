"""Ledgers of shards read as one: what each has of its own stands side by side, and what all have is one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView, shard_path
from dc_inject.ledger.series import Period, Sums
from dc_inject.ledger.types import ControlDecision
from dc_inject.model import Dataset, FlowKey, Link, Mode
from dc_inject.model.overrides import Kind
from dc_inject.model.plan import Plan
from dc_inject.model.ports import Status
from tests.ledger.world import CYCLE, GB, LENGTH, ME, MINUTE, POOL, START, accepted, injection, seen

FLOWS = tuple(FlowKey("day", Link("A", destination)) for destination in ("B", "C"))
LATER = START + 10 * MINUTE
Shards = tuple[Ledger, Ledger]


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    """The ledgers of two injectors, of which the second began a minute later."""
    first, second = (
        Ledger.open(shard_path(tmp_path / "dc27.sqlite", f"{n}/2"), synchronous="OFF") for n in (0, 1)
    )
    with first, second:
        for index, ledger in enumerate((first, second)):
            ledger.bind("dc27", LENGTH, (ME,), START + index * MINUTE, f"{index}/2")
            ledger.begin(START + index * MINUTE)
        yield first, second


@pytest.fixture
def view(shards: Shards) -> Iterator[LedgerView]:
    """Both as one."""
    with LedgerView.open(shards[0].path.with_name("dc27.sqlite")) as opened:
        yield opened


def test_the_campaign_began_with_its_first_shard(view: LedgerView) -> None:
    assert (view.campaign, view.cycle_length, view.since) == ("dc27", LENGTH, START)
    assert len(view.identities()) == 1


def test_what_one_shard_still_has_in_force_is_in_force(shards: Shards, view: LedgerView) -> None:
    """Until the last one has heard that it is over: an injector that is down hears it when it is back."""
    for ledger in shards:
        ledger.put_in_force([("day.yaml", "1", "menu")], START)
        ledger.pause("day", "me", "lunch", START)
        ledger.override("day", Kind.SCALE, 0.5, "me", "less", START)

    def in_force() -> list[int]:
        return [len(some) for some in (view.menus_in_force(), view.pauses(), view.overrides())]

    for ledger, left in zip(shards, (1, 0), strict=True):
        assert in_force() == [1, 1, 1]
        ledger.put_in_force([], LATER)
        ledger.resume("day", "me", "", LATER)
        ledger.unset("day", None, "me", "", LATER)
        assert in_force() == [left] * 3
    assert [record.text for record in view.last_menus()] == ["menu"]


def test_what_an_expression_meant_first_counts(shards: Shards, view: LedgerView) -> None:
    shards[1].record_resolution("rucio", "tier=1", ["A"], START)
    shards[0].record_resolution("rucio", "tier=1", ["A", "B"], LATER)
    assert view.resolution("rucio", "tier=1") == ("A",)


def test_the_newest_reading_of_a_signal_counts(shards: Shards, view: LedgerView) -> None:
    for ledger, value, at in zip(shards, (1.0, 2.0), (LATER, START), strict=True):
        ledger.signal("free", "A", value, at)
    assert [(signal.value, signal.at) for signal in view.signals()] == [(1.0, LATER)]


def test_a_pool_is_as_it_was_read_last(shards: Shards, view: LedgerView) -> None:
    """Each shard reads the pools of its links; their numbers differ."""
    first, second = shards
    first.store_inventory("rucio", POOL._replace(source="Z"), [], START)
    first.store_inventory("rucio", POOL, [Dataset("cms:/a", GB, 1)], START)
    second.store_inventory("rucio", POOL, [Dataset("cms:/b", GB, 1)], LATER)
    assert view.inventory_read_at("rucio", POOL) == LATER
    assert [item.name for item in view.inventory("rucio", POOL)] == ["cms:/b"]


def test_notes_and_records_of_a_challenge_are_those_of_all(shards: Shards, view: LedgerView) -> None:
    for n, ledger in enumerate(shards):
        ledger.note(f"{n}", START + n * MINUTE)
        ledger.keep_challenge("reading", {"n": n}, START)
        ledger.quarantine(f"cms:/{n}", "B", "odd", START)
    assert [text for _, text in view.notes()] == ["1", "0"]
    assert [record.values["n"] for record in view.challenge()] == [0, 1]
    assert len(view.quarantined(START)) == 2


def test_what_belongs_to_a_link_stays_with_it(shards: Shards, view: LedgerView) -> None:
    """Each ledger numbers its links from 1."""
    for n, (ledger, flow) in enumerate(zip(shards, FLOWS, strict=True)):
        one = injection(key=flow)
        ledger.open_cycle(CYCLE, {flow: (450 * GB, None)}, START)
        ledger.record_plan(Plan(CYCLE, (), (one,)), START)
        (key,) = accepted(ledger, one)
        failed = {"moved": 100 * GB - (n + 1) * GB, "failed": (n + 1) * GB, "exact": True}
        ledger.observe([seen(key, Status.COMPLETE, reasons={"timeout": n + 1}, **failed)], LATER)
        ledger.record_decisions([ControlDecision(CYCLE, flow, "act", None, 1e9 * n, {})])
    assert view.failures() == {flow: {"timeout": n + 1} for n, flow in enumerate(FLOWS)}
    assert [(decision.key, decision.target) for decision in view.decisions()] == [(FLOWS[0], 0.0), (FLOWS[1], 1e9)]
    assert {flow: totals.failed for flow, totals in view.accounts().items()} == dict(
        zip(FLOWS, (GB, 2 * GB), strict=True)
    )
    assert [row.key for row in view.rows()] == list(FLOWS)
    day = Period(START, START + timedelta(days=1))
    lost = [(span.start, span.key, span.sums) for span in view.lost(day, LENGTH)]
    assert lost == [(START, flow, Sums(failed=(n + 1) * GB)) for n, flow in enumerate(FLOWS)]
    assert [(row.mode, row.links, row.cycles) for row in view.control_modes(day)] == [(Mode.ACT, 2, 2)]


def test_a_cycle_is_planned_and_closed_when_the_first_shard_has(shards: Shards, view: LedgerView) -> None:
    first, second = shards
    for ledger in shards:
        ledger.open_cycle(CYCLE, {}, START)
    assert view.last_planned() is None
    second.record_plan(Plan(CYCLE, (), ()), START)
    assert view.last_planned() == CYCLE
    assert view.unclosed() == (CYCLE,)
    second.close_cycle(CYCLE, START + LENGTH, {})
    assert view.unclosed() == ()
    first.open_cycle(CYCLE.next, {}, START + LENGTH + timedelta(seconds=1))
    assert view.last_cycle() == CYCLE.next
