"""What services' clocks show, by their answers; and a machine's clock that is guarded against leaps."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
import requests

from dc_inject.engine import admission
from dc_inject.model.errors import UsageError
from dc_inject.model.ports import Identity
from dc_inject.system import clock as system_clock
from dc_inject.system.clock import SystemClock
from dc_inject.system.transport import Adapter, ExchangeLimits, Session
from tests.storage.server import running

NOW = datetime(2027, 2, 8, 10, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def date(moment: datetime) -> str:
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")


class Steady:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    made = Steady()
    monkeypatch.setattr(system_clock, "steady", made)
    return made


@pytest.fixture
def host() -> str:
    return f"https://{uuid.uuid4().hex}.example.org"


def test_a_date_grows_with_the_time_that_has_passed_since(steady: Steady, host: str) -> None:
    assert system_clock.measure_lead(host, NOW) is None
    system_clock.note_date(f"{host}:443/whoami?x=1", {"Date": date(NOW)})
    assert system_clock.measure_lead(host, NOW + 20 * MINUTE) == 20 * MINUTE
    steady.seconds += 60
    assert system_clock.measure_lead(host, NOW + 20 * MINUTE) == 19 * MINUTE
    assert system_clock.measure_lead(host, NOW, since=steady.seconds) is None
    assert system_clock.measure_lead(f"{host}:8446", NOW) is None


def test_an_answer_of_a_cache_is_as_old_as_it_says(steady: Steady, host: str) -> None:
    system_clock.note_date(host, {"Date": date(NOW - 10 * MINUTE), "Age": "600"})
    assert system_clock.measure_lead(host, NOW) == timedelta(0)


def test_one_front_end_that_is_wrong_does_not_count(steady: Steady, host: str) -> None:
    for wrong in (0, 0, 600, 0, -900):
        system_clock.note_date(host, {"Date": date(NOW + wrong * MINUTE)})
    assert system_clock.measure_lead(host, NOW) == timedelta(0)


@pytest.mark.parametrize("odd", ["", "yesterday", "2027-02-08T10:00:00Z", "Mon, 99 Feb 2027 10:00:00 GMT", "\x00"])
def test_what_is_no_date_is_not_taken(steady: Steady, host: str, odd: str) -> None:
    system_clock.note_date(host, {"Date": odd})
    system_clock.note_date(host, {})
    system_clock.note_date(host, {"Date": date(NOW), "Age": "9" * 40})
    assert system_clock.measure_lead(host, NOW) == timedelta(0)


def test_every_answer_of_the_gate_is_heard() -> None:
    with running() as server, Session(Adapter(ExchangeLimits(30.0)), environment=False) as session:
        server.tricks["GET"] = lambda handler: handler.answer(404, Date=handler.date_time_string())
        before = system_clock.steady()
        answer = session.get(f"{server.url}/nothing", timeout=30)
        assert isinstance(answer, requests.Response)
        told = system_clock.measure_lead(server.url, datetime.now(UTC), before)
    assert told is not None
    assert abs(told) < MINUTE


@pytest.mark.parametrize(("off", "refused"), [(14, False), (16, True), (-16, True), (0, False)])
def test_a_clock_more_than_a_cycle_away_is_refused(steady: Steady, host: str, off: int, refused: bool) -> None:
    me = Identity("rucio", host, "1", "def", "me", admin=False, may_end=True)
    system_clock.note_date(host, {"Date": date(NOW)})
    shown, cycle = NOW + off * MINUTE, 15 * MINUTE
    if not refused:
        admission.refuse_clock([me], shown, cycle)
        return
    with pytest.raises(UsageError) as error:
        admission.refuse_clock([me], shown, cycle)
    assert "--accept-clock" in str(error.value.hint)


def test_a_guarded_clock_follows_small_steps_and_no_leap(steady: Steady, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_clock, "steady", steady)
    shown = [NOW]
    monkeypatch.setattr(SystemClock, "shown", lambda _: shown[0])
    clock = SystemClock()
    shown[0] = NOW + 60 * MINUTE
    assert clock.now() == NOW + 60 * MINUTE, "it is not guarded yet"
    clock.guard()

    def passes(seconds: float, leap: timedelta = timedelta(0)) -> datetime:
        steady.seconds += seconds
        shown[0] += timedelta(seconds=seconds) + leap
        return clock.now()

    assert passes(10, timedelta(seconds=30)) == shown[0]
    began = shown[0]
    assert passes(10, timedelta(days=1)) == began + timedelta(seconds=10)
    assert clock.leap() == timedelta(days=1)
    assert passes(10, -timedelta(days=1)) == shown[0] == began + timedelta(seconds=20)
    assert clock.leap() == timedelta(0)
    assert passes(10, -2 * 60 * MINUTE) == began + timedelta(seconds=30)
    assert clock.leap() == -2 * 60 * MINUTE
    assert (clock.farthest(), clock.farthest()) == (timedelta(days=1), timedelta(0))
    clock.follow()
    assert clock.now() == shown[0]
    assert clock.leap() == timedelta(0)
