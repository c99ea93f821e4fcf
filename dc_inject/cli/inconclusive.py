"""Links of which a simulation is inconclusive: the grid says so, since it does not predict what they move."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dc_inject.cli import tables
from dc_inject.cli.causes import Cause, Kind
from dc_inject.model import FlowKey

if TYPE_CHECKING:
    from dc_inject.twin.grid import Grid

ENDS = ("scenario", "source", "destination")
COLUMNS = (
    tables.Column("scenario", "inconclusive", name=True, heading=True),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("why", "why", below=True),
)


def links(keys: Iterable[FlowKey], grid: Grid) -> list[dict[str, Any]]:
    """Return the links that the grid does not predict, with its reason, as rows."""
    rows = []
    for key in sorted(keys):
        source, destination = (grid.storage_at(end) or end for end in (key.link.source, key.link.destination))
        if why := grid.why_inconclusive(source, destination):
            ends = (key.scenario, key.link.source, key.link.destination)
            rows.append({**dict(zip(ENDS, ends, strict=True)), "why": why})
    return rows


def marked(short: Iterable[dict[str, Any]], unsure: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of links that will be short; those that the grid does not predict say so before their causes."""
    doubtful = {tuple(row[key] for key in ENDS) for row in unsure}
    doubt = Cause("inconclusive: the grid does not predict this link", kind=Kind.INCONCLUSIVE)
    return [
        row | {"why": f"{doubt}; {row['why']}", "causes": [doubt.row, *row["causes"]]}
        if tuple(row[key] for key in ENDS) in doubtful
        else row
        for row in short
    ]
