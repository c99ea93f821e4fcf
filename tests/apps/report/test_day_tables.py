"""The two tables of days: by type of link, and by site as destination and source."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.apps.report import day_tables
from dc_inject.apps.report.tables import Section
from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, FlowKey, Injection, Link
from dc_inject.model.plan import Plan
from dc_inject.model.ports import Observation, Outcome, Status
from tests.apps.report.test_report import told
from tests.cli.ledgers import CYCLE, GB, START, injection, run

DAY = timedelta(days=1)
MENU = """menu: 1
campaign: dc27
contact: me@example.org
start: {start:%Y-%m-%d %H:%M}Z
end: {end:%Y-%m-%d %H:%M}Z
defaults: {{datasets: {{did: "cms:*"}}}}
sites: {{KIT: {{rses: {{T1_DE_KIT_Disk: {{}}}}}}}}
scenarios:
  t0: {{type: T0 export, from: CERN, to: T1_DE_KIT_Disk, rate: 1 Gb/s}}
  {more}
"""
MORE = """prod:
    type: T1s|T2s
    links:
      - {from: T1_DE_KIT_Disk, to: PIC, rate: 1 Gb/s}
      - {from: A, to: B, rate: 1 Gb/s, type: mesh}
"""
T0 = FlowKey("t0", Link("CERN", "T1_DE_KIT_Disk"))
PROD, MESH = FlowKey("prod", Link("T1_DE_KIT_Disk", "PIC")), FlowKey("prod", Link("A", "B"))
HEADS = ("day", "types of the day", "KIT DEST", "KIT SRC", "CERN SRC", "B DEST", "PIC DEST", "A SRC", "all")
SECOND = ("75.0 +", "50.0 !", "75.0 +", "25.0 !!", "50.0 !", "25.0 !!", "50.0 !")


def arrive(ledger: Ledger, made: Sequence[Injection], cycle: Cycle) -> None:
    """Let injections be accepted and complete at once."""
    keys = [one.key for one in made]
    ledger.record_plan(Plan(cycle, (), tuple(made)), cycle.start)
    ledger.call(keys, cycle.start)
    ledger.answer([Outcome(key, f"sim-{key}") for key in keys], cycle.start, {})
    done = [Observation(key, Status.COMPLETE, f"sim-{key}", moved=100 * GB, exact=True) for key in keys]
    ledger.observe(done, cycle.start + timedelta(minutes=5))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days; 400 GB are due on each link, of which one to four datasets of 100 GB move."""
    path = tmp_path_factory.mktemp("tables") / "dc27.sqlite"
    days = ({T0: 4}, {T0: 3, PROD: 2, MESH: 1})
    with Ledger.open(path, synchronous="OFF") as made:
        texts = [MENU.format(start=START + n * DAY, end=START + n * DAY + DAY, more=n * MORE) for n in (0, 1)]
        made.put_in_force([(f"day-{n}.yaml", f"{n}", text) for n, text in enumerate(texts, start=1)], START - DAY)
        for number, moved in enumerate(days):
            cycle = Cycle(START + number * DAY, CYCLE.length)
            made.open_cycle(cycle, dict.fromkeys(moved, (400 * GB, None)), cycle.start)
            arrive(made, [injection(key, n, cycle) for key, count in moved.items() for n in range(count)], cycle)
            made.close_cycle(cycle, cycle.end)
    return path


def rows(section: Section) -> list[tuple[str, ...]]:
    assert section.table is not None
    return [section.table.heads, *(tuple(cell.text for cell in row) for row in section.table.rows)]


def test_days_stand_by_type_and_by_site_with_the_sum(ledger: Path) -> None:
    by_type, by_site = map(rows, day_tables.sections(told(ledger)))
    assert by_type == [
        ("day", "T0 export", "T1s|T2s", "mesh", "all"),
        ("1 (2027-02-08)", "100 ++", "-", "-", "100 ++"),
        ("2 (2027-02-09)", "75.0 +", "50.0 !", "25.0 !!", "50.0 !"),
        ("all", "87.5 +", "50.0 !", "25.0 !!", "62.5 !"),
    ]
    assert by_site[0] == HEADS
    assert "| day | T0 export | T1s\\|T2s | mesh | all |" in run("report", ledger).stdout
    assert by_site[2] == ("2 (2027-02-09)", "T0 export, T1s|T2s, mesh", *SECOND)
    assert by_site[1][1:5] == ("T0 export", "100 ++", "-", "100 ++")


def test_names_beyond_the_largest_share_a_column(ledger: Path) -> None:
    by_type, by_site = map(rows, day_tables.sections(told(ledger), most=1))
    assert [row[1:] for row in by_type] == [
        ("T0 export", "others (2)", "all"), ("100 ++", "-", "100 ++"),
        ("75.0 +", "37.5 !!", "50.0 !"), ("87.5 +", "37.5 !!", "62.5 !"),
    ]  # fmt: skip
    assert by_site[0][2:] == ("KIT DEST", "KIT SRC", "others (4) DEST", "others (4) SRC", "all")


def test_a_part_is_a_table_of_numbers_for_other_programs(ledger: Path, tmp_path: Path) -> None:
    """As CSV, and with all others in a spreadsheet, as colours too."""
    printed = run("report", ledger, "--format", "csv", "--part", "day-types").stdout
    made = [*csv.reader(io.StringIO(printed))]
    assert made[2] == ["2 (2027-02-09)", "0.75", "0.5", "0.25", "0.5"]
    assert made[1] == ["1 (2027-02-08)", "1.0", "", "", "1.0"]
    openpyxl = pytest.importorskip("openpyxl")
    assert run("report", ledger, "--format", "xlsx", "-o", tmp_path / "dc27.xlsx").exit_code == 0
    book = openpyxl.load_workbook(tmp_path / "dc27.xlsx")
    assert {"verdict", "days", "day-types", "day-sites", "destinations"} <= set(book.sheetnames)
    cell = book["day-types"]["D3"]
    assert (cell.value, cell.number_format, cell.fill.fgColor.rgb) == (0.25, "0.00%", "FFFFB9B3")
