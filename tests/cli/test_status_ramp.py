"""What `status` shows of links on which FTS may still be growing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.types import Signal, Totals
from dc_inject.model.ports import Observation, Status
from dc_inject.summary import standing
from dc_inject.summary.ramping import ramping
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, Made, make, run


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """A link with three rules that have moved 150 GB, one with a rule, and one without."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 3, MESH: 1}, dry=(KIT,))
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ours = [entry.injection.key for entry in made.entries if entry.injection.flow == FNAL]
        ledger.observe([Observation(ours[0], Status.COMPLETE, files_done=10)], START)
        ledger.observe([Observation(ours[1], Status.MOVING, files_done=5, moved=50 * GB)], START)
    return made


def test_a_link_on_which_fts_still_grows_is_told(made: Made) -> None:
    """One that moves less than is due, and began too short a time ago for its 111 transfers."""
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.open_cycle(CYCLE.next, dict.fromkeys((FNAL, KIT), (600 * GB, None)), CYCLE.end)
    with (
        Ledger.open(made.path, synchronous="OFF") as ledger,
        ledger.hold("me@here"),
        LedgerView.open(made.path) as view,
    ):
        (told,) = standing.standing("dc27", view, CYCLE.end)["ramping"]
        assert (told["destination"], told["carries"]) == ("T1_US_FNAL_Disk", (66 + 2 * 15) * 6e6)
        assert told["until"] == "2027-02-08T10:22:33Z"
        (early,) = standing.standing("dc27", view, START - timedelta(days=99))["ramping"]
        assert early["until"] == told["until"], "it counts from the begin, whenever somebody asks"
        assert standing.standing("dc27", view, CYCLE.end + timedelta(minutes=8))["ramping"] == []
        shown = run("status", "dc27", "--ledger", made.path).stdout
    assert "ramping: T2_CH_CERN -> T1_US_FNAL_Disk, about " in shown


def test_fts_is_not_said_to_grow_after_a_campaign_or_on_a_link_without_rules(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has ended does not ramp, however lately it began."""
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: START + timedelta(minutes=8))
    assert "ramping" not in run("status", "dc27", "--ledger", made.path).stdout, "no injector runs"
    with Ledger.open(made.path, synchronous="OFF") as ledger, ledger.hold("me@here"):
        assert "ramping" in run("status", "dc27", "--ledger", made.path).stdout
        keys = [entry.injection.key for entry in made.entries]
        ledger.observe([Observation(key, Status.ABSENT) for key in keys], CYCLE.end)
        assert "ramping" not in run("status", "dc27", "--ledger", made.path).stdout


def test_fts_does_not_begin_anew_with_each_dataset_of_a_link_that_has_few(made: Made) -> None:
    """One in every other cycle: after the time that it takes to grow, nothing is told of it any more."""
    with LedgerView.open(made.path) as view:
        (first, *_) = (row for row in view.rows() if row.key == FNAL)
    slots = [CYCLE, CYCLE.next, CYCLE.next.next]
    rows = [
        first._replace(cycle=slot, injected=size, moved=1) for slot, size in zip(slots, (9, 0, 9), strict=True)
    ]
    view = SimpleNamespace(
        last_cycle=lambda: rows[-1].cycle, rows=lambda since: rows, since=START, signals=list,
        accounts=lambda: {FNAL: Totals(coming=GB)},
    )  # fmt: skip
    assert list(ramping(view, START + timedelta(minutes=31))) == []
    del rows[1:]
    assert [link.key for link in ramping(view, START + timedelta(minutes=7))] == [FNAL]


@pytest.mark.parametrize(
    ("moved", "signal", "ramps", "most"),
    [
        ([40 * GB], "known", True, None),
        ([40 * GB], "most:70", True, 70),
        ([0], "known", False, None),
        ([200 * GB, 40 * GB], "known", False, None),
    ],
)
def test_a_link_that_moves_nothing_or_less_than_before_is_not_growing(
    made: Made, moved: list[int], signal: str, *, ramps: bool, most: int | None
) -> None:
    """And where FTS has reached its limit, that is the reason."""
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
        signals=lambda: [Signal("fts_queue", str(FNAL.link), signal, START)],
    )  # fmt: skip
    found = list(ramping(view, rows[-1].cycle.start + timedelta(minutes=1)))
    assert [(link.key, link.most) for link in found] == ([(FNAL, most)] if ramps else [])
