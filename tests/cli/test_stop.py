"""`stop` and `resume`: a person's brake, which works whatever else works or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dc_inject.ledger import Ledger, LedgerView, Pause
from dc_inject.model.errors import LedgerError, UsageError
from tests.cli.ledgers import FNAL, KIT, MESH, START, Made, make, run


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "dc27.sqlite", {FNAL: 1, MESH: 1}, dry=(KIT,))


def pauses(made: Made) -> tuple[Pause, ...]:
    with LedgerView.open(made.path) as view:
        return view.pauses()


def test_a_stop_is_written_with_who_and_why_and_lifted_again(made: Made) -> None:
    """Both are in the record of changes."""
    stopped = run("stop", "dc27", "--why", "lunch", "--ledger", made.path)
    assert stopped.exit_code == 0
    assert "injection is stopped; no injector runs now" in stopped.stderr
    (pause,) = pauses(made)
    assert (pause.subject, pause.why) == ("*", "lunch")
    assert "@" in pause.who
    resumed = run("resume", "dc27", "--why", "done", "--ledger", made.path)
    assert resumed.exit_code == 0
    assert "resumes" in resumed.stderr
    assert pauses(made) == ()
    with LedgerView.open(made.path) as view:
        assert [change.what for change in view.changes()] == ["resume *", "stop *"]


def test_a_second_stop_says_who_stopped_first_and_changes_nothing(made: Made) -> None:
    """Exit code 0: what was wanted is so."""
    run("stop", "dc27", "--why", "lunch", "--ledger", made.path)
    before = pauses(made)
    again = run("stop", "dc27", "--why", "dinner", "--ledger", made.path)
    assert again.exit_code == 0
    assert "already stopped" in again.stderr
    assert "lunch" in again.stderr
    assert pauses(made) == before


def test_a_resume_of_what_was_not_stopped_says_so(made: Made) -> None:
    """Exit code 0, and what is still stopped is named."""
    run("pause", "us-mesh", "--ledger", made.path)
    resumed = run("resume", "dc27", "--ledger", made.path)
    assert resumed.exit_code == 0
    assert "was not stopped" in resumed.stderr
    assert "still stopped: us-mesh" in resumed.stderr


def test_a_stop_works_while_an_injector_holds_the_ledger(made: Made) -> None:
    """It names the injector, which hears of it."""
    with Ledger.open(made.path) as ledger, ledger.hold("me@vobox"):
        stopped = run("stop", "dc27", "--ledger", made.path)
        assert stopped.exit_code == 0
        assert "me@vobox" in stopped.stderr
        assert [pause.subject for pause in ledger.pauses()] == ["*"]


@pytest.mark.parametrize("part", [("us-mesh",), ("--scenario", "us-mesh"), ("--link", "T2_US_MIT:T2_US_Nebraska")])
def test_a_stop_of_a_part_is_refused_and_names_the_command_for_it(made: Made, part: tuple[str, ...]) -> None:
    """A brake that brakes something else is worse than an error."""
    error = run("stop", "dc27", *part, "--ledger", made.path).exception
    assert isinstance(error, UsageError)
    assert "dc-inject pause" in (error.hint or "")
    assert pauses(made) == ()


def test_a_campaign_that_has_not_begun_can_be_paused_in_parts(tmp_path: Path) -> None:
    """Before its first cycle no name is known, and none is refused."""
    path = tmp_path / "new.sqlite"
    with Ledger.open(path) as ledger:
        ledger.begin(START)
    assert run("pause", path, "us-mesh").exit_code == 0


def test_a_stop_never_makes_a_ledger(tmp_path: Path) -> None:
    """A misspelled campaign must not be stopped somewhere else."""
    error = run("stop", "dc27", "--ledger", tmp_path / "none.sqlite").exception
    assert isinstance(error, LedgerError)
    assert not (tmp_path / "none.sqlite").exists()
