"""Thresholds: exit code 5 where one was missed, and 2 where one could not be judged; never a silent pass."""

from __future__ import annotations

import importlib
import json
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dc_inject.assembly import running
from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.ledger import LedgerView
from dc_inject.model import Cycle
from dc_inject.model.errors import ThresholdMissed, UsageError
from dc_inject.model.thresholds import parse
from dc_inject.summary.aborting import AbortOn
from tests.cli.ledgers import START, run
from tests.engine import world as simulated
from tests.engine.world import flow, items, world
from tests.sim import SimBackend

MET = 'moved{scenario="t0-export"} >= 1 TB'
MISSED = 'ratio{scenario="us-mesh"} >= 0.9 over 1h'
UNKNOWN = 'ratio{scenario="nobody"} >= 0.9'


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two scenarios over three hours; what D has for the second one is soon used up."""
    folder = tmp_path_factory.mktemp("thresholds")
    flows = [flow("A", "B", 8, scenario="t0-export"), flow("D", "B", 4, scenario="us-mesh")]
    made = world(folder, simulated.campaign(flows), {"A": items("A", 300), "D": items("D", 3)})
    made.run(12)
    made.ledger.close()
    return folder / "test.sqlite"


def outcomes(done: object) -> dict[str, str]:
    told = json.loads(done.stdout)  # type: ignore[attr-defined]
    return {one["threshold"]: one["outcome"] for one in told["thresholds"]}


@pytest.mark.parametrize("fmt", ["md", "csv", "json", "junit"])
def test_a_missed_one_is_exit_code_5_and_the_report_is_written(campaign: Path, fmt: str) -> None:
    """With what was missed, and by how much."""
    done = run("report", campaign, "--fail-under", MET, "--fail-under", MISSED, "--format", fmt)
    assert isinstance(done.exception, ThresholdMissed)
    assert done.exception.exit_code == 5
    assert done.exception.message.startswith("1 of 2 thresholds missed:")
    assert f"{MISSED}: missed: it is 0.3333, missed by 0.5667" in done.exception.message
    assert MET not in done.exception.message
    assert done.stdout


def test_a_met_one_is_exit_code_0(campaign: Path) -> None:
    """And it stands in the report."""
    done = run("report", campaign, "--fail-under", MET)
    assert done.exit_code == 0, done.exception
    assert "## Thresholds" in done.stdout
    assert "| met | it is " in done.stdout
    assert "Thresholds" not in run("report", campaign).stdout


@pytest.mark.parametrize(
    "threshold",
    [UNKNOWN, "ratio >= 0.1 over 1 d"],
)
def test_what_cannot_be_judged_is_no_pass(campaign: Path, threshold: str, wording) -> None:
    """Exit code 2, as that of a mini-challenge that is inconclusive."""
    done = run("report", campaign, "--fail-under", threshold, "--fail-under", MET)
    assert isinstance(done.exception, UsageError)
    assert f"{threshold}: inconclusive: " in done.exception.message
    wording(done.exception)
    both = run("report", campaign, "--fail-under", threshold, "--fail-under", MISSED).exception
    assert isinstance(both, ThresholdMissed)
    assert f"{threshold}: inconclusive: " in both.message


def test_the_time_is_that_of_the_newest_cycles_that_count(campaign: Path) -> None:
    """Excluded windows do not; sums are those of the report of the same time."""
    last = "2027-02-08T12:00Z"
    hour = json.loads(run("report", campaign, "--since", last, "--format", "json").stdout)["totals"]
    found = run("report", campaign, "--fail-under", "moved >= 0 B over 1h", "--format", "json")
    assert json.loads(found.stdout)["thresholds"][0]["value"] == hour["moved"]
    cut = ("--exclude", "2027-02-08T12:00/13:00 cut")
    before = json.loads(run("report", campaign, "--until", last, "--format", "json").stdout)["totals"]
    found = run("report", campaign, "--fail-under", "moved >= 0 B over 2h", "--format", "json", *cut)
    assert json.loads(found.stdout)["thresholds"][0]["value"] == before["moved"]
    assert outcomes(run("report", campaign, "--fail-under", "moved >= 0 B over 3h", "--format", "json", *cut)) == {
        "moved >= 0 B over 3h": "inconclusive"
    }


def test_junit_has_a_test_case_for_each(campaign: Path) -> None:
    """Missed is a failure, inconclusive an error; names are text."""
    name = 'ratio{scenario="<b>&"} >= 0.9'
    arguments = [part for one in (MET, MISSED, name) for part in ("--fail-under", one)]
    suite = ET.fromstring(run("report", campaign, "--format", "junit", *arguments).stdout).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {MET: ["system-out"], MISSED: ["failure"], name: ["error"]}
    none = run("report", campaign, "--format", "junit").exception
    assert isinstance(none, UsageError)
    assert "--fail-under" in (none.hint or "")


def test_a_mistake_is_told_with_its_place(campaign: Path, wording) -> None:
    """And what to write."""
    done = run("report", campaign, "--fail-under", 'ratio{scenaro="x"} >= 1')
    assert done.exit_code == 2
    assert "at character 7" in done.stderr
    wording(done.stderr)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ratio >= 0.5 over 1h", "write < instead"),
        ("failed_files < 5", "write >= instead"),
        ("ratio < 1", "over 1h"),
    ],
)
def test_a_condition_that_would_end_a_good_run_is_refused(tmp_path: Path, text: str, hint: str) -> None:
    """It is read as it is written: the run ends once it holds."""
    (tmp_path / "m.yaml").write_text("")
    done = run("run", tmp_path / "m.yaml", "--abort-on", text)
    assert done.exit_code == 2
    assert hint in done.stderr


def test_a_condition_stops_the_engine_once_it_holds(tmp_path: Path) -> None:
    """After the cycle in which it came true, and in good order: every cycle is closed."""
    made = world(tmp_path, simulated.campaign([flow("D", "B", 4)]), {"D": items("D", 3)})
    watching = AbortOn([parse("injected_ratio < 0.5 over 30 min")], made.ledger, made.heard)
    engine = made.engine()
    engine._context.observer = watching
    watching.stop = engine.stop
    engine.run(until=START + timedelta(hours=4))
    assert engine.stopping
    with pytest.raises(ThresholdMissed, match=r"injected_ratio < 0.5 over 30 min: it is 0"):
        watching.judge(menus_too=False)
    assert made.clock.now() < START + timedelta(hours=2)


MENU = """\
menu: 1
campaign: dc27
contact: dc-ops@example.org
start: 2027-02-08 10:00
end: 2027-02-08 11:00
thresholds:
  - moved{{scenario="one"}} >= 100 GB
  - {more}
scenarios:
  one:
    datasets: {{did: "cms:*"}}
    links: [{{from: A, to: B, rate: 8 Gb/s}}]
"""


@pytest.fixture
def simulated_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signals_of_a_terminal: None) -> Path:
    """A place for a menu, which `run` injects into a simulated service, on a simulated clock."""
    del signals_of_a_terminal
    clock = SimClock(Cycle.at(START, timedelta(minutes=15)).start)

    class Executor(InlineExecutor):
        def __init__(self, clock: SimClock, threads: int, **_: object) -> None:
            del threads
            super().__init__(clock)

        def close(self) -> None:
            """Nothing is left."""

    module = importlib.import_module("dc_inject.cli.run")
    monkeypatch.setattr(module, "SystemClock", lambda: clock)
    monkeypatch.setattr(running, "ThreadExecutor", Executor)
    backend = SimBackend(clock, {"A": items("A", 300)})
    monkeypatch.setattr(module.common, "backends", lambda *_, **__: {"rucio": backend})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "menu.yaml"


@pytest.mark.parametrize(
    ("more", "code"), [("ratio >= 0.1", 0), ("moved >= 100 PB", 5), ("ratio >= 0.1 over 1 d", 2)]
)
def test_those_of_menus_are_judged_at_the_end_of_a_run_and_in_reports(
    simulated_run: Path, more: str, code: int
) -> None:
    """From the ledger, which has the menus."""
    simulated_run.write_text(MENU.format(more=more))
    done = run("run", simulated_run, "--no-drain")
    assert getattr(done.exception, "exit_code", 0) == code, done.exception
    told = run("report", "dc27", "--format", "json")
    assert getattr(told.exception, "exit_code", 0) == code
    assert list(outcomes(told)) == ['moved{scenario="one"} >= 100 GB', more]
    with LedgerView.open(simulated_run.parent / "state" / "dc_inject" / "dc27.sqlite") as view:
        assert view.last_cycle() is not None


def test_a_condition_about_no_link_of_the_menus_is_refused(simulated_run: Path, wording) -> None:
    """A name with a typing error would never end anything; and nothing is left behind."""
    simulated_run.write_text(MENU.format(more="ratio >= 0.1"))
    done = run("run", simulated_run, "--no-drain", "--abort-on", 'ratio{scenario="onne"} < 0.5 over 1h')
    assert isinstance(done.exception, UsageError)
    wording(done.exception.message)
    assert not (simulated_run.parent / "state" / "dc_inject" / "dc27.sqlite").exists()


def test_a_run_that_is_aborted_ends_with_5(simulated_run: Path, wording) -> None:
    """And says what held."""
    simulated_run.write_text(MENU.format(more="ratio >= 0.1"))
    done = run("run", simulated_run, "--no-drain", "--abort-on", "rules > 0 over 15 min")
    assert isinstance(done.exception, ThresholdMissed)
    wording(done.exception.message)
    assert "rules > 0 over 15 min: it is " in done.exception.message
