"""How much is asked for in one look: bounded, less where FTS cannot deliver it, and at no great cost in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.model import Entry
from dc_inject.model.errors import Temporary
from dc_inject.model.ports import Status

from .conftest import submitted
from .service import HANG, FakeFts


def at_work(fts: FakeFts, backend: FtsBackend, jobs: int, files: int = 2) -> list[Entry]:
    entries = submitted(backend, *range(jobs), files=files)
    fts.start()
    return entries


def looks(fts: FakeFts) -> list[int]:
    """How many jobs each request for files was about, since the last time this was asked."""
    asked, fts.looks = fts.looks, []
    return asked


def test_an_answer_holds_two_thousand_files_at_most(fts: FakeFts, backend: FtsBackend) -> None:
    """Jobs of 200 files are asked for ten at a time, however many ids FTS takes."""
    entries = at_work(fts, backend, 25, files=200)
    assert {seen.status for seen in backend.observe(entries)} == {Status.MOVING}
    assert looks(fts) == [10, 10, 5]


def test_a_job_of_more_files_than_that_is_asked_for_alone(fts: FakeFts, backend: FtsBackend) -> None:
    entries = at_work(fts, backend, 3, files=2500)
    assert {seen.status for seen in backend.observe(entries)} == {Status.MOVING}
    assert looks(fts) == [1, 1, 1]


@pytest.mark.parametrize("status", [408, 413, 414, 500, 502, 504])
def test_what_is_too_much_for_one_answer_is_asked_for_in_halves(
    fts: FakeFts, backend: FtsBackend, status: int
) -> None:
    entries = at_work(fts, backend, 8)
    fts.most_files, fts.too_many = 8, (status, {"message": "no"})
    assert {seen.status for seen in backend.observe(entries)} == {Status.MOVING}
    assert looks(fts) == [8, 4, 4]


def test_an_answer_that_does_not_come_in_time_is_asked_for_in_halves_which_is_remembered(
    fts: FakeFts, make: Callable[..., FtsBackend]
) -> None:
    """A look that times out costs a minute: the next one does not begin with it again."""
    backend = make(timeout=0.5)
    entries = at_work(fts, backend, 8)
    fts.most_files, fts.too_many = 8, (HANG, "")
    for asked in ([8, 4, 4], [4, 4]):
        assert {seen.status for seen in backend.observe(entries)} == {Status.MOVING}
        assert looks(fts) == asked


def test_what_worked_grows_slowly(fts: FakeFts, backend: FtsBackend) -> None:
    """After many looks that were answered the bound is what it was; not after one, which would time out again."""
    entries = at_work(fts, backend, 8, files=200)
    fts.most_files = 800
    backend.observe(entries)
    assert looks(fts) == [8, 4, 4]
    fts.most_files = 10**9
    backend.observe(entries)
    assert looks(fts) == [4, 4]
    for _ in range(20):
        backend.observe(entries)
    looks(fts)
    backend.observe(entries)
    assert looks(fts) == [8]


def test_a_service_that_does_not_answer_is_not_asked_for_every_part(fts: FakeFts, backend: FtsBackend) -> None:
    """Two time-outs are enough for one look; each costs a minute, and the ledger's rounds wait for it."""
    entries = at_work(fts, backend, 40, files=200)
    fts.most_files = 0
    with pytest.raises(Temporary, match="504"):
        backend.observe(entries)
    assert looks(fts) == [10, 5]


def test_a_job_that_cannot_be_told_of_costs_the_others_nothing_in_the_end(
    fts: FakeFts, backend: FtsBackend
) -> None:
    """One of 1,000 files, where FTS manages 400: it stays unknown, and the others come through."""
    small = at_work(fts, backend, 6, files=100)
    large = submitted(backend, 20, files=1000)
    fts.start()
    fts.most_files = 400
    with pytest.raises(Temporary):
        backend.observe([*small, *large])
    for _ in range(2):
        seen = {one.key: one.status for one in backend.observe([*small, *large])}
    assert {seen[entry.injection.key] for entry in small} == {Status.MOVING}
    assert seen[large[0].injection.key] is Status.UNKNOWN


@pytest.mark.parametrize("status", [503, 429])
def test_one_that_asks_for_fewer_calls_is_not_asked_twice(fts: FakeFts, backend: FtsBackend, status: int) -> None:
    entries = at_work(fts, backend, 8)
    fts.most_files, fts.too_many = 0, (status, {"message": "later"})
    with pytest.raises(Temporary):
        backend.observe(entries)
    assert looks(fts) == [8]
