"""What control advised in a simulation: which links `act` would have held, and how much less it would have given.

Each cycle is judged with what was in flight without control. What is beyond the window in one cycle is so in the
next one, too, and would have been held back once: so the most that was ever beyond it counts, not the sum. A guard
that gives a link nothing takes all that was injected in its cycles. Only a simulation with `act` shows what
becomes of a campaign then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from dc_inject.cli import hold_reasons
from dc_inject.cli.hold_reasons import HeldLink
from dc_inject.ledger.reading import Reader
from dc_inject.model import FlowKey, Hold
from dc_inject.model.holds import IN_SHORT
from dc_inject.planning.guards import PACING

TITLE = "what `act` would have held"
PACED = PACING | {Hold.BACKLOG}  # holds that leave a link what its window allows
COLUMNS = tuple(
    replace(column, key="less", head="less") if column.key == "missing" else column
    for column in hold_reasons.COLUMNS
)


class Advice(NamedTuple):
    """The links that would have been held; `given` is whether control advised at all."""

    given: bool
    held: Sequence[HeldLink]


def advised(ledger: Reader) -> Advice:
    """Return in how many cycles each link would have been held, and how much less it would have been given."""
    less: dict[tuple[FlowKey, Hold], list[int]] = defaultdict(list)  # of each cycle
    given = False
    for key, hold, numbers, injected in ledger.advice():
        given = True
        if hold is not None:
            beyond = int(numbers["in_flight"]) + injected - int(numbers["window"])
            less[key, hold].append(max(beyond if hold in PACED else injected, 0))
    return Advice(
        given,
        [
            HeldLink(key, hold, IN_SHORT[hold], len(of), max(of) if hold in PACED else sum(of))
            for (key, hold), of in sorted(less.items())
        ],
    )


def rows(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the holds that would have been, those first that would have held back most."""
    return [
        {("less" if name == "missing" else name): value for name, value in row.items()}
        for row in hold_reasons.reasons(held)
    ]


def show(given: bool, holds: Sequence[dict[str, Any]], seeds: str = "") -> None:
    """Print them as a table, if control advised; `seeds` says of how many seeds these are medians."""
    if not given:
        return
    if not holds:
        click.echo("\ncontrol only advised, and would have held no link")
        return
    hold_reasons.show(holds, f"{TITLE}{seeds}", COLUMNS)
    click.echo("(of these cycles alone: in sum `act` may inject more or less, as `--policy act` shows)")
