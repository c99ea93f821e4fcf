"""Credentials that run out in the middle: told an hour before, a hold at the end, renewed without a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.apps.link.judging.verdict import Reading, judge
from dc_inject.apps.link.records import LinkReader
from dc_inject.backends.sim import SimClock
from dc_inject.ledger import Signal
from dc_inject.model import Hold
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.model.ports import Identity
from tests.engine.world import CYCLE, GB, START, World, campaign, flow, items, world

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Expiring:
    """The file of a proxy or token: at some times somebody puts another one in its place."""

    def __init__(self, one: World, ends: Iterable[tuple[datetime, datetime]]) -> None:
        """Take since when which end holds."""
        self.one, self.ends, self.check = one, list(ends), one.backend.check
        one.backend.check = self.identity  # type: ignore[method-assign]
        one.backend.fault = lambda _method, _subject: self.refuse()

    @property
    def until(self) -> datetime:
        return next(end for since, end in reversed(self.ends) if since <= self.one.clock.now())

    def identity(self) -> Identity:
        return replace(self.check(), credentials_until=self.until)

    def refuse(self) -> None:
        if self.one.clock.now() >= self.until:
            raise NeedsOperator("the proxy has expired", "make a new proxy", hold="credentials")


class Said(logging.Handler):
    """Keeps warnings with the time of the simulated clock."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(logging.WARNING)
        self.clock = clock
        self.lines: list[tuple[datetime, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((self.clock.now(), record.getMessage()))

    def of(self, words: str) -> list[datetime]:
        return [at for at, line in self.lines if words in line]


@pytest.fixture
def one(tmp_path: Path) -> World:
    return world(tmp_path, campaign([flow("A", "B", 1.0)]), {"A": items("A", 200, 10 * GB)})


@pytest.fixture
def said(one: World):
    handler = Said(one.clock)
    logging.getLogger("dc_inject").addHandler(handler)
    yield handler
    logging.getLogger("dc_inject").removeHandler(handler)


def _signal(one: World) -> Signal | None:
    return next((signal for signal in one.ledger.signals() if signal.name == "credentials"), None)


def test_they_are_told_an_hour_before_held_at_the_end_and_used_as_soon_as_they_are_renewed(one, said):
    end, renewed = START + 2.5 * HOUR, START + 3.5 * HOUR
    Expiring(one, [(START, end), (renewed, START + 24 * HOUR)])
    engine = one.engine()
    engine.run(until=START + HOUR)
    assert (_signal(one).value, said.lines) == ("good", [])
    engine.run(until=START + 2 * HOUR)
    assert _signal(one).value is None
    assert end.isoformat(timespec="seconds") in _signal(one).why
    assert one.ledger.identities()[0].credentials_until == end
    engine.run(until=START + 5 * HOUR)
    (told,) = said.of("end at")
    assert end - 70 * MINUTE <= told <= end - HOUR
    rows = {row.cycle.start: row for row in one.ledger.rows()}
    during = [rows[end + number * CYCLE] for number in range(4)]
    assert {row.held.hold for row in during} == {Hold.CREDENTIALS}
    assert {row.held.numbers["message"] for row in during} == {"the proxy has expired"}
    assert rows[renewed].injected > 0, "it goes on in the same cycle"
    assert _signal(one).value == "good"
    assert one.ledger.identities()[0].credentials_until == START + 24 * HOUR


@pytest.mark.parametrize("hold", [Hold.CREDENTIALS, Hold.LOCAL])
def test_a_reading_in_the_cycle_in_which_they_end_blames_them_and_not_the_service(one, hold):
    """Its row is closed later: what `link` has to go by is what the service's last error was."""
    expiring = Expiring(one, [(START, START + 2.5 * HOUR + 2 * MINUTE)])
    readings: list[Reading] = []

    def refuse(method: str, _subject: object) -> None:
        if one.clock.now() < expiring.until:
            return
        if method == "check" and one.ledger.last_cycle().end > one.clock.now():  # asked after the first refusal
            (link,) = {row.key for row in one.ledger.rows()}
            readings.append(LinkReader(link).now(one.ledger, one.clock.now(), None, None))
        raise NeedsOperator("it does not work", hold=hold.value)

    one.backend.fault = refuse
    one.engine().run(until=START + 2.5 * HOUR + 12 * MINUTE)
    reading = readings[-1]
    assert reading.held is not None
    assert reading.held.hold is hold
    before = Reading(at=START, service="Rucio")
    verdict = judge(GB, [before, replace(reading, at=START + HOUR)])
    assert (verdict.cause.code, verdict.outage) == (hold.value, True)


def test_a_service_that_does_not_answer_in_the_last_hour_is_asked_every_five_minutes_and_no_more(one, said):
    Expiring(one, [(START, START + 3 * HOUR)])
    engine = one.engine()
    engine.run(until=START + HOUR)
    asked = one.backend.calls["check"]

    def fault(method: str, _subject: object) -> None:
        if method == "check":
            raise Temporary("no answer")

    one.backend.fault = fault
    engine.run(until=START + 3 * HOUR)
    assert 8 <= one.backend.calls["check"] - asked <= 16


def test_what_is_renewed_in_time_is_seen_within_minutes_and_held_for_nothing(one, said):
    Expiring(one, [(START, START + 3 * HOUR), (START + 2.2 * HOUR, START + 24 * HOUR)])
    engine = one.engine()
    engine.run(until=START + 2.1 * HOUR)
    assert _signal(one).value is None
    engine.run(until=START + 2.2 * HOUR + 10 * MINUTE)
    assert _signal(one).value == "good"
    engine.run(until=START + 4 * HOUR)
    assert len(said.of("end at")) == 1
    assert not [row for row in one.ledger.rows() if row.held and row.held.hold is Hold.CREDENTIALS]


def test_what_ends_soon_is_told_at_the_start(one, said):
    Expiring(one, [(START, START + 40 * MINUTE)])
    one.engine()
    assert said.of("end at") == [START]
    assert _signal(one).value is None


def test_a_start_with_renewed_ones_takes_the_trouble_of_the_last_run_back(one, said):
    Expiring(one, [(START, START + 40 * MINUTE), (START + MINUTE, START + 24 * HOUR)])
    one.engine()
    one.clock.advance(START + 2 * MINUTE)
    one.engine()
    assert _signal(one).value == "good"


def test_tokens_of_an_hour_that_somebody_renews_all_the_time_are_no_trouble_until_nobody_does(one, said):
    """Else it would be told for ever, and nobody would look; of a new one half of its time has to be over."""
    last = START + 4 * HOUR
    Expiring(one, [(START + n * 20 * MINUTE, START + n * 20 * MINUTE + HOUR) for n in range(13)])
    engine = one.engine()
    engine.run(until=last)
    assert said.of("end at") == [START]
    assert _signal(one).value == "good"
    engine.run(until=last + 40 * MINUTE)
    (_, told) = said.of("end at")
    assert last + 25 * MINUTE <= told <= last + 40 * MINUTE


def test_what_could_not_be_asked_for_want_of_files_is_no_outage_of_the_service(one):
    """Neither the cycle that is not planned, nor the silence, nor the links that wait are blamed on it."""
    since = START + 2 * HOUR

    def refuse(_method: str, _subject: object) -> None:
        if since <= one.clock.now() < since + HOUR:
            raise Temporary("EMFILE", hold="local")

    one.backend.fault = refuse
    one.engine().run(until=START + 4 * HOUR)
    rows = [row for row in one.ledger.rows() if since <= row.cycle.start < since + HOUR]
    assert {row.held.hold for row in rows} == {Hold.LOCAL}
    assert not [signal for signal in one.ledger.signals() if signal.name == "service" and signal.value is None]
