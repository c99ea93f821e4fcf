"""Calls to services: who waits for several of them knows which service did not answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Any

from dc_inject.backends.sim import SimClock
from dc_inject.engine.calls import Batch, Calls
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Finished
from tests.engine.world import START


class Hanging:
    """An executor whose tasks of one service never come back."""

    def __init__(self, clock: SimClock) -> None:
        self._clock, self._done = clock, []

    def submit(self, tag: Hashable, task: Callable[[], Any], lane: str = "") -> None:
        if (answer := task()) is not None:
            self._done.append(Finished(tag, answer, None))

    def wait(self, until: datetime) -> list[Finished]:
        done, self._done = self._done, []
        if not done:
            self._clock.advance(until)
        return done


def test_a_service_that_never_answers_is_named(wording) -> None:
    """And the answers of the others are taken."""
    clock = SimClock(START)
    calls = Calls(Hanging(clock), clock)
    batches = [Batch("fts", [1], lambda: "here"), Batch("rucio", [2], lambda: None)]
    answers, errors = calls.gather(batches, START + timedelta(minutes=1))
    assert [(batch.subjects, answer) for batch, answer in answers] == [([1], "here")]
    ((_, error),) = errors
    assert isinstance(error, Temporary)
    wording(error.message)
    assert error.lost


def test_a_service_that_a_stop_did_not_wait_for_is_not_blamed() -> None:
    """At a closed terminal, seconds after the start, the log said that Rucio gave no answer in time."""
    clock = SimClock(START)
    calls = Calls(Hanging(clock), clock)
    calls.stopping = True
    _, ((_, error),) = calls.gather([Batch("rucio", [1], lambda: None)], START + timedelta(minutes=1))
    assert isinstance(error, Temporary)
    assert (error.message, error.lost) == ("stopped before rucio answered", True)
    assert clock.now() == START
