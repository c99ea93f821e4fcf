"""Why links were held, in sentences: what stands below the closing table of a simulation.

A closing table counts the cycles of each hold; the sentence of one stands in its rows. Here links that were held
for the same reason share a line, with the reason as it was in the last cycle of each. So a disk that is too small
is one line, however many links lead to it. Holds that need no action are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import click

from dc_inject.cli import tables
from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import HeldFlow
from dc_inject.model import Hold, units
from dc_inject.model.holds import sentence

MOST = 10  # reasons that are shown; JSON has all
MOST_NAMED = 2  # links that are named for each

COLUMNS = (
    tables.Column("hold", "held by"),
    tables.Column("links", "links", right=True),
    tables.Column("cycles", "cycles", right=True),
    tables.Column("missing", "missing in them", units.format_size, right=True),
    tables.Column("sentence", "why, and which links most", below=True),
)


def reasons(ledger: Reader) -> list[dict[str, Any]]:
    """Return the reasons for which links were held, those first in whose cycles most bytes were missing."""
    groups: dict[tuple[Hold, str], list[HeldFlow]] = defaultdict(list)
    for line in ledger.held_flows():
        if not line.held.hold.harmless:
            groups[line.held.hold, sentence(line.held)].append(line)
    rows = [
        {
            "hold": hold.value,
            "why": why,
            "links": len(lines),
            "cycles": sum(line.cycles for line in lines),
            "missing": sum(line.missing for line in lines),
            "most_held": [str(line.key) for line in sorted(lines, key=lambda line: -line.missing)[:MOST_NAMED]],
        }
        for (hold, why), lines in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["missing"], row["hold"], row["why"]))


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the first of these reasons as a table, each with the links that it held most; then count the rest."""
    if not rows:
        return
    click.echo()
    tables.emit("table", COLUMNS, [{**row, "sentence": f"{row['why']}; {_links(row)}"} for row in rows[:MOST]])
    if rest := rows[MOST:]:
        held = units.counted(sum(row["cycles"] for row in rest), "cycles of links")
        click.echo(f"and {units.counted(len(rest), 'reasons')} more, in {held}; --format json has all")


def _links(row: dict[str, Any]) -> str:
    named = ", ".join(row["most_held"])
    more = row["links"] - len(row["most_held"])
    return f"{named} and {more} more" if more else named
