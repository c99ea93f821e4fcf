"""`note`: what an operator writes beside the figures, kept with who and when."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.cli import actions as command
from dc_inject.ledger import LedgerView
from dc_inject.model.errors import LedgerError, UsageError
from tests.cli.ledgers import FNAL, START, Made, make, run

NOW = START + timedelta(hours=6)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """A campaign in its default place, six hours later."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(command, "SystemClock", lambda: SimClock(NOW))
    (tmp_path / "dc_inject").mkdir(mode=0o700)
    return make(tmp_path / "dc_inject" / "dc27.sqlite", {FNAL: 1})


def changes(made: Made) -> list[tuple[str, str]]:
    with LedgerView.open(made.path) as view:
        return [(one.what, one.why) for one in view.changes()]


def test_a_note_is_kept_with_its_time_and_author_and_status_shows_it(made: Made) -> None:
    """Now, or at the time that it is about; newest first."""
    assert run("note", "dc27", "KIT is back").exit_code == 0
    done = run("note", str(made.path), "LHCOPN cut", "--at", "2027-02-08T13:00+01:00")
    assert (done.exit_code, done.stdout) == (0, ""), done.exception
    assert "dc27: noted at 2027-02-08 12:00:00Z: LHCOPN cut" in done.stderr
    told = json.loads(run("status", "dc27", "--format", "json").stdout)["changes"]
    assert [(one["at"], one["what"], one["why"]) for one in told] == [
        ("2027-02-08T16:00:00Z", "note", "KIT is back"),
        ("2027-02-08T12:00:00Z", "note", "LHCOPN cut"),
    ]
    assert all("@" in one["who"] for one in told)


def test_the_same_note_twice_is_two_notes(made: Made) -> None:
    """Something may happen twice; and traces of errors, which are many, push no note out."""
    for _ in range(2):
        run("note", "dc27", "power cut")
    assert changes(made) == [("note", "power cut")] * 2


def test_a_note_has_one_clean_line_without_secrets(made: Made) -> None:
    """Nothing in it moves a cursor, and a token that was pasted is not kept."""
    assert run("note", "dc27", "a\n\x1b[31mred\x1b[0m  token=abcdefghijklmnopqrstuvwxyz").exit_code == 0
    assert changes(made) == [("note", "a [31mred [0m token=***")]


@pytest.mark.parametrize(
    "words",
    [
        ("",),
        ("  \n ",),
        ("x" * 301,),
        ("later", "--at", "2027-02-08T16:01Z"),
    ],
)
def test_what_is_no_note_is_refused(made: Made, words: tuple[str, ...], wording) -> None:
    """And nothing is written."""
    error = run("note", "dc27", *words).exception
    assert isinstance(error, UsageError)
    wording(error)
    assert changes(made) == []


def test_a_time_needs_its_zone_and_a_campaign_its_ledger(made: Made, wording) -> None:
    """As for every command."""
    wording(run("note", "dc27", "x", "--at", "2027-02-08T12:00").stderr)
    assert isinstance(run("note", "dc28", "x").exception, LedgerError)
    assert changes(made) == []
