"""`dc-inject link --verdict` of a test that still runs: what is known so far, and when it ends."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.apps.link import challenges
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.ledger import LedgerView, Reader
from tests.apps.link.linking import SEARCH, A, B, signalled
from tests.cli.ledgers import START, run
from tests.engine.world import GB


def test_the_verdict_of_one_that_still_runs_is_not_that_it_was_ended(
    service, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    """It says who runs it, and how far it is."""
    service()
    run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    reading = challenges.load_challenge

    def under_way(view: LedgerView, path: Path) -> tuple[MiniChallenge, Progress]:
        asked, whole = reading(view, path)
        progress = Progress(whole.ladder, whole.until)
        progress.take(Reading(START))
        progress.take(Reading(START + timedelta(minutes=10), moved=150 * GB))
        return asked, progress

    monkeypatch.setattr(challenges, "load_challenge", under_way)
    ended = run("link", "--verdict", "mini")
    assert ended.exception.message == "mini: inconclusive (ended-early)"
    monkeypatch.setattr(LedgerView, "holder", lambda _view: "ops, process 7 on vobox")
    running = run("link", "--verdict", "mini")
    assert (running.exception.exit_code, running.exception.message) == (2, "mini: inconclusive (under-way)")
    wording(running.exception.hint)
    wording(running.stderr)
    assert "left at" not in running.stderr
    wording(running.stdout)
    script = run("link", "--verdict", "mini", "--format", "json")
    told = json.loads(script.stdout)
    assert (told["state"], told["outcome"], told["cause"], told["steps"]) == (
        "running", "inconclusive", "under-way", [],
    )  # fmt: skip
    assert told["ends_by"] == "2027-02-08T11:20:00Z"
    assert script.exception.exit_code == 2


def test_steps_that_were_reached_are_no_verdict_of_those_to_come(service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that polls must not take them for it; one that was not reached decides the whole at once."""
    service(5)
    steps = ("--rate", "4Gb/s", "--step", "4Gb/s", "--every", "30m", "--for", "1h", "--campaign", "mini")
    run("link", A, B, *steps, "--cancel-rate", "60/min")
    reading = challenges.load_challenge

    def first_of(view: LedgerView, path: Path) -> tuple[MiniChallenge, Progress]:
        asked, whole = reading(view, path)
        whole.over = None
        del whole.verdicts[1:], whole.decisions[1:]
        return asked, whole

    def told() -> tuple[str, str, str, int]:
        done = run("link", "--verdict", "mini", "--format", "json")
        verdict = json.loads(done.stdout)
        return verdict["state"], verdict["outcome"], verdict["cause"], done.exception.exit_code

    monkeypatch.setattr(LedgerView, "holder", lambda _view: "ops, process 7 on vobox")
    assert told() == ("ending", "not reached", "saturated", 5)
    monkeypatch.setattr(challenges, "load_challenge", first_of)
    assert told() == ("running", "inconclusive", "under-way", 2)


def test_a_search_that_still_runs_is_not_to_be_resumed(service, monkeypatch: pytest.MonkeyPatch, wording) -> None:
    """Its verdict so far says what the link takes at least, and when it is over."""
    signalled(service(5), "submit", 60)
    begun = run("link", A, B, "--rate", "2Gb/s", *SEARCH, "--campaign", "mini", "--cancel-rate", "60/min")
    reading = challenges.load_challenge

    def under_way(view: LedgerView, path: Path) -> tuple[MiniChallenge, Progress]:
        asked, whole = reading(view, path)
        whole.over = whole.step = None  # as in a pause
        del whole.verdicts[-1], whole.decisions[-1]
        return asked, whole

    assert "link --resume mini" in run("link", "--verdict", "mini").exception.hint
    monkeypatch.setattr(challenges, "load_challenge", under_way)
    killed = run("link", "--verdict", "mini")
    assert "under way" not in killed.stdout
    assert "link --resume mini" in killed.exception.hint
    monkeypatch.setattr(LedgerView, "holder", lambda _view: "ops, process 7 on vobox")
    running = run("link", "--verdict", "mini")
    assert running.exception.message == "mini: inconclusive (under-way)"
    wording(running.exception.hint)
    expected = running.exception.hint.removeprefix("it is still running: the ")
    assert expected.replace("is expected", "expected") in begun.stderr, "it was told so before it began"
    assert f" to {expected[-20:-1].replace('T', ' ')}Z, 1 link" in begun.stderr, "and so ends its menu"
    assert "inconclusive: capacity at least 5 Gb/s; " in running.stdout
    assert "under way, after " in running.stdout


def test_a_report_of_one_that_still_runs_gives_no_verdict(service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says the same as `--verdict`; of one that was killed, that is what was seen until then."""
    service()
    run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    monkeypatch.setattr(LedgerView, "challenge", lambda view: Reader.challenge(view)[:4])

    def reason() -> str:
        return json.loads(run("report", "mini", "--format", "json").stdout)["challenge"]["reason"]

    assert reason().startswith("no result: ")
    monkeypatch.setattr(LedgerView, "holder", lambda _view: "ops, process 7 on vobox")
    assert "result yet" in reason()
