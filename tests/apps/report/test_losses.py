"""What did not move although its rule or job is over, by how that ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dc_inject.model import Entry, State, losses
from dc_inject.model.losses import Lost
from tests.cli.ledgers import CYCLE, FNAL, GB, START, injection

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
WHOLE = 100 * GB


def entry(state: State, **more: object) -> Entry:
    """A rule of two hours, of which 30 GB of 100 GB have moved."""
    made = Entry(injection(FNAL, 1, CYCLE), state)
    return made.changed(accepted_at=START, moved=30 * GB, moved_exact=True, **more)


@pytest.mark.parametrize(
    ("times", "lost"),
    [
        ({"ended_at": START + 2 * HOUR}, Lost(expired=70 * GB)),
        ({"ended_at": START + 3 * HOUR}, Lost(expired=70 * GB)),
        ({"ended_at": START + 2 * HOUR - losses.GRACE}, Lost(expired=70 * GB)),
        ({"ended_at": START + 2 * HOUR - losses.GRACE - SECOND}, Lost(ended_otherwise=70 * GB)),
        # its service says when its lifetime is over, as of a rule that was found again
        ({"ended_at": START + HOUR, "expires_at": START + HOUR}, Lost(expired=70 * GB)),
        ({"ended_at": START + HOUR, "expires_at": START + 3 * HOUR}, Lost(ended_otherwise=70 * GB)),
        # once it is asked to end, that is the end of its lifetime there
        (
            {"ended_at": START + HOUR, "expires_at": START + HOUR - SECOND, "end_asked_at": START + HOUR - SECOND},
            Lost(cancelled=70 * GB),
        ),
        # it was seen to be gone long afterwards, by the next `run` or `end`
        ({"ended_at": START + 3 * HOUR, "end_asked_at": START + HOUR}, Lost(cancelled=70 * GB)),
        # a job that had outlived its lifetime
        ({"ended_at": START + 3 * HOUR, "end_asked_at": START + 2 * HOUR}, Lost(expired=70 * GB)),
    ],
)
def test_it_counts_by_how_its_rule_ended(times: dict[str, object], lost: Lost) -> None:
    for state in (State.ENDED, State.GONE):
        assert losses.sum_losses(entry(state, **times)) == lost


def test_what_was_there_before_or_failed_was_not_to_move() -> None:
    over = entry(State.ENDED, ended_at=START + 2 * HOUR, present=10 * GB, failed=20 * GB)
    assert losses.sum_losses(over) == Lost(expired=40 * GB, failed=20 * GB)


def test_what_is_on_its_way_or_complete_is_not_lost() -> None:
    assert losses.sum_losses(entry(State.LIVE)) == Lost()
    complete = entry(State.COMPLETE, completed_at=START + HOUR).changed(moved=WHOLE)
    assert (
        losses.sum_losses(complete)
        == losses.sum_losses(complete.changed(state=State.ENDED, ended_at=START))
        == Lost()
    )


def test_a_service_that_calls_a_part_complete_has_lost_the_rest() -> None:
    """Nothing of it is on its way any more, so that the sum holds."""
    assert losses.sum_losses(entry(State.COMPLETE, completed_at=START + HOUR)) == Lost(ended_otherwise=70 * GB)


def test_what_rests_on_an_estimate_is_told() -> None:
    over = entry(State.ENDED, ended_at=START + 2 * HOUR).changed(moved_exact=False)
    assert losses.sum_losses(over) == Lost(expired=70 * GB, not_moved_estimated=70 * GB)


@pytest.mark.parametrize(
    ("stuck", "lost"),
    [
        (3, Lost(not_moved_failed=30 * GB, expired=40 * GB)),
        (7, Lost(not_moved_failed=70 * GB)),
        (9, Lost(not_moved_failed=70 * GB)),  # files differ in size: never more than what did not move
    ],
)
def test_files_that_failed_in_all_attempts_have_failed_however_their_rule_ended(stuck: int, lost: Lost) -> None:
    made = entry(State.ENDED, ended_at=START + 2 * HOUR, files_stuck=stuck)
    item = replace(made.injection.item, files=10)
    assert losses.sum_losses(made.changed(injection=replace(made.injection, item=item))) == lost


def test_files_of_a_job_that_failed_are_due_again_and_not_counted_twice() -> None:
    over = entry(State.ENDED, ended_at=START + 2 * HOUR, failed=20 * GB, files_stuck=1)
    assert losses.sum_losses(over) == Lost(expired=50 * GB, failed=20 * GB)
