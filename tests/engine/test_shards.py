"""A campaign in shards: what its injectors give together is what one gives, also when one of them dies."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.engine.context import Settings
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, LedgerView, Reader, files, shard_path
from dc_inject.ledger.check import check
from dc_inject.ledger.series import Period
from dc_inject.model import Campaign, Exclusion, FlowKey, Hold, Item, Limits, Link
from dc_inject.model.errors import LedgerError, MenuError
from dc_inject.model.events import Answered, Calling
from dc_inject.model.overrides import EVERYTHING, Kind
from dc_inject.model.shards import Shard
from dc_inject.planning import shards
from tests.engine.world import CYCLE, GB, LEFT_OPEN, NO_LIMITS, START, World, campaign, flow, items
from tests.sim import SimBackend

COUNT, CYCLES, MINUTE = 4, 2, timedelta(minutes=1)
DESTINATIONS = [f"RSE{n:02}" for n in range(8)]
LINKS = [flow("A", name, 1.0, end=START + CYCLES * CYCLE) for name in DESTINATIONS]
STOCK = {"A": items("A", 100, 10 * GB)}
SMALL = {"A": items("A", 90, 4 * GB, files=1)}  # so that a minute has many


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


def _injector(path: Path, made: Campaign, shard: Shard | None, stock: dict[str, list[Item]] = STOCK) -> World:
    """An injector of a shard, or of all, with its ledger."""
    clock, name = SimClock(START), "" if shard is None else str(shard)
    backend = SimBackend(clock, stock, speed=lambda _link: GB)
    file = shard_path(path / "dc27.sqlite", name)
    ledger = LEFT_OPEN.enter_context(Ledger.open(file, synchronous="OFF"))
    ledger.bind("test", CYCLE, (backend.check(),), START, name)
    mine = made if shard is None else shards.part(made, shard)
    return World(path, lambda: mine, clock, backend, ledger, settings=Settings(poll=CYCLE / 5, drain=False))


def _all(path: Path, made: Campaign, before: Callable[[World], object] = lambda _: None) -> list[World]:
    """Run all shards, one after the other: they share nothing. Returns them."""
    injectors = [_injector(path, made, Shard(index, COUNT)) for index in range(COUNT)]
    for injector in injectors:
        before(injector)
        injector.run()
    return injectors


def _one(path: Path, made: Campaign, before: Callable[[World], object] = lambda _: None) -> World:
    (path / "one").mkdir()
    injector = _injector(path / "one", made, None)
    before(injector)
    injector.run()
    return injector


def _drained(injector: World) -> World:
    injector.settings = replace(injector.settings, drain=True)
    return injector


def _by_minute(view: Reader) -> Counter[int]:
    minutes: Counter[int] = Counter()
    for entry in view.entries():
        if entry.accepted_at:
            minutes[(entry.accepted_at - START) // MINUTE] += entry.injection.item.bytes
    return minutes


def _reads_as(view: Reader, one: Reader) -> None:
    """All ledgers read as one: what readers get of them is what they get of the ledger of one injector."""
    for name in ("extras", "resident", "on_its_way", "goals", "failures", "cycle_counts", "identities"):
        assert getattr(view, name)() == getattr(one, name)(), name
    assert [row[:2] for row in view.sums_of_cycles()] == [row[:2] for row in one.sums_of_cycles()]  # what was due
    for name in ("campaign", "cycle_length", "since"):
        assert getattr(view, name) == getattr(one, name)
    assert view.first_cycle() == one.first_cycle()
    first, last = view.first_cycle(), view.last_cycle()
    assert first is not None
    assert last is not None
    period = Period(first.start, last.end)
    rows: Counter[FlowKey] = Counter()
    for span in view.spans(period, CYCLE):
        rows[span.key] += span.sums.injected
    assert rows == {key: totals.injected for key, totals in view.accounts().items()}
    due = {(row.cycle, row.key): row.due for row in one.rows() if row.due}
    assert {(row.cycle, row.key): row.due for row in view.rows() if row.due} == due
    assert all(row.closed for row in view.rows())
    assert len(list(view.accepted())) == len(list(one.accepted()))
    entry = next(iter(view.entries()))
    assert view.entry(entry.injection.key).injection.key == entry.injection.key


def test_a_shard_that_died_keeps_no_cycle_open_for_all(tmp_path: Path) -> None:
    """What it got in its last cycle is in its account; its row stays as it was left."""
    made = campaign(LINKS)
    dies, *others = [_injector(tmp_path, made, Shard(index, COUNT)) for index in range(COUNT)]
    for injector in others:
        injector.run()

    def kill() -> None:
        raise Killed

    dies.heard.at[Answered] = kill
    with contextlib.suppress(Killed):
        dies.run()
    with LedgerView.open(tmp_path / "dc27.sqlite") as view, view.snapshot():
        assert [view.last_cycle()] == [others[0].ledger.last_cycle()]
        assert not view.unclosed()
        assert dies.ledger.unclosed()
        injected = sum(totals.injected for totals in view.accounts().values())
        assert injected == sum(one.ledger.totals().injected for one in (dies, *others))


def test_the_ledgers_of_shards_are_only_read_together(tmp_path: Path, wording) -> None:
    for index in range(2):
        _injector(tmp_path, campaign(LINKS), Shard(index, 2))
    place_of_all = tmp_path / "dc27.sqlite"
    assert [file.name for file in files(place_of_all)] == [f"dc27.shard-{n}-of-2.sqlite" for n in (0, 1)]
    with pytest.raises(LedgerError) as refused:
        Ledger.open(place_of_all)
    wording(refused.value)
    with LedgerView.open(place_of_all) as view, pytest.raises(LedgerError, match="shards"):
        view.copy_to(tmp_path / "copy.sqlite")
    for name, message in (("0/4", "in 2 shards"), ("", "--shard INDEX/2")):
        with pytest.raises(LedgerError) as error:
            shard_path(place_of_all, name)
        assert message in f"{error.value.message} {error.value.hint}"
    with Ledger.open(tmp_path / "whole.sqlite"), pytest.raises(LedgerError) as refused_2:
        shard_path(tmp_path / "whole.sqlite", "0/4")
    wording(refused_2.value)


def test_who_injects_is_told_of_each_shard(tmp_path: Path) -> None:
    _injector(tmp_path, campaign(LINKS), Shard(0, 3))
    ours = _injector(tmp_path, campaign(LINKS), Shard(2, 3)).ledger
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        with ours.hold("somebody"):
            told = view.holder() or ""
        assert view.holder() is None
    assert told.startswith("shard 0: none is running; shard 1: none is running; shard 2: somebody, process ")


def test_shards_give_what_one_injector_gives_also_when_one_is_killed(tmp_path: Path) -> None:
    """What was due, injected and moved, to the byte of each link; and it goes out as evenly."""
    made = campaign(LINKS)
    (tmp_path / "one").mkdir()
    one = _drained(_injector(tmp_path / "one", made, None, SMALL))
    one.run()
    left = [40]

    def kill() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    injectors = [_drained(_injector(tmp_path, made, Shard(index, COUNT), SMALL)) for index in range(COUNT)]
    for injector in injectors[1:]:
        injector.run()
    dies = injectors[0]
    dies.heard.at[Calling] = kill
    with contextlib.suppress(Killed):
        dies.run()
    assert left == [0], "it has died in the middle of its work"
    dies.clock.advance(dies.clock.now() + 3 * MINUTE)
    del dies.heard.at[Calling]
    dies.run()
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        assert view.summary() == one.ledger.summary()
        assert view.totals().moved == view.totals().injected > 0
        assert view.state_counts() == one.ledger.state_counts()
        given = [(e.injection.item.name, e.injection.link) for e in view.entries() if e.accepted_at]
        minutes, usual = _by_minute(view), _by_minute(one.ledger)
        _reads_as(view, one.ledger)
    assert len(given) == len(set(given)), "nothing goes to a destination twice"
    rules = [r for injector in injectors for r in injector.backend.rules.values()]
    assert sorted(given) == sorted((r.injection.item.name, r.injection.link) for r in rules)
    target = sum(link.rate for link in LINKS) * MINUTE.total_seconds()
    assert max(minutes.values()) <= max(usual.values()), "calls go out together, as with one injector"
    assert all(sum(minutes[n] for n in range(k, k + 5)) <= 5 * 1.2 * target for k in range(26))
    assert not [finding for file in files(tmp_path / "dc27.sqlite") for finding in check(file) if not finding.note]


def test_shards_keep_to_the_limits_of_the_campaign_together(tmp_path: Path) -> None:
    """Half of the rate is let through, by a total."""
    total = sum(link.rate for link in LINKS) / 2
    made = campaign(LINKS, limits=replace(NO_LIMITS, total=total))
    _all(tmp_path, made)
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        allowed = total * CYCLES * CYCLE.total_seconds()
        assert 0.9 * allowed <= view.totals().injected <= allowed
        assert {row.held.hold for row in view.rows() if row.held} == {Hold.CAMPAIGN_LIMIT}


def test_rules_an_hour_are_divided(tmp_path: Path) -> None:
    made = campaign(LINKS, limits=replace(NO_LIMITS, rules_per_hour=200))
    _all(tmp_path, made)
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        assert 90 <= view.totals().rules <= 100 + COUNT, "half of them in half an hour, rounded up in each"


def test_what_an_exclusion_frees_goes_to_the_links_of_other_shards_too(tmp_path: Path) -> None:
    """A destination of one shard is down: all others of the scenario are due its part, as with one injector."""
    until = START + CYCLES * CYCLE
    down = Exclusion(START, until, "downtime", rse=DESTINATIONS[0], redistribute=True)
    made = campaign(LINKS, exclusions=(down,))
    one = _one(tmp_path, made)
    _all(tmp_path, made)
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        dues = {key: totals.due for key, totals in view.accounts().items()}
        assert dues == {key: totals.due for key, totals in one.ledger.accounts().items()}
        assert dues[LINKS[0].key] == 0
        assert sum(dues.values()) == pytest.approx(sum(link.rate for link in LINKS) * 1800)


def test_a_rate_that_was_set_is_what_all_shards_sum_to(tmp_path: Path) -> None:
    def halve(injector: World) -> None:
        injector.ledger.override(EVERYTHING, Kind.RATE, 4e9 / 8, "somebody", "", START)

    made = campaign(LINKS)
    one = _one(tmp_path, made, halve)
    _all(tmp_path, made, halve)
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        assert view.totals().due == one.ledger.totals().due == 4e9 / 8 * 1800
        assert len(view.overrides()) == 1, "each ledger has it, and it is one"


def test_a_shard_without_destinations_waits_for_the_end(tmp_path: Path) -> None:
    made = campaign(LINKS[:1])
    _all(tmp_path, made)
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        assert view.totals().due == LINKS[0].rate * 1800


def test_a_ledger_is_of_one_shard(tmp_path: Path) -> None:
    backend = SimBackend(SimClock(START), STOCK)
    who = (backend.check(),)
    with Ledger.open(tmp_path / "a.sqlite") as ledger:
        ledger.bind("test", CYCLE, who, START, "0/4")
        ledger.bind("test", CYCLE, who, START, "0/4")
        for other in ("1/4", "0/3", ""):
            with pytest.raises(LedgerError, match="bound to another shard: 0/4"):
                ledger.bind("test", CYCLE, who, START, other)
    with Ledger.open(tmp_path / "b.sqlite") as ledger:
        ledger.bind("test", CYCLE, who, START)
        with pytest.raises(LedgerError, match="all destinations, not 0/4"):
            ledger.bind("test", CYCLE, who, START, "0/4")


TEXT = """
menu: 1
campaign: test
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-09 10:00
limits: {total: 1 Tb/s, per_site: 1 Tb/s}
defaults: {datasets: {did: "cms:*"}}
scenarios:
  one: {from: A, to: [RSE00, RSE01, RSE02, RSE03, RSE04, RSE05], rate: 6 Gb/s}
"""


def _menus(path: Path, ledger: Ledger, shard: Shard) -> Menus:
    backend = SimBackend(SimClock(START), STOCK)
    return Menus([path], ledger=ledger, backends={"rucio": backend}, clock=SimClock(START), shard=shard)


def test_an_edit_that_moves_a_destination_to_another_shard_is_refused_by_all(tmp_path: Path, wording) -> None:
    """One shard would go on with its debt, and the other one begin."""
    path = tmp_path / "menu.yaml"
    path.write_text(TEXT)
    injectors = []
    for index in range(COUNT):
        ledger = LEFT_OPEN.enter_context(Ledger.open(tmp_path / f"{index}.sqlite"))
        ledger.bind("test", CYCLE, (), START, f"{index}/{COUNT}")
        injectors.append((_menus(path, ledger, Shard(index, COUNT)), ledger))
    flows = [flow for menus, _ in injectors for flow in menus().flows]
    assert sorted(flow.link for flow in flows) == [Link("A", f"RSE{n:02}") for n in range(6)]
    path.write_text(TEXT.replace("rate: 6 Gb/s}", "rate: 6 Gb/s, volume: 1 TB}"))
    for index, (menus, ledger) in enumerate(injectors):
        with pytest.raises(MenuError) as refused:
            menus()
        wording(refused.value)
        with pytest.raises(MenuError, match="would move"):
            _menus(path, ledger, Shard(index, COUNT))()
    path.write_text(TEXT.replace("6 Gb/s", "12 Gb/s"))
    assert sum(flow.rate for menus, _ in injectors for flow in menus().flows) == pytest.approx(12e9 / 8)


def test_limits_of_menus_in_the_same_cycle_do_not_starve_a_shard(tmp_path: Path) -> None:
    """Each of two menus has links of one shard only: its limit is not divided by what the other's links are."""
    assigned = shards.assigned(LINKS, 2)
    halves = [[f for f in LINKS if assigned[f.link.destination] == index] for index in (0, 1)]
    menus = [campaign(half, limits=Limits(10e9, 10e9, 10**6, 10**6)).menus[0] for half in halves]
    both = replace(campaign(LINKS), menus=(menus[0], replace(menus[1], name="second.yaml")))
    for index in (0, 1):
        injector = _injector(tmp_path, both, Shard(index, 2))
        injector.run()
        totals = injector.ledger.totals()
        assert totals.injected == pytest.approx(totals.due, rel=0.05)
