"""How far an entry is follows from its state, its lifetime and its last observation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dc_inject.model import Dataset, Entry, Injection, Link, State
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.reconcile import Stage, stage, to_end
from tests.core.builders import CYCLE, START

MINUTE = timedelta(minutes=1)
GRACE = 3 * MINUTE
PAST, FUTURE = START - MINUTE, START + MINUTE


def entry(state: State, **more: object) -> Entry:
    """A dataset on a link, in a state."""
    injection = Injection(
        "key", "camp", CYCLE, "one", Link("A", "B"), Dataset("cms:a", 5, 1), START,
        timedelta(hours=1), "Data Challenge", 3, "me",
    )  # fmt: skip
    return Entry(injection, state, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "status", "cleans_up", "becomes"),
    [
        (entry(State.LIVE, expires_at=FUTURE), Status.MOVING, True, Stage.UNFINISHED),
        (entry(State.LIVE), Status.MOVING, True, Stage.UNFINISHED),
        (entry(State.LIVE, expires_at=FUTURE), Status.UNKNOWN, True, Stage.UNFINISHED),
        (entry(State.LIVE, expires_at=PAST), Status.MOVING, True, Stage.ENDING),
        (entry(State.LIVE, expires_at=PAST), Status.MOVING, False, Stage.OVERDUE),
        (entry(State.COMPLETE, expires_at=FUTURE), Status.COMPLETE, True, Stage.COMPLETE),
        (entry(State.COMPLETE, expires_at=START), Status.COMPLETE, True, Stage.ENDING),
        (entry(State.COMPLETE, expires_at=PAST), Status.COMPLETE, False, Stage.COMPLETE),
        (entry(State.ENDED, expires_at=FUTURE), Status.ABSENT, True, Stage.ENDED),
        (entry(State.CALLED, called_at=START - 2 * MINUTE), Status.ABSENT, True, Stage.IN_DOUBT),
        (entry(State.CALLED, called_at=START - 3 * MINUTE), Status.ABSENT, True, Stage.NEVER_CARRIED_OUT),
        (entry(State.CALLED, called_at=START - 3 * MINUTE), Status.UNKNOWN, True, Stage.IN_DOUBT),
        (entry(State.CALLED), Status.ABSENT, True, Stage.NEVER_CARRIED_OUT),
    ],
)
def test_how_far_an_entry_is(one: Entry, status: Status, cleans_up: bool, becomes: Stage) -> None:
    """`one` is the entry as it stands after it was observed."""
    assert stage(one, Observation("key", status), START, GRACE, cleans_up=cleans_up) is becomes


@pytest.mark.parametrize(
    ("one", "cleans_up", "ends"),
    [
        (entry(State.COMPLETE, completed_at=START - 2 * MINUTE), True, True),
        (entry(State.COMPLETE, completed_at=START), True, False),  # it dwells for a minute
        (entry(State.LIVE, present=1), True, True),  # withdrawn: its end must not delete what others put there
        (entry(State.LIVE, expires_at=PAST), True, False),  # its service does that
        (entry(State.LIVE, expires_at=PAST), False, True),
        (entry(State.LIVE, expires_at=PAST, end_asked_at=START), False, False),
        (entry(State.LIVE, expires_at=PAST, end_asked_at=START - 5 * MINUTE), False, True),
        (entry(State.CALLED, expires_at=PAST), False, False),
        (entry(State.ENDED, completed_at=START - 2 * MINUTE), True, False),
    ],
)
def test_what_a_run_ends(one: Entry, cleans_up: bool, ends: bool) -> None:
    """By itself, at this moment."""
    assert bool(to_end([one], START, lambda _: MINUTE, lambda _: cleans_up)) is ends
