"""Files that wait for tape, as the ledger keeps them and as status, reports and people see them."""

from __future__ import annotations

from pathlib import Path

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
