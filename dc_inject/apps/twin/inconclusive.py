"""Links of which a simulation is inconclusive, since the grid does not predict what they move.

The grid may say so of a link, with a reason. Of other links it says only the highest rate that was measured: what
they move beyond that in a simulation is as little known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dc_inject.ledger import Reader
from dc_inject.ledger.series import Period
from dc_inject.model import FlowKey, Link, units
from dc_inject.summary.adding import add_up
from dc_inject.summary.why import Cause, Kind

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.description import Grid

ENDS = ("scenario", "source", "destination")
CYCLES = 4  # whose mean is compared with the highest rate that was measured, as calibration takes it
BEYOND = 1.1  # times that rate: the same menu moves a few percent more or less in a fitted grid
UNMEASURED = "it moves more than {}, the highest rate that was measured on it: what it carries beyond is not known"
Ends = tuple[str, str]  # source and destination, as the grid calls its storages


def links(keys: Iterable[FlowKey], grid: Grid, beyond: Mapping[Ends, str] | None = None) -> list[dict[str, Any]]:
    """Return the links that the grid does not predict, with the reasons, as rows.

    `beyond` has the reasons of those that `beyond_measured` returns.
    """
    rows = []
    for key in sorted(keys):
        ends = _ends(key.link, grid)
        if why := "; ".join(filter(None, (grid.why_inconclusive(*ends), (beyond or {}).get(ends)))):
            names = (key.scenario, key.link.source, key.link.destination)
            rows.append({**dict(zip(ENDS, names, strict=True)), "why": why})
    return rows


def of_seeds(runs: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of several seeds: each link that is inconclusive with one of them, with all its reasons."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in chain.from_iterable(runs):
        names = tuple(row[key] for key in ENDS)
        rows[names] = max(row, rows.get(names, row), key=lambda row: len(row["why"]))
    return [row for _, row in sorted(rows.items())]


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


def beyond_measured(ledger: Reader, grid: Grid) -> dict[Ends, str]:
    """Return the links that move more in a simulation than was ever measured on them, and the reason in words.

    A link has to be due more than that, too: what it catches up for some cycles is no higher rate of a menu.
    """
    if not any(traits.highest_measured for traits in (grid.default_link, *grid.links.values())):
        return {}
    reasons = {}
    for ends, seen in _highest_rates(ledger, grid).items():
        traits = grid.traits(*ends)
        most = traits.highest_measured
        # What moves together arrives together, so that some cycles have more than the link carries.
        rate = seen if traits.rate is None else min(seen, traits.rate)
        if most is not None and rate > BEYOND * most * (1 - traits.failures):
            reasons[ends] = UNMEASURED.format(units.format_rate(most))
    return reasons


def _highest_rates(ledger: Reader, grid: Grid) -> dict[Ends, float]:
    """Return the highest rate that each link was due, or that it moved if that is less, in bytes per second."""
    first, last = ledger.first_cycle(), ledger.last_cycle()
    if first is None or last is None:
        return {}
    count = round((last.end - first.start) / first.length)
    by_cycle = add_up(
        ledger.spans(Period(first.start, last.end), first.length),
        lambda key: _ends(key.link, grid),
        count,
        lambda start: round((start - first.start) / first.length),
    )
    time = min(CYCLES, count) * first.length.total_seconds()
    return {
        ends: min(_most(added.series(name)) for name in ("due", "moved")) / time
        for ends, added in by_cycle.items()
    }


def _most(amounts: Sequence[int]) -> int:
    """Return the largest sum over four cycles in a row, or over all if there are fewer."""
    most = total = sum(amounts[:CYCLES])
    for gone, new in zip(amounts, islice(amounts, CYCLES, None), strict=False):
        total += new - gone
        most = max(most, total)
    return most


def _ends(link: Link, grid: Grid) -> Ends:
    """Return the ends of a link as the grid calls them."""
    source, destination = (grid.storage_at(end) or end for end in (link.source, link.destination))
    return source, destination
