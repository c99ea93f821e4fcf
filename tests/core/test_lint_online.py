"""Findings from what services told: rooms and pools; each fires, and its near miss does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.analysis import lint
from dc_inject.analysis.lint import PoolSize
from dc_inject.model import Campaign, Dataset, RseSpec, Site
from dc_inject.model.findings import CODES, ERRORS
from dc_inject.model.goals import Keep, Recycle, SecondHop, Volume
from tests.core.test_lint import DAY, GB, HOUR, START, TB, day, flow

A_DAY = Campaign("dc27", "nobody", HOUR / 4, (day(flow("A", "B", 8), flow("A", "C", 8)),))  # 1 GB/s each


def rooms(free=None, quota=None, expired=None, campaign=A_DAY):
    return [(p.code, p.message) for _, p in lint.space_findings(campaign, free or {}, quota or {}, expired or {})]


@pytest.mark.parametrize(
    ("told", "code", "enough"),
    [
        ("free", "free-space", 4500 * GB),  # 1 h of lifetime and a cycle
        ("quota", "account-limit", 7200 * GB),  # 2 h
        ("expired", "expired-data", 3600 * GB),  # what comes in an hour, or less
    ],
)
def test_a_room_that_is_too_small(told, code, enough):
    less = 1 if told == "expired" else -1
    assert rooms(**{told: {"B": enough}}) == []
    ((found, message),) = rooms(**{told: {"B": enough + less * GB}})
    assert found == code
    assert "B" in message
    assert code in CODES


def test_rses_of_which_nothing_is_told_and_sources_are_not_blamed():
    assert rooms(free={"A": 0, "X": 0}, quota={"A": 0}, expired={"A": 9 * TB}) == []


def test_jobs_of_fts_need_no_quota():
    flows = [flow("davs://a/x", "davs://b/x", 8, through="fts")]
    campaign = Campaign("dc27", "nobody", HOUR / 4, (day(*flows),))
    assert rooms(quota={"davs://b/x": 0}, campaign=campaign) == []


def stocked(pool_size: PoolSize, *flows, may_end=False, sites=()):
    some = flows or (flow("A", "B", 8), flow("A", "C", 4))
    campaign = Campaign("dc27", "nobody", HOUR / 4, (day(*some, sites=sites),))
    found = lint.pool_findings(campaign, {some[0].pool: pool_size}, may_end=may_end)
    return [(p.code, p.message) for _, p in found]


def test_a_pool_that_is_too_small_for_a_link(wording):
    """2 h of lifetime and a cycle at 1 GB/s; the worst link of a scenario is named."""
    assert stocked(PoolSize(100, 8100 * GB, GB)) == []
    ((code, message),) = stocked(PoolSize(100, 8000 * GB, GB))
    assert code == "pool-small"
    wording(message)
    assert "A has 100 with 8 TB" in message
    ((_, message),) = stocked(PoolSize(100, 4000 * GB, GB))
    assert "A -> B (and 1 more link of one)" in message


def test_where_rules_may_be_ended_the_shortest_lifetime_counts():
    assert stocked(PoolSize(100, 4500 * GB, GB), may_end=True) == []
    assert [code for code, _ in stocked(PoolSize(100, 4400 * GB, GB), may_end=True)] == ["pool-small"]


def test_what_is_slow_to_be_deleted_needs_a_larger_pool():
    sites = (Site("X", rses={"B": RseSpec(deletion_lag=HOUR)}),)
    assert [code for code, _ in stocked(PoolSize(100, 8100 * GB, GB), sites=sites)] == ["pool-small"]


def test_a_short_menu_needs_no_more_than_it_injects():
    short = flow("A", "B", 8, end=START + timedelta(minutes=30))
    assert stocked(PoolSize(100, 1800 * GB, GB), short) == []


def test_volumes_need_each_dataset_once_and_pools_that_go_round_may_be_small(wording):
    """Both links of the scenario draw on one pool."""
    both = [flow("A", to, 8, goal=Volume(2 * TB)) for to in "BC"]
    assert stocked(PoolSize(100, 4 * TB, GB), *both) == []
    ((code, message),) = stocked(PoolSize(100, 3 * TB, GB), *both)
    assert code == "pool-small"
    wording(message)
    assert stocked(PoolSize(100, 3 * TB, GB), flow("A", "B", 8, goal=Recycle())) == []
    assert [code for code, _ in stocked(PoolSize(100, 3 * TB, GB), flow("A", "B", 8, goal=Keep(TB)))] == [
        "pool-small"
    ]


def test_what_goes_on_in_a_second_hop_is_not_there_yet():
    assert stocked(PoolSize(0, 0, 0), flow("A", "B", 8, goal=SecondHop())) == []


def test_a_source_that_has_nothing():
    """Told once, whatever its links; it is an error."""
    ((code, message),) = stocked(PoolSize(0, 0, 0))
    assert (code, message.split()[0]) == ("no-source-files", "A")
    assert code in ERRORS


def test_datasets_that_are_there_are_too_coarse_for_a_link():
    """0.5 GB/s are 1.8 TB an hour; what the menu's bounds tell already is not told twice."""
    assert stocked(PoolSize(100, 900 * TB, 1800 * GB)) == []
    ((code, message),) = stocked(PoolSize(100, 900 * TB, 1801 * GB))
    assert code == "coarse-datasets"
    assert "A -> C moves 1.8 TB an hour" in message


def test_a_stock_is_the_sum_of_its_items():
    assert PoolSize.of([Dataset("a", 5, 1), Dataset("b", 3, 1)]) == PoolSize(2, 8, 3)
    assert PoolSize.of(()) == PoolSize(0, 0, 0)


def test_a_pool_of_which_nothing_is_told_is_not_blamed():
    other = flow("Z", "B", 8, start=START, end=START + DAY)
    campaign = Campaign("dc27", "nobody", HOUR / 4, (day(other),))
    assert list(lint.pool_findings(campaign, {}, may_end=False)) == []


def test_every_code_of_an_error_is_a_code() -> None:
    """Those that are errors can be accepted like the others."""
    assert set(CODES) > ERRORS
