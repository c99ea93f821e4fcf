"""Calibration where a ledger tells little: what is not known is marked, and the file can be read all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dc_inject.apps.twin.grid import grid_file, grid_text
from dc_inject.apps.twin.grid.calibration import calibrated, fitted
from dc_inject.apps.twin.grid.description import Grid
from dc_inject.apps.twin.grid.replay import Past, Sent, replay
from dc_inject.apps.twin.grid.rule_times import attempts
from tests.apps.twin.grids import GB
from tests.wording import lines

CYCLE, CYCLES = 900.0, 12
LINK = ("A", "B")
ONE = Sent(LINK, "test", 3, 10 * 10**9, 10, 0.0, 7200.0)


def past(*sent: Sent, moved: float = 0.0) -> Past:
    return Past("p", CYCLE, CYCLES, CYCLE / 5, sent, {LINK: np.full(CYCLES, moved)})


def grid(fit) -> Grid:
    return grid_file.read(grid_text.text(fit).encode(), "grid")


def every(seconds: float, **how) -> list[Sent]:
    starts = np.arange(0.0, CYCLE * CYCLES - 1, seconds)
    return [replace(ONE, accepted=float(at), expires=float(at) + 7200, **how) for at in starts]


@pytest.mark.parametrize(
    "sent",
    [
        [ONE],  # nobody knows what became of it
        every(300.0),  # nothing is ever complete
        every(300.0, ended=7200.0, failed=10),  # all of it fails
        every(300.0, completed=9000.0, ended=9000.0, done=10),  # nothing is ever deleted
        every(300.0, completed=9000.0, ended=9000.0, gone=10800.0, done=10),
    ],
)
def test_whatever_a_ledger_tells_a_grid_is_made_that_can_be_read(sent):
    made = calibrated(past(*sent), grid)
    text = grid_text.text(made.fit, made)
    assert grid_file.read(text.encode(), "grid").links["A:B"].rate is None
    assert "not known" in text


def test_nothing_of_later_cycles_is_known_when_earlier_ones_are_fitted():
    one = replace(ONE, completed=5000.0, ended=6000.0, gone=9000.0, done=9, failed=1)
    (known,) = past(one, replace(ONE, accepted=4000.0)).until(4).sent
    assert (known.completed, known.ended, known.gone, known.done, known.failed) == (None, None, None, 0, 0)
    (known, _) = past(one, replace(ONE, accepted=4000.0)).until(6).sent
    assert (known.completed, known.ended, known.gone, known.done) == (5000.0, None, None, 9)


def test_a_replay_moves_what_was_sent_when_it_was_and_sees_it_at_looks():
    text = "grid: 1\nname: x\nsites: {S: {storages: {A: {}, B: {}}}}\n"
    told = replay(past(ONE, replace(ONE, accepted=4000.0, expires=9000.0)), grid_file.read(text.encode(), "g"))
    assert told.moved[LINK].nonzero()[0].tolist() == [0, 4]
    assert told.moved[LINK].sum() == pytest.approx(20 * GB)
    assert all(when is not None and when % (CYCLE / 5) == 0 for when in told.completed)


def test_files_that_are_quicker_than_the_assumed_overhead_have_one_of_half_their_time():
    quick = [replace(one, completed=one.accepted + 4.0, ended=one.accepted + 4.0, done=10) for one in every(30.0)]
    made = calibrated(replace(past(*quick), cycle=30.0, cycles=60, look=6.0), grid)
    files = made.fit.links[LINK].files
    assert 0 < files.overhead <= files.time / 2 <= 2
    assert " only that " in grid_text.text(made.fit)  # daemons and looks take as long
    assert f"overhead: {files.overhead:.3g} s" in grid_text.text(made.fit, made)


def test_the_unluckiest_file_takes_more_attempts_the_more_there_are():
    few, many = attempts(0.2, np.array([1.0, 100.0]))
    assert few == pytest.approx(1 + 0.2 + 0.04 + 0.008)
    assert 2.5 < many < 4
    assert attempts(0.0, np.array([50.0]))[0] == 1


def test_a_capacity_does_not_make_up_for_failures_that_stop_a_replay():
    """Files that failed in a bad hour look like attempts that fail all day: FTS would move nearly nothing."""
    large = every(300.0, bytes=1000 * GB)
    quick = [replace(one, completed=one.accepted + 60, done=10) for one in large[:2]]
    late = [replace(one, completed=one.accepted + 3600, done=10) for one in large[2:]]
    failed = [replace(one, done=0, failed=10) for one in late[::3]]
    known = past(*quick, *sorted(late + failed, key=lambda one: one.accepted), moved=3000.0 * GB)
    rate = fitted(known, grid).links[LINK].rate
    assert rate.value is not None
    assert rate.value <= 2 * rate.bound


def failing(*failed: int, files: int = 60) -> str:
    """The line on failures of a link of which so many files failed in one rule after the other, until it stood."""
    rules = [
        replace(ONE, files=files, accepted=at, completed=at + 300, ended=at + 300, done=files - lost, failed=lost)
        for at, lost in zip(np.linspace(0.0, 10_000.0, len(failed)), failed, strict=True)
    ]
    rules.append(replace(ONE, accepted=10_100.0, ended=10_800.0))  # expired unsent
    fit = fitted(past(*rules, moved=10.0 * GB), grid, rounds=0)
    (line,) = [line.strip() for line in grid_text.text(fit).splitlines() if "failures:" in line]
    return line


def test_few_failures_are_no_rate(wording):
    """As fourth root of the part that failed in all attempts, 3 of 5,520 would be 15 % of the attempts."""
    spread, together = ([3 * (n == 50) if at_once else n in {10, 50, 80} for n in range(92)] for at_once in (0, 1))
    shown = [failing(*map(int, failed)) for failed in (spread, together, [0] * 92)]
    assert all(line.startswith("# failures: ") for line in shown)
    wording(shown)


def test_failures_of_an_incident_are_no_rate_and_those_of_most_of_the_time_are():
    assert failing(*[0] * 40, *[60] * 10, *[0] * 50).startswith("# failures: ")
    always = [6, *[6] * 99]
    assert failing(*always).startswith("failures: 56.23 %  # fitted: 600 of 6,000 files ")
    assert failing(*always[:40], *[60] * 10, *always[:50]).startswith("failures: 56.23 %")


def test_failures_of_an_incident_that_reached_into_the_middle_part_are_no_rate(wording):
    """Two bad hours and what they leave are three parts of a campaign of eight hours; two have no failure."""
    told = failing(*[0] * 40, *[20] * 45, *[0] * 15)
    assert told.startswith("# failures: ")
    wording(told)


def test_failures_that_came_together_allow_no_rate_that_leaves_as_many_at_all_times():
    """12 of 6,000 would be 21 % of the attempts; but then three of five parts would hardly ever have none."""
    assert failing(*[0] * 50, 12, *[0] * 49).endswith("so at most times at most 19.3 % of attempts")


def test_cycles_in_which_a_link_was_held_for_its_backlog_tell_its_capacity():
    """With control its rules never wait long, though it carries less than is asked for."""
    rules = [replace(rule, completed=rule.accepted + 200, done=10) for rule in every(300.0)]
    known = past(*rules, moved=30.0 * GB)
    assert fitted(known, grid, rounds=0).links[LINK].rate.value is None
    held = replace(known, held={LINK: np.arange(CYCLES) >= 2})
    assert held.until(5).held[LINK].tolist() == [False, False, True, True, True]
    rate = fitted(held, grid).links[LINK].rate
    assert rate.count == CYCLES - 2
    assert rate.value == pytest.approx(30 * GB / CYCLE, rel=0.3)


def deleting(late: float, since: float, until: float) -> Past:
    """Rules that are deleted in the cycle after their end, and those that end within a time so much later."""
    rules = []
    for rule in every(300.0):
        ended = rule.accepted + 300
        gone = ended + (late if since <= ended < until else CYCLE)
        rules.append(replace(rule, completed=ended, ended=ended, gone=gone, done=10))
    return replace(past(*rules, moved=30.0 * GB), cycles=36)


def test_deletions_that_were_late_only_in_an_incident_have_no_rate_and_the_file_says_so(wording):
    """What was deleted while they were late is no rate of a storage that deletes more at other times."""
    fit = fitted(deleting(3 * 3600, 3600, 7200), grid, rounds=0)
    assert fit.deletions["B"].pace.value is None
    assert fit.deletions["B"].is_behind_at_times
    assert grid_text.at_times(fit) == {LINK: [grid_text.BEHIND]}
    text = grid_text.text(fit)
    wording(lines(text, "at least 0.03"))
    assert "seconds_per_file" not in text


def test_deletions_that_are_never_late_are_not_behind_at_times():
    fit = fitted(deleting(0.0, 0.0, 0.0), grid, rounds=0)
    assert not fit.deletions["B"].is_behind_at_times
    assert grid_text.at_times(fit) == {}
    assert "never fell" in grid_text.text(fit)


def busy(wait: float = 0.0, *, held: bool = False, failed: int = 0, look: float = CYCLE / 5) -> Past:
    """A link with more than 100 files under way at any time, on which the rules of every other hour waited.

    Twice as much is under way in these hours.
    """
    rules = []
    for number, rule in enumerate(every(60.0)):
        is_busy = bool(rule.accepted // 3600 % 2)
        files, over = 60 if is_busy else 30, rule.accepted + 400 + wait * is_busy
        rules.append(
            replace(rule, files=files, bytes=files * 10**9, completed=over, ended=over, done=files)
            if number != 3 or not failed
            else replace(rule, files=files, bytes=files * 10**9, ended=over, done=files - failed, failed=failed)
        )
    marked = {LINK: np.full(CYCLES, True)} if held else {}
    return replace(past(*rules, moved=400.0 * GB), held=marked, look=look)


def time_of_file(known: Past) -> str:
    """What the file says of the time of a link's files."""
    text = grid_text.text(fitted(known, grid, rounds=0))
    return " ".join(text.replace("\n    #", "").partition("file_speed")[2].partition("failures")[0].split())


def test_rules_that_find_many_files_under_way_show_the_time_of_a_file_if_they_took_no_longer():
    """FTS has grown by then; a link that carries much never has so few under way as FTS begins with."""
    files = fitted(busy(), grid, rounds=0).links[LINK].files
    assert files.speed is not None
    assert files.rules > 100


@pytest.mark.parametrize(
    "known",
    [
        busy(500.0),
        busy(failed=1),
        busy(held=True),
    ],
)
def test_why_the_time_of_a_file_is_not_known_is_the_condition_that_drops_its_rules(known, wording):
    wording(time_of_file(known))


def test_rules_that_expired_have_waited_though_the_fastest_one_took_nearly_their_lifetime():
    """Else such a link would never have been full, and what it carries would have no bound but this."""
    rules = [replace(rule, ended=rule.expires) for rule in every(300.0)]
    rules[0] = replace(rules[0], completed=6000.0, ended=6000.0, done=10)
    rate = fitted(past(*rules, moved=1.0 * GB), grid, rounds=0).links[LINK].rate
    assert rate.count > 3


@pytest.mark.parametrize(("speed", "overhead", "interval"), [(20, 10, 170.0), (20, 10, 250.0)])
def test_the_time_of_a_file_is_found_on_a_link_that_always_has_many_under_way(speed, overhead, interval):
    """What rules waited in FTS's queue is in the replay, too, so the corrections take it off."""
    sizes = np.random.default_rng(1).uniform(3, 6, 100)
    text = (
        f"grid: 1\nname: x\ndefaults: {{link: {{file_speed: {speed} MB/s, overhead: {overhead} s}}}}\n"
        "sites: {S: {storages: {A: {}, B: {}}}}\n"
    )
    sent = [
        replace(rule, files=60, bytes=60 * int(sizes[number] * GB)) for number, rule in enumerate(every(interval))
    ]
    seen = replay(past(*sent), grid_file.read(text.encode(), "g"))
    rules = [
        replace(rule, completed=at, ended=at, done=60 if at else 0)
        for rule, at in zip(sent, seen.completed, strict=True)
    ]
    files = fitted(replace(past(*rules), moved=seen.moved), grid).links[LINK].files
    assert files.rules > 40
    found, true = (
        least + 4.5 * GB / bytes_ for least, bytes_ in ((files.overhead, files.speed), (overhead, speed * 1e6))
    )
    assert found == pytest.approx(true, rel=0.1)


def test_what_links_share_that_carried_more_at_times_while_full_is_no_capacity_and_the_file_says_so():
    """Nothing limits these links in the grid then, so it does not do by itself what they did."""
    other = ("C", "B")
    rules = [
        replace(rule, link=link, completed=rule.accepted + (200 if not number else 5000), done=10)
        for number, rule in enumerate(every(300.0))
        for link in (LINK, other)
    ]
    first = np.arange(CYCLES) < CYCLES // 2
    moved = {LINK: np.where(first, 1.5 * GB, 27.0 * GB), other: np.where(first, 13.5 * GB, 3.0 * GB)}
    fit = fitted(replace(past(*rules), moved=moved), grid, rounds=0)
    assert fit.links[LINK].full == ("write", "B")
    assert fit.shared[fit.links[LINK].full].value is None
    assert LINK in grid_text.full_at_times(fit)
    assert "# write: not known; in " in grid_text.text(fit)
    assert grid(fit).links["A:B"].highest_measured is not None
