"""`end` alone, through FTS's own client, with jobs that FTS forgot or keeps on trying: it gets to an end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.model import State, naming
from tests.backends.fts.service import FakeFts
from tests.backends.fts.store import Store
from tests.backends.support import fts3_or_skip
from tests.cli.ending import LIFETIME, World, behind_the_command, job, submitted
from tests.cli.ledgers import START
from tests.cli.storages import Open, a_service

JOB = job(0)
QUIET_AT = START + LIFETIME + timedelta(hours=1)  # out of FTS's queue by then, and the longest transfer over


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World[FtsBackend], FakeFts, Store]]:
    """One job that FTS has, of a ledger that no `run` holds any more."""
    fts3_or_skip()
    store, clock = Open(free=10**15), SimClock(START)
    with a_service(store, monkeypatch, clock=clock) as (fts, backend):
        submitted(tmp_path / "dc27.sqlite", backend, [JOB], backend.check())
        behind_the_command(monkeypatch, clock, "fts", backend)
        yield World(tmp_path / "dc27.sqlite", clock, backend), fts, store


def test_a_vanished_job_is_believed_in_one_go_and_its_files_are_watched_until_nothing_can_write_them(
    made: tuple[World[FtsBackend], FakeFts, Store],
) -> None:
    world, fts, store = made
    first, second = naming.copies(JOB)[:2]
    store.put(first, 1)
    fts.jobs.clear()
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    assert world.clock.now() == START + timedelta(minutes=2)
    assert "looking again in 2 min" in done.stderr
    assert f"once more after {QUIET_AT:%Y-%m-%d %H:%M:%SZ}" in done.stderr
    assert world.states() == {State.ENDED: 1}
    assert first not in store.files
    store.put(second, 1)  # it waited in a queue that nobody saw
    world.clock.advance(QUIET_AT - timedelta(minutes=30))
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.ENDED: 1}, "it may still write"
    store.put(second, 1)
    world.clock.advance(QUIET_AT)
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 1}
    assert second not in store.files


def test_a_job_that_is_there_again_at_the_second_look_goes_on(
    made: tuple[World[FtsBackend], FakeFts, Store],
) -> None:
    """Another node of FTS, or a database at work, did not know of it for a moment."""
    world, fts, _ = made
    fts.start()
    (id_,) = fts.jobs
    fts.instead.append(("GET", "/jobs", (404, {"job_id": id_, "http_status": "404 Not Found"})))
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    assert "1 unfinished job" in done.stderr
    assert world.states() == {State.LIVE: 1}
    assert fts.jobs[id_].state == "ACTIVE"


def test_a_job_past_its_lifetime_is_cancelled_at_fts(made: tuple[World[FtsBackend], FakeFts, Store]) -> None:
    """One that FTS tries again and again after a crash of `run`."""
    world, fts, _ = made
    fts.start()
    world.clock.advance(START + LIFETIME)
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    assert "1 job past the lifetime" in done.stderr
    assert [one.state for one in fts.jobs.values()] == ["CANCELED"]
    assert world.states() == {State.ENDED: 1}
    world.clock.advance(START + LIFETIME + timedelta(hours=1))
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 1}
