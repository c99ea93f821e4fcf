"""What control advised: which links `act` would have held, and how much it would have held back.

Each cycle is judged with what was in flight without control. What is beyond the window in one cycle is so in the
next one, too, and would have been held back once: so the most that was ever beyond it counts, not the sum. A guard
holds back what was injected in its cycles beyond what it leaves: nothing, or a tenth of what was due, or what is
deleted at the destination. Cycles in which nothing would have been held back do not count.

That is what control saw, and no forecast of `act`: what is held back may go out later, and a link that got less
does something else afterwards. Only a simulation with `act` shows what becomes of a campaign then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import Advised
from dc_inject.model import FlowKey, Hold
from dc_inject.model.holds import IN_SHORT
from dc_inject.planning.link_plan import PROBE
from dc_inject.summary import why
from dc_inject.summary.why import HeldLink


class Advice(NamedTuple):
    """The links that would have been held; `given` is whether control advised at all."""

    given: bool
    held: Sequence[HeldLink]


def advised(ledger: Reader) -> Advice:
    """Return in how many cycles each link would have been held, and how much would have been held back."""
    held_back: dict[tuple[FlowKey, Hold], list[int]] = defaultdict(list)  # of each cycle
    given = False
    for _, cycle in groupby(ledger.advice(), key=lambda one: one.at):
        given = True
        for one, hold, size in _held_back([*cycle]):
            if size > 0:
                held_back[one.key, hold].append(size)
    return Advice(
        given,
        [
            HeldLink(key, hold, IN_SHORT[hold], len(of), max(of) if hold is Hold.BACKLOG else sum(of))
            for (key, hold), of in sorted(held_back.items())
        ],
    )


def _held_back(cycle: Sequence[Advised]) -> Iterator[tuple[Advised, Hold, int]]:
    """Yield of the links of a cycle that would have been held by what, and of how many of the injected bytes.

    Links to a destination that is late with its deletions share what is deleted there.
    """
    to_late: Counter[str] = Counter()
    for one in cycle:
        if one.hold is Hold.DELETION_LAG:
            to_late[one.key.link.destination] += one.injected
    for one in cycle:
        if one.hold is Hold.BACKLOG:
            yield one, one.hold, int(one.numbers["in_flight"]) + one.injected - int(one.numbers["window"])
        elif one.hold is Hold.FAILING:
            yield one, one.hold, one.injected - int(PROBE * one.due)
        elif one.hold is Hold.DELETION_LAG:
            together = max(to_late[one.key.link.destination], 1)
            left = min(int(one.guard.get("deleted", 0)), together)
            yield one, one.hold, one.injected * (together - left) // together
        elif one.hold is not None:
            yield one, one.hold, one.injected


def rows(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the holds that would have been, those first that would have held back most."""
    return [
        {("held_back" if name == "missing" else name): value for name, value in row.items()}
        for row in why.reasons(held)
    ]
