"""`dc-inject link`: one line makes a menu, checks, runs and ends it, and tells what each step has shown."""

from __future__ import annotations

import io
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.apps.link import command, verdicts
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.apps.link.reachability import Reachability
from dc_inject.cli.shared import tables
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Hold, Link, State, units, urls
from dc_inject.model.errors import Temporary, ThresholdMissed, UsageError
from dc_inject.system import files
from tests.apps.link.linking import SEARCH, A, B, signalled, states
from tests.cli.ledgers import START, run
from tests.engine.world import GB, items, source_files, url
from tests.wording import lines


def test_a_link_that_takes_it_is_told_and_its_rules_are_ended(service, tmp_path: Path) -> None:
    """The menu is kept, has no finding, and says what was asked for."""
    service()
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--format", "json")
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    (step,) = told["steps"]
    assert step["rate"] == 4e9 / 8
    assert step["ratio"] == pytest.approx(1, abs=0.1)
    assert (told["outcome"], told["capacity"], told["cause"]) == ("reached", None, None)
    assert (told["state"], told["ends_by"]) == ("ended", None)
    assert (step["outcome"], step["cause"], step["reason"]) == ("reached", None, "")
    assert f"menu: {told['menu']}" in done.stderr
    assert "verdict expected between 2027-02-08T11:00:00Z and about 2027-02-08T11:20:00Z" in done.stderr
    assert "rules/jobs" not in done.stderr, "a table would repeat what the line about the cycle says"
    assert f"way to {B}: " in done.stderr
    moved = units.format_rate(step["moved_rate"])
    verdict = run("link", "--verdict", "mini").stdout.splitlines()[-1]
    assert verdict.startswith(f"{moved}, {A} -> {B}: reached: ")
    for reader in ("status", "explain"):
        assert run(reader, "mini").stdout.startswith(verdict)
    assert json.loads(run("status", "mini", "--format", "json").stdout)["verdict"] == verdict
    campaign = menu.campaign([draft.preview for draft in files.read_menus([Path(told["menu"])])])
    assert lint.findings(campaign) == ()
    (flow,) = campaign.flows
    assert (flow.link, flow.rate, flow.start) == (Link(A, B), 4e9 / 8, START)
    assert states(tmp_path, "mini") <= {State.ENDED, State.GONE, State.WITHDRAWN}
    assert (tmp_path / "dc_inject" / "links").stat().st_mode & 0o777 == 0o700


def test_a_search_tells_where_the_link_stands(service, tmp_path: Path) -> None:
    """As a table, with the trials up, the one between, and its repeats; what was on its way is ended."""
    service(5)
    done = run("link", A, B, "--rate", "2Gb/s", *SEARCH, "--campaign", "mini", "--cancel-rate", "60/min")
    assert done.exit_code == 0, done.exception
    assert "verdict expected by about " in done.stderr, "a search may find out earlier"
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == ["2", "4", "8", *["5"] * 4]
    then = [line.split()[-1] for line in lines[1:-1]]
    assert then == ["step", "step", "between", *["confirm"] * 3, "stop"]
    assert lines[-1].startswith(
        f"{A} -> {B}: reached: capacity 5 Gb/s (95 %: 4.86 Gb/s to 5.14 Gb/s); of 8 Gb/s only 5 Gb/s moved, and "
    )
    assert "step 3, not reached" not in done.stderr, "the last line says it"
    assert states(tmp_path, "mini") <= {State.ENDED, State.GONE, State.WITHDRAWN}


def test_the_terminal_and_every_report_show_one_capacity_of_a_search(service) -> None:
    """The same value and the same interval, computed once; trials are no repeats with a mean of their own."""
    service(5)
    searched = ("--rate", "2Gb/s", *SEARCH, "--campaign", "mini", "--cancel-rate", "60/min", "--format", "json")
    verdict = json.loads(run("link", A, B, *searched).stdout)
    again = json.loads(run("link", "--verdict", "mini", "--format", "json").stdout)
    report = json.loads(run("report", "mini", "--format", "json").stdout)
    keys = ("outcome", "cause", "reason", "outage", "capacity", "interval")
    found = {key: verdict[key] for key in keys}
    assert found["capacity"] == pytest.approx(5e9 / 8)
    assert found["interval"][0] < found["capacity"] < found["interval"][1]
    assert {key: again[key] for key in keys} == report["challenge"] == found
    assert report["repeats"] == []
    assert run("report", "mini").stdout.count("## By") == 2, "others repeat the row of the one link"
    shown = "capacity 5 Gb/s (95 %: 4.86 Gb/s to 5.14 Gb/s)"
    assert shown in run("link", "--verdict", "mini").stdout
    for fmt, words in (("md", shown), ("html", shown), ("html", f"of {A} -&gt; {B}"), ("junit", shown)):
        assert words in run("report", "mini", "--format", fmt).stdout, fmt


def test_a_step_that_is_missed_has_an_exit_code_of_its_own(service) -> None:
    """And the verdict is told all the same."""
    service(3)
    done = run(
        "link", A, B, "--rate", "2Gb/s", "--step", "2Gb/s", "--every", "30m", "--for", "1h", "--format", "csv"
    )
    assert isinstance(done.exception, ThresholdMissed)
    assert done.exception.exit_code == 5
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["step", "1", "2"]
    assert "not reached: 1 of 2 steps not reached: at 4 Gb/s only" in done.stderr


def test_a_storage_that_is_stopped_in_the_middle_is_named(service, wording) -> None:
    """Rucio says nothing of it: rules stand still. Nothing is said of the link."""
    with socket.create_server(("127.0.0.1", 0)) as storage:

        def stop_it(_method: str, _subject: object) -> None:
            if backend.clock.now() >= START + timedelta(minutes=40):
                storage.close()
                backend.speed = lambda _link: 0.0

        backend = service(fault=stop_it, served_at={A: [], B: [storage.getsockname()]})
        done = run("link", A, B, "--rate", "2Gb/s", "--for", "2h", "--format", "json")
    told = json.loads(done.stdout)
    assert told["outcome"] == "inconclusive"
    assert f"{B} did not accept " in told["reason"]
    wording(done.exception.hint)


def test_after_an_outage_the_hint_says_what_comes_first(service, wording) -> None:
    """What the service still has would move beside the step that is repeated."""

    def gone(_method: str, _subject: object) -> None:
        if backend.clock.now() >= START + timedelta(minutes=30):
            raise Temporary("no answer in time")

    backend = service(fault=gone)
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    assert done.exception.exit_code == 4
    wording(done.exception.hint)


def test_a_storage_that_is_stopped_between_two_readings_is_named(service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is up again at the turn of the cycle, and what was late is no sign of a link that is full."""
    watched: list[tuple[Reachability, timedelta]] = []

    @contextmanager
    def watch(self: Reachability, every: timedelta) -> Iterator[None]:
        watched.append((self, every))
        yield

    monkeypatch.setattr(Reachability, "watched", watch)
    with ExitStack() as stack:
        storage = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        place = storage.getsockname()

        def stop_it(_method: str, _subject: object) -> None:
            if backend.clock.now() >= START + timedelta(minutes=40) and storage.fileno() != -1:
                storage.close()
                watched[0][0].probe()
                watched[0][0].probe()
                stack.enter_context(socket.create_server(place))

        backend = service(1, fault=stop_it, served_at={A: [], B: [place]})
        done = run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--format", "json", "--cancel-rate", "60/min")
    told = json.loads(done.stdout)
    assert (told["outcome"], told["cause"]) == ("inconclusive", "storage-down")
    assert watched[0][1] == timedelta(minutes=1), "a tenth of a cycle"


@pytest.mark.parametrize(
    ("size", "every", "lasting", "warned"),
    [(50, "30m", "1h", True), (45, "30m", "1h", False), (50, "1h", "2h", False)],
)
def test_steps_of_few_datasets_are_warned_of(
    service, size: int, every: str, lasting: str, warned: bool, wording
) -> None:
    """Once, when less than ten datasets of the mean size fit into a step of 2 Gb/s, with what is better."""
    service(stock={A: items(A, 300, size * GB)})
    done = run("link", A, B, "--rate", "2Gb/s", "--step", "1Gb/s", "--every", every, "--for", lasting)
    assert done.stderr.count("it inconclusive") == warned
    if warned:
        assert done.stderr.index("it inconclusive") < done.stderr.index("menu: "), "before anything is injected"
        wording(lines(done.stderr, "9.0 datasets"))
        assert "--every" in done.stderr


def test_through_fts_files_are_counted(service) -> None:
    """There is nothing to slice."""
    service(stock=source_files("A", 100), name="fts")
    ends = ("link", url("A"), url("B"), "--fts", "https://fts.example.org:8446")
    done = run(*ends, "--rate", "10Mb/s", "--for", "1h")
    assert "holds only 4.5 files of 1 GB" in done.stderr
    assert "slices" not in done.stderr


@pytest.mark.parametrize(("name", "counted_by"), [("rucio", 10 * GB), ("fts", GB)])
def test_what_moves_is_counted_in_datasets_or_through_fts_in_files(
    service, tmp_path: Path, name, counted_by
) -> None:
    """Which is how near a trial can tell."""
    service(stock={A: items(A, 100, 10 * GB, files=5)} if name == "rucio" else source_files("A", 100), name=name)
    ends = (A, B) if name == "rucio" else (url("A"), url("B"), "--fts", "https://fts.example.org:8446")
    run("link", *ends, "--rate", "1Gb/s", "--for", "30m", "--campaign", "mini")
    with LedgerView.open(tmp_path / "dc_inject" / "mini.sqlite") as view:
        last = [values for _, kind, values in view.challenge() if kind == "reading"][-1]
    assert last["counted_by"] == counted_by
    assert f"sites: {{{urls.host_of(ends[1])}: " in (tmp_path / "dc_inject/links/mini.yaml").read_text()


def test_a_step_that_is_ended_early_is_never_reached_and_is_begun_anew(service) -> None:
    """All that was asked for had moved, of a part of its time."""
    backend = service()
    signalled(backend, "submit", 8)
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--format", "json")
    told = json.loads(done.stdout)
    assert (told["outcome"], told["cause"], told["outage"]) == ("inconclusive", "ended-early", False)
    assert "ended early" in told["reason"]
    assert done.exception.exit_code == 2
    on = run("link", "--resume", "mini")
    assert on.exit_code == 0, on.exception
    assert "every step" in on.stdout


def test_a_search_that_has_reached_its_bound_says_what_bounds_it(service, wording) -> None:
    """Time alone would not tell whether the link takes more."""
    service()
    search = ("--every", "10m", "--until-saturated", "--max", "4Gb/s", "--for", "8m", "--campaign", "mini")
    done = run("link", A, B, "--rate", "2Gb/s", *search, "--cancel-rate", "60/min")
    wording(lines(done.stdout, "4 Gb/s, "))
    wording(done.exception.hint)
    assert "capacity at least " in run("report", "mini").stdout


@pytest.mark.parametrize("lasting", [14, 50, 90])
def test_a_resumed_test_is_not_blamed_for_the_time_in_which_it_was_stopped(
    service, tmp_path: Path, lasting: int, wording
) -> None:
    """Its step begins when it is resumed: cut short once more, it ended early, and no injector was missing."""
    backend = service(3)
    backend.clock.advance(START + timedelta(seconds=21))  # so that it stops in a cycle that has injected

    def stop_after(lasting: timedelta) -> None:
        moment = backend.clock.now() + lasting

        def fault(_method: str, _subject: object) -> None:
            if backend.clock.now() >= moment:
                backend.fault = lambda _method, _subject: None
                signal.raise_signal(signal.SIGINT)

        backend.fault = fault

    steps = ("--rate", "6Gb/s", "--for", "4m", "--campaign", "six", "--cancel-rate", "60/min")
    stop_after(timedelta(seconds=75))
    begun = run("link", A, B, *steps)
    assert begun.exception.message == "six: inconclusive (ended-early)"
    backend.clock.advance(backend.clock.now() + timedelta(minutes=6))
    stop_after(timedelta(seconds=lasting))
    on = run("link", "--resume", "six", "--cancel-rate", "60/min")
    assert on.exception.message == "six: inconclusive (ended-early)"
    wording(on.exception.hint)
    assert "inconclusive: 1 of 1 step inconclusive, besides 1 that was repeated: at 6 Gb/s it ended" in on.stdout
    with LedgerView.open(tmp_path / "dc_inject" / "six.sqlite") as view:
        rows = [row for row in view.rows() if row.cycle.start >= START + timedelta(minutes=7)]
    assert rows[0].held.hold is Hold.NOT_RUNNING, "it forgives what was due before"


def test_a_step_that_was_cut_short_can_be_made_again_after_one_that_was_not_reached(service) -> None:
    """The whole is not reached then, and the cut step is still open."""
    backend = service(3)
    steps = ("--rate", "4Gb/s", "--step", "1Gb/s", "--every", "30m", "--for", "1h", "--campaign", "mini")
    backend.fault = lambda method, _subject: (
        signal.raise_signal(signal.SIGTERM)
        if method == "submit" and backend.clock.now() >= START + timedelta(minutes=40)
        else None
    )
    done = run("link", A, B, *steps, "--cancel-rate", "60/min")
    assert isinstance(done.exception, ThresholdMissed)
    assert "ended-early" in done.stdout
    backend.fault = lambda _method, _subject: None
    on = run("link", "--resume", "mini", "--cancel-rate", "60/min")
    assert "repeat" in on.stdout, on.exception
    assert run("link", "--resume", "mini").exception.message.startswith("mini is over")


def test_what_was_never_asked_for_is_not_left_anywhere(service) -> None:
    """It was planned when the signal came, and nothing had been injected."""
    signalled(service(), "submit", 1, lost=False)
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--format", "json")
    told = json.loads(done.stdout)
    assert (told["resident"], told["in_doubt"]) == (0, 0)
    assert "left at" not in done.stderr
    view = run("status", "mini").stdout
    assert "planned" in view.split("rules and jobs: ")[1].splitlines()[0]


def test_what_is_in_doubt_is_told_as_that(service, wording) -> None:
    """With what settles it, which a user of this command has."""
    backend = service()
    signalled(backend, "submit", 1, lost=True)
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "1h", "--campaign", "mini", "--format", "csv")
    wording(lines(done.stderr, "in doubt"))
    assert "in doubt: 10 GB, in calls that got no answer" in done.stderr
    assert "left at" not in done.stderr
    assert "1 in doubt" in run("status", "mini").stdout
    backend.clock.advance(backend.clock.now() + timedelta(minutes=5))
    assert run("end", "mini", "--yes").exit_code == 0
    told = json.loads(run("link", "--verdict", "mini", "--format", "json").stdout)
    assert (told["resident"], told["in_doubt"]) == (0, 0)


@pytest.mark.parametrize("cause", [None, "destination-unavailable"])
@pytest.mark.parametrize("most", [80, 100, 110])
@pytest.mark.parametrize(
    ("rate", "moved", "failed"), [(7.5e8, 7.56e8, 0.214), (2.1625e8, 3.05e8, 0.0), (1.5625e9, 1.75e9, 1.0)]
)
def test_the_table_of_steps_fits_a_terminal(
    cause: str | None, most: int, rate: float, moved: float, failed: float
) -> None:
    """No word and no time is folded or cut, however long numbers are."""
    step = {
        "step": 1, "rate": rate, "moved_rate": moved, "ratio": moved / rate, "failed": failed,
        "start": "2026-11-22T15:18:00Z", "measured": "2026-11-22T15:20:00Z", "end": "2026-11-22T15:22:00Z",
        "outcome": "inconclusive", "cause": cause, "next": "stop",
    }  # fmt: skip
    console = Console(width=most, record=True, file=io.StringIO())
    console.print(tables.table(command.STEPS, [step], most=most))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= most
    assert {"15:20:00", "15:22:00", "inconclusive"} <= set(lines[1].split())
    assert all(line.startswith("(--wide") for line in lines[2:]), "the row is folded"


def verdict_of(**more: object) -> dict[str, object]:
    """A verdict as it is told, of one step."""
    step = {"step": 1, "outcome": "not reached", "cause": "failing", "failed": 0.328, "reason": "33 % failed: it",
            "moved_rate": 0.0,
            "disturbed": None}  # fmt: skip
    told = {"outcome": "not reached", "cause": "failing", "reason": "1 of 1 step not reached: 33 % failed: it"}
    told |= {
        "source": A,
        "destination": B,
        "service": "rucio",
        "campaign": "mini",
        "capacity": None,
        "outage": False,
    }
    return {**told, "steps": [step], "failed_files": {}, "resident": 0, "in_doubt": 0, **more}


@pytest.mark.parametrize(("files", "said"), [({}, "(reasons not reported)"), ({"timeout": 3}, "3 timeout")])
def test_failed_files_have_their_reasons_or_it_is_said_that_they_have_none(
    capsys: pytest.CaptureFixture[str], files: dict[str, int], said: str
) -> None:
    command.emit("table", verdict_of(failed_files=files))
    assert f"failed files: {said}" in capsys.readouterr().err


def test_classes_of_rules_that_were_given_up_are_told(tmp_path: Path) -> None:
    """They are ended before anybody has counted them."""
    with Ledger.open(tmp_path / "one.sqlite") as ledger:
        progress = Progress(Ladder(1e9, timedelta(hours=1)), START + timedelta(hours=1))
        progress.take(Reading(START))
        progress.take(Reading(START + timedelta(minutes=10), classes={"timeout": 4}))
        asked = SimpleNamespace(key=None)
        assert verdicts.failed_files(asked, progress, ledger) == {"timeout": 4}


def test_a_reason_is_told_once(service) -> None:
    """Besides the log: in the last line, not above it and below it again."""
    service(3)
    done = run("link", A, B, "--rate", "4Gb/s", "--for", "12m", "--cancel-rate", "60/min")
    talk = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert "\n".join([done.stdout, *talk, done.exception.message]).count("their way") == 1
    assert done.exception.message.endswith(": not reached (saturated)")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_rules_and_tells_the_verdict_so_far(
    service, tmp_path: Path, number: signal.Signals
) -> None:
    """Of the step that it cut short, too; a closed terminal is one, and what goes on later knows all of it."""
    calls = []

    def fault(method: str, subject: object) -> None:
        del subject
        calls.append(method)
        if calls.count("submit") == 60:
            calls.append("submit")  # once
            signal.raise_signal(number)

    service(5).fault = fault
    done = run("link", A, B, "--rate", "2Gb/s", *SEARCH, "--campaign", "mini", "--cancel-rate", "60/min")
    assert done.exception.exit_code == 2, "nothing was wrong, and nothing is known"
    assert f"{number.name}: stopping" in done.stderr
    assert 1 <= len(done.stdout.splitlines()) - 2 < 7
    assert done.exception.message == "mini: inconclusive (ended-early)"
    assert "ended early" in done.stdout
    again = run("link", "--verdict", "mini")
    assert again.stdout == done.stdout
    assert (again.exception.exit_code, again.exception.message) == (2, done.exception.message)
    on = run("link", "--resume", "mini", "--cancel-rate", "60/min")
    assert on.exit_code == 0, on.exception
    assert "capacity 5 Gb/s" in on.stdout
    first, again = (told.stdout.splitlines()[1].split() for told in (done, on))
    assert first == again, "what was judged stays"
    assert run("link", "--resume", "mini").exception.message.startswith("mini is over")
    assert "link --resume mini" in done.exception.hint
    assert not any(state.in_service for state in states(tmp_path, "mini"))


@pytest.mark.parametrize(
    "words",
    [
        ("--rate", "2Gb/s"),
        ("--rate", "2Gb/s", "--step", "1Gb/s", "--until-saturated"),
        ("--rate", "2Gb/s", "--until-saturated", "--max", "9Gb/s", "--for", "8d"),
        ("--rate", "2Gb/s", "--for", "1h", "--max", "1Gb/s"),
        ("--rate", "2Gb/s", "--for", "1h", "--every", "10m"),
        ("--rate", "2Gb/s", "--for", "1h", "--cycle", "1h"),
        ("--rate", "2Gb/s", "--for", "1h", "--step", "1Gb/s", "--every", "3h"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    service, tmp_path: Path, words: tuple[str, ...], wording
) -> None:
    """Before anything is written."""
    service()
    error = run("link", A, B, *words).exception
    assert isinstance(error, UsageError)
    wording(error)
    assert not (tmp_path / "dc_inject").exists()


@pytest.mark.parametrize("ends", [(A, A), (A, url("B"))])
def test_ends_that_make_no_link_are_refused(service, ends: tuple[str, str]) -> None:
    service()
    assert isinstance(run("link", *ends, "--rate", "2Gb/s", "--for", "1h").exception, UsageError)


def test_the_page_has_every_key(service) -> None:
    """What is printed is what docs/reference/link.md describes."""
    service()
    told = json.loads(run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--format", "json").stdout)
    page = (Path(__file__).parents[3] / "docs" / "reference" / "link.md").read_text()
    example = json.loads(page.split("```json verdict\n")[1].split("```")[0])
    assert list(example) == list(told)
    assert list(example["steps"][0]) == list(told["steps"][0])
