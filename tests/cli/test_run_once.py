"""`dc-inject run --once`: a menu that becomes wrong costs cron no cycle, as it costs a resident run none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dc_inject.cli.shared import exits, log_output
from dc_inject.ledger import LedgerView
from dc_inject.model.errors import LedgerError, MenuError
from tests.apps.link.linking import A, B
from tests.cli.ledgers import run

MENU = f"""menu: 1
campaign: dc27
contact: me@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 14:00
target: 4 Gb/s
include: _sites.yaml
scenarios:
  s: {{from: {A}, to: {B}, rate: 4 Gb/s}}
"""
PART = "defaults: {datasets: {did: 'cms:*', mean_file: 0.1..20 GB}}\n"


@pytest.fixture
def menus(tmp_path: Path) -> Path:
    folder = tmp_path / "menus"
    folder.mkdir()
    (folder / "day.yaml").write_text(MENU)
    (folder / "_sites.yaml").write_text(PART)
    return folder


def injected(tmp_path: Path) -> list[int]:
    """What each closed cycle has injected."""
    with LedgerView.open(tmp_path / "dc_inject" / "dc27.sqlite") as view:
        return [row.injected for row in view.rows()]


def replaced(name: str, before: str, after: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after))

    return edit


def removed(folder: Path) -> None:
    (folder / "day.yaml").unlink()


WRONG = {
    "a typing error": replaced("day.yaml", "scenarios:", "scenario:"),
    "no YAML": replaced("day.yaml", "menu: 1", "menu: [1"),
    "its campaign cannot be read": replaced("day.yaml", "campaign: dc27", "campain: dc27"),
    "what it includes": replaced("_sites.yaml", "datasets", "dataset"),
    "an expression that means nothing": replaced("day.yaml", f"to: {B}", "to: tier=9"),
    "another cycle": replaced("day.yaml", "scenarios:", "defaults: {cycle: 10 min}\nscenarios:"),
    "two campaigns": lambda folder: (folder / "more.yaml").write_text(MENU.replace("dc27", "dc28")),
    "it is gone": removed,
}


@pytest.mark.parametrize(
    ("name", "folder"),
    [*((name, True) for name in WRONG), ("no YAML", False), ("it is gone", False)],
)
def test_the_last_good_menus_stay_in_force(
    service, tmp_path: Path, menus: Path, name: str, *, folder: bool
) -> None:
    """The cycle is done, what is wrong is in log and ledger, and the exit code says that a person is needed."""
    service()
    named = menus if folder else menus / "day.yaml"
    assert run("run", named, "--once").exit_code == 0
    WRONG[name](menus)
    log = tmp_path / "log"
    done = run("run", named, "--once", "--log-file", log, "--log-format", "json")
    assert done.exit_code == 2, done.exception
    assert len(injected(tmp_path)) == 2
    assert min(injected(tmp_path)) > 0
    with LedgerView.open(tmp_path / "dc_inject" / "dc27.sqlite") as view:
        assert [signal.value for signal in view.signals() if signal.name == "menus"] == [None]
    events = [json.loads(line).get("event") for line in log.read_text().splitlines()]
    assert "menus-refused" in events
    (menus / "day.yaml").write_text(MENU)
    (menus / "_sites.yaml").write_text(PART)
    (menus / "more.yaml").unlink(missing_ok=True)
    assert run("run", named, "--once").exit_code == 0


def test_they_do_so_where_their_file_is_named_whatever_is_wrong(service, tmp_path: Path, menus: Path) -> None:
    """One cycle for each edit of the file, which is right again before the next one."""
    service()
    right = {path: path.read_text() for path in menus.iterdir()}
    assert run("run", menus / "day.yaml", "--once").exit_code == 0
    for name in sorted(WRONG.keys() - {"two campaigns", "no YAML", "it is gone"}):
        before = len(injected(tmp_path))
        WRONG[name](menus)
        assert run("run", menus / "day.yaml", "--once").exit_code == 2, name
        assert len(injected(tmp_path)) == before + 1, name
        assert min(injected(tmp_path)) > 0, name
        for path, text in right.items():
            path.write_text(text)


@pytest.mark.parametrize(
    "edit",
    [replaced("day.yaml", "campaign: dc27", "campaign: dc28\ntypo: 1"), lambda folder: None],
    ids=["files of another campaign", "no ledger yet"],
)
def test_menus_of_another_campaign_are_not_carried_out(service, tmp_path: Path, menus: Path, edit) -> None:
    service()
    if edit.__name__ == "edit":
        assert run("run", menus, "--once").exit_code == 0
    edit(menus)
    replaced("day.yaml", "scenarios:", "scenario:")(menus)
    assert isinstance(run("run", menus, "--once").exception, MenuError)
    ledgers = {path.name for path in (tmp_path / "dc_inject").glob("*.sqlite")}
    assert ledgers <= {"dc27.sqlite"}
    assert not ledgers or len(injected(tmp_path)) == 1


def test_a_resident_run_still_refuses_to_start_with_a_wrong_menu(service, menus: Path) -> None:
    service()
    assert run("run", menus, "--once").exit_code == 0
    replaced("day.yaml", "scenarios:", "scenario:")(menus)
    assert isinstance(run("run", menus).exception, MenuError)


@pytest.mark.parametrize("fmt", log_output.FORMATS)
def test_what_ends_a_run_is_in_its_log_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    """Once there, and once on stderr, where it stood before."""
    log_output.talk(file=tmp_path / "log", fmt=fmt)
    assert exits.explain(LedgerError("the ledger is locked", "wait for pid 7")) == 3
    (line,) = (tmp_path / "log").read_text().splitlines()
    if fmt == "json":
        told = json.loads(line)
        assert (told["event"], told["exit_code"], told["hint"]) == ("failed", 3, "wait for pid 7")
    assert line.count("the ledger is locked") + line.count("pid 7") >= 2
    assert capsys.readouterr().err.count("the ledger is locked") == 1


def test_a_menu_that_cannot_be_read_is_in_the_log_file_of_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dc_inject", "run", "nowhere.yaml", "--once", "--log-file", "log"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr
    assert " ERROR " in (tmp_path / "log").read_text()
    assert "nowhere.yaml" in (tmp_path / "log").read_text()
