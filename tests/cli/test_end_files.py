"""`end` through FTS: jobs end, their files are deleted until they are known to be gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.errors import Permanent, ServiceError, Temporary
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Entry, State
from dc_inject.ports import Removal
from tests.cli.ending import FLOW, LINK, Files, command, job, world_of_files
from tests.cli.ledgers import GB, START


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return world_of_files(tmp_path, monkeypatch)


def test_complete_jobs_end_and_their_files_are_deleted(world: Files) -> None:
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    assert "3 complete jobs: will be ended at once" in done.stderr
    assert "2 unfinished jobs with 12 files under way: left to their lifetime" in done.stderr
    assert "30 files are known to be gone from their destinations" in done.stderr
    assert world.states() == {State.GONE: 3, State.LIVE: 2}
    assert sum(rule.deleted is not None for rule in world.service.rules.values()) == 3


def test_cancelled_jobs_are_ended_and_cleaned_up_too_with_what_they_moved_known(world: Files) -> None:
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0, done.exception
    assert world.states() == {State.GONE: 5}
    with LedgerView.open(world.path) as view:
        assert view.accounts()[FLOW].moved == 38 * GB
    again = world.end("--yes", "--cancel")
    assert again.exit_code == 0
    assert "no jobs to end" in again.stderr


def test_after_a_crash_between_end_and_deletion_it_goes_on_from_the_ledger(world: Files) -> None:
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        keys = [entry.injection.key for entry in ledger.entries()[:3]]
        ledger.end_asked(keys, START)
        ledger.ended(keys, START)
    for key in keys:
        world.service.rules[key].ended = START
    done = world.end("--yes")
    assert "30 files of ended jobs: will be deleted at their destinations" in done.stderr
    assert {state for key in keys for state in [world.state(key)]} == {State.GONE}


def test_what_was_never_submitted_is_not_in_doubt_for_ever(world: Files) -> None:
    lost = job(7)
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        ledger.add_injections([lost], START)
        ledger.call([lost.key], START)
    world.clock.advance(START + timedelta(minutes=10))
    assert world.end("--yes").exit_code == 0
    assert world.state(lost.key) is State.WITHDRAWN


def test_files_that_cannot_be_deleted_stay_in_the_ledger_and_are_told(world: Files) -> None:
    def refuse(entries: Sequence[Entry]) -> list[Removal]:
        return [Removal(e.injection.key, gone=False, error=Permanent("403 for DELETE")) for e in entries]

    real, world.service.remove = world.service.remove, refuse
    done = world.end("--yes")
    assert isinstance(done.exception, ServiceError)
    assert "files of 3 jobs are still at their destinations; of 3: 403 for DELETE" in str(done.exception)
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}
    world.service.remove = real
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_a_storage_that_does_not_answer_is_named_once_and_has_its_line_in_the_account(world: Files) -> None:
    """Nobody sits before a silent terminal, and who reads the end knows where how much is left."""

    def mute(entries: Sequence[Entry]) -> list[Removal]:
        world.clock.advance(world.clock.now() + timedelta(minutes=1))
        return [Removal(e.injection.key, gone=False, error=Temporary("no answer in time")) for e in entries]

    world.service.remove = mute
    done = world.end("--yes")
    assert isinstance(done.exception, ServiceError)
    assert done.exception.exit_code == 4
    assert done.stderr.count(f"waiting for {LINK.destination}: ") == 1
    assert f"{LINK.destination}: 30 files of 3 jobs stay: no answer in time" in done.stderr
    assert world.clock.now() <= START + timedelta(minutes=5)
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}


def test_a_transfer_that_may_still_write_is_looked_at_once_more_later(world: Files) -> None:
    later = START + timedelta(hours=1)
    world.service.remove = lambda entries: [
        Removal(e.injection.key, gone=world.clock.now() >= later, again_at=later) for e in entries
    ]
    done = world.end("--yes")
    assert done.exit_code == 0
    assert f"look once more after {later:%Y-%m-%d %H:%M:%SZ}" in done.stderr
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}
    world.clock.advance(later)
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_deleting_tells_how_far_it_got(world: Files) -> None:
    real = world.service.remove

    def slow(entries: Sequence[Entry]) -> list[Removal]:
        world.clock.advance(world.clock.now() + timedelta(seconds=6))
        return real(entries)

    world.service.remove = slow
    done = world.end("--yes")
    assert "of 30 files are known to be gone\n" in done.stderr


def test_interrupting_keeps_what_is_gone(world: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = command.Ending.remove

    def cut(self: Any, *arguments: Any) -> Iterator[Removal]:
        yield next(removed(self, *arguments))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command.Ending, "remove", cut)
        done = world.end("--yes")
    assert done.exit_code == 130
    assert "interrupted: 10 of 30 files are gone; run it again to go on" in done.stderr
    assert world.states()[State.GONE] >= 1
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_a_link_of_urls_is_told_apart_and_written_in_its_one_form(world: Files) -> None:
    done = world.end("--yes", "--link", "DAVS://A.example.org:443/dc/:davs://b.example.org/dc")
    assert done.exit_code == 0, done.exception
    assert world.states() == {State.GONE: 3, State.LIVE: 2}
    wrong = world.end("--yes", "--link", "davs://a.example.org/dc")
    assert wrong.exit_code == 2
    assert "a link has two ends" in wrong.stderr


def test_empty_folders_go_when_nothing_of_the_campaign_is_left(world: Files) -> None:
    assert world.end("--yes").exit_code == 0
    assert world.service.tidied == [], "two jobs are at work, for which FTS makes folders"
    world.service.untidy = Temporary("busy")
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0, done.exception
    assert world.service.tidied == [(LINK.destination, "dc27")]
    assert f"empty folders stay at {LINK.destination}: busy" in done.stderr


def test_folders_stay_while_files_are_to_be_looked_at_once_more(world: Files) -> None:
    later = START + timedelta(hours=1)
    world.service.remove = lambda entries: [Removal(e.injection.key, gone=False, again_at=later) for e in entries]
    assert world.end("--yes", "--cancel").exit_code == 0
    assert world.service.tidied == []
