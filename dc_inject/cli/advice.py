"""What control advised in a simulation: which links `act` would have held, and how much it would have held back.

Each cycle is judged with what was in flight without control. What is beyond the window in one cycle is so in the
next one, too, and would have been held back once: so the most that was ever beyond it counts, not the sum. A guard
that gives a link nothing holds back all that was injected in its cycles. Cycles in which nothing would have been
held back do not count.

That is what control saw, and no forecast of `act`: what is held back may go out later, and a link that got less
does something else afterwards. Only a simulation with `act` shows what becomes of a campaign then.
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
NO_FORECAST = (
    "(as control saw it in a run that it left alone: what it holds back may go out later, and from the first such "
    "cycle on a run with `act` differs; `--policy act` shows how)"
)
PACED = PACING | {Hold.BACKLOG}  # holds that leave a link what its window allows
COLUMNS = tuple(
    replace(column, key="held_back", head="held back") if column.key == "missing" else column
    for column in hold_reasons.COLUMNS
)


class Advice(NamedTuple):
    """The links that would have been held; `given` is whether control advised at all."""

    given: bool
    held: Sequence[HeldLink]


def advised(ledger: Reader) -> Advice:
    """Return in how many cycles each link would have been held, and how much would have been held back."""
    held_back: dict[tuple[FlowKey, Hold], list[int]] = defaultdict(list)  # of each cycle
    given = False
    for key, hold, numbers, injected in ledger.advice():
        given = True
        if hold is not None:
            beyond = int(numbers["in_flight"]) + injected - int(numbers["window"])
            if (size := beyond if hold in PACED else injected) > 0:
                held_back[key, hold].append(size)
    return Advice(
        given,
        [
            HeldLink(key, hold, IN_SHORT[hold], len(of), max(of) if hold in PACED else sum(of))
            for (key, hold), of in sorted(held_back.items())
        ],
    )


def rows(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the holds that would have been, those first that would have held back most."""
    return [
        {("held_back" if name == "missing" else name): value for name, value in row.items()}
        for row in hold_reasons.reasons(held)
    ]


def show(given: bool, holds: Sequence[dict[str, Any]], seeds: str = "") -> None:
    """Print them as a table, if control advised; `seeds` says of how many seeds these are medians."""
    if not given:
        return
    if not holds:
        click.echo("\ncontrol only advised, and would have held nothing back")
        return
    hold_reasons.show(holds, f"{TITLE}{seeds}", COLUMNS)
    click.echo(NO_FORECAST)
