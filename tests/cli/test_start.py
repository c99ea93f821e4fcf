"""One call that fails at the start of `run` is tried again; what a person has to repair is told at once."""

from __future__ import annotations

import importlib
from datetime import timedelta

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.errors import Fatal, ServiceError, Temporary, UsageError
from tests.cli.ledgers import START

command = importlib.import_module("dc_inject.cli.run")
PATIENCE = timedelta(seconds=30)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimClock:
    """A clock that goes on when the command sleeps."""
    clock = SimClock(START)
    monkeypatch.setattr(
        command.time, "sleep", lambda seconds: clock.advance(clock.now() + timedelta(seconds=seconds))
    )
    return clock


def test_a_call_that_fails_is_tried_again(clock: SimClock) -> None:
    answers = [Temporary("504"), Fatal("cannot be reached"), None]

    def ask() -> str:
        if error := answers.pop(0):
            raise error
        return "answer"

    assert command.patiently(ask, clock, PATIENCE) == "answer"
    assert answers == []
    assert timedelta(0) < clock.now() - START < PATIENCE


def test_what_a_person_has_to_repair_is_told_at_once(clock: SimClock) -> None:
    def ask() -> None:
        raise UsageError("an administrator's account")

    with pytest.raises(UsageError):
        command.patiently(ask, clock, PATIENCE)
    assert clock.now() == START


def test_credentials_count_as_refused_when_they_are_refused_twice(clock: SimClock) -> None:
    answers = [Temporary("504"), Fatal("no such user", hold="credentials"), None]

    def ask() -> str:
        if error := answers.pop(0):
            raise error
        return "answer"

    assert command.patiently(ask, clock, PATIENCE) == "answer"
    refused = [Fatal("no such user", hold="credentials")] * 3

    def insist() -> None:
        raise refused.pop()

    with pytest.raises(Fatal, match="no such user"):
        command.patiently(insist, clock, PATIENCE)
    assert len(refused) == 1
    assert clock.now() - START < PATIENCE


def test_it_does_not_wait_for_ever(clock: SimClock) -> None:
    def ask() -> None:
        raise Fatal("cannot be reached")

    with pytest.raises(ServiceError):
        command.patiently(ask, clock, PATIENCE)
    assert PATIENCE <= clock.now() - START <= 2 * PATIENCE
