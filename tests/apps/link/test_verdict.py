"""What a step has shown, as a truth table: the link is to blame only for what it was given, and did not take."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.apps.link import verdicts
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.apps.link.judging.verdict import StepOutcome, judge, shorten_message
from dc_inject.model import Held, Hold
from dc_inject.model.held import format_numbers
from tests.apps.link.simulated_link import SlowLink, stopped
from tests.engine.world import START

GB = 10**9
CYCLE = timedelta(minutes=5)
RATE = GB  # bytes per second: 300 GB a cycle
DUE = 300 * GB
MINUTE = timedelta(minutes=1)


@dataclass
class Story:
    """Six cycles of a link, told in bytes a cycle; what is not said goes as asked."""

    injected: list[float] = field(default_factory=lambda: [DUE] * 6)
    capacity: list[float] = field(default_factory=lambda: [1e15] * 6)
    held: dict[int, Held] = field(default_factory=dict)
    failed: dict[int, tuple[float, str]] = field(
        default_factory=dict
    )  # a part of what would have moved, its class
    silent: tuple[int, ...] = ()
    down: dict[int, str] = field(default_factory=dict)
    dataset: int = 10 * GB
    file: int = GB
    early: bool = False

    def judged(self):
        moved = given = lost = 0.0
        classes: dict[str, int] = {}
        readings = [Reading(START, completion=MINUTE, dataset=self.dataset, file=self.file, service="FTS")]
        for n in range(6):
            given += self.injected[n]
            # What was injected in the last minute of a cycle is still on its way at its end.
            ready = given - moved - lost - min(self.injected[n], DUE) / 5
            done = min(max(ready, 0), self.capacity[n])
            part, name = self.failed.get(n, (0.0, ""))
            if part:
                classes[name] = classes.get(name, 0) + round(done * part / GB)
            moved, lost = moved + done * (1 - part), lost + done * part
            readings.append(
                replace(
                    readings[0],
                    at=START + (n + 1) * CYCLE,
                    moved=round(moved),
                    injected=round(given),
                    failed=round(lost),
                    held=self.held.get(n),
                    classes=dict(classes),
                    silent=n in self.silent,
                    down=self.down.get(n, ""),
                )
            )
        return judge(RATE, readings, early=self.early)


def every(hold: Hold, **numbers) -> dict[int, Held]:
    return dict.fromkeys(range(6), Held(hold, numbers))


HALF, NOTHING = [DUE / 2] * 6, [0.0] * 6
STOPPED = [1e15, 1e15, 1e15, 0, 1e15 * 0, 30 * GB]
DATABASE = {"message": "Database exception: could not obtain lock"}
TABLE = {
    "it follows": (Story(), "reached", None),
    "a bit less than asked": (Story(injected=[0.95 * DUE] * 6), "reached", None),
    "few fail": (Story(failed={4: (0.1, "timeout")}), "reached", None),
    "half the capacity": (Story(capacity=HALF), "not reached", "saturated"),
    "saturated, and the last datasets waited for": (
        Story(capacity=HALF, held=every(Hold.TOO_COARSE, budget=1)), "not reached", "saturated"),
    "so slow that the backlog holds it": (
        Story(injected=[DUE, DUE, 0, 0, 0, 0], capacity=[DUE / 4] * 6, held=every(Hold.BACKLOG)),
        "not reached", "saturated"),
    "saturated until the pool was all on its way": (
        Story(injected=[DUE] * 5 + [DUE / 2], capacity=[DUE / 4] * 6, held={5: Held(Hold.POOL_DRY)}),
        "not reached", "saturated"),
    "a third times out": (Story(failed=dict.fromkeys(range(6), (0.3, "timeout"))), "not reached", "failing"),
    "a third fails, nobody says why": (
        Story(failed=dict.fromkeys(range(6), (0.3, "other"))), "not reached", "failing"),
    "the destination stopped, transfers fail": (
        Story(failed={3: (1.0, "connection"), 4: (0.5, "connection")}), "inconclusive", "connection"),
    "the destination stopped, and says so": (
        Story(injected=[DUE, DUE, DUE, 0, DUE, DUE], capacity=[1e15, 1e15, 1e15, 0, 0, DUE],
              held={3: Held(Hold.DESTINATION_UNAVAILABLE, {"rse": "B"})}),
        "inconclusive", "destination-unavailable"),
    "the destination stopped, and nobody says so": (Story(capacity=STOPPED), "inconclusive", "standstill"),
    "the destination stopped, and was seen to": (
        Story(capacity=STOPPED, down={3: "se2.example.org"}), "inconclusive", "storage-down"),
    "Rucio is dead": (
        Story(injected=[DUE, DUE, 0, 0, 0, 0],
              held={n: Held(Hold.API_ERRORS, {"planned": "no"}) for n in (2, 3, 4)}),
        "inconclusive", "api-errors"),
    "Rucio is dead, and what was on its way is not seen": (
        Story(capacity=[1e15, 1e15, 1e15, 0, 0, 0], silent=(3, 4, 5)), "inconclusive", "no-answer"),
    "FTS is dead from the begin": (
        Story(injected=NOTHING, held=every(Hold.API_ERRORS, message="none")), "inconclusive", "api-errors"),
    "Rucio's database is away": (
        Story(injected=HALF, held={3: Held(Hold.API_ERRORS, DATABASE)}), "inconclusive", "api-errors"),
    "credentials": (Story(injected=HALF, held=every(Hold.CREDENTIALS)), "inconclusive", "credentials"),
    "nobody was running": (Story(injected=HALF, held={2: Held(Hold.NOT_RUNNING)}), "inconclusive", "not-running"),
    "nothing ever arrives": (Story(capacity=NOTHING), "inconclusive", "standstill"),
    "nothing ever arrives of few files": (
        Story(injected=[12 * GB] + [0] * 5, capacity=NOTHING, file=3 * GB, held={0: Held(Hold.BACKLOG)}),
        "inconclusive", "coarse-datasets"),
    "files so large that the first takes longer": (
        Story(capacity=NOTHING, file=5 * GB), "inconclusive", "coarse-datasets"),
    "ended early, before the first file": (Story(capacity=NOTHING, early=True), "inconclusive", "ended-early"),
    "ended early, in a standstill": (
        Story(capacity=[1e15, 1e15, 1e15, 0, 0, 0], early=True), "inconclusive", "standstill"),
    "a dry pool": (Story(injected=HALF, held=every(Hold.POOL_DRY, free=0)), "inconclusive", "pool-dry"),
    "a full destination": (
        Story(injected=HALF, held=every(Hold.DESTINATION_FULL, free=1)), "inconclusive", "destination-full"),
    "a full destination, as transfers tell": (
        Story(failed={4: (0.9, "destination-full")}), "inconclusive", "destination-full"),
    "the quota": (Story(injected=HALF, held=every(Hold.QUOTA)), "inconclusive", "quota"),
    "a limit of our own": (
        Story(injected=HALF, held=every(Hold.SITE_LIMIT, site="B")), "inconclusive", "site-limit"),
    "the campaign's limit": (
        Story(injected=HALF, held=every(Hold.CAMPAIGN_LIMIT)), "inconclusive", "campaign-limit"),
    "a person's pause": (Story(injected=HALF, held=every(Hold.PAUSED)), "inconclusive", "paused"),
    "too-coarse hides the real hold": (
        Story(injected=HALF, held={**every(Hold.TOO_COARSE), 4: Held(Hold.POOL_DRY)}), "inconclusive", "pool-dry"),
    "coarse datasets, all that was injected moved": (
        Story(injected=[DUE * 2.4, 0, 0, DUE * 2.4, 0, 0], dataset=720 * GB, held=every(Hold.TOO_COARSE)),
        "inconclusive", "coarse-datasets"),
    "coarse datasets that wait for the next reading": (
        Story(injected=[0, 0, 900 * GB, 0, 0, 900 * GB], capacity=[1e15] * 5 + [200 * GB], dataset=900 * GB),
        "inconclusive", "coarse-datasets"),
    "ended early, whatever moved": (Story(early=True), "inconclusive", "ended-early"),
    "ended early, and a third had failed": (
        Story(failed={4: (0.3, "timeout")}, early=True), "inconclusive", "ended-early"),
    "ended early, just after a reading": (
        Story(capacity=[1e15] * 5 + [0], early=True), "inconclusive", "ended-early"),
    "ended early in an outage": (
        Story(injected=HALF, held={3: Held(Hold.API_ERRORS, DATABASE)}, early=True), "inconclusive", "api-errors"),
    "ended early": (Story(injected=[DUE] * 3 + [0] * 3, early=True), "inconclusive", "ended-early"),
}  # fmt: skip


@pytest.mark.parametrize("story", TABLE)
def test_the_truth_table(story):
    one, outcome, code = TABLE[story]
    made = one.judged()
    assert (made.outcome, made.cause and made.cause.code) == (outcome, code), made
    assert made.outage == (code in OUTAGES)


OUTAGES = {"connection", "destination-unavailable", "standstill", "storage-down", "api-errors", "no-answer",
           "credentials", "not-running"}  # fmt: skip


def test_an_outage_says_what_and_when():
    """The message of the service, and the cycles in which it was met."""
    cause = TABLE["Rucio's database is away"][0].judged().cause
    assert cause is not None
    assert str(cause) == (
        "FTS did not answer, or refused calls: Database exception: could not obtain lock (10:15:00 to 10:20:00Z)"
    )


def test_a_step_that_is_reached_in_spite_of_an_outage_says_so():
    """The link made up for it, and nobody would know otherwise."""
    down = Held(Hold.API_ERRORS, DATABASE)
    made = Story(injected=[DUE, 0, 2 * DUE, DUE, DUE, DUE], held={1: down}).judged()
    assert made.outcome is StepOutcome.REACHED
    assert made.disturbed is not None
    assert (made.disturbed.code, made.disturbed.since) == ("api-errors", START + CYCLE)
    assert made.why == ""
    assert Story().judged().disturbed is None


def test_a_hold_says_its_numbers():
    cause = TABLE["a full destination"][0].judged().cause
    assert cause is not None
    assert "destination-full free=1 B" in cause.words
    assert "--space" in cause.words


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"wanted": 63_750_000_000, "budget": 0, "space": 10**9}, "wanted=63.8 GB budget=0 B space=1 GB"),
        ({"limit": "rules_per_hour", "most": 1000, "left": 3}, "limit=rules_per_hour most=1,000 left=3"),
        ({"limit": "total", "most": 25 * 10**8, "wanted": 20}, "limit=total most=20Gb/s wanted=20 B"),
        ({"site": "KIT", "direction": "in", "most": 25 * 10**8}, "site=KIT direction=in most=20Gb/s"),
        ({"time_for": 3, "wanted": 20}, "time_for=3 wanted=20"),
        ({"failed": 0.33, "probe": 10**9, "message": "no"}, "failed=0.33 probe=1 GB message=no"),
    ],
)
def test_sizes_in_the_numbers_of_a_hold_have_their_unit(numbers, said):
    assert format_numbers(numbers) == said


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("short", "short"),
        ("x" * 119 + " y", "x" * 116 + " ..."),
        ("a word " * 16 + "[Errno 111] Connection refused", "a word " * 16 + "..."),
        ("a word " * 16 + "(x[y z", "a word " * 16 + "(x[y z"),
    ],
)
def test_a_message_that_is_cut_ends_with_a_word_and_says_so(message, said):
    assert shorten_message(message) == said


def test_a_step_that_was_ended_early_says_how_long_it_lasted_and_what_moved(wording):
    """Two minutes of half an hour, in which everything moved: nobody knows what would have followed."""
    made = judge(GB, [Reading(START), Reading(START + 2 * MINUTE, 108 * GB, 120 * GB)], early=True)
    assert made.outcome is StepOutcome.INCONCLUSIVE
    wording(made.why)


def test_a_step_that_was_ended_early_counts_all_that_moved_in_it():
    """Also what was on its way before it."""
    made = judge(GB, [Reading(START, 0, 100 * GB), Reading(START + 2 * MINUTE, 90 * GB, 220 * GB)], early=True)
    assert made.moved == 90 * GB


@pytest.mark.parametrize(
    ("outcome", "capacity", "leads"),
    [("inconclusive", None, False), ("not reached", None, True), ("reached", 5e8, False)],
)
def test_a_rate_leads_the_sentence_where_it_shows_something(outcome, capacity, leads):
    told = {"outcome": outcome, "capacity": capacity, "interval": None, "cause": None, "reason": "why"}
    report = {**told, "source": "A", "destination": "B", "steps": [{"moved_rate": 0.0}]}
    assert verdicts.sentence(report).startswith("0 b/s") is leads


def test_a_step_that_was_ended_early_shows_all_that_moved_in_it():
    """Whoever ends it just after the turn of a cycle does not read that nothing moved."""
    turns = [Reading(START + n * MINUTE, 45 * n * GB, 60 * n * GB) for n in range(3)]
    made = judge(GB, [*turns, replace(turns[-1], at=START + 2 * MINUTE + timedelta(seconds=1))], early=True)
    assert (made.measured, made.moved, made.ratio) == (START, 90 * GB, pytest.approx(90 / 121))
    assert made.outcome is StepOutcome.INCONCLUSIVE


def test_nothing_that_was_read_before_a_cycle_was_over_is_a_standstill():
    """Files arrive in lumps, and the service was not asked since."""
    readings = [Reading(START + n * MINUTE, n * 60 * GB, 60 * (n + 1) * GB, file=GB) for n in range(4)]
    stopped = replace(readings[-1], at=readings[-1].at + timedelta(seconds=4))
    made = judge(GB, [*readings, stopped], early=True)
    assert made.cause is not None
    assert made.cause.code == "ended-early"


def test_what_is_judged_by_all_of_a_step_shows_the_numbers_of_all_of_it():
    """Nothing may be called reached next to a ratio below what it takes."""
    moved = [0, 300, 600, 900, 1100, 1350, 1620]
    readings = [Reading(START + n * CYCLE, size * GB, (n + 1) * DUE) for n, size in enumerate(moved)]
    readings[0] = replace(readings[0], injected=0)
    made = judge(RATE, readings)
    assert (made.outcome, made.measured) == (StepOutcome.REACHED, START)
    assert made.ratio == pytest.approx(0.9)


def test_a_step_that_was_given_up_is_not_reached_by_what_was_on_its_way_before():
    """Nothing of it was injected."""
    held = Held(Hold.POOL_DRY)
    readings = [
        Reading(START + n * CYCLE, (n + 1) * DUE, 4 * DUE, held=held if n else None, completion=MINUTE)
        for n in range(3)
    ]
    made = judge(RATE, readings, idle=True)
    assert (made.outcome, made.cause and made.cause.code) == (StepOutcome.INCONCLUSIVE, "pool-dry")


def test_a_few_failures_of_an_outage_do_not_excuse_a_slow_link():
    made = Story(capacity=HALF, failed={4: (0.02, "connection")}).judged()
    assert (made.outcome, made.cause and made.cause.code) == ("not reached", "saturated")


def test_slow_files_are_no_standstill():
    """Where few files arrive in a cycle, one without any is nothing strange."""
    made = Story(capacity=[20 * GB, 0, 20 * GB, 0, 20 * GB, 20 * GB], file=20 * GB).judged()
    assert made.outcome is StepOutcome.NOT_REACHED


def test_a_long_silence_of_a_link_with_few_files_a_cycle_is_a_standstill():
    """One cycle without a file would be nothing strange, four in a row are."""
    made = Story(capacity=[40 * GB, 40 * GB, 0, 0, 0, 0], file=20 * GB).judged()
    assert (made.outcome, made.cause and made.cause.code) == ("inconclusive", "standstill")
    assert made.cause is not None
    assert (made.cause.since, made.cause.until) == (START + 2 * CYCLE, START + 6 * CYCLE)


@pytest.mark.parametrize("seed", range(30))
def test_a_slow_link_is_no_outage_at_whatever_moment_somebody_ends_it(seed):
    """Of 0.08 to 0.8 Gb/s, with files of 5 GB that share it: many arrive together, after long waits."""
    draw = random.Random(seed)
    capacity = draw.uniform(0.01, 0.1) * GB
    rate, every = draw.uniform(1, 10) * capacity, draw.choice([5, 10, 30]) * MINUTE
    ladder = Ladder(rate, every, rate / 2, 8 * rate, saturate=draw.random() < 0.5)
    link = SlowLink(capacity, slots=draw.choice([2, 5, 10, 20]))
    cycle = timedelta(seconds=draw.choice([10, 60, 100]))
    progress = stopped(ladder, link, draw.uniform(2, 120) * MINUTE, cycle)
    causes = {verdict.cause.code for verdict in progress.verdicts if verdict.cause}
    assert causes <= {"ended-early", "coarse-datasets", "saturated"}
    assert progress.concluded().cause is None or not progress.concluded().cause.outage


def test_a_step_tells_by_how_much_one_dataset_changes_its_rate():
    grain = Story(capacity=HALF).judged().grain
    assert grain == 0, "not known"
    readings = [Reading(START), Reading(START + 10 * MINUTE, 100 * GB, 600 * GB, counted_by=6 * GB, file=GB)]
    made = judge(GB, [*readings, replace(readings[1], at=START + 20 * MINUTE, moved=200 * GB, injected=1200 * GB)])
    assert (made.end - made.measured, made.grain) == (10 * MINUTE, 6 * GB / 600)


cycles = st.lists(st.floats(0, 2 * DUE), min_size=6, max_size=6)


@given(
    cycles, st.sampled_from([hold for hold in Hold if hold not in {Hold.BACKLOG, Hold.FAILING, Hold.FTS_QUEUE}])
)
def test_a_link_that_moves_all_it_gets_is_never_blamed(injected, hold):
    """Whatever the holds, and however much was injected."""
    assert Story(injected=injected, held=every(hold)).judged().outcome is not StepOutcome.NOT_REACHED


@given(st.floats(0.05, 0.8), st.sampled_from([None, Hold.TOO_COARSE, Hold.BACKLOG, Hold.POOL_DRY]))
def test_a_link_that_is_slower_than_what_it_gets_is_never_praised(part, hold):
    story = Story(capacity=[part * DUE] * 6, held=every(hold) if hold else {})
    made = story.judged()
    assert made.outcome is StepOutcome.NOT_REACHED
    assert made.moved_rate == pytest.approx(part * RATE, rel=0.01)
