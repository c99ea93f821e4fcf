"""Every counter counts something that really happens, and its labels stay within bounds."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dc_inject.metrics import Metrics, page
from dc_inject.metrics.page import read_address
from dc_inject.model import Cycle, events
from dc_inject.model.errors import (
    NeedsOperator,
    NoSlices,
    Permanent,
    ServiceError,
    Temporary,
    TryOtherItem,
    UsageError,
)
from dc_inject.model.events import Observer, Silent
from dc_inject.model.ports import Outcome

CYCLE = Cycle.at(datetime(2027, 2, 8, 10, tzinfo=UTC), timedelta(minutes=15))


def drive(observer: Observer) -> None:
    """Tell one of each event that the engine and the back ends tell."""
    observer.event(events.RequestMade("rucio", "submit", seconds=0.2, result="ok", answered=True))
    observer.event(events.ServiceFailed("rucio", "temporary", "busy"))
    observer.event(events.Refused("rucio", "another-now"))
    observer.event(events.Refused("rucio", "permanent"))
    observer.event(events.Answered("rucio", (Outcome("a", "r1", adopted=True), Outcome("b", "r2"))))
    observer.event(events.SetAside("cms:/a#1", "B", "it is still open"))
    observer.event(events.UnexpectedError("KeyError"))
    observer.event(events.MenusRefused("a line"))
    observer.event(events.CycleOpened(CYCLE))
    observer.event(events.Planned(CYCLE, seconds=0.4))
    observer.event(events.CycleClosed(CYCLE, seconds=200.0))
    observer.event(events.Intended(("a",)))  # nobody counts it


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"dc_inject_{name}", labels)


def test_every_declared_counter_is_incremented_by_something(tmp_path: Path) -> None:
    """No metric is declared that no event moves: what is labelled and never counted misleads."""
    metrics = Metrics(tmp_path / "none.sqlite")
    declared = {family.name for one in metrics.counted.values() for family in one.describe()}
    drive(metrics)
    moved = {
        family.name
        for one in metrics.counted.values()
        for family in one.collect()
        if any(s.value > 0 for s in family.samples if s.name.endswith(("_total", "_count")))
    }
    assert declared
    assert declared == moved


def test_calls_are_counted_by_service_method_and_result(tmp_path: Path) -> None:
    """Two good calls and a lost one are two and one, with their seconds."""
    metrics = Metrics(tmp_path / "none.sqlite")
    for seconds, result in ((0.5, "ok"), (0.25, "ok"), (60.0, "lost")):
        metrics.event(events.RequestMade("rucio", "submit", seconds, result, answered=result == "ok"))
    assert value(metrics, "calls_total", service="rucio", method="submit", result="ok") == 2
    assert value(metrics, "calls_total", service="rucio", method="submit", result="lost") == 1
    assert value(metrics, "call_seconds_sum", service="rucio", method="submit", result="ok") == 0.75


def test_a_word_that_is_not_in_the_list_becomes_other(tmp_path: Path) -> None:
    """A result or a kind that nobody foresaw adds one series, not one for each of its words."""
    metrics = Metrics(tmp_path / "none.sqlite")
    for number in range(50):
        metrics.event(events.RequestMade("rucio", "submit", 1.0, f"odd {number}", answered=True))
        metrics.event(events.ServiceFailed("rucio", f"odd {number}", ""))
    assert value(metrics, "calls_total", service="rucio", method="submit", result="other") == 50
    assert value(metrics, "errors_total", service="rucio", kind="other") == 50


def test_each_kind_of_error_has_its_own_label(tmp_path: Path) -> None:
    """Also errors that a back end derives from one of them."""

    class Refused(NeedsOperator):
        """Derived."""

    metrics = Metrics(tmp_path / "none.sqlite")
    for error in (
        Temporary("x"),
        TryOtherItem("x"),
        Permanent("x"),
        NoSlices("x"),
        NeedsOperator("x"),
        Refused("x"),
    ):
        metrics.event(events.ServiceFailed("rucio", error.kind, error.message))
    counts = {"temporary": 1, "another-now": 1, "permanent": 2, "fatal": 2, "other": None}
    assert {kind: value(metrics, "errors_total", service="rucio", kind=kind) for kind in counts} == counts


@pytest.mark.parametrize(("seconds", "overruns"), [(0.0, 0), (89.0, 0), (91.0, 1)])
def test_a_cycle_overruns_when_it_takes_a_tenth_of_the_next_one(
    tmp_path: Path, seconds: float, overruns: int
) -> None:
    """A tenth of 15 minutes is 90 seconds."""
    metrics = Metrics(tmp_path / "none.sqlite")
    metrics.event(events.CycleOpened(CYCLE))
    metrics.event(events.CycleClosed(CYCLE, seconds))
    assert value(metrics, "cycle_overruns_total") == overruns


def test_a_cycle_that_an_earlier_process_left_open_is_no_overrun(tmp_path: Path) -> None:
    """The injector was away for an hour: nothing took long."""
    metrics = Metrics(tmp_path / "none.sqlite")
    metrics.event(events.CycleClosed(CYCLE, seconds=3600.0))
    assert value(metrics, "cycles_closed_total") == 1
    assert value(metrics, "cycle_overruns_total") == 0
    assert value(metrics, "cycle_close_delay_seconds_count") == 0


def test_silent_hears_nothing() -> None:
    """It takes every event and keeps none."""
    drive(Silent())


# --------------------------------------------------------------------------- the page


def get(place: str) -> str:
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=10) as answer:
        return answer.read().decode()


def test_the_page_is_served_on_this_machine_only_and_leaves_nothing(tmp_path: Path) -> None:
    """A bare port means 127.0.0.1; after the exit nobody listens and no thread is left."""
    threads = set(threading.enumerate())
    metrics = Metrics(tmp_path / "none.sqlite")
    drive(metrics)
    with metrics.serve("0") as place:
        assert place.startswith("127.0.0.1:")
        names = {family.name for family in text_string_to_metric_families(get(place))}
        assert "dc_inject_calls" in names
    with pytest.raises(urllib.error.URLError):
        get(place)
    assert set(threading.enumerate()) <= threads  # others' threads may have come to their end


def test_an_address_in_use_is_said(tmp_path: Path) -> None:
    """A second page at the same port is an error with a hint, not a traceback."""
    with (
        Metrics(tmp_path / "a").serve("0") as place,
        pytest.raises(ServiceError, match="cannot serve") as error,
        Metrics(tmp_path / "b").serve(place),
    ):
        pytest.fail("two pages at one address")
    assert "another port" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9465", ("127.0.0.1", 9465)),
        (":9465", ("127.0.0.1", 9465)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9465", ("0.0.0.0", 9465)),
        ("[::1]:9465", ("::1", 9465)),
        ("node7.example.org:80", ("node7.example.org", 80)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    """An address is a port, or a host and a port."""
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "65536", "-1", "1.5", "host:http", "٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """A wrong address is a usage error with a hint."""
    with pytest.raises(UsageError) as error:
        read_address(text)
    assert error.value.hint


def test_a_failing_scrape_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw answers 500; the next scrape works."""
    metrics = Metrics(tmp_path / "none.sqlite")

    class Broken:
        def collect(self) -> list[object]:
            raise KeyError("nobody foresaw it")

    with metrics.serve("0") as place:
        broken = Broken()
        metrics.registry.register(broken)
        with pytest.raises(urllib.error.HTTPError) as error:
            get(place)
        assert error.value.code == 500
        error.value.close()
        metrics.registry.unregister(broken)
        assert "dc_inject_cycles_closed_total" in get(place)


def connected(place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_client_that_never_asks_keeps_nobody_from_ending(tmp_path: Path) -> None:
    """It is cut off when the page ends; a process that is done must not wait for it."""
    with contextlib.ExitStack() as stack:
        with Metrics(tmp_path / "none.sqlite").serve("0") as place:
            silent = stack.enter_context(connected(place))
            silent.sendall(b"GET /metrics HTTP/1.1\r\n")  # and no more
            get(place)  # others are served meanwhile
        assert silent.recv(1) == b""  # within the time-out of this socket


def test_clients_that_do_not_ask_make_room_for_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can use up the process's threads and files, nor keep Prometheus out; one warning tells of all."""
    monkeypatch.setattr(page, "MOST", 2)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Metrics(tmp_path / "none.sqlite").serve("0"))
        slow = [stack.enter_context(connected(place)) for _ in range(4)]
        assert gone(slow[0])
        assert gone(slow[1])
        assert "dc_inject_cycles_closed_total" in get(place)
        assert gone(slow[2])
        slow[3].sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert slow[3].recv(8) == b"HTTP/1.0"
    assert [record.levelname for record in caplog.records if " connections" in record.message] == ["WARNING"]


def test_clients_that_have_asked_are_answered_and_new_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST", 1)
    asked, go_on = threading.Event(), threading.Event()

    def app(_: object, start_response: Callable[..., object]) -> list[bytes]:
        asked.set()
        go_on.wait(30)
        start_response("200 OK", [])
        return [b"whole"]

    with page.serve(app, "0") as place, connected(place) as first:
        first.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert asked.wait(30)
        with connected(place) as third:
            assert gone(third)
        go_on.set()
        assert first.makefile("rb").read().endswith(b"whole")


@pytest.mark.parametrize(("host", "status"), [("evil.example.org", b"403"), ("localhost:1", b"200")])
def test_metrics_answer_to_names_of_this_machine_only(tmp_path: Path, host: str, status: bytes) -> None:
    with Metrics(tmp_path / "none.sqlite").serve("0") as place, connected(place) as client:
        client.sendall(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        assert client.recv(12).endswith(status)


@pytest.mark.parametrize("limit", ["ASKING", "LONGEST"])
def test_a_client_that_drips_is_cut_off_when_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Each byte comes in time, and the whole never ends."""
    monkeypatch.setattr(page, limit, 0.0)
    with Metrics(tmp_path / "none.sqlite").serve("0") as place, connected(place) as dripping:
        with contextlib.suppress(OSError):
            dripping.sendall(b"G")
        assert gone(dripping)


def gone(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


# --------------------------------------------------------------------------- whose numbers they are


def test_every_series_of_the_page_names_the_campaign(tmp_path: Path) -> None:
    """Two injectors on one Prometheus must not look like one."""
    metrics = Metrics(tmp_path / "none.sqlite", "dc27")
    drive(metrics)
    with metrics.serve("0") as place:
        families = list(text_string_to_metric_families(get(place)))
    samples = [sample for family in families for sample in family.samples]
    assert samples
    assert {sample.labels.get("campaign") for sample in samples} == {"dc27"}
