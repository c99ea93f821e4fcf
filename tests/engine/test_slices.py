"""Slices in a campaign: a link of 1 Gb/s whose source has datasets of 5 TB, or without the right to cut them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.engine.preflight import why_not
from dc_inject.model import Dataset, FlowKey, Hold, Injection, Link, Slice, State
from dc_inject.model.errors import NoSlices
from dc_inject.model.items import Slicing, read
from dc_inject.model.ports import Outcome, ReplicaStatus
from tests.sim import SimBackend

from .world import CYCLE, GB, START, TB, World, campaign, flow, world

LINK = Link("A", "B")
KEY = FlowKey("test", LINK)
COARSE = {"A": [Dataset(f"cms:/A/data#{n}", 5 * TB, 1000) for n in range(2)]}
FILE = 5 * GB


def coarse(tmp_path: Path, **more: Any) -> World:
    return world(tmp_path, campaign([flow("A", "B", 1, slices=Slicing("user.dcops"))]), COARSE, **more)


def test_over_a_day_a_coarse_link_is_within_half_a_file_of_its_account(tmp_path: Path) -> None:
    """Sixteen cycles are enough: rules end as they complete, and their files go out again."""
    there = coarse(tmp_path)
    for cycle in range(1, 17):
        there.run(1)
        account = there.ledger.accounts()[KEY]
        assert account.due == cycle * int(CYCLE.total_seconds() * 1e9 / 8)
        assert abs(account.due - account.injected) <= FILE / 2
        assert account.forgiven == 0
    # What is short by a part of a file is too coarse a rest, as ever.
    assert {row.held.hold for row in there.ledger.rows() if row.held} <= {Hold.TOO_COARSE}
    moved = there.ledger.entries(State.COMPLETE, State.ENDED, State.GONE)
    assert moved
    assert all(isinstance(entry.injection.item, Slice) for entry in moved)


def test_a_restart_goes_on_with_the_slices_that_are_there(tmp_path: Path) -> None:
    """Each engine lives for a cycle, and with nothing ended no file goes out a second time."""
    there = coarse(tmp_path, may_end=False)
    for _ in range(4):
        there.run(1)
    files: list[tuple[str, int]] = []
    for entry in there.ledger.entries(State.LIVE, State.COMPLETE):
        item = entry.injection.item
        assert isinstance(item, Slice)
        part = item.range
        files += [(part.parent, number) for number in range(part.first, part.last + 1)]
    assert len(files) == len(set(files)) == 90


def test_without_the_right_whole_datasets_have_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The link is held as too-coarse, with what to ask for, and nothing is set aside; it is tried every hour."""
    there = coarse(tmp_path)
    asked: list[str] = []
    real = there.backend.submit

    def refuse(injections: Sequence[Injection]) -> list[Outcome]:
        asked.extend(one.item.name for one in injections if isinstance(one.item, Slice))
        error = NoSlices("no slices in the scope user.dcops", "ask for the right to make datasets in user.dcops")
        return [Outcome(one.key, error=error) for one in injections]

    monkeypatch.setattr(there.backend, "submit", refuse)
    there.run(4)
    rows = there.ledger.rows()
    assert {row.held.hold for row in rows if row.held} == {Hold.TOO_COARSE}
    assert len(rows) == 4
    assert "user.dcops" in str(rows[0].held)
    assert len(asked) == 1
    assert "whole datasets" in caplog.text
    assert {place for _, place in there.ledger.taken(there.clock.now())} == set()
    monkeypatch.setattr(there.backend, "submit", real)
    there.clock.advance(there.clock.now() + timedelta(hours=1))
    there.run(1)
    assert there.ledger.accounts()[KEY].injected > 0


def test_another_link_with_whole_datasets_never_meets_the_slices(tmp_path: Path) -> None:
    """To the same place, from another source with the same datasets: what one of them cuts the other leaves."""
    stock = {"A": COARSE["A"], "C": [Dataset(item.name, item.bytes, item.files) for item in COARSE["A"]]}
    links = [flow("A", "B", 1, slices=Slicing("user.dcops")), flow("C", "B", 50, scenario="other")]
    there = world(tmp_path, campaign(links), stock, may_end=False)
    there.run(8)
    items = [entry.injection.item for entry in there.ledger.entries(State.LIVE, State.COMPLETE)]
    parents = {item.range.parent for item in items if isinstance(item, Slice)}
    whole = {item.name for item in items if not isinstance(item, Slice)}
    assert parents
    assert parents.isdisjoint(whole)
    assert isinstance(there.backend, SimBackend)


@pytest.mark.parametrize(
    ("name", "factor", "usable"),
    [
        ("cms:/A/data#1", 1.04, True),
        ("cms:/A/data#1", 1.9, False),
        ("u:dc_inject-1 (cms:/A/data#1 files 1-2 of 9)", 1.9, True),
        ("u:dc_inject-1 (cms:/A/data#1 files 1-2 of 9)", 2.1, False),
    ],
)
def test_a_slice_may_have_larger_files_than_the_mean(name: str, factor: float, *, usable: bool) -> None:
    """By which it was weighed; a dataset is weighed by what it is."""
    item = read(name, 10 * GB, 2)
    status = ReplicaStatus(replace(item, bytes=int(factor * 10 * GB)), True, True, True, None, 0, False)
    assert (why_not(status, item, START + CYCLE) == "") is usable
