"""Sweeping up through FTS's own client: files of a job at work stay, and jobs are found by paths alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from dc_inject.assembly.sweeping import Sweep
from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.sim import SimClock
from dc_inject.cli import end_files
from dc_inject.model import Bundle, File, Injection, JobOptions, Link, naming
from dc_inject.model.items import label
from tests.backends.fts.service import FakeFts
from tests.backends.fts.store import Store
from tests.backends.support import fts3_or_skip
from tests.cli.ledgers import CYCLE, START
from tests.cli.storages import Open, a_service

LINK = Link("davs://a/data", "davs://b/dc", "fts")


@pytest.fixture
def store() -> Store:
    return Open(free=10**15)


@pytest.fixture
def service(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeFts, FtsBackend]]:
    fts3_or_skip()
    with a_service(store, monkeypatch) as made:
        yield made


def job(store: Store, number: int) -> Injection:
    """A job of two files, which are at their destinations already."""
    members = tuple(File(f"{LINK.source}/{number}-{n}", 1000) for n in range(2))
    item = Bundle(label(members, START, number), 2000, 2, members)
    key = naming.key("test", "s", START, LINK, item.name)
    made = Injection(
        key, "test", CYCLE, "s", LINK, item, START, timedelta(hours=1), "", 3, "me@x.org", JobOptions()
    )
    for member, copy in zip(members, naming.copies(made), strict=True):
        store.put(member.name, member.bytes)
        store.put(copy, member.bytes)
    return made


def sweep(backend: FtsBackend) -> None:
    later = SimClock(START + timedelta(days=2))
    search = Sweep(backend, LINK.destination, "test", None, later)
    end_files.sweep(search, include_recent=False, yes=True)


def test_files_stay_as_long_as_fts_is_at_work_on_them(
    service: tuple[FakeFts, FtsBackend], store: Store, capsys: pytest.CaptureFixture[str], wording
) -> None:
    """Files of a forgotten job go at once, those of one that waits only when it is over, each with its folder."""
    fts, backend = service
    forgotten, waiting = job(store, 0), job(store, 1)
    assert backend.submit([waiting])[0].error is None
    sweep(backend)
    assert not set(naming.copies(forgotten)) & set(store.files)
    assert set(naming.copies(waiting)) <= set(store.files)
    wording(capsys.readouterr().err)
    fts.finish()
    sweep(backend)
    assert not [url for url in store.files if naming.TOP in url]
    assert not {naming.folder(forgotten), naming.folder(waiting)} & store.folders
