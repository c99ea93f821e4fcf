"""`dc-inject menu import`: the old tool's lines and spreadsheets become a menu."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import click

from dc_inject import menu
from dc_inject.apps.menutools import importing, new_menus
from dc_inject.apps.menutools.command_new import HEADING
from dc_inject.apps.menutools.tables import Layout
from dc_inject.cli.shared import common, menu_files, params
from dc_inject.menu import writing
from dc_inject.menu.cells import Amount
from dc_inject.model import units
from dc_inject.system import files

UNITS = ("Gb/s", "Mb/s", "Tb/s", "GB/s", "MB/s", "GiB/s", "MiB/s")


@click.command(name="import", short_help="Make a menu from lines `src, dst, Mbps` or a matrix.")
@common.INCLUDE_FROM
@click.argument("file", type=menu_files.PATH)
@click.option("--scenario", type=params.NAME, help="The name of the scenario [default: the file's name].")
@click.option(
    "--as", "form", type=click.Choice(["lines", "matrix"]), help="The form of FILE [default: recognised]."
)
@click.option(
    "--unit", type=click.Choice(UNITS), help="The unit of numbers without one [default: Mb/s for lines]."
)
@click.option("--decimal", type=click.Choice([".", ","]), help="The decimal separator [default: .].")
@click.option(
    "--sites",
    type=params.FILE,
    help="A part of a menu with `sites`; it is included, and it must name every source and destination.",
)
@click.option(
    "--sheet",
    default="",
    metavar="NAME",
    help="The sheet of an .xlsx file [default: the one open when it was saved].",
)
@click.option(
    "--header-row",
    type=click.IntRange(min=1),
    metavar="N",
    help="The row with the heads of columns; rows above it, such as titles, are left out.",
)
@click.option(
    "--ignore-column",
    "ignore_columns",
    multiple=True,
    metavar="NAME",
    help="Leave out a column: its head, or its letter or number; repeatable.",
)
@click.option(
    "--ignore-row",
    "ignore_rows",
    multiple=True,
    metavar="NAME",
    help="Leave out a row: its first cell, or its number; repeatable.",
)
@click.option(
    "--hidden",
    type=click.Choice(["read", "ignore"]),
    help="Read hidden rows and columns of an .xlsx file, or leave them out [default: they are an error].",
)
@HEADING
@menu_files.OUTPUT
@menu_files.FORCE
def import_(
    file: Path,
    scenario: str | None,
    form: str | None,
    unit: str | None,
    decimal: str | None,
    sites: Path | None,
    sheet: str,
    header_row: int | None,
    ignore_columns: tuple[str, ...],
    ignore_rows: tuple[str, ...],
    hidden: Literal["read", "ignore"] | None,
    output: Path,
    force: bool,
    **given: object,
) -> None:
    r"""Make a menu from FILE: lines `src, dst, Mbps`, or a matrix (sources in rows, destinations in columns).

    FILE is CSV text, or an .xlsx spreadsheet.

    Rates keep their numbers and units, so the sum is exact. Cells are separated by comma, semicolon or tab. The
    unit of a matrix is in its corner cell, or in --unit. Empty cells, 0, - and n.a. mean no link. A last row or
    column of sums is compared and left out. Errors are reported with file, line and column, or with sheet and
    cell. Leave out titles with --header-row, and other columns and rows with --ignore-column and --ignore-row.

    \b
    Example: dc-inject menu import dc24.csv --contact dc-ops@example.org --did "cms:/*/RAW#*" -o dc24.yaml
    Example: dc-inject menu import matrix.csv --as matrix --unit Gb/s --start "2027-02-08 10:00" -o day1.yaml
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    data, name = menu_files.read(file)
    names = menu.names_of_sites(*menu_files.read(sites), files.beside(sites)) if sites else frozenset[str]()
    layout = Layout(sheet, header_row or 0, ignore_columns, ignore_rows, hidden or "")
    matrix = importing.read(data, name, importing.Options(unit or "", decimal or "", form or "", names, layout))
    scenario = scenario or importing.scenario_name(file.stem)
    heading = new_menus.heading(given, scenario, _beside(sites, output) if sites else "")
    origin, links = os.path.basename(name), units.counted(len(matrix.links), "links")  # noqa: PTH119  it may be `stdin`
    text = writing.menu(
        heading,
        [
            f"Imported from {origin}, {links} with {matrix.total} together.",
            "`dc-inject check MENU` says what is wrong or odd in it; docs/reference/menus.md explains every key.",
        ],
        matrix.total,
        writing.links(scenario, [_link(*row) for row in matrix.links]),
    )
    draft, warnings = new_menus.checked(text, menu_files.name_of(output))
    menu_files.say(*warnings, *matrix.remarks, f"imported {new_menus.together(draft)}, from {matrix.form}")
    if assumed := new_menus.describe_assumptions(heading):
        menu_files.say(assumed)
    menu_files.write(text, output, force=force)


def _link(source: str, destination: str, amount: Amount) -> str:
    return writing.link(source, destination, [("rate", str(amount))])


def _beside(part: Path, output: Path) -> str:
    """Return the path of a part as the menu has to name it."""
    folder = Path() if output == menu_files.STDIN else output.parent
    return os.path.relpath(part, folder)
