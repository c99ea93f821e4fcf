"""One cycle: budgets, choices, reasons and releases."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import FlowKey, Held, Hold, Limits, Link, RseSpec, Site, naming
from dc_inject.model.plan import FlowDecision
from dc_inject.planning.plan import Account, Demand, Destination, Situation, plan, refill
from tests.core.builders import CYCLE, GB, LENGTH, START, TB, demand, flow, gbps, items, situation

DUE = int(gbps(8) * 900)  # 900 GB: 1 GB/s for a cycle
H = timedelta(hours=1)


def one(pool: list[int], due: int = DUE, more: dict | None = None, **what) -> FlowDecision:
    """The decision for a single link with a pool of these sizes in GB."""
    made = plan(situation([demand(flow(**what), due, **(more or {}))], items(*(s * GB for s in pool))))
    (decision,) = made.decisions
    return decision


def account(due: float, injected: float = 0, **more: float) -> dict[str, object]:
    """A demand's books, in cycles' worth."""
    return {"account": Account(int(due * DUE), int(injected * DUE), **{k: int(v * DUE) for k, v in more.items()})}


BUDGETS = [
    ("first cycle", account(1), 1, 0),
    ("on its account", account(10, 9), 1, 0),
    ("ahead by what it overshot", account(10, 9.2), 0.8, 0),
    ("far ahead", account(10, 12), 0, 0),
    ("in doubt counts as injected", account(10, 8, in_doubt=1), 1, 0),
    ("forgiven is forgiven", account(10, 5, forgiven=4), 1, 0),
    ("one cycle lost", account(10, 8), 2, 0),
    ("many cycles lost", account(10, 3), 2, 5),
    ("its share of ten percent more", account(10, 9.9), 0.1, 0),
]


@pytest.mark.parametrize(("why", "books", "budget", "forgiven"), BUDGETS, ids=[row[0] for row in BUDGETS])
def test_the_budget_is_the_debt_within_two_cycles_and_the_rest_is_forgiven(why, books, budget, forgiven) -> None:
    """Everything in cycles' worth; the pool is fine-grained."""
    decision = one([10] * 500, more=books)
    assert decision.budget == pytest.approx(budget * DUE, abs=1)
    assert decision.forgiven == pytest.approx(forgiven * DUE, abs=1)
    assert decision.want == pytest.approx((budget + forgiven) * DUE, abs=1) or budget == 0
    assert (decision.held is not None) == (budget < 1 or forgiven > 0)


def test_overhead_is_part_of_the_debt() -> None:
    """10 % more of all that is due; or of what the ledger says that overheads were."""
    assert one([10] * 500, more=account(10, 9), overhead=0.1).budget == pytest.approx(2 * DUE)
    told = {"account": Account(10 * DUE, 9 * DUE, extra=DUE // 10)}
    assert one([10] * 500, more=told, overhead=0.1).budget == pytest.approx(1.1 * DUE)


def test_what_was_due_before_an_hour_of_lower_rate_keeps_its_cap() -> None:
    """The cap looks at the largest due of the last three cycles."""
    decision = one([10] * 500, due=DUE // 10, more={"recent_due": DUE, **account(10, 8)})
    assert decision.cap == 2 * DUE
    assert decision.budget == pytest.approx(2 * DUE)


COARSE = [
    (100, 0, Hold.TOO_COARSE),
    (199, 0, Hold.TOO_COARSE),
    (200, 1, None),
    (350, 1, None),
    (400, 1, None),
    (5000, 1, None),
]


@pytest.mark.parametrize(("debt", "count", "hold"), COARSE)
def test_a_coarse_link_sends_a_dataset_when_half_of_it_is_covered(debt: int, count: int, hold) -> None:
    """400 GB datasets and 50 GB due; never more than one, whatever the debt."""
    books = {"account": Account(debt * GB), "recent_due": 50 * GB}
    decision = one([400] * 50, due=50 * GB, more=books)
    assert len(decision.items) == count
    assert (decision.held.hold if decision.held and not decision.forgiven else None) == hold
    assert decision.forgiven == max(0, debt - 400) * GB


def test_a_debt_that_waits_for_a_large_dataset_is_not_forgiven_when_a_small_one_comes_free() -> None:
    """900 GB were saved up for half of 2 TB; then 100 GB are free."""
    books = {"account": Account(900 * GB), "recent_due": 50 * GB, "before": Hold.TOO_COARSE, "saved": 2000 * GB}
    decision = one([100, 2000], due=50 * GB, more=books)
    assert decision.forgiven == 0
    assert [item.bytes // GB for item in decision.items] == [100]
    lost = one([100, 2000], due=50 * GB, more={**books, "before": Hold.QUOTA, "saved": 0})
    assert lost.forgiven == 800 * GB
    assert lost.held == Held(Hold.QUOTA, {"debt": 900 * GB, "cap": 100 * GB, "forgiven": 800 * GB})


def test_a_known_hold_leaves_no_budget_and_its_reason_stands() -> None:
    """What exceeds two cycles is forgiven in its name."""
    held = Held(Hold.DESTINATION_UNAVAILABLE, {"rse": "B"})
    decision = one([10] * 500, more={"held": held, **account(5, 2), "before": held.hold})
    assert (decision.budget, decision.items, decision.held) == (0, (), held)
    assert decision.forgiven == DUE


def test_nothing_is_forgiven_while_no_pool_can_be_seen() -> None:
    """A coarse link's debt may be half of a dataset that nobody sees now."""
    blind = replace(situation([demand(flow(), DUE, **account(9))], []), pools={})
    (decision,) = plan(blind).decisions
    assert (decision.forgiven, decision.items) == (0, ())
    assert decision.held is not None
    assert decision.held.hold is Hold.POOL_DRY


def test_intents_of_this_cycle_count_when_it_is_planned_again() -> None:
    """Only the rest of the budget is chosen for."""
    decision = one([10] * 500, more={"intended": 600 * GB})
    assert decision.budget == DUE
    assert sum(item.bytes for item in decision.items) == 300 * GB
    assert decision.held is None


def test_an_empty_pool_is_dry_with_numbers() -> None:
    """How much was free, and how much is resident there."""
    pool = items(*[10 * GB] * 50)
    taken = frozenset((item.name, "B") for item in pool[:48])
    (decision,) = plan(situation([demand(flow(), DUE)], pool, taken=taken)).decisions
    assert len(decision.items) == 2
    assert (decision.pool_items, decision.pool_bytes) == (2, 20 * GB)
    assert decision.held is not None
    assert decision.held.hold is Hold.POOL_DRY
    assert decision.held.numbers["pool_bytes"] in {20 * GB, 500 * GB}


def test_too_coarse_says_budget_and_the_smallest_that_is_free() -> None:
    """Nothing goes out below half of a dataset."""
    decision = one([4000], due=DUE)
    assert decision.held == Held(Hold.TOO_COARSE, {"budget": DUE, "left": DUE, "smallest": 4 * TB})


# --------------------------------------------------------------------------- what is scarce


def two(first: dict, second: dict, pool: list[int], **more) -> dict[FlowKey, FlowDecision]:
    """Decisions for two links to one destination, by source."""
    made = plan(
        situation(
            [demand(flow("A", "B", **first), DUE), demand(flow("C", "B", **second), DUE)],
            items(*(s * GB for s in pool)),
            **more,
        )
    )
    return {decision.key.link.source: decision for decision in made.decisions}


def given_bytes(decision: FlowDecision) -> int:
    """What a link gets, in GB."""
    return sum(item.bytes for item in decision.items) // GB


SCARCE = [
    ({"destinations": {"B": Destination(free=600 * GB)}}, Hold.DESTINATION_FULL, 600),
    ({"destinations": {"B": Destination(quota_left=600 * GB)}}, Hold.QUOTA, 599),
    ({"limits": Limits(total=600e9 / 900, per_site=1e15, rules_per_hour=10**6)}, Hold.CAMPAIGN_LIMIT, 600),
    ({"limits": Limits(total=1e15, per_site=600e9 / 900, rules_per_hour=10**6)}, Hold.SITE_LIMIT, 600),
    ({"sites": (Site("X", wan=600e9 / 900),), "site_of": {"B": "X"}}, Hold.SITE_LIMIT, 600),
    ({"destinations": {"B": Destination(space=5400 * GB)}}, Hold.DESTINATION_FULL, 1080),
]


@pytest.mark.parametrize(("scarce", "hold", "total"), SCARCE)
def test_what_is_scarce_goes_by_priority_then_in_proportion(scarce, hold, total) -> None:
    """A full GB at least is left over, as datasets have 1 GB; the reason comes with both sides."""
    pool, most = [1] * 4000, {"lifetime_max": H}
    even = two(most, most, pool, **scarce)
    assert given_bytes(even["A"]) == pytest.approx(total / 2, abs=10)
    assert given_bytes(even["C"]) == pytest.approx(total / 2, abs=10)
    assert total * 0.95 - 2 <= given_bytes(even["A"]) + given_bytes(even["C"]) <= total * 1.01 + 2
    first = two(most, {"priority": 5, **most}, pool, **scarce)
    assert given_bytes(first["C"]) >= min(total, 900) * 0.99 - 2
    assert first["A"].held is not None
    assert first["A"].held.hold is hold
    assert len(first["A"].held.numbers) >= 2


def test_rates_and_space_forgive_what_they_never_let_through_but_free_bytes_do_not() -> None:
    """A limit lasts, a full destination empties."""
    limited = two({}, {}, [1] * 4000, limits=Limits(total=600e9 / 900, per_site=1e15, rules_per_hour=10**6))
    assert sum(decision.forgiven for decision in limited.values()) == pytest.approx(2 * DUE - 600 * GB, rel=1e-6)
    full = two({}, {}, [1] * 4000, destinations={"B": Destination(free=600 * GB)})
    assert sum(decision.forgiven for decision in full.values()) == 0


@given(
    seed=st.integers(0, 10**6),
    free=st.integers(0, 3000),
    quota=st.integers(0, 3000),
    count=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_free_bytes_and_quota_are_never_overshot(seed: int, free: int, quota: int, count: int) -> None:
    """Whatever the sizes: what goes to a destination is at most free, and less than the quota that is left."""
    draw = random.Random(seed)
    demands = [demand(flow(f"S{i}", "B"), draw.randrange(1, DUE)) for i in range(count)]
    pool = items(*(draw.randrange(1, 800) * GB for _ in range(80)))
    known = {"B": Destination(free=free * GB, quota_left=quota * GB)}
    now = situation(demands, pool, destinations=known)
    made = plan(now)
    total = sum(i.item.bytes for i in made.injections)
    assert total <= free * GB
    assert total < quota * GB or total == 0
    room = {d.flow.key: 500 * GB for d in demands}
    taken = frozenset((i.item.name, "B") for i in made.injections)
    more = refill(replace(now, taken=taken), room, made.injections)
    total += sum(i.item.bytes for i in more)
    assert total <= free * GB
    assert total < quota * GB or total == 0


def test_rules_of_an_hour_are_spread_over_its_cycles_and_over_links() -> None:
    """1,000 an hour are 250 a quarter; a link with many datasets and one with few lose the same part."""
    demands = [demand(flow(f"S{i}", f"D{i}"), DUE) for i in range(10)]
    limits = Limits(1e15, 1e15, rules_per_hour=1000, files_in_flight=10**9)
    now = situation(demands, items(*[GB] * 2000), limits=limits)
    made = plan(now)
    assert len(made.injections) == 250
    assert all(22 <= len(decision.items) <= 28 for decision in made.decisions)
    assert {d.held.hold for d in made.decisions if d.held} == {Hold.CAMPAIGN_LIMIT}
    assert len(plan(replace(now, rules_last_hour=900)).injections) == 100
    assert plan(replace(now, rules_last_hour=1000)).injections == ()
    assert len(plan(replace(now, rules_last_hour=700, withheld=40)).injections) == 290, "40 will wait again"
    assert len(plan(replace(now, rules_last_hour=500, withheld=400)).injections) == 312, "a quarter more at most"
    assert len(plan(replace(now, rules_last_hour=730, withheld=40)).injections) == 270, "the hour's limit stays"
    longer = replace(now.cycle, length=timedelta(minutes=45))
    assert len(plan(replace(now, cycle=longer, withheld=40)).injections) == 750, "it is kept by the pace alone"


def test_every_link_has_its_turn_when_rules_are_scarce() -> None:
    """Also the one with a single dataset among those with hundreds."""
    limits = Limits(1e15, 1e15, rules_per_hour=80, files_in_flight=10**9)
    fine = [demand(flow(f"S{i}", f"D{i}"), DUE) for i in range(10)]
    coarse = demand(flow("S", "D"), DUE)
    turns = 0
    for number in range(200):
        now = situation([*fine, coarse], items(*[9 * GB] * 200), limits=limits)
        cycle = replace(CYCLE, start=CYCLE.start + number * LENGTH)
        pools = {**now.pools, coarse.flow.pool: items(900 * GB)}
        made = plan(replace(now, cycle=cycle, now=cycle.start, pools=pools))
        assert len(made.injections) == 20
        turns += any(injection.link.source == "S" for injection in made.injections)
    assert 0 < turns < 60  # 20 of 1001 rules: about one cycle in fifty


def test_files_in_flight_are_a_brake() -> None:
    """Datasets that would go beyond it stay; higher priorities are served first."""
    demands = [demand(flow("A", "B"), DUE), demand(flow("C", "D", priority=5), DUE)]
    pool = items(*[100 * GB] * 30)  # 20 files each
    limits = Limits(1e15, 1e15, 10**6, files_in_flight=1000)
    made = plan(situation(demands, pool, limits=limits, files_in_flight=800))
    assert sum(i.item.files for i in made.injections) == 200
    low, high = made.decisions
    assert (len(high.items), len(low.items)) == (9, 1)
    assert low.held == Held(
        Hold.CAMPAIGN_LIMIT, {"limit": "files_in_flight", "most": 1000, "left": 200, "wanted": 18}
    )


def test_lifetimes_follow_the_space_unless_rules_can_be_ended_early() -> None:
    """1 GB/s into 6.3 TB, deletions of half an hour and a cycle until that is seen: one hour."""
    known = {"B": Destination(space=6300 * GB, deletion_lag=H / 2)}
    now = situation([demand(flow(), DUE)], items(*[10 * GB] * 800), destinations=known, may_end=set())
    assert {i.lifetime for i in plan(now).injections} == {H}
    assert {i.lifetime for i in plan(replace(now, may_end={"rucio"})).injections} == {2 * H}
    assert plan(now).decisions[0].forgiven == 0


def test_early_ending_makes_room_once_it_is_known_how_long_rules_take() -> None:
    """A completion of 15 min lets all through where a lifetime of one hour does not."""
    known = {"B": Destination(space=2700 * GB)}
    slow = plan(situation([demand(flow(), DUE)], items(*[GB] * 4000), destinations=known, may_end={"rucio"}))
    assert slow.decisions[0].held is not None
    assert slow.decisions[0].held.hold is Hold.DESTINATION_FULL
    fast = demand(flow(), DUE, completion=LENGTH)
    now = situation([fast], items(*[GB] * 4000), destinations=known, may_end={"rucio"})
    assert plan(now).decisions[0].held is None
    assert plan(replace(now, may_end=set())).decisions[0].held is not None


def test_a_pool_is_paced_once_it_is_known_how_soon_its_datasets_come_back() -> None:
    """Nine datasets of 100 GB that are back after four cycles and one more: 180 GB a cycle."""
    pool = items(*[10 * GB] * 90)
    unknown, known = demand(flow(), DUE), demand(flow(), DUE, completion=4 * LENGTH)
    assert given_bytes(plan(situation([unknown], pool)).decisions[0]) == 900
    (decision,) = plan(situation([known], pool)).decisions
    assert decision.budget == 180 * GB
    assert decision.forgiven == 720 * GB
    assert decision.held is not None
    assert decision.held.hold is Hold.POOL_DRY


def test_what_a_coarse_link_has_saved_up_is_not_asked_of_a_limit_again() -> None:
    """A limit that lets all dues through cuts nobody because one of them waits for half of 600 GB."""
    fine, coarse = flow("A", "B"), flow("C", "D")
    demands = [
        demand(fine, 50 * GB),
        demand(coarse, 50 * GB, account=Account(250 * GB), before=Hold.TOO_COARSE),
    ]
    limits = Limits(total=100e9 / 900, per_site=1e15, rules_per_hour=10**6)
    now = situation(demands, [], limits=limits)
    made = plan(replace(now, pools={fine.pool: items(*[GB] * 200), coarse.pool: items(600 * GB)}))
    budgets = {decision.key: decision.budget for decision in made.decisions}
    assert budgets == {fine.key: 50 * GB, coarse.key: 250 * GB}


# --------------------------------------------------------------------------- choices


def test_the_poorest_pool_chooses_first() -> None:
    """Of two sources of one dataset, that one gets it which has little else."""
    demands = [demand(flow("A", "B"), 100 * GB), demand(flow("C", "B"), 100 * GB)]
    shared = items(100 * GB)
    rich = shared + items(*[100 * GB] * 20, name="cms:/rich")
    for poor, other in (("A", "C"), ("C", "A")):
        now = situation(demands, [])
        pools = {pool: shared if pool.source == poor else rich for pool in now.pools}
        chosen = {d.key.link.source: d.items for d in plan(replace(now, pools=pools)).decisions}
        assert chosen[poor] == tuple(shared)
        assert chosen[other] != chosen[poor]


def test_a_link_saves_up_for_what_others_have_left_over() -> None:
    """When the smallest dataset goes to another link, the cap follows the next one, and half of it is covered."""
    first = demand(flow("A", "B"), 300 * GB, recent_due=300 * GB, account=Account(100 * GB))
    books = {"recent_due": 50 * GB, "account": Account(300 * GB), "before": Hold.QUOTA}
    second = demand(flow("C", "B", priority=2), 50 * GB, **books)
    made = plan(situation([first, second], items(100 * GB, 500 * GB)))
    assert [[item.bytes // GB for item in decision.items] for decision in made.decisions] == [[100], [500]]
    assert made.decisions[1].forgiven == 0


def test_a_pair_is_taken_once_whatever_source_and_scenario_but_through_fts_again() -> None:
    """Rucio's rules are unique by dataset and destination; FTS makes a copy each time."""
    demands = [demand(flow("A", "B", scenario=name), DUE) for name in ("one", "two")]
    demands.append(demand(flow("C", "B"), DUE))
    pool = items(*[100 * GB] * 20)
    taken = frozenset((item.name, "B") for item in pool[:5])
    pairs = [(i.item.name, "B") for i in plan(situation(demands, pool, taken=taken)).injections]
    assert len(pairs) == len(set(pairs)) == 15
    assert not set(pairs) & taken
    again = [replace(d, flow=replace(d.flow, link=d.flow.link._replace(through="fts"))) for d in demands]
    made = plan(situation(again, pool, taken=taken))
    assert [len(d.items) for d in made.decisions] == [9, 9, 9]
    assert len({i.key for i in made.injections}) == 27


def test_a_dataset_leaves_a_source_once_at_a_time_if_another_of_its_size_is_there() -> None:
    """Three links from one source take different datasets."""
    demands = [demand(flow("A", f"B{i}"), 500 * GB) for i in range(3)]
    names = [i.item.name for i in plan(situation(demands, items(*[100 * GB] * 15))).injections]
    assert len(names) == len(set(names)) == 15


def test_refill_takes_others_for_what_could_not_be_used() -> None:
    """Within the room, and half a dataset; never what was taken; only the flows that were asked for."""
    demands = [demand(flow("A", "B"), DUE), demand(flow("C", "D"), DUE)]
    now = situation(demands, items(*[100 * GB] * 40))
    made = plan(now)
    refused = [i for i in made.injections if i.link.source == "A"][:3]
    stand = [i for i in made.injections if i not in refused]
    taken = frozenset((i.item.name, i.link.destination) for i in made.injections)
    later = replace(now, taken=taken, now=START + LENGTH / 2)
    more = refill(later, {demands[0].flow.key: 300 * GB}, stand)
    assert [i.item.bytes for i in more] == [100 * GB] * 3
    assert {i.flow for i in more} == {demands[0].flow.key}
    assert not {(i.item.name, i.link.destination) for i in more} & taken
    assert all(START + LENGTH / 2 <= i.release < CYCLE.end for i in more)
    assert refill(later, {demands[0].flow.key: 0}) == refill(later, {}) == ()
    assert refill(later, {demands[0].flow.key: 49 * GB}, stand) == ()
    assert refill(later, {demands[0].flow.key: 50 * GB}, stand) != ()
    assert (
        refill(replace(later, limits=replace(later.limits, rules_per_hour=15)), {demands[0].flow.key: TB}, stand)
        == ()
    )


def test_refill_passes_by_a_flow_that_is_held() -> None:
    """Whatever room it has."""
    stopped = demand(flow(), DUE, held=Held(Hold.PAUSED))
    assert refill(situation([stopped], items(*[GB] * 40)), {stopped.flow.key: TB}) == ()


def test_an_injection_says_what_its_flow_says() -> None:
    """Key, lifetime, activity, priority, contact."""
    what = flow(activity="Test", service_priority=2, scenario="t0")
    (injection,) = plan(situation([demand(what, GB)], items(GB))).injections
    assert injection.key == naming.key("camp", "t0", CYCLE.start, Link("A", "B"), "cms:/data#0000")
    assert (injection.campaign, injection.contact, injection.cycle) == ("camp", "me@example.org", CYCLE)
    assert (injection.activity, injection.service_priority, injection.lifetime) == ("Test", 2, 2 * H)
    assert injection.flow == what.key


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_plan_does_not_depend_on_the_order_of_its_situation(seed: int) -> None:
    """Demands, items, sites, and sets that have no order anyway; with limits that bite."""
    draw = random.Random(seed)
    demands = [
        demand(flow(f"S{draw.randrange(4)}", f"D{i % 5}", scenario=f"s{i}", priority=draw.randrange(1, 6)), DUE)
        for i in range(20)
    ]
    pool = items(*(int(10 ** draw.uniform(0, 3) * GB) for _ in range(200)))
    sites = tuple(Site(f"X{i}", wan=gbps(5 + i), rses={f"D{i}": RseSpec()}) for i in range(5))
    now = situation(
        demands,
        pool,
        destinations={"D1": Destination(space=3 * TB, free=TB), "D2": Destination(quota_left=TB)},
        sites=sites,
        site_of={f"D{i}": f"X{i}" for i in range(5)},
        limits=Limits(gbps(50), gbps(20), 400, 10_000),
    )
    other = Situation(
        **{
            **{name: getattr(now, name) for name in Situation.__slots__},
            "demands": tuple(draw.sample(now.demands, len(demands))),
            "pools": {key: draw.sample(pool, len(pool)) for key in reversed(now.pools)},
            "sites": sites[::-1],
        }
    )
    assert plan(now) == plan(other)
    room = {d.flow.key: 300 * GB for d in demands}
    assert refill(now, room) == refill(other, dict(reversed(room.items())))


def test_no_demands_no_plan() -> None:
    """An empty cycle is planned too."""
    made = plan(situation([], []))
    assert (made.decisions, made.injections, made.cycle) == ((), (), CYCLE)
    assert isinstance(demand(flow(), 1), Demand)
