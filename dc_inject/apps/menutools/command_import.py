"""`dc-inject menu import`: the old tool's lines, spreadsheets and workbooks become menus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dc_inject import menu
from dc_inject.apps.menutools import imported_menus, importing, new_menus, schedules
from dc_inject.apps.menutools.command_new import HEADING
from dc_inject.apps.menutools.schedules import Book, Day, Part
from dc_inject.apps.menutools.tables import Layout
from dc_inject.cli.shared import common, menu_files, params
from dc_inject.menu.values import WrongError
from dc_inject.model import units
from dc_inject.model.errors import UsageError
from dc_inject.system import files

UNITS = ("Gb/s", "Mb/s", "Tb/s", "GB/s", "MB/s", "GiB/s", "MiB/s")


def _row(text: str) -> tuple[str, int]:
    sheet, _, row = text.rpartition("!")
    if not (row.isascii() and row.isdigit() and 0 < int(row) < 10**7):
        raise WrongError(f"{text!r} is not a row", "such as 3, or 'T0 export!3' in one of several sheets")
    return sheet, int(row)


TABLE = common.options(
    click.option("--as", "form", type=click.Choice(["lines", "matrix"]),
                 help="The form of FILE [default: recognised]."),
    click.option("--unit", type=click.Choice(UNITS),
                 help="The unit of numbers without one [default: Mb/s for lines]."),
    click.option("--decimal", type=click.Choice([".", ","]),
                 help="The decimal separator [default: .]."),
    click.option("--sites", type=params.FILE,
                 help="A part of a menu with `sites`, for all menus; it must name all sources and destinations."),
    click.option("--sheet", default="", metavar="NAME",
                 help="The sheet of an .xlsx file [default: the one open when it was saved]."),
    click.option("--schedule", default="", metavar="NAME",
                 help="The sheet with the days on which the other sheets, the scenarios, run."),
    click.option("--sheets", "kind", type=click.Choice(["scenarios", "days"]),
                 help="Read all sheets of an .xlsx file, each as a scenario or as a day."),
    click.option("--ignore-sheet", "ignore_sheets", multiple=True, metavar="NAME",
                 help="Leave out a sheet; repeatable."),
    click.option("--header-row", "header_rows", type=params.Parsed("row", _row), multiple=True, metavar="N",
                 help="The row with the heads of columns; rows above it, such as titles, are left out."),
    click.option("--ignore-column", "ignore_columns", multiple=True, metavar="NAME",
                 help="Leave out a column: its head, or its letter or number; repeatable."),
    click.option("--ignore-row", "ignore_rows", multiple=True, metavar="NAME",
                 help="Leave out a row: its first cell, or its number; repeatable."),
    click.option("--hidden", type=click.Choice(["read", "ignore"]),
                 help="Read what is hidden in an .xlsx file, or leave it out [default: it is an error]."),
)  # fmt: skip


@click.command(name="import", short_help="Make menus from lines `src, dst, Mbps`, a matrix or a workbook.")
@common.INCLUDE_FROM
@click.argument("file", type=menu_files.PATH)
@click.option("--scenario", type=params.NAME, help="The name of the scenario [default: the file's name].")
@TABLE
@HEADING
@menu_files.OUTPUT
@menu_files.FORCE
def import_(file: Path, scenario: str | None, output: Path, force: bool, **given: Any) -> None:
    r"""Make a menu from FILE: lines `src, dst, Mbps`, or a matrix (sources in rows, destinations in columns).

    FILE is CSV text, or an .xlsx spreadsheet.

    Rates keep their numbers and units, so the sum is exact. Cells are separated by comma, semicolon or tab. The
    unit of a matrix is in its corner cell, or in --unit. Empty cells, 0, - and n.a. mean no link. A last row or
    column of sums is compared and left out. Errors are reported with file, line and column, or with sheet and
    cell. Leave out titles with --header-row, and other columns and rows with --ignore-column and --ignore-row.

    With --schedule, or with --sheets days, a workbook becomes a folder with a menu for each day, which begins at
    the clock time of --start. An option for one of several sheets is written as SHEET!C.

    \b
    Example: dc-inject menu import dc24.csv --contact dc-ops@example.org --did "cms:/*/RAW#*" -o dc24.yaml
    Example: dc-inject menu import matrix.csv --as matrix --unit Gb/s --start "2027-02-08 10:00" -o day1.yaml
    Example: dc-inject menu import dc27.xlsx --schedule Schedule --timezone Europe/Zurich -o days
    """
    schedule, kind, ignored, sites = (given.pop(key) for key in ("schedule", "kind", "ignore_sheets", "sites"))
    by_day = bool(schedule) or kind == "days"
    _refuse_together(schedule, kind, ignored, scenario, given, output)
    if output != menu_files.STDIN and not by_day:
        files.refuse_existing(output, force=force)
    data, name = menu_files.read(file)
    names = menu.names_of_sites(*menu_files.read(sites), files.make_loader(sites)) if sites else frozenset[str]()
    rows = given.pop("header_rows")
    columns, ignore_rows, hidden = (given.pop(key) for key in ("ignore_columns", "ignore_rows", "hidden"))
    layout = Layout(given.pop("sheet"), (), dict(rows).get("", 0), rows, columns, ignore_rows, hidden or "")
    unit, decimal, form = (given.pop(key) or "" for key in ("unit", "decimal", "form"))
    options = importing.Options(unit, decimal, form, names, layout)
    usual = importing.scenario_name(file.stem)
    if schedule or kind:
        of_days = (scenario or usual) if kind == "days" else ""
        book = schedules.read(data, name, options, schedule, ignored, of_days)
    else:
        table = importing.read(data, name, options)
        book = Book((Day(1, None, (Part(scenario or usual, "", table),)),), table.remarks)
    folder = output if by_day else Path() if output == menu_files.STDIN else output.parent
    if click.get_current_context().get_parameter_source("through") is ParameterSource.DEFAULT:
        given["through"] = None
    given = imported_menus.with_kept_zone(given, output) if by_day else given
    heading = new_menus.heading(given, scenario or usual, os.path.relpath(sites, folder) if sites else "")
    menu_files.show(*book.remarks)
    if by_day:
        made, notes = imported_menus.build_daily_menus(heading, name, book, output)
    else:
        text, notes = imported_menus.build_menu(heading, name, book.days[0].parts, menu_files.name_of(output))
    menu_files.show(*notes)
    if by_day:
        _write_folder(made, output, force=force)
    else:
        menu_files.write(text, output, force=force)


def _refuse_together(
    schedule: str, kind: str, ignored: tuple[str, ...], scenario: str | None, given: dict[str, Any], output: Path
) -> None:
    """Raise UsageError for options that do not go together."""
    by_day = schedule or kind == "days"
    for refused, message, hint in (
        ((schedule or kind) and given["sheet"], "--sheet reads only one of the sheets", "leave it out"),
        (schedule and kind == "days", "with --schedule, sheets are scenarios", "leave out --sheets"),
        (ignored and not (schedule or kind), "--ignore-sheet needs --schedule or --sheets", "add one of them"),
        ((schedule or kind == "scenarios") and scenario, "the sheets name the scenarios", "leave out --scenario"),
        (by_day and given["end"], "each day lasts 24 h", "leave out --end"),
        (by_day and output == menu_files.STDIN, "a menu for each day needs a folder", "name it with -o"),
    ):
        if refused:
            raise UsageError(message, hint)


def _write_folder(made: list[imported_menus.NewFile], folder: Path, *, force: bool) -> None:
    """Write the files that are new or changed; show the changes, and refuse them without `force`."""
    changed = [file for file in made if file.change]
    menu_files.show(*(f"{file.path} changes: {file.change}" for file in changed))
    if changed and not force:
        raise UsageError(f"{len(changed)} of {len(made)} files would change", "replace them with --force")
    files.make_folder(folder)
    new = [file for file in made if file.change != ""]
    for file in new:
        files.write_whole(file.path, file.text, force=force)
    others = "; the others do not change" if len(new) < len(made) else ""
    menu_files.show(f"wrote {len(new)} of {units.counted(len(made), 'files')} in {folder}{others}")
