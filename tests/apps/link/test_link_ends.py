"""The end of `dc-inject link`: what it ends and deletes, and what it says of what stays."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.credentials import trust
from dc_inject.ledger import LedgerView
from dc_inject.model import State, units
from dc_inject.model.errors import Temporary, ThresholdMissed
from dc_inject.model.ports import Observation, Status
from tests.apps.link.linking import A, B, states
from tests.cli.ledgers import START, run
from tests.engine.world import source_files, url


def test_ending_takes_no_longer_than_the_link_needs(service, tmp_path: Path) -> None:
    """One rule in 15 minutes would take hours: what arrives meanwhile ends at once, and is in the ledger."""
    backend = service(0.5)
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "4/h")
    assert isinstance(done.exception, ThresholdMissed)
    assert "unfinished rules" in done.stderr
    assert not any(state.in_service for state in states(tmp_path, "mini"))
    ended = [rule.ended for rule in backend.rules.values()]
    assert None not in ended
    assert max(ended) < START + timedelta(hours=1)


@pytest.mark.parametrize(("after", "left"), [(60, set()), (600, {True})])
def test_rules_are_waited_for_until_the_services_daemon_has_passed(
    service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, left: set[bool]
) -> None:
    """Rucio's daemon deletes a rule up to a minute after its end was asked for; one that is stopped never does."""
    backend = service(0.5)
    observe = backend.observe

    def observed(entries: Any, **more: Any) -> Any:
        now = backend.clock.now()
        there = {k: r for k, r in backend.rules.items() if r.ended and now < r.ended + timedelta(seconds=after)}
        seen = observe(entries, **more)
        return [Observation(one.key, Status.MOVING) if one.key in there else one for one in seen]

    monkeypatch.setattr(backend, "observe", observed)
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "60/min")
    assert isinstance(done.exception, ThresholdMissed)
    assert {state.in_service for state in states(tmp_path, "mini")} - {False} == left


def test_ctrl_c_while_it_ends_says_what_is_left_and_what_goes_on(service, tmp_path: Path) -> None:
    """The verdict is told all the same; the ledger has ended what is ended at the service."""
    backend = service(0.5)
    pressed = iter([KeyboardInterrupt])

    def fault(method: str, subject: object) -> None:
        asked = method == "end" and backend.clock.now() > START + timedelta(minutes=25)
        if asked and (key := next(pressed, None)):
            raise key

    backend.fault = fault
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "12m", "--campaign", "mini", "--cancel-rate", "60/h")
    assert done.exit_code == 130
    assert "their lifetime" in done.stderr
    assert "`dc-inject end mini --cancel`" in done.stderr
    assert "same command" not in done.stderr, "it is `end` that continues, not this command"
    assert "moved" in done.stdout
    alive = sum(rule.ended is None for rule in backend.rules.values())
    with LedgerView.open(tmp_path / "dc_inject" / "mini.sqlite") as view:
        assert 0 < alive == sum(entry.state.in_service for entry in view.entries())


def test_files_go_through_fts_between_two_prefixes(service, tmp_path: Path) -> None:
    """Jobs are ended, and their copies deleted."""
    service(stock=source_files("A", 600), name="fts")
    done = run("link", url("A"), url("B"), "--rate", "2Gb/s", "--for", "1h", "--fts", "https://fts.example.org:8446",
               "--format", "json")  # fmt: skip
    assert done.exit_code == 0, done.exception
    told = json.loads(done.stdout)
    assert (told["service"], told["outcome"], told["resident"]) == ("fts", "reached", 0)
    assert "files: {folder: .}" in Path(told["menu"]).read_text()
    assert states(tmp_path, told["campaign"]) == {State.GONE}
    with LedgerView.open(tmp_path / "dc_inject" / f"{told['campaign']}.sqlite") as view:
        assert set(view.trusted()) == {"fts.example.org", *(trust.host_of(url(end)) for end in "AB")}


def test_files_that_are_deleted_in_the_end_are_not_said_to_stay(service, tmp_path: Path) -> None:
    """What the run leaves, `link` ends itself."""

    def no_deletions(method: str, _subject: object) -> None:
        if method == "remove" and backend.clock.now() < START + timedelta(minutes=71):
            raise Temporary("busy")

    backend = service(stock=source_files("A", 600), name="fts", fault=no_deletions)
    done = run("link", url("A"), url("B"), "--rate", "2Gb/s", "--for", "1h", "--fts", "https://fts.example.org:8446",
               "--campaign", "mini")  # fmt: skip
    assert done.exit_code == 0, done.exception
    assert states(tmp_path, "mini") == {State.GONE}
    assert ": 900 files" in done.stderr
    assert "not known" not in done.stderr


def test_an_account_that_may_not_end_is_told_that_rules_stay(service, tmp_path: Path) -> None:
    """Its verdict is the same."""
    service(may_end=False)
    done = run("link", A, B, "--rate", "2Gb/s", "--for", "1h", "--campaign", "mini")
    assert done.exit_code == 0, done.exception
    assert "not everything" in done.stderr
    assert "every step" in done.stdout
    verdict = json.loads(run("link", "--verdict", "mini", "--format", "json").stdout)
    with LedgerView.open(tmp_path / "dc_inject" / "mini.sqlite") as ledger:
        last = max(entry.observed_at for entry in ledger.entries())
    assert verdict["resident_at"] == f"{last:%Y-%m-%dT%H:%M:%SZ}"
    known = f"{units.format_size(verdict['resident'])} as of {verdict['resident_at']}"
    assert f"left at {B}: at most {known}; Rucio deletes it" in done.stderr
