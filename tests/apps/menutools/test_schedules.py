"""Workbooks of several sheets: each day gets what its schedule says, or the cell to mend is named."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from dc_inject.apps.menutools import schedules
from dc_inject.apps.menutools.importing import Options
from dc_inject.apps.menutools.schedules import Book
from dc_inject.apps.menutools.tables import Layout
from dc_inject.model.errors import DcInjectError, MenuError, UsageError
from tests.cli.ledgers import run
from tests.menu import books
from tests.menu.books import Formula, Value
from tests.menu.texts import text

FIRST = 46426  # 2027-02-08, a Monday, as spreadsheets count days
T0: dict[str, Value] = {
    "A1": "T0 export, as agreed",
    "A3": "from\\to [Gb/s]", "B3": "KIT", "C3": "FNAL", "D3": "Sum", "E3": "requested by",
    "A4": "CERN", "B4": 10, "C4": 30, "D4": Formula("SUM(B4:C4)", 40), "E4": "Ada",
}  # fmt: skip
T1: dict[str, Value] = {"A1": "src", "B1": "dst", "C1": "rate [GB/s]", "A2": "KIT", "B2": "FNAL", "C2": 0.5}
SCHEDULE: dict[str, Value] = {
    "A1": "Day", "B1": "Date", "C1": "Weekday", "D1": "T0 export", "E1": "t1 [Gb/s]", "F1": "Total [Gb/s]",
    "A2": 1, "B2": FIRST, "C2": "Mon", "D2": "x", "F2": 40,
    "A3": 2, "B3": "2027-02-09", "C3": "Tuesday", "D3": 0.5, "E3": 8, "F3": 28,
    "A4": 3, "B4": FIRST + 2, "C4": "Wed",
    "A5": 4, "B5": FIRST + 3, "C5": "Thu", "D5": "20 Gb/s", "E5": "100 %", "F5": 24,
}  # fmt: skip
STYLES = {"Schedule!B2": "date", "Schedule!B4": "date", "Schedule!B5": "date", "Schedule!D3": "percent"}
IGNORED = {"ignore_columns": ("requested by",)}


def workbook(schedule: Mapping[str, Value] = {}, **more: object) -> bytes:
    """Return the workbook, with other cells in its schedule."""
    sheets = {"T1": T1, "Schedule": SCHEDULE | dict(schedule)}
    return books.book(T0, name="T0 export", more=sheets, styles=STYLES, **more)  # type: ignore[arg-type]


def read(data: bytes, schedule: str = "Schedule", ignored: tuple[str, ...] = (), **layout: object) -> Book:
    options = Options(layout=Layout(**(IGNORED | layout)))  # type: ignore[arg-type]
    return schedules.read(data, "dc27.xlsx", options, schedule, ignored)


def plan(book: Book) -> list[tuple[int, str, dict[str, float]]]:
    """Return the days of a book, each with its date, and its rates in Gb/s."""
    return [
        (
            day.number,
            str(day.date),
            {
                f"{part.scenario} {source}:{to}": round(amount.rate * 8e-9, 6)
                for part in day.parts
                for (source, to, _), amount in zip(part.links.links, part.amounts, strict=True)
            },
        )
        for day in book.days
    ]


def places(error: DcInjectError) -> set[str]:
    """Return where problems are: sheet, or sheet and cell."""
    assert isinstance(error, MenuError)
    assert all(problem.hint for problem in error.problems)
    return {str(problem).removeprefix("dc27.xlsx:").partition(":")[0] for problem in error.problems}


EXPECTED = [
    (1, "2027-02-08", {"T0-export CERN:KIT": 10, "T0-export CERN:FNAL": 30}),
    (2, "2027-02-09", {"T0-export CERN:KIT": 5, "T0-export CERN:FNAL": 15, "T1 KIT:FNAL": 8}),
    (3, "2027-02-10", {}),
    (4, "2027-02-11", {"T0-export CERN:KIT": 5, "T0-export CERN:FNAL": 15, "T1 KIT:FNAL": 4}),
]


def test_a_schedule_says_which_scenario_runs_on_which_day() -> None:
    """By x, a factor, a percentage, and a rate, of which the head may have the unit; sums are compared."""
    book = read(workbook())
    assert plan(book) == EXPECTED
    assert any("T0 export, as agreed" in remark for remark in book.remarks)  # the title


def test_days_may_be_columns() -> None:
    """Under a title, with numbers of days that need no dates; merged cells are a bar over days."""
    turned: dict[str, Value] = {
        "A1": "Plan, v3",
        "A2": "Scenario", "B2": "Day 1", "C2": "Day 2", "D2": "Day 4",
        "A3": "T0 export", "B3": "x",
        "A4": "T1", "C4": 2, "D4": "yes",
    }  # fmt: skip
    sheets = {"T0 export": T0, "T1": T1}
    data = books.book(turned, name="Schedule", more=sheets, merged=["B3:C3"], styles={"C4": ""})
    days = read(data).days
    assert [(day.number, day.date, [(p.scenario, p.factor) for p in day.parts]) for day in days] == [
        (1, None, [("T0-export", 1)]),
        (2, None, [("T0-export", 1), ("T1", 2)]),
        (4, None, [("T1", 1)]),
    ]


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ({"D2": 50}, {"Schedule!D2"}),  # per cent?
        ({"D2": "mostly"}, {"Schedule!D2"}),
        ({"D2": Formula("1+1")}, {"Schedule!D2"}),
        ({"F3": 29}, {"Schedule!F3"}),
        ({"F3": "n.a."}, set()),
        ({"A3": 3}, {"Schedule!A3"}),  # two days, or a date of another day
        ({"B3": "2027-02-08"}, {"Schedule!A3", "Schedule!C3"}),
        ({"B3": "2027-02-30"}, {"Schedule!B3"}),
        ({"B3": "2026-02-09"}, {"Schedule!A3", "Schedule!C3"}),
        ({"B3": 12}, {"Schedule!B3"}),
        ({"B3": "9 Feb"}, {"Schedule!B3"}),
        ({"C3": "Wed"}, {"Schedule!C3"}),
        ({"D1": "T0 exprot"}, {"Schedule!D1", "T0 export"}),
        ({"E1": "T0 export"}, {"Schedule!E1", "T1"}),
        ({"G1": "Remark", "G2": "first beam"}, {"Schedule!G1"}),
        (
            {"E3": "", "E5": "-", "F3": 20, "F5": 20},
            {"Schedule!E1"},
        ),  # a scenario that never runs, such as one that only has colours
        ({"A6": "", "D6": "x"}, {"Schedule!D6"}),
    ],
)
def test_what_cannot_be_read_has_its_cell(cells: dict[str, Value], where: set[str]) -> None:
    if not where:
        assert read(workbook(cells))
        return
    with pytest.raises(MenuError) as caught:
        read(workbook(cells))
    assert places(caught.value) == where


def test_what_is_wrong_in_all_sheets_is_reported_at_once() -> None:
    """A unit that is missing is one problem, a site is looked for in the list, and notes are no table."""
    rows = T0 | {"A3": "from\\to", "C4": "1,5"}
    sheets = {"T1": T1 | {"B2": "FNLA"}, "Schedule": SCHEDULE, "Notes": {"A1": "Minutes"}}
    data = books.book(rows, name="T0 export", more=sheets, styles=STYLES)
    options = Options(layout=Layout(ignore_columns=("requested by",)), names={"CERN", "KIT", "FNAL"})
    with pytest.raises(MenuError) as caught:
        schedules.read(data, "dc27.xlsx", options, "Schedule", ())
    assert places(caught.value) == {"T0 export!A3", "T0 export!C4", "T1!B2", "Notes"}


@pytest.mark.parametrize(
    ("layout", "right"),
    [
        ({"ignore_columns": ("T0 export!E",)}, True),
        ({"ignore_columns": ("E",)}, False),  # of which sheet?
        ({"ignore_columns": ("requested by", "asked by")}, False),
        ({"header_rows": (("T0 export", 3),)}, True),
        ({"ignore_rows": ("Schedule!4",)}, True),
        ({"ignore_rows": ("5",)}, False),
    ],
)
def test_options_are_for_all_sheets_or_for_one(layout: dict[str, object], right: bool) -> None:
    """A letter or number is always that of one sheet, so that nothing is left out in the others."""
    if right:
        assert read(workbook(), **layout).days[0].parts[0].links.links[0][:2] == ("CERN", "KIT")
    else:
        with pytest.raises(DcInjectError):
            read(workbook(), **layout)


def test_hidden_sheets_need_an_option_and_other_sheets_too() -> None:
    with pytest.raises(MenuError) as caught:
        read(workbook(hidden=["T1"]))
    assert places(caught.value) == {"T1"}
    assert plan(read(workbook(hidden=["T1"]), hidden="read")) == EXPECTED
    extra = books.book(T0, name="T0 export", more={"T1": T1, "Schedule": SCHEDULE, "Old": T1}, styles=STYLES)
    with pytest.raises(MenuError) as caught:
        read(extra)
    assert places(caught.value) == {"Old"}
    assert plan(read(extra, ignored=("Old",))) == EXPECTED
    with pytest.raises(UsageError):
        read(extra, ignored=("Odl",))


def test_a_copy_of_a_sheet_is_the_same_scenario() -> None:
    """As a spreadsheet names it, but not on the same day."""
    own: dict[str, Value] = {"A1": "Day", "B1": "T1", "C1": "T1 (2)", "A2": 1, "B2": "x", "A3": 2, "C3": "x"}
    more = {"T1 (2)": T1 | {"C2": 1}, "Schedule": own}
    days = read(books.book(T1, name="T1", more=more), ignore_columns=()).days
    assert [[(part.scenario, float(part.amounts[0].number)) for part in day.parts] for day in days] == [
        [("T1", 0.5)],
        [("T1", 1.0)],
    ]
    more["Schedule"] = own | {"B3": "x"}
    with pytest.raises(MenuError) as caught:
        read(books.book(T1, name="T1", more=more), ignore_columns=())
    assert places(caught.value) == {"Schedule!A3"}


def test_a_name_that_is_nearly_that_of_another_sheet_is_remarked() -> None:
    sheets = {f"T{n}": T1 | {"A2": "T1_DE_KIT_Disk"} for n in range(2)} | {"T2": T1 | {"A2": "T1_DE_KIT_Dsk"}}
    schedule: dict[str, Value] = {"A1": "Day", "B1": "T0", "C1": "T1", "D1": "T2", "A2": 1} | dict.fromkeys(
        ("B2", "C2", "D2"), "x"
    )
    book = read(books.book(schedule, name="Schedule", more=sheets), ignore_columns=())
    assert [remark.partition(" is ")[0] for remark in book.remarks] == ["T2: T1_DE_KIT_Dsk"]


# --------------------------------------------------------------------------- the command


def import_(folder: Path, data: bytes, *options: str):
    (folder / "dc27.xlsx").write_bytes(data)
    usual = ["--schedule", "Schedule", "--ignore-column", "requested by", "--timezone", "Europe/Zurich"]
    return run("menu", "import", folder / "dc27.xlsx", *usual, "-o", folder / "days", *options)


def test_a_workbook_becomes_days_that_check_accepts(tmp_path: Path) -> None:
    """From 10:00 to 10:00 in the zone; none for a day of rest, and one file for what they have in common."""
    done = import_(tmp_path, workbook(), "--contact", "dc-ops@example.org")
    assert done.exit_code == 0, done.stderr
    days = tmp_path / "days"
    assert sorted(p.name for p in days.iterdir()) == ["_common.yaml", "day-01.yaml", "day-02.yaml", "day-04.yaml"]
    assert "start: 2027-02-11 10:00\nend: 2027-02-12 10:00\ntarget: 24 Gb/s" in (days / "day-04.yaml").read_text()
    assert "contact: dc-ops@example.org" in (days / "_common.yaml").read_text()
    checked = run("check", days)
    assert (checked.exit_code, "0 errors" in checked.stderr) == (0, True)


def test_a_second_import_shows_what_changes_and_needs_force(tmp_path: Path) -> None:
    """Nothing is written before; the common part stays as it was edited; a file of no day is not passed over."""
    assert import_(tmp_path, workbook()).exit_code == 0
    common, first = (tmp_path / "days" / name for name in ("_common.yaml", "day-01.yaml"))
    common.write_text(common.read_text() + "limits: {total: 90 Gb/s}\n")
    edited, old = common.read_text(), first.read_text()
    changed = workbook({"D2": 2, "F2": 80})
    done = import_(tmp_path, changed)
    assert isinstance(done.exception, UsageError)
    assert first.read_text() == old
    assert "CERN -> FNAL 30 Gb/s -> 60 Gb/s" in done.stderr
    assert "day-02.yaml changes" not in done.stderr
    assert import_(tmp_path, changed, "--force").exit_code == 0
    assert (common.read_text(), "rate: 60 Gb/s" in first.read_text()) == (edited, True)
    assert import_(tmp_path, changed).exit_code == 0
    over = import_(tmp_path, workbook({"D2": 3, "F2": 120}), "--force")
    assert isinstance(over.exception, MenuError)  # above the limit in the common part
    assert "rate: 60 Gb/s" in first.read_text()
    (tmp_path / "days" / "day-09.yaml").write_text(old)
    assert isinstance(import_(tmp_path, changed, "--force").exception, UsageError)


def test_the_common_part_that_is_kept_decides_its_keys(tmp_path: Path) -> None:
    """Days are in its zone, its keys are not assumed, and options that differ from it are refused."""
    sheet = {"A1": "Day", "B1": "T1", "A2": 1, "B2": "x"}
    (tmp_path / "m.xlsx").write_bytes(books.book(T1, name="T1", more={"Schedule": sheet}))
    days = tmp_path / "days"
    usual = [
        "menu",
        "import",
        tmp_path / "m.xlsx",
        "--schedule",
        "Schedule",
        "-o",
        days,
        "--campaign",
        "dc",
        "--start",
    ]
    first = run(*usual, "2027-03-01 10:00", "--timezone", "Europe/Zurich", "--did", "cms:*", "--did", "atlas:*")
    assert (first.exit_code, "assumed: " in first.stderr) == (0, True)
    before = (days / "day-01.yaml").read_text()
    for option in (
        ("--timezone", "UTC"),
        ("--contact", "ops"),
        ("--did", "cms:*"),
        ("--through", "fts"),
        ("--fts", "https://fts"),
    ):
        done = run(*usual, "2027-05-01 10:00", *option, "--force")
        assert isinstance(done.exception, UsageError), option
        assert option[0] in done.exception.message
    assert (days / "day-01.yaml").read_text() == before
    same = ["--timezone", "Europe/Zurich", "--did", "cms:*", "--did", "atlas:*", "--through", "rucio"]
    for more in ([], same):
        done = run(*usual, "2027-05-01 08:00Z", *more, "--force")
        assert (done.exit_code, "assumed: " in done.stderr) == (0, False)
        assert "start: 2027-05-01 10:00\n" in (days / "day-01.yaml").read_text()
    common = days / "_common.yaml"
    common.write_text(common.read_text().replace("timezone: Europe/Zurich", "timezone: Mars"))
    broken = run(*usual, "2027-05-01 10:00", "--force")
    assert isinstance(broken.exception, MenuError)
    assert broken.exception.problems[0].line


def test_what_a_menu_refuses_is_put_down_to_the_cell(tmp_path: Path) -> None:
    """A rate above the WAN of its site, and an outlier, once for all days."""
    (tmp_path / "sites.yaml").write_text(
        "sites: {CERN: {wan: 20 Gb/s, rses: {CERN: {}}}, KIT: {rses: {KIT: {}}}, FNAL: {rses: {FNAL: {}}}}\n"
    )
    done = import_(tmp_path, workbook(), "--sites", str(tmp_path / "sites.yaml"))
    assert isinstance(done.exception, MenuError)
    assert {str(one).partition(": ")[0] for one in done.exception.problems} == {
        f"{tmp_path / 'dc27.xlsx'}:T0 export!C4"
    }


@pytest.mark.parametrize(
    "options",
    [["--end", "2027-02-20"], ["--scenario", "one"], ["--sheet", "T1"], ["--sheets", "days"], ["-o", "-"],
     ["--start", "2027-02-09 10:00"]],
)  # fmt: skip
def test_options_that_do_not_go_with_a_schedule(tmp_path: Path, options: list[str]) -> None:
    done = import_(tmp_path, workbook(), *options)
    assert isinstance(done.exception, UsageError)


def test_sheets_are_scenarios_or_days_without_a_schedule(tmp_path: Path) -> None:
    """One menu, or one a day, the first one at --start."""
    (tmp_path / "m.xlsx").write_bytes(books.book(T1, name="T1", more={"T2": T1 | {"C2": 1}}))
    done = run("menu", "import", tmp_path / "m.xlsx", "--sheets", "scenarios")
    assert "  T1:\n" in done.stdout
    assert "  T2:\n" in done.stdout
    start = ["--start", "2027-03-27 08:30", "--timezone", "Europe/Zurich"]
    days = tmp_path / "days"
    assert run("menu", "import", tmp_path / "m.xlsx", "--sheets", "days", *start, "-o", days).exit_code == 0
    second = (days / "day-02.yaml").read_text()
    assert "start: 2027-03-28 08:30\nend: 2027-03-29 08:30" in second  # also where clocks change
    assert "  m:\n    links:\n      - {from: KIT, to: FNAL, rate: 1 GB/s}" in second


@pytest.mark.parametrize(
    ("name", "number"),
    [("Day -1", None), ("-1", None), ("Day 0", None), ("Day 367", None), ("Day 1000", None), ("Day 366", 366),
     ("day-01", 1), ("Day - 3", 3), ("Tag 2", 2), ("day: 4", 4)],
)  # fmt: skip
def test_days_are_numbers_in_range_in_rows_and_in_names_of_sheets(name: str, number: int | None) -> None:
    as_row = books.book(T1, name="T1", more={"Schedule": {"A1": "Day", "B1": "T1", "A2": name, "B2": "x"}})
    for data, schedule in ((as_row, "Schedule"), (books.book(T1, name=name), "")):
        if number is None:
            with pytest.raises(MenuError):
                schedules.read(data, "dc27.xlsx", Options(), schedule, (), "dc27")
        else:
            book = schedules.read(data, "dc27.xlsx", Options(), schedule, (), "dc27")
            assert [day.number for day in book.days] == [number]


def test_dates_of_a_workbook_that_counts_from_1904() -> None:
    later = (datetime.date(1904, 1, 1) - datetime.date(1899, 12, 30)).days
    cells: dict[str, Value] = {"B2": FIRST - later, "B4": FIRST + 2 - later, "B5": FIRST + 3 - later}
    assert plan(read(workbook(cells, since_1904=True))) == EXPECTED
    with pytest.raises(MenuError):
        read(workbook(cells))


# --------------------------------------------------------------------------- and back


def test_a_folder_that_became_a_workbook_is_read_again(tmp_path: Path) -> None:
    """The same links at the same rates, also where a day's rates are not those of another day times a factor."""
    openpyxl = pytest.importorskip("openpyxl")
    assert import_(tmp_path, workbook()).exit_code == 0
    last = tmp_path / "days" / "day-04.yaml"
    last.write_text(last.read_text().replace("rate: 15 Gb/s", "rate: 16 Gb/s").replace("24 Gb/s", "25 Gb/s"))
    book = tmp_path / "back.xlsx"
    assert run("menu", "expand", tmp_path / "days", "--format", "xlsx", "-o", book).exit_code == 0
    schedule = openpyxl.load_workbook(book, data_only=True)["Schedule"]
    assert [row[-1] for row in schedule.values] == ["Total [Gb/s]", 40, 28, 25]
    usual = [
        "--schedule",
        "Schedule",
        "--campaign",
        "dc27",
        "--timezone",
        "Europe/Zurich",
        "-o",
        tmp_path / "again",
    ]
    assert run("menu", "import", book, *usual).exit_code == 0
    done = run("menu", "diff", tmp_path / "days", tmp_path / "again", "--format", "json")
    assert json.loads(done.stdout) == []
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == sorted(
        path.name for path in (tmp_path / "days").iterdir()
    )


def test_what_cannot_be_a_workbook_is_refused(tmp_path: Path) -> None:
    """Two menus of one day, a name that no sheet can have, and expressions."""
    for number, scenarios in enumerate(
        ("one: {from: A, to: B, rate: 1 Gb/s}", f"{'x' * 32}: {{from: A, to: C, rate: 1 Gb/s}}",
         "one: {from: A, to: tier=2, rate: 1 Gb/s}"), start=1
    ):  # fmt: skip
        (tmp_path / f"{number}.yaml").write_text(text(scenarios=f"scenarios: {{{scenarios}}}"))
    (tmp_path / "both").mkdir()
    for name in ("1", "2"):
        (tmp_path / "both" / f"{name}.yaml").write_text((tmp_path / f"{name}.yaml").read_text())
    for path in ("both", "2.yaml", "3.yaml"):
        done = run("menu", "expand", tmp_path / path, "--format", "xlsx")
        assert isinstance(done.exception, UsageError), path
