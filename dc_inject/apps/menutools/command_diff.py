"""`dc-inject menu diff`: what changes from one menu to another."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import click

from dc_inject import menu
from dc_inject.cli.shared import common, menu_files, tables
from dc_inject.menu import differences
from dc_inject.menu.differences import Difference
from dc_inject.model.errors import UsageError

GBPS, TB = 8e-9, 1e-12


def _number(value: float) -> str:
    return f"{value:,.6g}"


def _signed(value: float) -> str:
    return f"{value:+,.6g}"


COLUMNS = (
    tables.Column("menus", "menus", heading=True, rare=True),
    tables.Column("kind", "of", spare=1),
    tables.Column("scenario", "scenario"),
    tables.Column("name", "name", name=True),
    tables.Column("direction", "direction"),
    tables.Column("what", "what", spare=4),
    tables.Column("before_gbps", "before [Gb/s]", _number, right=True, spare=2),
    tables.Column("after_gbps", "after [Gb/s]", _number, right=True),
    tables.Column("change_gbps", "change [Gb/s]", _signed, right=True),
    tables.Column("before_tb", "before [TB]", _number, right=True, spare=5),
    tables.Column("after_tb", "after [TB]", _number, right=True, spare=5),
    tables.Column("change_tb", "change [TB]", _signed, right=True, spare=3),
)


@click.command(short_help="Show what changes from one menu to another.")
@common.INCLUDE_FROM
@click.argument("before", metavar="A", type=menu_files.PATH)
@click.argument("after", metavar="[B]", type=menu_files.PATH, required=False)
@common.FORMAT
def diff(before: Path, after: Path | None, fmt: str) -> None:
    r"""Show what changes from A to B. Each is a menu, a folder of menus, or - for stdin.

    Without B, A is a folder, and each of its menus is compared with the one before it.

    For each link of a scenario, each scenario, each site (in and out) and in total, the table shows the highest
    rate at any one time, and the volume over the whole time; what does not change is left out. A line on stderr
    shows if they are equal, and what else differs (times, limits and so on). The exit code is 0 in both cases.

    \b
    Example: dc-inject menu diff days/day-01.yaml days/day-02.yaml
    Example: dc-inject menu diff days
    Example: dc-inject menu expand day1.yaml | dc-inject menu diff day1.yaml -
    """
    if before == after == menu_files.STDIN:
        raise UsageError("both menus would be read from stdin", "use a file for one of them")
    drafts = [menu_files.drafts(path) for path in (before, after) if path is not None]
    if after is None:
        days = sorted(drafts[0], key=lambda draft: draft.preview.start)
        pairs = [(f"{a.name} -> {b.name}", [a], [b]) for a, b in pairwise(days)]
        if not pairs:
            raise UsageError(f"{before} has no second menu to compare with", "name another menu")
    else:
        pairs = [("", drafts[0], drafts[1])]
    rows, notes = list[dict[str, object]](), list[str]()
    for menus, *groups in pairs:
        old, new = (menu.campaign([draft.preview for draft in group]) for group in groups)
        changes, words = differences.changes(old, new), list(differences.others(old, new))
        rows += [{"menus": menus or None} | _row(change) for change in changes]
        equal = "equal in rates and volumes" if words else "equal: the same rates on the same links at all times"
        summary = f"{_links(changes)}; change of the total: {_total(changes)}" if changes else equal
        notes += [f"{menus}: {summary}" if menus else summary, *(f"also: {word}" for word in words)]
    if rows or fmt != "table":
        tables.emit(fmt, COLUMNS, rows)
    if any(draft.expressions for group in drafts for draft in group):
        notes.append("also: RSE expressions, each counted as one RSE; `menu expand --online` writes them out")
    menu_files.show(*notes)


def _row(change: Difference) -> dict[str, object]:
    return {
        "kind": change.kind,
        "what": "changed" if change.before and change.after else "gone" if change.before else "new",
        "scenario": change.scenario or None,
        "name": change.name,
        "direction": change.direction or None,
        "before_gbps": round(change.before * GBPS, 9),
        "after_gbps": round(change.after * GBPS, 9),
        "change_gbps": round((change.after - change.before) * GBPS, 9),
        "before_tb": round(change.volume_before * TB, 9),
        "after_tb": round(change.volume_after * TB, 9),
        "change_tb": round((change.volume_after - change.volume_before) * TB, 9),
    }


def _links(changes: tuple[Difference, ...]) -> str:
    links = [change for change in changes if change.kind == "link"]
    new = sum(1 for change in links if not change.before)
    gone = sum(1 for change in links if not change.after)
    return f"links: {len(links) - new - gone} changed, {new} new, {gone} gone"


def _total(changes: tuple[Difference, ...]) -> str:
    total = next((change for change in changes if change.kind == "total"), None)
    return "none" if total is None else f"{_signed((total.after - total.before) * GBPS)} Gb/s"
