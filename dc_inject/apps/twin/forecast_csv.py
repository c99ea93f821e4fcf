"""The closing table of a simulation as CSV, with what JSON has of each link's forecast and holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dc_inject.apps.twin import inconclusive
from dc_inject.cli.shared import tables
from dc_inject.cli.shared.hold_reasons import HeldLink

COLUMNS = tuple(
    tables.Column(key, key) for key in ("missing", "moved_of_due", "why", "causes", "inconclusive", "held_why")
)


def rows(
    links: Sequence[dict[str, Any]],
    short: Sequence[dict[str, Any]],
    unsure: Sequence[dict[str, Any]],
    held: Sequence[HeldLink],
) -> list[dict[str, Any]]:
    """Return rows of links for CSV, with what JSON has of them in lists of their own."""
    why = {tuple(row[end] for end in inconclusive.ENDS): row for row in short}
    doubts = {tuple(row[end] for end in inconclusive.ENDS): row["why"] for row in unsure}
    holds: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for of in held:
        holds[of.key.scenario, of.key.link.source, of.key.link.destination].append(of.why)
    made = []
    for link in links:
        ends = tuple(link[end] for end in inconclusive.ENDS)
        held_why = "; ".join(holds.get(ends, ()))
        of_forecast = {key: why.get(ends, {}).get(key) for key in ("missing", "moved_of_due", "why", "causes")}
        made.append({**link, **of_forecast, "inconclusive": doubts.get(ends), "held_why": held_why})
    return made
