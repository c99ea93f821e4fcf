"""One call that fails at a start is tried again; what a person has to repair is told at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from dc_inject.assembly import starting
from dc_inject.backends.sim import SimClock
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary, UsageError
from tests.cli.ledgers import START

PATIENCE = timedelta(seconds=30)
T = TypeVar("T")


@pytest.fixture
def clock() -> SimClock:
    return SimClock(START)


def patiently(ask: Callable[[], T], clock: SimClock) -> T:
    """Ask with a clock that goes on while it sleeps."""
    return starting.patiently(
        ask, clock, PATIENCE, lambda seconds: clock.advance(clock.now() + timedelta(seconds=seconds))
    )


def test_a_call_that_fails_is_tried_again(clock: SimClock) -> None:
    answers = [Temporary("504"), NeedsOperator("cannot be reached", passing=True), None]

    def ask() -> str:
        if error := answers.pop(0):
            raise error
        return "answer"

    assert patiently(ask, clock) == "answer"
    assert answers == []
    assert timedelta(0) < clock.now() - START < PATIENCE


def test_what_a_person_has_to_repair_is_told_at_once(clock: SimClock) -> None:
    def ask() -> None:
        raise UsageError("an administrator's account")

    with pytest.raises(UsageError):
        patiently(ask, clock)
    assert clock.now() == START


def test_credentials_count_as_refused_when_they_are_refused_twice(clock: SimClock) -> None:
    answers = [Temporary("504"), NeedsOperator("no such user", hold="credentials"), None]

    def ask() -> str:
        if error := answers.pop(0):
            raise error
        return "answer"

    assert patiently(ask, clock) == "answer"
    refused = [NeedsOperator("no such user", hold="credentials")] * 3

    def insist() -> None:
        raise refused.pop()

    with pytest.raises(NeedsOperator, match="no such user"):
        patiently(insist, clock)
    assert len(refused) == 1
    assert clock.now() - START < PATIENCE


def test_it_does_not_wait_for_ever(clock: SimClock) -> None:
    def ask() -> None:
        raise NeedsOperator("cannot be reached", passing=True)

    with pytest.raises(ServiceError):
        patiently(ask, clock)
    assert PATIENCE <= clock.now() - START <= 2 * PATIENCE


def test_what_waiting_cannot_help_is_told_at_once(clock: SimClock) -> None:
    """A rucio.cfg that is missing, say: no service was asked at all."""

    def ask() -> None:
        raise NeedsOperator("could not load a configuration", "set RUCIO_CONFIG")

    with pytest.raises(NeedsOperator, match="configuration"):
        patiently(ask, clock)
    assert clock.now() == START
