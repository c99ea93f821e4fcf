"""`end` through FTS: jobs end, their files are deleted until they are known to be gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.engine.ending import Drain
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Bundle, Entry, File, Link, State, naming
from dc_inject.model.errors import Permanent, ServiceError, Temporary, UsageError
from dc_inject.model.goals import SecondHop
from dc_inject.model.ports import Observation, Outcome, Removal, Status
from tests.cli.ending import FLOW, LIFETIME, LINK, Files, job, world_of_files
from tests.cli.ledgers import CYCLE, GB, START
from tests.wording import lines


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return world_of_files(tmp_path, monkeypatch)


def test_complete_jobs_end_and_their_files_are_deleted(world: Files, wording) -> None:
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    wording(done.stderr)
    assert "2 unfinished jobs with 12 files under way: left to their lifetime" in done.stderr
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
    assert "no jobs of dc27 to end" in again.stderr


def test_after_a_crash_between_end_and_deletion_it_goes_on_from_the_ledger(world: Files, wording) -> None:
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        keys = [entry.injection.key for entry in ledger.entries()[:3]]
        ledger.end_asked(keys, START)
        ledger.ended(keys, START)
    for key in keys:
        world.service.rules[key].ended = START
    done = world.end("--yes")
    wording(lines(done.stderr, "ended jobs"))
    assert {state for key in keys for state in [world.state(key)]} == {State.GONE}


def test_what_was_never_submitted_is_not_in_doubt_for_ever(world: Files) -> None:
    lost = job(7)
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        ledger.add_injections([lost], START)
        ledger.call([lost.key], START)
    world.clock.advance(START + timedelta(minutes=10))
    assert world.end("--yes").exit_code == 0
    assert world.state(lost.key) is State.WITHDRAWN


def test_files_that_cannot_be_deleted_stay_in_the_ledger_and_are_told(world: Files, wording) -> None:
    def refuse(entries: Sequence[Entry]) -> list[Removal]:
        return [Removal(e.injection.key, gone=False, error=Permanent("403 for DELETE")) for e in entries]

    real, world.service.remove = world.service.remove, refuse
    done = world.end("--yes")
    assert isinstance(done.exception, ServiceError)
    wording(str(done.exception))
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}
    world.service.remove = real
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_a_storage_that_does_not_answer_is_named_once_and_has_its_line_in_the_account(
    world: Files, wording
) -> None:
    """Nobody sits before a silent terminal, and who reads the end knows where how much is left."""

    def mute(entries: Sequence[Entry]) -> list[Removal]:
        world.clock.advance(world.clock.now() + timedelta(minutes=1))
        return [Removal(e.injection.key, gone=False, error=Temporary("no answer in time")) for e in entries]

    world.service.remove = mute
    done = world.end("--yes")
    assert isinstance(done.exception, ServiceError)
    assert done.exception.exit_code == 4
    assert done.stderr.count(f"waiting for {LINK.destination}: ") == 1
    assert f"{LINK.destination}: 30 files of 3 jobs left: no answer in time" in done.stderr
    wording(done.exception.message)
    assert world.clock.now() <= START + timedelta(minutes=5)
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}


def test_jobs_past_their_lifetime_end_without_being_asked_for_at_the_pace(world: Files, wording) -> None:
    """As the injector would do it: through FTS nobody else does, and a job that is tried again lives for ever."""
    late = START + LIFETIME + timedelta(minutes=1)
    world.clock.advance(late)
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    wording(lines(done.stderr, "past"))
    assert "left to their lifetime" not in done.stderr
    assert world.clock.now() == late + timedelta(seconds=6)
    assert world.states() == {State.GONE: 5}
    assert "not finished" not in done.stderr
    with LedgerView.open(world.path) as view:
        assert view.changes()[0].what == "end 3 jobs, cancel 2"
        assert view.accounts()[FLOW].moved == 38 * GB


def test_with_jobs_that_live_on_the_last_line_says_that_it_is_not_finished_and_until_when(world: Files) -> None:
    done = world.end("--yes")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("not finished: 2 jobs ")
    assert f" {START + LIFETIME:%Y-%m-%d %H:%M:%SZ}, " in last
    assert last.endswith(" --cancel")


def test_what_does_not_end_in_time_is_said_in_the_last_line(world: Files, wording) -> None:
    """Cancelled by FTS's word, and at work all the same."""
    world.clock.advance(START + LIFETIME)
    world.service.end = lambda entries: [Outcome(entry.injection.key) for entry in entries]
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0, done.exception
    wording(done.stderr.splitlines()[-1])


def forget(world: Files, *keys: str) -> None:
    """Let the service forget jobs, which it says at once, and is believed after two minutes."""
    real, since = world.service.observe, {}

    def observe(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        now, seen = world.clock.now(), {one.key: one for one in real(entries, exact=exact)}
        for entry in (entry for entry in entries if entry.injection.key in keys):
            key = entry.injection.key
            sure_at = since.setdefault(key, now) + timedelta(minutes=2)
            unsure = sure_at > now and entry.end_asked_at is None
            seen[key] = (
                Observation(key, Status.UNKNOWN, again_at=sure_at) if unsure else Observation(key, Status.ABSENT)
            )
        return list(seen.values())

    world.service.observe = observe


def test_a_job_that_vanished_is_looked_for_again_until_that_is_sure(world: Files, wording) -> None:
    """One look of one process would never be enough, and `end` would leave it for ever."""
    key = world.entries()[4].injection.key
    forget(world, key)
    world.service.rules[key].ended = START
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    wording(lines(done.stderr, "fts"))
    assert "1 unfinished job" in done.stderr
    assert world.state(key) is State.GONE
    assert world.states() == {State.GONE: 4, State.LIVE: 1}
    assert world.clock.now() == START + timedelta(minutes=2)


def test_a_job_that_fts_missed_for_a_moment_is_not_taken_for_one_that_vanished(world: Files) -> None:
    """Its files are being written: nothing of it is touched."""
    entry = world.entries()[4]
    real, seen = world.service.observe, []

    def observe(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        seen.append(world.clock.now())
        told = real(entries, exact=exact)
        if len(seen) > 1:
            return told
        unsure = Observation(entry.injection.key, Status.UNKNOWN, again_at=START + timedelta(minutes=2))
        return [unsure if one.key == entry.injection.key else one for one in told]

    world.service.observe = observe
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}
    assert world.service.rules[entry.injection.key].ended is None


def test_what_fts_has_forgotten_a_week_later_costs_two_minutes_and_no_pace(world: Files) -> None:
    """There is nothing to cancel any more, however many there were."""
    keys = [entry.injection.key for entry in world.entries()]
    forget(world, *keys)
    for rule in world.service.rules.values():
        rule.ended = START
    world.clock.advance(START + timedelta(days=7))
    done = world.end("--yes", "--cancel-rate", "1/h")
    assert done.exit_code == 0, done.exception
    assert world.states() == {State.GONE: 5}
    assert world.clock.now() == START + timedelta(days=7, minutes=2)
    assert "end" not in world.service.calls


def test_a_transfer_that_may_still_write_is_looked_at_once_more_later(world: Files) -> None:
    later = START + timedelta(hours=1)
    world.service.remove = lambda entries: [
        Removal(e.injection.key, gone=world.clock.now() >= later, again_at=later) for e in entries
    ]
    done = world.end("--yes")
    assert done.exit_code == 0
    campaign = world.entries()[0].injection.campaign
    assert f"`dc-inject end {campaign}`" in done.stderr
    assert f" {later:%Y-%m-%d %H:%M:%SZ} " in done.stderr
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
    assert " of 30 files\n" in done.stderr


def test_interrupting_keeps_what_is_gone(world: Files, monkeypatch: pytest.MonkeyPatch, wording) -> None:
    removed = Drain.remove

    def cut(self: Any, *arguments: Any) -> Iterator[Removal]:
        yield next(removed(self, *arguments))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Drain, "remove", cut)
        done = world.end("--yes")
    assert done.exit_code == 130
    wording(lines(done.stderr, "interrupted"))
    assert world.states()[State.GONE] >= 1
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_a_link_of_urls_is_told_apart_and_written_in_its_one_form(world: Files, wording) -> None:
    done = world.end("--yes", "DAVS://A.example.org:443/dc/:davs://b.example.org/dc")
    assert done.exit_code == 0, done.exception
    assert world.states() == {State.GONE: 3, State.LIVE: 2}
    wrong = world.end("--yes", "davs://a.example.org/dc").exception
    assert isinstance(wrong, UsageError)
    wording(wrong.message)


def test_empty_folders_go_when_nothing_of_the_campaign_is_left(world: Files, wording) -> None:
    assert world.end("--yes").exit_code == 0
    assert world.service.tidied == [], "two jobs are at work, for which FTS makes folders"
    world.service.untidy = Temporary("busy")
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0, done.exception
    assert world.service.tidied == [(LINK.destination, "dc27")]
    wording(lines(done.stderr, "busy"))


def test_folders_stay_while_files_are_to_be_looked_at_once_more(world: Files) -> None:
    later = START + timedelta(hours=1)
    world.service.remove = lambda entries: [Removal(e.injection.key, gone=False, again_at=later) for e in entries]
    assert world.end("--yes", "--cancel").exit_code == 0
    assert world.service.tidied == []


@pytest.mark.parametrize("options", [[], ["davs://a.example.org/dc", "davs://b.example.org/dc", "--cancel"]])
def test_copies_that_a_second_hop_reads_from_are_left(world: Files, options: list[str], wording) -> None:
    whole = job(0)
    copies = tuple(File(url, GB) for url in naming.copies(whole))
    link = Link(LINK.destination, "davs://t.example.org/dc", "fts")
    item = Bundle("10 files", 10 * GB, 10, copies, whole.key)
    key = naming.key("dc27", "export", CYCLE.start, link, item.name)
    second = replace(whole, key=key, link=link, item=item)
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        ledger.open_cycle(
            CYCLE.next, {FLOW: (0, None), second.flow: (0, None)}, START, goals={second.flow: SecondHop()}
        )
        ledger.add_injections([second], START)
        ledger.call([key], START)
        ledger.answer(world.service.submit([second]), START, {})
    done = world.end("--yes", *options)
    assert done.exit_code == 0, done.exception
    wording(lines(done.stderr, "kept"))
    assert world.state(whole.key) is State.COMPLETE
    assert world.service.rules[whole.key].ended is None
    world.service.rules[key].completed = world.clock.now()
    done = world.end("--yes", "--cancel")
    assert world.states() == {State.GONE: 6}
