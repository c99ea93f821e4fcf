"""Files that wait for tape, as the ledger keeps them and as status, reports and people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.report import sections
from dc_inject.ledger import LedgerView
from dc_inject.model import TapeFiles
from dc_inject.model.ports import Status
from dc_inject.summary import figures, standing, tape
from tests.ledger.world import AB, CYCLE, GB, MINUTE, START, accepted, injection, opened, seen, started

ONE, TWO = injection("cms:/a#1"), injection("cms:/a#2")


def test_waits_of_all_jobs_of_a_link_are_one_figure(tmp_path: Path) -> None:
    """The last look at each counts; what has ended waits for nothing."""
    with opened(tmp_path) as ledger:
        started(ledger, ONE, TWO)
        accepted(ledger, ONE, TWO)
        assert ledger.tape_files() == {}
        first = TapeFiles(staging=40, waits=(60,) * 10)
        ledger.observe(
            [seen(ONE.key, Status.MOVING, tape=first), seen(TWO.key, Status.MOVING, tape=first)], START + MINUTE
        )
        later = TapeFiles(staging=10, archiving=2, archived=3, waits=(60,) * 10 + (600,) * 30)
        ledger.observe([seen(ONE.key, Status.MOVING, moved=GB, tape=later)], START + 2 * MINUTE)
        assert ledger.tape_files() == {AB: later._replace(staging=50, waits=(*later.waits, *first.waits))}
        ledger.observe([seen(TWO.key, Status.ABSENT)], START + 3 * MINUTE)
        assert ledger.tape_files()[AB].staging == 10
    with LedgerView.open(tmp_path / "dc27.sqlite") as view:
        (row,) = standing.standing("dc27", view, CYCLE.end)["tape"]
        assert row == {
            **AB.names(),
            "staging": 10,
            "staged": 50,
            "wait_median": 600,
            "wait_longest": 600,
            "moved": GB,
            "archiving": 2,
            "archived": 3,
        }
        words = tape.line(row)
        assert ["A -> B" in words, "10 files" in words, "10 min" in words, "1 GB" in words] == [True] * 4
        report = figures.report(view, figures.ReportScope(), None, CYCLE.end)
        assert report is not None
        (table,) = [one.table for one in sections.sections(report) if one.name == "tape"]
        assert table is not None
        assert [cell.value for cell in table.rows[0][3:]] == [10, 50, 600, 600, GB, 2, 3]


def test_waits_are_gathered_once_and_are_no_signals_of_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recall of days has millions of waits: adding them up takes as long as there are of them."""
    copied: list[int] = []

    class Counted(TapeFiles):
        def __new__(cls, *values: Any) -> Counted:
            made = super().__new__(cls, *values)
            copied.append(len(made.waits))
            return made

    many = [injection(f"cms:/a#{number}") for number in range(20)]
    with opened(tmp_path) as ledger:
        started(ledger, *many)
        accepted(ledger, *many)
        of_each = TapeFiles(waits=(60,) * 5)
        ledger.observe([seen(one.key, Status.MOVING, tape=of_each) for one in many], START + MINUTE)
        monkeypatch.setattr("dc_inject.ledger.inventory.TapeFiles", Counted)
        assert ledger.tape_files()[AB].waits == (60,) * 100
        assert sum(copied) <= 100
        assert "tape" not in {signal.name for signal in ledger.signals()}
        assert len(ledger.signals("tape")) == 20
