"""What a last check finds to be of no use is set aside: for a cycle where that may pass soon, else for longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dc_inject.model import Hold
from dc_inject.model.items import SliceId, Slicing
from dc_inject.model.ports import Candidate, ReplicaStatus

from .world import CYCLE, GB, START, World, campaign, flow, items, world


def looking(one: World, monkeypatch: pytest.MonkeyPatch, cycles: int, **other: object) -> list[int]:
    """Have a dataset look different in so many cycles; returns the cycles in which anybody looked at it."""
    real, looked = one.backend.check_replicas, []

    def check_replicas(candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        cycle = (one.clock.now() - START) // CYCLE
        if candidates:
            looked.append(cycle)
        return {c: replace(s, **other) if cycle < cycles else s for c, s in real(candidates).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(one.backend, "check_replicas", check_replicas)
    return looked


def single(tmp_path: Path) -> World:
    return world(tmp_path, campaign([flow("A", "B", 0.8)]), {"A": items("A", 1, 90 * GB)})


@pytest.mark.parametrize("other", [{"source_complete": False}, {"source_locked": False}])
def test_what_is_not_whole_at_its_source_is_looked_at_again_in_the_next_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, object]
) -> None:
    """Rucio may just be about to say so: its daemons follow what happens minutes later."""
    one = single(tmp_path)
    looked = looking(one, monkeypatch, 1, **other)
    one.run(cycles=2)
    assert looked == [0, 1]
    assert [row.injected for row in one.ledger.rows()] == [0, 90 * GB]


def test_what_stays_like_that_is_looked_at_ever_less_often_and_within_the_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = single(tmp_path)
    looked = looking(one, monkeypatch, 100, source_complete=False)
    one.run(cycles=13)
    assert looked == [0, 1, 3, 7, 11]


def test_what_will_not_change_soon_is_set_aside_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = single(tmp_path)
    looked = looking(one, monkeypatch, 100, closed=False)
    one.run(cycles=9)
    assert looked == [0, 4, 8]


@pytest.mark.parametrize(("stock", "hold"), [(116, Hold.QUARANTINED), (10, Hold.POOL_DRY)])
def test_a_pool_is_dry_only_if_nothing_is_left_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stock: int, hold: Hold
) -> None:
    """Four rounds of a last check find nothing of use in some of the pool."""
    one = world(tmp_path, campaign([flow("A", "B", 0.8)]), {"A": items("A", stock, 5 * GB)})
    looking(one, monkeypatch, 100, closed=False)
    one.run(cycles=1)
    (row,) = one.ledger.rows()
    assert row.held is not None
    assert (row.held.hold, row.held.numbers["message"]) == (hold, "it is still open")
    aside = len(one.ledger.quarantined(START))
    assert row.held.numbers["times"] == aside
    assert row.held.numbers.get("pool_items", 0) == stock - aside


def test_a_dataset_whose_files_cannot_be_listed_is_set_aside_with_all_its_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another slice of it is tried in every round of every cycle; the link takes others meanwhile."""
    made = campaign([flow("A", "B", 1, slices=Slicing("user.dcops"))])
    one = world(tmp_path, made, {"A": items("A", 2, 5000 * GB, 1000)})
    bad: list[str] = []  # the first one that is looked at
    real, asked = one.backend.check_replicas, []

    def check_replicas(candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        statuses = dict(real(candidates))
        for candidate in candidates:
            assert isinstance(candidate.item, SliceId)
            part = candidate.item.range
            bad[:] = bad or [part.parent]
            if part.parent in bad:
                asked.append((one.clock.now() - START) // CYCLE)
                statuses[candidate] = replace(statuses[candidate], item=None)
        return statuses

    monkeypatch.setattr(one.backend, "check_replicas", check_replicas)
    one.run(cycles=6)
    assert asked
    assert len(asked) <= 2 * 4, "those of one plan, once an hour"
    assert len(set(asked)) <= 2
    aside = {item: why for (item, _), why in one.ledger.quarantined(START).items()}
    assert "be listed" in aside[bad[0]]
    assert (
        one.ledger.accounts()[made.flows[0].key].injected >= 0.95 * 6 * made.flows[0].rate * CYCLE.total_seconds()
    )
