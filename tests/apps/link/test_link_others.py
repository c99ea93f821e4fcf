"""`dc-inject link` on a link that another campaign uses: it says so once, before it begins."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import LedgerView
from tests.apps.link.linking import A, B
from tests.cli.ledgers import run

ASKED = ("--rate", "1Gb/s", "--for", "12m", "--cancel-rate", "60/min")
SHARED = "it takes part of what this link carries"


def said(*words: str) -> list[str]:
    """What a test of the link says of others."""
    return [
        line
        for line in run("link", *words).stderr.splitlines()
        if line.startswith("warning: ") and "campaign " in line
    ]


@pytest.fixture
def killed(service):
    """A campaign that was interrupted twice, so that its rules stay; returns its service."""
    backend = service(0.5)
    seen = []

    def fault(method: str, _subject: object) -> None:
        seen.append(method)
        if method == "submit" and seen.count(method) == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    backend.fault = fault
    assert run("link", A, B, *ASKED, "--campaign", "first").exit_code == 130
    backend.fault = lambda _method, _subject: None
    return backend


def test_what_a_campaign_has_left_on_the_link_is_told(killed, wording) -> None:
    """With what ends it; once it has ended, or its lifetime is over, there is nothing to tell."""
    (line,) = said(A, B, *ASKED, "--campaign", "second")
    wording(line)
    killed.clock.advance(killed.clock.now() + timedelta(hours=3))
    assert said(A, B, *ASKED, "--campaign", "third") == []


def test_a_program_reads_one_document_and_the_warning_beside_it(killed) -> None:
    """The warning is talk: it goes to stderr, whatever the format."""
    tried = run("link", A, B, *ASKED, "--campaign", "second", "--format", "json")
    assert json.loads(tried.stdout)["campaign"] == "second"
    assert "warning: campaign first has 4 unfinished rules on this link" in tried.stderr


def test_what_was_ended_is_not_told(killed) -> None:
    killed.clock.advance(killed.clock.now() + timedelta(minutes=10))  # a lost call is believed to be none by then
    assert run("end", "first", "--cancel", "--cancel-rate", "60/min", "--yes").exit_code == 0
    assert said(A, B, *ASKED, "--campaign", "second") == []


def test_a_campaign_that_runs_on_the_link_is_named_with_who_runs_it(
    killed, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    """Even when all its rules are complete: the next cycle brings more. The other way round is another link."""
    killed.clock.advance(killed.clock.now() + timedelta(hours=3))
    other = LedgerView.holder

    def holder(view: LedgerView) -> str | None:
        return "ops, process 7 on vobox" if view.path.stem == "first" else other(view)

    monkeypatch.setattr(LedgerView, "holder", holder)
    (line,) = said(A, B, *ASKED, "--campaign", "second")
    wording(line)
    assert said(B, A, *ASKED, "--campaign", "back") == []


def test_a_ledger_that_cannot_be_read_hides_nothing(service, tmp_path: Path, wording) -> None:
    """It stops nothing either."""
    service()
    (tmp_path / "dc_inject").mkdir()
    (tmp_path / "dc_inject" / "odd.sqlite").write_text("no ledger")
    (line,) = said(A, B, *ASKED, "--campaign", "second")
    wording(line)
