"""`dc-inject menu scale`: the same menu with other rates."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import click

from dc_inject import menu
from dc_inject.apps.menutools import expanding, scaling
from dc_inject.cli.shared import common, menu_files, params
from dc_inject.model import rates, units
from dc_inject.system import files


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
    it is refused. If a rate is shared with links that are not meant (in a mesh, say), or is in another file,
    --expand first lists every link separately.

    \b
    Example: dc-inject menu scale 0.5 day1.yaml -o day1-half.yaml
    Example: dc-inject menu scale 120% day1.yaml --scenario t0-export -o day1.yaml --force
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    data, name = menu_files.read(file)
    before = menu.read(data, name, files.beside(file))
    goal = menu_files.goal(file, output)
    if listing:
        before = menu.read(
            expanding.written_out(before, {}, str(file), files.load, menu_files.seen_from(file)), name, files.load
        )
    text, wanted = scaling.scaled(before, factor, scenario or "", link or "")
    text = expanding.moved(text, name, menu_files.seen_from(goal))
    after = menu.read(text, str(goal), files.load)
    scaling.compare(wanted, after.preview.flows)
    menu_files.say(f"from {_sum(before)} to {_sum(after)} together")
    menu_files.write(text, output, force=force)


def _sum(draft: menu.MenuDraft) -> str:
    return units.format_rate(rates.peak(draft.preview.flows).rate)
