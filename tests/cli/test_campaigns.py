"""`campaigns` lists what has a ledger, and forgets what is over."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.cli.shared import tables
from dc_inject.ledger import Ledger, lock
from dc_inject.model.errors import LedgerError, UsageError
from tests.cli.ledgers import FNAL, START, Made, make, run
from tests.menu.texts import text

FOLDER = "dc_inject"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / FOLDER


@pytest.fixture
def live(folder: Path) -> Made:
    return make(folder / "dc27.sqlite", {FNAL: 2})


@pytest.fixture
def over(folder: Path) -> Made:
    made = make(folder / "over.sqlite", {FNAL: 1})
    with Ledger.open(made.path) as ledger:
        ledger.ended([entry.injection.key for entry in made.entries], START + timedelta(hours=1))
        ledger.put_in_force([("day.yaml", "digest", text())], START)
    return made


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_each_is_listed_with_its_times_and_its_ledger(live: Made, over: Made) -> None:
    with Ledger.open(live.path) as ledger, ledger.hold("somebody"):
        done = run("campaigns", "--format", "json")
    first, second = json.loads(done.stdout)
    assert first["campaign"] == "dc27"
    assert (first["running"], first["unended"], first["start"]) == (True, 2, None)
    assert first["last_cycle"] == "2027-02-08T10:00:00Z"
    assert first["ledger"] == str(live.path)
    assert (second["campaign"], second["running"], second["unended"]) == ("over", False, 0)
    assert (second["start"], second["end"]) == ("2027-02-08T09:00:00Z", "2027-02-09T09:00:00Z")
    assert "2 campaigns in " in done.stderr


def test_a_name_is_whole_on_a_narrow_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody can copy it into the next command."""
    name = "link-T2_UK_London_Brunel-20261129T133315"
    make(folder / f"{name}.sqlite", {FNAL: 1})
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    lines = run("campaigns").stdout.splitlines()
    assert lines[1].startswith(f"{name} ")
    assert max(map(len, lines)) <= 80


def test_a_ledger_that_cannot_be_read_is_told_in_its_row(folder: Path, over: Made) -> None:
    folder.joinpath("junk.sqlite").write_text("no database")
    done = run("campaigns")
    assert done.exit_code == 0
    assert "not a ledger" in done.stdout
    assert "over" in done.stdout


def test_what_is_over_is_forgotten_after_a_question(folder: Path, over: Made) -> None:
    folder.joinpath("links").mkdir()
    folder.joinpath("links", "over.yaml").touch()
    with Ledger.open(over.path) as ledger, ledger.hold("somebody"):
        pass
    refused = run("campaigns", "--forget", "over", text="n\n")
    assert isinstance(refused.exception, UsageError)
    assert {"over.sqlite", "over.sqlite.lock", "over.yaml"} <= files(folder)
    done = run("campaigns", "--forget", "over", text="y\n")
    assert done.exit_code == 0
    assert files(folder) == set()


def test_a_campaign_that_is_named_by_its_ledger_is_forgotten_with_its_menu_alone(folder: Path, over: Made) -> None:
    other, menu = over.path.with_name("over.sqlite.yaml"), folder / "links" / "over.yaml"
    menu.parent.mkdir()
    for file in (other, menu):
        file.touch()
    assert run("campaigns", "--forget", str(over.path), "--yes").exit_code == 0
    assert files(folder) == {other.name}


def test_a_menu_of_yours_by_a_ledger_elsewhere_stays(tmp_path: Path, over: Made) -> None:
    mine = tmp_path / "mine" / "links" / "over.yaml"
    mine.parent.mkdir(parents=True)
    mine.touch()
    there = shutil.copy(over.path, mine.parent.parent)
    assert run("campaigns", "--forget", str(there), "--yes").exit_code == 0
    assert files(mine.parent.parent) == {mine.name}


def test_what_is_not_ended_is_forgotten_only_when_that_is_said(folder: Path, live: Made, over: Made) -> None:
    """All are looked at before the first one goes."""
    refused = run("campaigns", "--forget", "over", "--forget", "dc27", "--yes")
    assert isinstance(refused.exception, UsageError)
    assert " 2 rules " in refused.exception.message
    assert "dc-inject end dc27" in (refused.exception.hint or "")
    assert {"over.sqlite", "dc27.sqlite"} <= files(folder)
    done = run("campaigns", "--forget", "dc27", "--yes", "--force")
    assert done.exit_code == 0
    assert "warning" in done.stderr
    assert "dc27.sqlite" not in files(folder)


def test_what_runs_is_never_forgotten(folder: Path, over: Made) -> None:
    with Ledger.open(over.path) as ledger, ledger.hold("somebody"):
        refused = run("campaigns", "--forget", "over", "--yes", "--force")
    assert isinstance(refused.exception, LedgerError)
    assert "somebody" in refused.exception.message
    assert over.path.exists()


def test_nobody_begins_with_a_lock_that_was_deleted_meanwhile(folder: Path, over: Made, wording) -> None:
    """It was opened before the campaign was forgotten, and taken afterwards: two could have one then."""

    def deleted(handle: int, kind: int, tries: int) -> bool:
        lock.lock_file(over.path).unlink()
        return True

    with pytest.MonkeyPatch.context() as patch, Ledger.open(over.path) as ledger:
        patch.setattr(lock, "_taken", deleted)
        with pytest.raises(LedgerError) as refused, ledger.hold("late"):
            pass
        wording(refused.value)


def test_an_unknown_one_is_told_with_those_there_are(folder: Path, over: Made) -> None:
    refused = run("campaigns", "--forget", "ower", "--yes")
    assert isinstance(refused.exception, LedgerError)
    assert "over" in (refused.exception.hint or "")
