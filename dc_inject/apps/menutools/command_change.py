"""`dc-inject menu expand` and `menu scale`: a menu with every link on its own, and one with other rates."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from dc_inject import menu
from dc_inject.apps.menutools import expanding, exported_books, new_menus, scaling
from dc_inject.cli.shared import common, log_output, menu_files, params, trusting
from dc_inject.menu import MenuDraft
from dc_inject.model import rates, units
from dc_inject.model.errors import MenuError, Problem, UsageError
from dc_inject.system import files


@click.command(short_help="Write every link out on its own.")
@common.INCLUDE_FROM
@click.argument("file", metavar="MENU", type=menu_files.PATH)
@click.option("--online", "asking", is_flag=True, help="Ask Rucio which RSEs match the RSE expressions now.")
@click.option(
    "--rses",
    "meanings",
    type=params.Parsed("meaning", expanding.read_meaning),
    multiple=True,
    metavar="EXPRESSION=RSE,...",
    help="The RSEs that an RSE expression stands for (may be repeated).",
)
@common.TIMEOUT
@click.option(
    "--format",
    "fmt",
    type=click.Choice(["yaml", "xlsx"]),
    default="yaml",
    show_default=True,
    help="The format to write; xlsx also takes a folder of menus.",
)
@menu_files.OUTPUT
@menu_files.FORCE
def expand(
    file: Path,
    asking: bool,
    meanings: tuple[tuple[str, tuple[str, ...]], ...],
    timeout: float,
    fmt: str,
    output: Path,
    force: bool,
) -> None:
    r"""Write MENU with every link separately: shares, meshes, both ways, expressions, includes, files of links.

    What is replaced stays as a comment; all else is kept as it is. The rates are exactly those of the old menu.
    Paths of files that the menu still names are written relative to the new menu.

    With --format xlsx, MENU (or a folder, a day for each menu) becomes a workbook with a sheet of rates and sums
    for each scenario and a schedule, which `dc-inject menu import FILE --schedule Schedule` reads again.

    \b
    Example: dc-inject menu expand day1.yaml -o links.yaml
    Example: dc-inject menu expand days --format xlsx -o days.xlsx
    Example: dc-inject menu expand day1.yaml --rses "tier=2&country=DE=T2_DE_DESY,T2_DE_RWTH"
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    if fmt == "xlsx":
        drafts = menu_files.drafts(file)
        if asking or meanings or any(draft.expressions for draft in drafts):
            raise UsageError("RSE expressions cannot be in a workbook", "expand each menu first")
        book, left_out = exported_books.workbook(menu.campaign([draft.preview for draft in drafts]))
        menu_files.show(*left_out)
        menu_files.write(book, output, force=force)
        return
    data, name = menu_files.read(file)
    draft = menu.read(data, name, files.make_loader(file))
    names, missing = expanding.match_meanings(draft, meanings)
    if missing and asking:
        names |= _resolve_online(draft, missing, timeout)
    elif missing:
        message = f"it is unknown what {', '.join(sorted(missing))} means"
        raise MenuError([Problem(name, 0, message, "ask Rucio with --online, or name them with --rses")])
    goal = menu_files.goal(file, output)
    text = expanding.written_out(draft, names, str(goal), files.load, menu_files.seen_from(goal))
    new, warnings = new_menus.checked({menu_files.name_of(goal): text})
    menu_files.show(*warnings, new_menus.together(new))
    menu_files.write(text, output, force=force)


def _resolve_online(draft: MenuDraft, missing: dict[str, str], timeout: float) -> dict[str, tuple[str, ...]]:
    """Ask the services what expressions mean."""
    log_output.talk(quiet=True)
    trusting.recall(draft.campaign)
    backends = common.connect([draft], timeout, set(missing.values()))
    return {expression: backends[through].resolve(expression) for expression, through in missing.items()}


@click.command(short_help="Multiply rates; all else stays as it was.")
@common.INCLUDE_FROM
@click.argument("factor", type=params.FACTOR)
@click.argument("file", metavar="MENU", type=menu_files.PATH)
@click.option("--scenario", type=params.NAME, help="Only the rates of this scenario.")
@click.option("--link", type=params.LINK, metavar="SRC:DST", help="Only the rates of this link, also 'SRC->DST'.")
@click.option(
    "--expand", "listing", is_flag=True, help="First list every link separately, each with its own rate."
)
@menu_files.OUTPUT
@menu_files.FORCE
def scale(
    factor: Fraction,
    file: Path,
    scenario: str | None,
    link: str | None,
    listing: bool,
    output: Path,
    force: bool,
) -> None:
    r"""Multiply the rates, volumes and bytes to keep of MENU by FACTOR, and leave everything else as it is.

    Rates in shapes and the target are multiplied too. Limits and WANs are not: if the new menu would exceed one,
    it is refused. If a rate is shared with links that are not meant (as in a mesh), or is in another file,
    --expand first lists every link separately.

    \b
    Example: dc-inject menu scale 0.5 day1.yaml -o day1-half.yaml
    Example: dc-inject menu scale 120% day1.yaml --scenario t0-export -o day1.yaml --force
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    data, name = menu_files.read(file)
    before = menu.read(data, name, files.make_loader(file))
    goal = menu_files.goal(file, output)
    if listing:
        before = menu.read(
            expanding.written_out(before, {}, str(file), files.load, menu_files.seen_from(file)), name, files.load
        )
    text, wanted = scaling.scaled(before, factor, scenario or "", link or "")
    text = expanding.moved(text, name, menu_files.seen_from(goal))
    after = menu.read(text, str(goal), files.load)
    scaling.compare(wanted, after.preview.flows)
    menu_files.show(f"from {_sum(before)} to {_sum(after)} together")
    menu_files.write(text, output, force=force)


def _sum(draft: MenuDraft) -> str:
    return units.format_rate(rates.peak(draft.preview.flows).rate)
