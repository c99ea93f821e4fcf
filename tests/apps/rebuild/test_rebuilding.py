"""A ledger that was lost and made anew: nothing twice, nothing forgotten, no burst, no hole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations

import pytest

from dc_inject.apps.reads.backend import ReadsBackend
from dc_inject.apps.rebuild import new_ledger
from dc_inject.apps.rebuild.rebuilding import Rebuilding
from dc_inject.backends.sim import InlineExecutor
from dc_inject.ledger import Ledger
from dc_inject.ledger.check import check
from dc_inject.model import Dataset, Slice, State
from dc_inject.model.errors import LedgerError, Temporary, UsageError
from dc_inject.model.goals import Volume
from dc_inject.model.items import Slicing, units_of
from dc_inject.model.ports import FoundInjection, Status
from tests.engine.world import (
    CYCLE,
    GB,
    LEFT_OPEN,
    START,
    World,
    campaign,
    file_flow,
    flow,
    items,
    source_files,
    url,
    world,
)

from ...ledger.world import totals_from_rows

FLOWS = [flow("A", "B", 2), flow("A", "C", 1)]  # 225 and 112.5 GB a cycle
FTS = {"name": "fts"}


def ours(one: World) -> Iterator[FoundInjection]:
    """What the simulated service has of ours, as a real one tells it."""
    for key, rule in one.backend.rules.items():
        made, over = rule.injection, rule.completed is not None
        if rule.ended is not None and rule.injection.link.service.cleans_up:
            continue
        fts = bool(made.job)
        yield FoundInjection(
            key=key,
            external_id=f"sim-{key}",
            campaign=made.campaign,
            scenario=made.scenario,
            cycle=made.cycle.start,
            link=made.link._replace(source=f"{made.link.source}/data") if fts else made.link,
            item=f"{made.item.files} files of job sim-{key}" if fts else made.item.id,
            bytes=made.item.bytes,
            status=Status.COMPLETE if over else Status.MOVING,
            done=made.item.files if over else 0,
            moving=0 if over else made.item.files,
            stuck=0,
            created_at=rule.created,
            expires_at=None if fts else rule.expires,
            changed_at=rule.completed,
            sources=units_of(made.item) if fts else (),
        )


def rebuild(one: World, found: list[FoundInjection] | None = None, name: str = "anew"):
    """Lose the ledger, and make it anew."""
    one.ledger.close()
    one.ledger = LEFT_OPEN.enter_context(Ledger.open(one.path / f"{name}.sqlite", synchronous="OFF"))
    one.ledger.bind("test", CYCLE, (one.backend.check(),), one.clock.now())
    return rebuilding(one).rebuild(one.ledger, list(ours(one)) if found is None else found)


def rebuilding(one: World) -> Rebuilding:
    """What asks the world's service."""
    return Rebuilding(
        campaign=one.menus(),
        backends={one.backend.name: one.backend},
        clock=one.clock,
        executor=InlineExecutor(one.clock),
        patience=timedelta(minutes=3),
    )


def accounted_for(one: World) -> None:
    """Every rule that exists is in the ledger as what it is, with its bytes; and the ledger agrees with itself."""
    entries = {entry.injection.key: entry for entry in one.ledger.entries() if entry.accepted_at}
    for key, rule in one.backend.rules.items():
        if rule.ended is None:
            assert entries[key].state in {State.LIVE, State.COMPLETE}
            assert entries[key].injection.item.bytes == rule.injection.item.bytes
            assert entries[key].injection.flow == rule.injection.flow
    assert entries.keys() <= one.backend.rules.keys()
    assert one.ledger.accounts() == totals_from_rows(one.ledger)
    assert [found for found in check(one.ledger.path) if not found.note] == []


@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_it_goes_on_with_the_next_cycle_without_giving_anything_twice(tmp_path, part):
    one = world(tmp_path, campaign(FLOWS), {"A": items("A", 80)}, speed=lambda _link: 2e8)
    one.engine().run(until=START + (4 + part) * CYCLE)
    before = dict(one.backend.rules)
    live = {key for key, rule in before.items() if rule.ended is None}
    told = rebuild(one)
    assert told.injections == len(live) > 3
    assert told.bytes == sum(before[key].injection.item.bytes for key in live)
    accounted_for(one)
    assert all(account.due == account.injected for account in one.ledger.accounts().values())
    next_ = START + (4 if part == 0 else 5) * CYCLE
    one.engine().run(until=next_)
    assert part == 0 or one.backend.rules.keys() == before.keys()
    one.engine().run(until=next_ + 3 * CYCLE)
    accounted_for(one)
    rows = [row for row in one.ledger.rows() if row.cycle.start >= next_ and row.due]
    assert {(row.key, row.due) for row in rows} == {(FLOWS[0].key, 225 * GB), (FLOWS[1].key, 112_500_000_000)}
    for key, due in ((FLOWS[0].key, 225 * GB), (FLOWS[1].key, 112_500_000_000)):
        given = sum(row.injected for row in rows if row.key == key)
        assert abs(given - 3 * due) <= 100 * GB  # neither a burst nor a hole
    assert not [e for e in one.ledger.entries() if e.state is State.REFUSED]


def test_slices_are_known_again_and_no_file_goes_where_it_is(tmp_path):
    """Of two datasets of 5 TB, from before and after: the rules tell what is in each slice."""
    links = [flow("A", "B", 2, slices=Slicing("user.dcops"))]
    coarse = [Dataset(f"cms:/A/data#{n}", 5000 * GB, 1000) for n in range(2)]
    one = world(tmp_path, campaign(links), {"A": coarse}, may_end=False)
    one.run(cycles=3)
    before = len(one.backend.rules)
    assert rebuild(one).injections == before > 3
    accounted_for(one)
    one.run(cycles=3)
    accounted_for(one)
    made = [rule.injection.item for rule in one.backend.rules.values()]
    assert len(made) > before
    assert all(isinstance(item, Slice) for item in made)
    assert not [(a, b) for a, b in combinations(made, 2) if a.range.overlaps(b.range)]


def test_nothing_is_given_to_where_it_is_and_all_of_it_is_ended_and_deleted(tmp_path):
    flows = [replace(one, end=START + 8 * CYCLE) for one in FLOWS]
    one = world(tmp_path, campaign(flows), {"A": items("A", 80)}, speed=lambda _link: 2e8)
    one.run(cycles=4)
    rebuild(one)
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert all(rule.ended is not None for rule in one.backend.rules.values())
    gone_at: dict[tuple[str, str], datetime] = {}
    for rule in sorted(one.backend.rules.values(), key=lambda rule: rule.created):
        pair = rule.injection.item.name, rule.injection.link.destination
        assert gone_at.get(pair, START) <= rule.created
        gone_at[pair] = rule.deleted
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    accounted_for(one)


def test_a_rule_whose_answer_was_lost_is_found(tmp_path):
    one = world(tmp_path, campaign(FLOWS), {"A": items("A", 80)}, speed=lambda _link: 2e8)

    def lose(method, _subject):
        if method == "submit" and one.clock.now() >= START + 2.4 * CYCLE:
            raise Temporary("no answer", lost=True)

    one.backend.answer = lose
    one.engine().run(until=START + 2.5 * CYCLE)
    doubted = [e.injection.key for e in one.ledger.entries(State.CALLED)]
    assert doubted
    rebuild(one)
    assert set(doubted) <= {e.injection.key for e in one.ledger.entries(State.LIVE, State.COMPLETE)}
    accounted_for(one)


def test_jobs_and_their_files_are_followed_ended_and_deleted(tmp_path):
    """A job does not tell its link's source nor its lifetime: the menus do."""
    flows = [file_flow("A", "B", 0.8, end=START + 6 * CYCLE), file_flow("A", "C", 0.4, end=START + 6 * CYCLE)]
    one = world(tmp_path, campaign(flows), source_files("A", 200), speed=lambda _link: 5e7, **FTS)
    one.run(cycles=3)
    over = sum(rule.ended is not None for rule in one.backend.rules.values())
    told = rebuild(one)
    assert told.injections == len(one.backend.rules) > over > 0
    assert told.strangers == ()
    assert {e.injection.flow for e in one.ledger.entries()} == {f.key for f in flows}
    assert all(e.injection.lifetime == timedelta(hours=2) for e in one.ledger.entries())
    accounted_for(one)
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert all(rule.deleted for rule in one.backend.rules.values())
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    accounted_for(one)
    for key in (f.key for f in flows):
        rows = [row for row in one.ledger.rows() if row.key == key and row.cycle.start >= START + 3 * CYCLE]
        assert abs(sum(row.injected - row.due for row in rows)) <= 2 * GB


def test_files_that_failed_before_are_not_made_up_a_second_time(tmp_path):
    bad = f"{url('A')}/data/0007"
    made = campaign([file_flow("A", "B", 0.8)])
    one = world(tmp_path, made, source_files("A", 90), failing=lambda file: file.name == bad, **FTS)
    one.run(cycles=3)
    rebuild(one)
    assert sum(entry.failed for entry in one.ledger.entries()) > 0
    assert [a.due - a.injected for a in one.ledger.accounts().values()] == [0]


def test_times_to_completion_are_those_that_the_service_tells(tmp_path):
    one = world(tmp_path, campaign(FLOWS[:1]), {"A": items("A", 80)}, speed=lambda _link: 1e9)
    one.settings = replace(one.settings, observations_per_cycle=15)
    one.menus = lambda: campaign([replace(FLOWS[0], dwell=timedelta(hours=1))])
    one.run(cycles=2)
    rules = {key: rule for key, rule in one.backend.rules.items() if rule.completed}
    one.clock.advance(one.clock.now() + CYCLE / 2)
    rebuild(one)
    complete = one.ledger.entries(State.COMPLETE)
    assert {e.injection.key for e in complete} == rules.keys() != set()
    assert all(e.completed_at == rules[e.injection.key].completed for e in complete)
    assert all(e.accepted_at == rules[e.injection.key].created for e in complete)


def test_what_no_menu_has_any_more_is_followed_and_told(tmp_path):
    one = world(tmp_path, campaign(FLOWS), {"A": items("A", 80)}, speed=lambda _link: 1e8)
    one.run(cycles=2)
    one.menus = lambda: campaign([replace(FLOWS[0], end=START + 4 * CYCLE)])
    told = rebuild(one)
    assert told.strangers == (FLOWS[1].key,)
    one.settings = replace(one.settings, drain=True)
    one.run()
    assert {entry.state for entry in one.ledger.entries()} == {State.GONE}
    accounted_for(one)


def test_a_rule_that_the_service_has_not_begun_with_gets_its_size_from_its_dataset(tmp_path):
    one = world(tmp_path, campaign(FLOWS[:1]), {"A": items("A", 80)}, speed=lambda _link: 1e8)
    one.run(cycles=1)
    found = [replace(f, bytes=None, done=0, moving=0, status=Status.WAITING) for f in ours(one)]
    rebuild(one, found)
    assert {(e.injection.item.bytes, e.injection.item.files) for e in one.ledger.entries()} == {(100 * GB, 50)}
    accounted_for(one)


def test_a_rule_that_goes_away_meanwhile_has_ended(tmp_path):
    one = world(tmp_path, campaign(FLOWS[:1]), {"A": items("A", 80)}, speed=lambda _link: 1e8)
    one.run(cycles=1)
    found = list(ours(one))
    one.backend.rules[found[0].key].ended = one.clock.now()
    rebuild(one, found)
    assert one.ledger.entry(found[0].key).state is State.ENDED
    accounted_for(one)


def test_reads_are_refused(wording):
    """Their back end lists nothing, so that a rebuilt ledger would lack them."""
    with pytest.raises(UsageError) as refused:
        new_ledger._found({"reads": ReadsBackend(None, None, None, None, None)}, "test", None)
    wording(refused.value)


def test_cycles_of_another_length_are_refused(tmp_path, wording):
    one = world(tmp_path, campaign(FLOWS[:1]), {"A": items("A", 80)}, speed=lambda _link: 1e8)
    one.run(cycles=1)
    found = [replace(f, cycle=f.cycle + timedelta(minutes=1)) for f in ours(one)]
    with pytest.raises(LedgerError) as refused:
        rebuild(one, found)
    wording(refused.value)


def test_a_service_that_does_not_tell_how_its_rules_stand_ends_it(tmp_path):
    one = world(tmp_path, campaign(FLOWS[:1]), {"A": items("A", 80)}, speed=lambda _link: 1e8)
    one.run(cycles=1)

    def fault(method, _subject):
        if method == "observe":
            raise Temporary("busy")

    one.backend.fault = fault
    with pytest.raises(Temporary, match="busy"):
        rebuild(one)
    assert one.ledger.entries() == []


def test_nothing_found_is_an_empty_ledger_that_works(tmp_path):
    one = world(tmp_path, campaign(FLOWS[:1]), {"A": items("A", 80)})
    assert rebuild(one).injections == 0
    one.run(cycles=2)
    accounted_for(one)


@pytest.mark.parametrize("through", ["rucio", "fts"])
def test_a_volume_goes_on_with_what_was_not_given_yet(tmp_path, through):
    """As far as the services still tell: what is there is neither given nor counted twice."""
    more = {"goal": Volume(400 * GB), "dwell": timedelta(hours=10), "lifetime_max": timedelta(hours=20)}
    if through == "fts":
        links, stock = [file_flow("A", to, 1.6, **more) for to in "BC"], source_files("A", 800)
    else:
        links, stock = [flow("A", to, 1.6, **more) for to in "BC"], {"A": items("A", 80, 10 * GB)}
    one = world(tmp_path, campaign(links), stock, **(FTS if through == "fts" else {}))
    one.engine().run(until=START + 1.5 * CYCLE)
    rebuild(one)
    accounted_for(one)
    given = {(name, "test") for r in one.backend.rules.values() for name in units_of(r.injection.item)}
    assert one.ledger.once_only() == given
    one.engine().run(until=START + 8 * CYCLE)
    assert {account.moved for account in one.ledger.accounts().values()} == {400 * GB}
    times = Counter(name for r in one.backend.rules.values() for name in units_of(r.injection.item))
    assert set(times.values()) == {1}
    accounted_for(one)
