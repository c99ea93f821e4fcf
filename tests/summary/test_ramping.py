"""Links on which FTS may still be growing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.types import Totals
from dc_inject.model.ports import Observation, Status
from dc_inject.summary.ramping import growing
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, START, Made, make_moving


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_moving(tmp_path / "dc27.sqlite")


def test_a_link_on_which_fts_still_grows_is_found_until_it_has_the_transfers_that_it_takes(made: Made) -> None:
    """One that moves less than is due, and began too short a time ago for its 111 transfers."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.open_cycle(CYCLE.next, dict.fromkeys((FNAL, KIT), (600 * GB, None)), CYCLE.end)
        assert list(growing(ledger, CYCLE.end)) == [FNAL]
        assert list(growing(ledger, START - timedelta(days=99))) == [FNAL], "whenever somebody asks"
        assert list(growing(ledger, CYCLE.end + timedelta(minutes=8))) == []
        keys = [entry.injection.key for entry in made.entries]
        ledger.observe([Observation(key, Status.ABSENT) for key in keys], CYCLE.end)
        assert list(growing(ledger, CYCLE.end)) == []


def test_fts_does_not_begin_anew_with_each_dataset_of_a_link_that_has_few(made: Made) -> None:
    """One in every other cycle: after the time that it takes to grow, nothing is told of it any more."""
    with LedgerView.open(made.path) as view:
        (first, *_) = (row for row in view.rows() if row.key == FNAL)
    slots = [CYCLE, CYCLE.next, CYCLE.next.next]
    rows = [
        first._replace(cycle=slot, injected=size, moved=1) for slot, size in zip(slots, (9, 0, 9), strict=True)
    ]
    view = SimpleNamespace(
        last_cycle=lambda: rows[-1].cycle, rows=lambda since: rows, since=START,
        accounts=lambda: {FNAL: Totals(coming=GB)},
    )  # fmt: skip
    assert list(growing(view, START + timedelta(minutes=31))) == []
    del rows[1:]
    assert list(growing(view, START + timedelta(minutes=7))) == [FNAL]


@pytest.mark.parametrize(("moved", "grows"), [([40 * GB], True), ([0], False), ([200 * GB, 40 * GB], False)])
def test_a_link_that_moves_nothing_or_less_than_before_is_not_growing(
    made: Made, moved: list[int], *, grows: bool
) -> None:
    with LedgerView.open(made.path) as view:
        (first, *_) = (row for row in view.rows() if row.key == FNAL)
    slots = [CYCLE, CYCLE.next, CYCLE.next.next][: len(moved) + 1]
    rows = [
        first._replace(cycle=slot, due=600 * GB, injected=9, moved=size)
        for slot, size in zip(slots, [*moved, 0], strict=True)
    ]
    view = SimpleNamespace(
        last_cycle=lambda: rows[-1].cycle, rows=lambda since: rows, since=START + timedelta(minutes=14),
        accounts=lambda: {FNAL: Totals(coming=GB)},
    )  # fmt: skip
    assert list(growing(view, rows[-1].cycle.start + timedelta(minutes=1))) == [FNAL] * grows
