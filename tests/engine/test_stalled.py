"""Rules that their service holds back: suspended, or not begun minutes after they were accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.model import Entry, State
from dc_inject.model.ports import Observation, Status
from tests.engine.world import CYCLE, GB, START, World, campaign, file_flow, flow, items, source_files, world
from tests.sim import SimBackend

MINUTE = timedelta(minutes=1)


def _held_back(backend: SimBackend, status: Status, which: Callable[[Entry], bool]) -> None:
    """Let a service do nothing about some of its rules, and say so until they are ended."""
    tell = backend._observation

    def observation(entry: Entry) -> Observation:
        seen = tell(entry)
        if not which(entry) or seen.status is Status.ABSENT:
            return seen if not which(entry) else Observation(entry.injection.key, Status.ABSENT)
        return seen._replace(status=status, files_done=0, moved=0, exact=False, error="no quota")

    backend._observation = observation  # type: ignore[method-assign]


def _first_four() -> Callable[[Entry], bool]:
    seen: list[str] = []

    def which(entry: Entry) -> bool:
        if entry.injection.key not in seen and len(seen) < 4:
            seen.append(entry.injection.key)
        return entry.injection.key in seen

    return which


@pytest.fixture
def one(tmp_path: Path) -> World:
    made = campaign([flow("A", "B", 1.0, end=START + 8 * CYCLE)])
    one = world(tmp_path, made, {"A": items("A", 200, 10 * GB)}, speed=lambda _link: GB)
    one.settings = replace(one.settings, drain=True)
    return one


@pytest.mark.parametrize(
    ("status", "reason"), [(Status.SUSPENDED, "suspended"), (Status.WAITING, "not-begun")], ids=str
)
def test_they_are_ended_after_some_minutes_and_their_bytes_are_given_back_and_counted(one, status, reason):
    """Other datasets make them up; what is held back does not count as injected, and is not forgotten."""
    which = _first_four()
    _held_back(one.backend, status, which)
    one.run(cycles=8)
    bad = [entry for entry in one.ledger.entries() if entry.failed]
    assert len(bad) == 4
    for entry in bad:
        rule = one.backend.rules[entry.injection.key]
        assert timedelta(minutes=10) <= rule.ended - rule.created < timedelta(minutes=10) + CYCLE
        assert (entry.injected, entry.moved, entry.failed) == (0, 0, entry.injection.item.bytes)
        assert reason in entry.error
        assert entry.state in {State.ENDED, State.GONE}
    (account,) = one.ledger.accounts().values()
    assert abs(account.injected - account.due) <= 10 * GB
    ((counts),) = one.ledger.failures().values()
    assert counts == {reason: sum(entry.injection.item.files for entry in bad)}


def test_of_one_that_moved_some_files_before_it_was_suspended_the_rest_is_given_back_to_the_byte(one):
    """An estimate is no account: its locks are added up before it is ended."""
    arrived, look = 4_123_456_789, one.backend.observe
    which = _first_four()

    def observe(entries: list[Entry], *, exact: bool = False) -> list[Observation]:
        bad = {entry.injection.key for entry in entries if which(entry)}
        moved = arrived if exact else 5 * GB
        return [
            seen._replace(status=Status.SUSPENDED, files_done=25, moved=moved, exact=exact)
            if seen.key in bad and seen.status is not Status.ABSENT
            else seen
            for seen in look(entries)
        ]

    one.backend.observe = observe  # type: ignore[method-assign]
    one.run(cycles=8)
    bad = [entry for entry in one.ledger.entries() if entry.failed]
    assert [(entry.injected, entry.moved) for entry in bad] == [(arrived, arrived)] * 4
    assert next(iter(one.ledger.failures().values())) == {"suspended": 4 * 25}


def test_one_that_begins_in_time_is_left_alone(one):
    """Ten minutes are long for Rucio's injector, which takes a hundred rules a minute."""
    _held_back(
        one.backend,
        Status.WAITING,
        lambda entry: one.clock.now() < one.backend.rules[entry.injection.key].created + 8 * MINUTE,
    )
    one.run(cycles=8)
    assert not [entry for entry in one.ledger.entries() if entry.failed]


def test_where_rules_may_not_be_ended_they_are_left_to_their_lifetime_and_given_back_then(one):
    one.backend.may_end = False
    _held_back(one.backend, Status.SUSPENDED, _first_four())
    one.run()
    bad = [entry for entry in one.ledger.entries() if entry.failed]
    assert len(bad) == 4
    for entry in bad:
        rule = one.backend.rules[entry.injection.key]
        assert rule.ended == rule.expires


def test_a_job_that_waits_in_the_queue_of_fts_is_no_such_thing(tmp_path):
    """There it is a backlog, which has a hold of its own."""
    made = campaign([file_flow("A", "B", 1.0, end=START + 4 * CYCLE)])
    one = world(tmp_path, made, {}, settings=replace(World.settings, poll=CYCLE / 5))
    one.join(SimBackend(one.clock, dict(source_files("A", 100, 10 * GB)), name="fts"))
    _held_back(one.others[0], Status.WAITING, lambda _entry: True)
    one.run(cycles=4)
    assert one.ledger.entries()
    for entry in one.ledger.entries():
        assert entry.end_asked_at is None or entry.end_asked_at >= entry.expires_at
        assert not entry.failed
