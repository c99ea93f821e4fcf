"""Limits: what they let through, who gets it, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.model import Held, Hold, Limits, Link, PoolKey, Site, Tape
from dc_inject.planning import limits
from dc_inject.planning.limits import Claim, Constraint, Deletions, Destination
from dc_inject.planning.plan import Account, plan
from tests.core.builders import ALL, GB, LENGTH, NO_LIMITS, demand, flow, items, situation

H = timedelta(hours=1)


def claim(source: str = "A", destination: str = "B", priority: int = 3, pool: int | None = None, stays=H) -> Claim:
    """A claim on what limits a link."""
    return Claim(Link(source, destination), priority, PoolKey(source, ALL), pool, stays)


def limit(capacity: float, *members: int, hold: Hold = Hold.SITE_LIMIT, weights: tuple[float, ...] = ()):
    """A constraint on members."""
    return Constraint(hold, members, capacity, lasting=True, weights=weights)


SHARED = [
    ("enough for all", [(3, 10), (3, 20)], 30, [10, 20]),
    ("in proportion", [(3, 10), (3, 20)], 15, [5, 10]),
    ("by priority", [(3, 10), (5, 20)], 25, [5, 20]),
    ("by priority, then in proportion", [(3, 10), (4, 20), (3, 30)], 28, [2, 20, 6]),
    ("the highest takes all", [(1, 10), (2, 20)], 10, [0, 10]),
    ("nothing there", [(3, 10), (5, 20)], 0, [0, 0]),
    ("less than nothing there", [(3, 10)], -5, [0]),
    ("who wants nothing loses nothing", [(3, 0), (5, 20)], 10, [0, 10]),
]


@pytest.mark.parametrize(("why", "wants", "capacity", "expected"), SHARED, ids=[row[0] for row in SHARED])
def test_what_is_scarce_is_shared_by_priority_then_in_proportion(why, wants, capacity, expected) -> None:
    """5 is first, 1 last."""
    claims = [claim(priority=priority) for priority, _ in wants]
    left, cuts = limits.cut([want for _, want in wants], claims, [limit(capacity, *range(len(wants)))])
    assert left == expected
    assert {i: c.bytes for i, (c,) in cuts.items()} == {
        i: want - got for i, ((_, want), got) in enumerate(zip(wants, expected, strict=True)) if want > got
    }


def test_what_one_limit_takes_away_is_there_for_others_of_the_next() -> None:
    """A full destination does not use up a part of the campaign's limit."""
    full, campaign = limit(0, 0, hold=Hold.DESTINATION_FULL), limit(100, 0, 1, hold=Hold.CAMPAIGN_LIMIT)
    left, cuts = limits.cut([100, 100], [claim(), claim()], [full, campaign])
    assert left == [0, 100]
    assert cuts.keys() == {0}


def held(want: int, *constraints: Constraint, claims: tuple[Claim, ...] = (claim(),)) -> Held | None:
    """What leads of the first claim."""
    _, cuts = limits.cut([want] * len(claims), claims, constraints)
    return limits.leading(cuts[0])


def test_the_tightest_limit_leads_whatever_took_most_before_it() -> None:
    """The quota takes 40 and leaves 60, of which the site lets 50 through: a larger quota would be no help."""
    quota, site = limit(60, 0, hold=Hold.QUOTA), limit(50, 0)
    for constraints in ([quota, site], [site, quota]):
        leads = held(100, *constraints)
        assert leads is not None
        assert (leads.hold, leads.numbers["budget"], leads.numbers["also"]) == (Hold.SITE_LIMIT, 50, "quota")


def test_of_limits_that_are_equally_tight_the_first_hold_leads_and_the_other_is_told() -> None:
    leads = held(100, limit(60, 0), limit(60, 0, hold=Hold.QUOTA))
    assert leads is not None
    assert (leads.hold, leads.numbers["also"]) == (Hold.QUOTA, "site-limit")


def test_a_limit_that_takes_little_is_not_told_beside_the_one_that_leads() -> None:
    """80 would go out without the quota, of the 100 that are wanted: it is the quota."""
    leads = held(100, limit(80, 0), limit(20, 0, hold=Hold.QUOTA))
    assert leads == Held(Hold.QUOTA, {"wanted": 80, "budget": 20})


def test_failures_lead_before_the_backlog_that_they_make() -> None:
    """The window is tighter than what a failing link is left: it is so since nothing arrives."""
    window = limit(5, 0, hold=Hold.BACKLOG)
    leads = held(100, limit(10, 0, hold=Hold.FAILING), window, limit(60, 0, hold=Hold.QUOTA))
    assert leads == Held(Hold.FAILING, {"wanted": 100, "budget": 10, "also": "backlog"})
    alone = held(100, limit(60, 0, hold=Hold.QUOTA), window)
    assert alone is not None
    assert alone.hold is Hold.BACKLOG


def test_a_limit_that_many_share_leads_only_for_whom_it_is_tighter_than_their_own() -> None:
    """The site cuts what all want by a tenth: the one whose destination is full has 10 with or without it."""
    full, site = limit(10, 0, hold=Hold.DESTINATION_FULL), limit(0.9 * 910, *range(10))
    leads = held(100, full, site, claims=(claim(),) * 10)
    assert leads is not None
    assert leads.hold is Hold.DESTINATION_FULL
    assert "also" not in leads.numbers


def full(**deletions) -> Destination:
    """A destination of 100 bytes, of which the rates need 90 if deletions come in time."""
    return Destination(space=100, deletions=Deletions(**{"needed": 90, "lag": H, **deletions}))


FEW, OVERDUE = {"overdue": 14, "lag": 3600}, {"overdue": 15, "lag": 3600}
LACKS = [
    ("nothing is late", {}, Held(Hold.DESTINATION_FULL)),
    ("half would find room without what is late", {"overdue": 15}, Held(Hold.DELETION_LAG, OVERDUE)),
    ("what is late is too little", {"overdue": 14}, Held(Hold.DESTINATION_FULL, FEW)),
]


@pytest.mark.parametrize(("why", "more", "expected"), LACKS, ids=[row[0] for row in LACKS])
def test_a_full_destination_is_blamed_on_deletions_only_if_they_alone_fill_it(why, more, expected) -> None:
    """30 bytes find no room."""
    assert full(**more).explain_lack_now(30) == expected


def test_a_space_that_is_too_small_is_told_with_what_it_holds(wording) -> None:
    lack = full(needed=150).explain_lack_now(30)
    assert (lack.hold, [*lack.numbers]) == (Hold.DESTINATION_FULL, ["message"])
    wording(lack.numbers["message"])


def test_a_space_that_is_too_small_and_deletions_that_are_late_are_both_told() -> None:
    both = full(needed=200, overdue=30).explain_lack_now(30)
    assert (both.hold, both.numbers["also"]) == (Hold.DESTINATION_FULL, "deletion-lag")
    assert "holds 50 %" in str(both.numbers["message"])


def test_a_space_that_only_a_late_deletion_makes_too_small_is_no_lack_of_space() -> None:
    """In the steady state: 90 of 100 if deletions came in time, 120 with the lag that was measured."""
    late = full(late=True).explain_lack_of_space(120)
    assert late == Held(Hold.DELETION_LAG, {"overdue": 0, "lag": 3600, "needed": 90})
    unmeasured = full(late=True, overdue=1, lag=None).explain_lack_of_space(120)
    assert unmeasured == Held(Hold.DELETION_LAG, {"overdue": 1, "needed": 90})
    assert full().explain_lack_of_space(120).hold is Hold.DESTINATION_FULL
    small = full(needed=110, late=True).explain_lack_of_space(120)
    assert (small.hold, small.numbers["lag"]) == (Hold.DESTINATION_FULL, 3600)


def test_a_space_that_is_too_small_is_not_called_full() -> None:
    """Nothing is there yet, and less goes out than is due, so that the disk is never full."""
    empty = {"B": Destination(space=1800 * GB, free=1800 * GB)}
    (decision,) = plan(situation([demand(flow(), 900 * GB)], items(*[GB] * 4000), destinations=empty)).decisions
    assert decision.held is not None
    assert decision.held.hold is Hold.DESTINATION_FULL
    part = 100 * decision.held.numbers["space"] // decision.held.numbers["wanted"]
    assert f" {part} % " in str(decision.held.numbers["message"])


@pytest.mark.parametrize(
    "space",
    [
        400,
        500,
    ],
)
def test_what_the_rates_need_of_a_space_is_told_without_the_debt_that_is_made_up(space, wording) -> None:
    """100 bytes are due in a cycle and stay for five; as much again is wanted for the debt."""
    at = {"B": Destination(space=space)}
    owing = replace(claim(stays=5 * LENGTH), due=100)
    _, cuts = limits.cut([200], [owing], limits.constraints([owing], LENGTH, at, [], {}, Limits(), {}))
    held = limits.leading(cuts[0])
    assert held is not None
    assert (held.hold, held.numbers["wanted"]) == (Hold.DESTINATION_FULL, 1000)
    wording(held.numbers["message"])


def test_while_it_is_not_known_how_soon_data_go_nobody_is_told_to_lower_a_rate(wording) -> None:
    """Complete rules end early, and nobody has seen yet how soon they are complete: the disk may suffice."""
    young = full(needed=150)
    young = replace(young, measured=False)
    for lack in (young.explain_lack_now(30), young.explain_lack_of_space(150)):
        assert (lack.hold, [*lack.numbers]) == (Hold.DESTINATION_FULL, ["message"])
        wording(lack.numbers["message"])


def test_what_stays_is_weighed_by_how_long_it_stays() -> None:
    """100 bytes of space and a stay of four cycles let 25 bytes a cycle through."""
    left, _ = limits.cut([40, 10], [claim(), claim()], [limit(100, 0, 1, weights=(4.0, 4.0))])
    assert left == [20, 5]


@pytest.mark.parametrize("hold", [Hold.SITE_LIMIT, Hold.CAMPAIGN_LIMIT, Hold.QUOTA, Hold.DESTINATION_FULL])
def test_what_is_only_rounded_above_a_limit_is_no_reason(hold) -> None:
    """1,200 links of a menu sum to 40 bytes more than the limit: nobody is short of anything."""
    wants = [9 * 10**11] * 1200
    everyone = tuple(range(len(wants)))
    one = limit(sum(wants) - 40, *everyone, hold=hold)
    assert limits.cut(wants, [claim()] * len(wants), [one]) == (wants, {})
    weighed = limit(4 * (sum(wants) - 40), *everyone, hold=hold, weights=(4.0,) * len(wants))
    assert limits.cut(wants, [claim()] * len(wants), [weighed]) == (wants, {})
    left, cuts = limits.cut(wants, [claim()] * len(wants), [limit(0.99999 * sum(wants), *everyone, hold=hold)])
    assert len(cuts) == len(wants)
    assert sum(left) <= 0.99999 * sum(wants)


@given(
    wants=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 10**15)), min_size=1, max_size=12),
    capacity=st.integers(0, 10**16),
)
@settings(deadline=None, derandomize=True)
def test_a_limit_is_kept_and_used_up_and_no_lower_priority_comes_first(wants, capacity) -> None:
    """To a byte for each member, and a millionth of the limit."""
    claims = [claim(priority=priority) for priority, _ in wants]
    left, _ = limits.cut([want for _, want in wants], claims, [limit(capacity, *range(len(wants)))])
    asked = sum(want for _, want in wants)
    assert sum(left) <= max(capacity, 0) * (1 + limits.TOLERANCE) + 1
    assert sum(left) >= min(asked, capacity) - len(wants) - 1
    for (priority, want), got in zip(wants, left, strict=True):
        assert 0 <= got <= want
        if got < want - 1:
            lower = [g for (p, _), g in zip(wants, left, strict=True) if p < priority]
            assert max(lower, default=0) <= 1


def kept(claims: list[Claim], **more) -> dict[Hold, list[Constraint]]:
    """The constraints on these claims, by hold."""
    values = {"destinations": {}, "sites": (), "site_of": {}, "limits": NO_LIMITS, "last_hour": {}, **more}
    found: dict[Hold, list[Constraint]] = {}
    for constraint in limits.constraints(claims, LENGTH, **values):
        found.setdefault(constraint.hold, []).append(constraint)
    return found


def test_a_destination_has_space_in_the_long_run_and_room_now() -> None:
    """Space is for what stays, free bytes and quota are for now; quota to less than the last byte."""
    known = {"B": Destination(space=1000, free=70, quota_left=50)}
    found = kept([claim(), claim("C", "D")], destinations=known)
    space, free = found[Hold.DESTINATION_FULL]
    assert (space.capacity, space.weights, space.lasting, space.room) == (1000, (4.0,), True, None)
    assert (free.capacity, free.lasting, free.room) == (70, False, 70)
    (quota,) = found[Hold.QUOTA]
    assert (quota.room, quota.lasting, quota.members) == (49, False, (0,))
    none = kept([claim()], destinations={"B": Destination(free=-5, quota_left=0)})
    assert [c.room for c in none[Hold.DESTINATION_FULL] + none[Hold.QUOTA]] == [0, 0]


def test_what_control_leaves_of_a_destination_bounds_the_links_that_control_acts_on_and_no_other() -> None:
    """The others have what they would have without it; nobody has it twice."""
    known = {"B": Destination(free=100, guarded=Destination(free=60))}
    acted, other = replace(claim(), guarded=True), claim("C")
    found = kept([other, acted], destinations=known)
    assert [(c.members, c.room) for c in found[Hold.DESTINATION_FULL]] == [((1,), 60), ((0, 1), 100)]
    found = kept([acted, acted], destinations=known)
    assert [(c.members, c.room) for c in found[Hold.DESTINATION_FULL]] == [((0, 1), 60)]
    found = kept([other], destinations=known)
    assert [(c.members, c.room) for c in found[Hold.DESTINATION_FULL]] == [((0,), 100)]


def test_a_signal_that_is_missing_holds_nothing() -> None:
    """No space, no free bytes, no quota known: only rates are left."""
    assert kept([claim()], destinations={"B": Destination()}).keys() == {Hold.SITE_LIMIT, Hold.CAMPAIGN_LIMIT}


def test_a_pool_is_paced_by_how_soon_its_datasets_come_back() -> None:
    """Two scenarios on one link share one pool; a pool that was never read paces nothing."""
    found = kept([claim(pool=800), claim(pool=800), claim("C", pool=None)])
    (pool,) = found[Hold.POOL_DRY]
    assert (pool.members, pool.capacity, pool.weights) == ((0, 1), 800, (4.0, 4.0))


SITE_LIMITS = [
    (None, 100),
    (Site("X"), 100),
    (Site("X", wan=50), 50),
    (Site("X", wan=200), 100),
    (Site("X", max_ingress=150), 150),
    (Site("X", wan=120, max_ingress=150), 120),
]


@pytest.mark.parametrize(("site", "expected"), SITE_LIMITS)
def test_a_site_has_its_own_limit_or_the_campaigns_and_never_more_than_its_wan(site, expected) -> None:
    """Bytes per second, in; out likewise."""
    ours = Limits(per_site=100)
    assert limits.site_limit(site, "in", ours) == expected
    if site is not None:
        turned = Site("X", wan=site.wan, max_egress=site.max_ingress, max_ingress=1)
        assert limits.site_limit(turned, "out", ours) == expected


def test_rse_limits_add_up_in_their_site_and_an_hour_is_never_exceeded() -> None:
    """What was given in the last hour is missing from the room, not from the share of a cycle."""
    claims = [claim("A", "B1"), claim("C", "B2")]
    found = kept(
        claims,
        sites=(Site("X", wan=10), Site("X", wan=8, max_ingress=9)),
        site_of={"B1": "X", "B2": "X"},
        limits=Limits(total=20, per_site=100),
        last_hour={Link("A", "B1"): 20_000, Link("Q", "B2"): 1_000, Link("Q", "Z"): 500},
    )
    into = next(c for c in found[Hold.SITE_LIMIT] if c.numbers["site"] == "X")
    assert (into.members, into.capacity, into.room) == ((0, 1), 8 * 900, 8 * 3600 - 21_000)
    (total,) = found[Hold.CAMPAIGN_LIMIT]
    assert (total.members, total.capacity, total.room) == ((0, 1), 20 * 900, 20 * 3600 - 21_500)
    assert {c.numbers["direction"] for c in found[Hold.SITE_LIMIT]} == {"in", "out"}


def test_what_keeps_out_all_that_other_limits_leave_leads() -> None:
    """A paced pool leaves 180 GB, and there is no room for a dataset of 180 GB: more datasets would be no help."""
    known = demand(flow(), 900 * GB, completion=4 * LENGTH)
    full = {"B": Destination(free=170 * GB)}
    (decision,) = plan(situation([known], items(*[180 * GB] * 5), destinations=full)).decisions
    assert (decision.items, decision.forgiven) == ((), 720 * GB)
    assert decision.held is not None
    assert decision.held.hold is Hold.DESTINATION_FULL
    assert decision.held.numbers["free"] == 170 * GB


def test_a_pool_without_anything_leads_whatever_else_cuts_what_is_wanted() -> None:
    """Half of what is wanted would find no room, but there is nothing to send: more room would be no help."""
    short = demand(flow(), 900 * GB, account=Account(1800 * GB))
    full = {"B": Destination(free=900 * GB)}
    (decision,) = plan(situation([short], [], destinations=full)).decisions
    assert (decision.budget, decision.items) == (900 * GB, ())
    assert decision.held is not None
    assert decision.held.hold is Hold.POOL_DRY


TAPE = Site("CERN", tape=Tape(rate=10 * GB / LENGTH.total_seconds(), buffer=30 * GB, ends=frozenset({"A", "A2"})))


def recalled(
    *sources: str, coming: int = 0, intended: int = 0, want: int = 20 * GB
) -> tuple[list[int], list[Held]]:
    """What links from these sources may recall in a cycle, and the holds of those that get less."""
    claims = [replace(claim(source), coming=coming) for source in sources]
    given = {Link(source, "B"): intended for source in sources}
    all_limits = limits.constraints(claims, LENGTH, {}, [TAPE], {}, NO_LIMITS, given, given)
    left, cuts = limits.cut([want] * len(sources), claims, all_limits)
    return left, [held for one in cuts.values() if (held := limits.leading(one))]


def test_links_from_one_tape_system_share_what_its_drives_read() -> None:
    left, held = recalled("A", "A2", "disk")
    assert left == [5 * GB, 5 * GB, 20 * GB]
    assert {(one.hold, one.numbers["site"], one.numbers["direction"]) for one in held} == {
        (Hold.SITE_LIMIT, "CERN", "tape")
    }


def test_what_is_on_its_way_from_tape_fits_into_its_buffer() -> None:
    """30 GB of buffer, of which 24 GB are staged or asked for, and 3 GB intended."""
    left, (held,) = recalled("A", coming=24 * GB, intended=3 * GB)
    assert left == [3 * GB]
    assert (held.hold, held.numbers["coming"], held.numbers["buffer"]) == (Hold.BACKLOG, 27 * GB, 30 * GB)
    assert recalled("A", coming=40 * GB)[0] == [0]
