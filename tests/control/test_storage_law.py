"""The law of control: the window of a storage, and links that yield to others there. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from dc_inject.control import law
from dc_inject.control.law import (
    AIM,
    FALLS,
    HOUR,
    HOURS,
    OVER,
    ROUNDS,
    SLOW,
    UP,
    Arrival,
    LinkState,
    StorageState,
    renew_storage,
    yield_to_fast,
)
from tests.control.links import BASE, CYCLE, GB, ROUND, START, TARGET, at, carry, link, near, renew

# --------------------------------------------------------------------------- a storage

QUICK = 100.0  # seconds that files take there


def busy(rate: float, ratio: float, **more: Any) -> LinkState:
    """A link of a storage: files a second, and how long they take."""
    one = link(base=QUICK, least=10.0, rate=rate, lately=rate, **more)
    one.ratios = [(10.0, ratio)]
    return one


def held(storage: StorageState, links: list[LinkState], now: float) -> float:
    """Let it be overloaded for so long that it is noticed; return when."""
    for one in links:
        one.rate, one.ratios = 1.0, [(10.0, 1.0)]
    renew(storage, links, now)
    for one in links:
        one.rate, one.ratios = 0.5, [(10.0, 1.5 * OVER)]
    for _ in range(6):  # in the mean of an hour
        now += ROUND
        renew(storage, links, now)
    return now


def test_a_storage_is_held_at_the_most_that_ran_when_fewer_run_and_files_take_far_too_long() -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    renew(storage, links, START)
    assert storage.window is None
    held(storage, links, START + ROUND)
    assert storage.window == pytest.approx(2 * QUICK)


@pytest.mark.parametrize("other", ["no link", "no latency", "unknown"])
def test_a_single_link_is_no_sign_of_a_storage(other: str) -> None:
    """Its own window answers to its own trouble."""
    storage, one = StorageState(), busy(1.0, 1.0)
    two = link(base=None) if other == "unknown" else busy(1.0, 1.0)
    links = [one] if other == "no link" else [one, two]
    renew(storage, links, START)
    one.rate, one.ratios, two.rate, two.ratios = 0.5, [(10.0, 9.0)], 0.5, []
    for number in range(1, 9):
        renew(storage, links, START + number * ROUND)
    assert storage.window is None


@pytest.mark.parametrize(("part", "ratio"), [(1.0, 2 * OVER), (0.5, 0.99 * OVER)])
def test_a_queue_without_a_loss_is_no_alarm_and_a_loss_without_a_queue_is_none(part: float, ratio: float) -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    renew(storage, links, START)
    for one in links:
        one.rate, one.ratios = part, [(10.0, ratio)]
    for number in range(1, 9):
        renew(storage, links, START + number * ROUND)
    assert storage.window is None
    assert part > FALLS or ratio < OVER


@pytest.mark.parametrize(("quiet", "hours", "is_held"), [(3, 0.7, False), (3, 1.1, True), (2, 0.7, True)])
def test_a_storage_where_nothing_arrived_has_failed_and_is_not_held_for_an_hour(
    quiet: int, hours: float, is_held: bool
) -> None:
    """FTS gives transfers back slowly to links whose files failed; an overloaded storage still moves files."""
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    for one in links:
        one.arrived = [Arrival(START, 1, QUICK, GB)]
    renew(storage, links, START)
    for one in links:
        one.rate, one.ratios = 0.5, [(10.0, 1.5 * OVER)]
    now = START + quiet * ROUND
    until, held_once = now + hours * HOUR + CYCLE, False
    while now < until:
        for one in links:
            one.arrived = [Arrival(now, 1, QUICK, GB)]
        storage.most = [(now, 2 * QUICK)]
        renew(storage, links, now)
        held_once = held_once or storage.window is not None
        now += ROUND
    assert held_once is is_held


def test_what_is_held_stays_as_it_was_while_nothing_arrives_and_for_an_hour_after() -> None:
    """FTS was stuck: that all files took far too long is no sign that others fill the storage."""
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    storage.moved, before = now, storage.window
    assert before is not None
    for one in links:
        one.rate, one.arrived, one.ratios = 0.0, [], [(10.0, 4 * OVER)]
    while now < storage.moved + HOUR:
        now += ROUND
        renew(storage, links, now)
    assert storage.window == before
    until = now + ROUND + HOUR  # files arrive again a round later, and take too long for another hour
    while now < until:
        now += ROUND
        for one in links:
            one.rate, one.arrived = 0.5, [Arrival(now, 1, QUICK, GB)]
        assert storage.window == before
        renew(storage, links, now)
    renew(storage, links, now + ROUND)
    assert storage.window == pytest.approx(max(before / 2, storage.floor))
    assert storage.window < before


def test_an_idle_link_whose_window_was_set_when_a_clock_was_ahead_does_not_count() -> None:
    storages = StorageState(), StorageState()
    for storage, ahead in zip(storages, (-100 * HOUR, 100 * HOUR), strict=True):
        idle = busy(1.0, 2 * OVER)
        idle.renewed = START + ahead
        links = [busy(1.0, 1.0), busy(1.0, 1.0)]
        for one in links:
            one.renewed = START
        law.renew_storage(storage, [*links, idle], START, CYCLE)
    assert storages[0] == storages[1]


def test_a_storage_that_is_held_is_let_grow_after_a_clock_leapt_ahead_and_back() -> None:
    links = [busy(1.0, 1.0), busy(1.0, 1.0)]
    storage = StorageState(window=50.0, decided=START + 100 * HOUR, refused=START + 100 * HOUR)
    renew(storage, links, START)
    assert storage.window == pytest.approx(50 * UP)


@pytest.mark.parametrize(("ratio", "factor"), [(1.21 * AIM, 1 / 1.1), (1.44 * AIM, 1 / 1.2)])
def test_the_window_of_a_storage_shrinks_by_the_root_of_how_much_too_long_files_take(
    ratio: float, factor: float
) -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    before = storage.window
    for one in links:
        one.ratios = [(10.0, ratio)]
    renew(storage, links, now + CYCLE / 2)
    assert storage.window == before, "once in a cycle"
    renew(storage, links, now + CYCLE)
    assert before is not None
    assert storage.window == pytest.approx(before * factor)


def test_it_waits_for_what_is_in_flight_there_before_it_shrinks_again() -> None:
    """Files that take an hour say nothing of what was decided a quarter of an hour ago."""
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    for one in links:
        one.slow, one.ratios = 20 * QUICK / GB, [(10.0, 1.21 * AIM)]
    before = storage.window
    renew(storage, links, now + 1.1 * 20 * QUICK)
    assert storage.window == before
    renew(storage, links, now + 1.21 * AIM * 20 * QUICK)
    assert storage.window != before


@pytest.mark.parametrize(("ratio", "factor"), [(1.0, law.UP), (0.99 * AIM, law.UP)])
def test_it_grows_while_something_has_to_wait_for_it(ratio: float, factor: float) -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START) + CYCLE
    for one in links:
        one.ratios = [(10.0, ratio)]
    before = storage.window
    assert before is not None
    storage.refused = now - 1
    renew(storage, links, now)
    assert storage.window == pytest.approx(before * factor)
    renew(storage, links, now + CYCLE)
    assert storage.window == pytest.approx(before * factor)


def test_it_is_free_again_when_nothing_had_to_wait_for_it_for_long() -> None:
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    for one in links:
        one.ratios = [(10.0, 1.0)]
    for _ in range(int((HOURS - (now - storage.refused)) / CYCLE) + 1):
        assert storage.window is not None
        now += CYCLE
        renew(storage, links, now)
    assert storage.window is None


def test_a_storage_that_others_fill_is_given_up_and_its_links_are_not_blamed_for_its_queue() -> None:
    """As little as this would not overload it: what is ours is not why files take so long."""
    storage, links = StorageState(), [busy(1.0, 1.0), busy(1.0, 1.0)]
    now = held(storage, links, START)
    for one in links:
        one.ratios = [(10.0, 4 * OVER)]
    seen = []
    for _ in range(5):
        if storage.window is None:
            break
        seen.append(storage.window)
        now += 4 * OVER * QUICK + CYCLE
        renew(storage, links, now)
    assert min(seen) == pytest.approx(law.FLOOR * 2 * QUICK)
    assert all(one.freed > now for one in links)
    storage.most.append((now, 9.0 * QUICK))
    renew(storage, links, now + CYCLE)
    assert storage.window is None
    renew(storage, links, max(one.freed for one in links) + 1)
    storage.most.append((max(one.freed for one in links), 9.0 * QUICK))
    renew(storage, links, max(one.freed for one in links) + ROUND)
    assert storage.window is not None


def test_a_link_of_a_storage_that_others_fill_may_have_what_its_target_needs() -> None:
    """Its queue is not its own, so its own window does not answer to it."""
    made = {}
    for freed in (0.0, START + HOURS):
        one = link(freed=freed)
        carry(one, START, 60, TARGET / ROUNDS / 4, 2 * BASE)
        made[freed] = one.window
    assert made[START + HOURS] == near(4 * made[0.0])


# --------------------------------------------------------------------------- yielding


def shared(**fast: Any) -> tuple[LinkState, LinkState]:
    """A slow link that takes the slots of a storage, and a fast one that waits for them."""
    slow = link(base=10 * QUICK, window=500.0, rate=0.1, lately=0.1, least=10.0)
    usual = {"target": GB, "rate": 0.2, "lately": 0.2, "files": 100.0, "best": [(START, 0.2)], "least": 10.0}
    return slow, link(base=QUICK, **{**usual, "ratios": [(10.0, 2 * OVER)], **fast})


def test_a_slow_link_leaves_a_fast_one_what_that_needs() -> None:
    """100 files of the slow link and 20 of the fast one ran in the last hour: those 20 are the fast one's."""
    slow, fast = shared()
    renew(StorageState(), [slow, fast], START)
    assert (slow.window, slow.shy) == (pytest.approx(100.0), True)
    assert not fast.shy


def test_it_does_not_count_on_what_links_use_that_yield_to_nobody() -> None:
    """30 files of a third link, as slow but for a little."""
    slow, fast = shared()
    third = link(base=6 * QUICK, rate=0.05, lately=0.05, least=10.0)
    fast.slow = 3 * QUICK / GB
    fast.files, fast.best = 1000.0, [(START, 0.2)]
    renew(StorageState(), [slow, third, fast], START)
    ran = 10 * QUICK * 0.1 + 6 * QUICK * 0.05 + 3 * QUICK * 0.2
    assert (slow.window, third.shy) == (pytest.approx(ran - 6 * QUICK * 0.05 - 3 * QUICK * 0.2), False)


@pytest.mark.parametrize(
    "fast",
    [
        {"lately": 0.95, "files": 200.0},  # moves its target
        {"files": 20.0},  # nothing waits
        {"ratios": [(10.0, OVER)]},  # its own window explains its queue
        {"alone": START + 1},
        {"slow": 1.1 * 10 * QUICK / SLOW / GB},  # hardly faster
        {"slow": None},
    ],
    ids=lambda fast: next(iter(fast)),
)
def test_it_yields_only_to_what_is_much_faster_and_waits(fast: dict[str, Any]) -> None:
    slow, other = shared(**fast)
    renew(StorageState(), [slow, other], START)
    assert (slow.window, slow.shy, slow.yields) == (500.0, False, 0.0)


@pytest.mark.parametrize("gains", [False, True])
def test_it_is_given_up_where_the_fast_link_gains_nothing_by_it(gains: bool) -> None:
    """What that link waits for is something else; here it gains a half in a trial, or nothing."""
    slow, fast = shared()
    storage, now, given_up = StorageState(), START, False
    for _ in range(36):  # two trials
        renew(storage, [slow, fast], now)
        given_up = given_up or fast.alone > now
        now += ROUND
        if gains:
            fast.rate = fast.lately = min(fast.lately * 1.05, 0.8)
            fast.best.append((now, fast.rate))
    assert given_up is not gains
    assert slow.shy is gains
    assert (fast.alone > now) is not gains


def test_a_link_that_yields_goes_on_with_it_while_the_fast_one_is_short_of_its_target() -> None:
    """The queue of the fast link has become short, and after a trial it gains no more: it has gained before."""
    slow, fast = shared()
    storage, now = StorageState(), START
    renew(storage, [slow, fast], now)
    fast.rate = fast.lately = 0.5
    fast.ratios = [(10.0, 1.5)]
    for _ in range(36):
        now += ROUND
        renew(storage, [slow, fast], now)
        assert (slow.shy, slow.yielded > now - 2 * ROUND, fast.alone) == (True, True, 0.0)


@pytest.mark.parametrize("gains", [True, False])
def test_each_fast_link_is_judged_by_what_it_gains_itself(gains: bool) -> None:
    """Also once another one has reached its target, which then no link yields to any more."""
    slow, fast = shared()
    _, other = shared(rate=0.3, lately=0.3)
    storage, now = StorageState(), START
    renew(storage, [slow, fast, other], now)
    other.rate = other.lately = 1.0
    fast.rate = fast.lately = 0.35 if gains else 0.2
    for _ in range(36):
        now += ROUND
        renew(storage, [slow, fast, other], now)
    assert (fast.alone > now, other.alone > now) == (not gains, False)


def test_what_a_fast_link_moved_before_it_was_given_up_is_forgotten() -> None:
    """A later trial is judged by what it moves when that begins; the slow link still yields to another one."""
    slow, fast = shared()
    _, other = shared(rate=0.3, lately=0.3)
    storage, now = StorageState(), START
    renew(storage, [slow, fast, other], now)
    other.rate = other.lately = 0.5
    while fast.alone <= now:
        now += ROUND
        renew(storage, [slow, fast, other], now)
    assert fast.name not in slow.then
    assert other.name in slow.then


def test_links_of_several_scenarios_between_the_same_storages_blame_none_of_them() -> None:
    late, storage = [(10.0, 2 * OVER)], StorageState(most=[(START, 1000.0)])
    links = [link(ratios=late, rate=0.1), link(ratios=late, rate=0.1)]
    for one in links:
        one.place = "same"
    renew(storage, links, START)
    assert storage.window is None
    links[0].place = "other"
    renew(storage, links, START)
    assert storage.window is not None


def test_links_that_are_idle_do_not_count_at_a_storage() -> None:
    late, storage = [(10.0, 2 * OVER)], StorageState(most=[(START, 1000.0)])
    idle, one = link(ratios=late, rate=0.1, renewed=START - 10 * CYCLE), link(ratios=late, renewed=START)
    renew_storage(storage, [idle, one], START, CYCLE)
    assert storage.window is None


def test_a_trial_of_yielding_ends_also_where_the_other_storage_has_no_fast_link() -> None:
    slow, fast = shared()
    here, there = StorageState(), StorageState()
    now = START
    while fast.alone < now:
        now += ROUND
        assert now < START + 100 * CYCLE
        for one in (slow, fast):
            one.renewed = now
        renew_storage(here, [slow, fast], now, CYCLE)
        yield_to_fast(slow, [at(here, [slow, fast]), at(there, [slow])], now, CYCLE)
    assert not slow.shy
