"""How far an entry is follows from its state, its lifetime and its last observation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.model import Dataset, Entry, Injection, Link, State
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.reconcile import Stage, is_never_carried_out, select_at_pace, select_to_end, stage
from tests.core.builders import CYCLE, START

MINUTE = timedelta(minutes=1)
GRACE = 3 * MINUTE
PAST, FUTURE = START - MINUTE, START + MINUTE


def entry(state: State, through: str = "rucio", **more: object) -> Entry:
    """A dataset on a link, in a state."""
    injection = Injection(
        "key", "camp", CYCLE, "one", Link("A", "B", through), Dataset("cms:a", 5, 1), START,
        timedelta(hours=1), "Data Challenge", 3, "me",
    )  # fmt: skip
    return Entry(injection, state, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "becomes"),
    [
        (entry(State.LIVE, expires_at=FUTURE), Stage.UNFINISHED),
        (entry(State.LIVE), Stage.UNFINISHED),
        (entry(State.LIVE, expires_at=PAST), Stage.ENDING),
        (entry(State.LIVE, "fts", expires_at=PAST), Stage.OVERDUE),
        (entry(State.COMPLETE, expires_at=FUTURE), Stage.COMPLETE),
        (entry(State.COMPLETE, expires_at=START), Stage.ENDING),
        (entry(State.COMPLETE, "fts", expires_at=PAST), Stage.COMPLETE),
        (entry(State.ENDED, expires_at=FUTURE), Stage.ENDED),
        (entry(State.CALLED), Stage.IN_DOUBT),
    ],
)
def test_how_far_an_entry_is(one: Entry, becomes: Stage) -> None:
    assert stage(one, START) is becomes


@pytest.mark.parametrize(
    ("one", "status", "never"),
    [
        (entry(State.CALLED, called_at=START - 2 * MINUTE), Status.ABSENT, False),
        (entry(State.CALLED, called_at=START - 3 * MINUTE), Status.ABSENT, True),
        (entry(State.CALLED, called_at=START - 3 * MINUTE), Status.UNKNOWN, False),
        (entry(State.CALLED), Status.ABSENT, True),
        (entry(State.LIVE, called_at=START - 3 * MINUTE), Status.ABSENT, False),
    ],
)
def test_a_lost_request_counts_as_never_carried_out(one: Entry, status: Status, never: bool) -> None:
    """Once its service does not know it, after as long as a call may take."""
    assert is_never_carried_out(one, Observation("key", status), START, GRACE) is never


@pytest.mark.parametrize(
    ("one", "ends"),
    [
        (entry(State.COMPLETE, completed_at=START - 2 * MINUTE), True),
        (entry(State.COMPLETE, completed_at=START), False),  # it dwells for a minute
        (entry(State.LIVE, present=1), True),  # withdrawn: its end must not delete what others put there
        (entry(State.LIVE, expires_at=PAST), False),  # its service does that
        (entry(State.LIVE, "fts", expires_at=PAST), True),
        (entry(State.LIVE, "fts", expires_at=PAST, end_asked_at=START), False),
        (entry(State.LIVE, "fts", expires_at=PAST, end_asked_at=START - 5 * MINUTE), True),
        (entry(State.CALLED, "fts", expires_at=PAST), False),
        (entry(State.ENDED, completed_at=START - 2 * MINUTE), False),
    ],
)
def test_what_a_run_ends(one: Entry, ends: bool) -> None:
    """By itself, at this moment."""
    assert bool(select_to_end([one], START, lambda _: MINUTE)) is ends


def test_the_oldest_are_cancelled_first_and_those_that_were_asked_for_in_vain_last() -> None:
    asked = entry(State.LIVE, expires_at=PAST - MINUTE, end_asked_at=PAST)
    old, young = entry(State.LIVE, expires_at=PAST), entry(State.LIVE, expires_at=FUTURE)
    complete = entry(State.COMPLETE)
    assert select_at_pace([asked, young, complete, old], timedelta(0)) == [complete, old]
