"""What control advised: which links `act` would have held, and how much it would have held back.

Each cycle is judged with what was in flight without control. What is beyond the window in one cycle is so in the
next one, too, and would have been held back once: so the most that was ever beyond it counts, not the sum. Cycles
in which nothing would have been held back do not count.

That is what control saw, and no forecast of `act`: what is held back may go out later, and a link that got less
does something else afterwards. Only a simulation with `act` shows what becomes of a campaign then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dc_inject.ledger import Reader
from dc_inject.ledger.series import Advised
from dc_inject.model import FlowKey, Hold
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
        given, links = True, [*cycle]
        sharing = Counter(one.numbers.get("storage") for one in links if one.hold is not None)
        for one in links:
            storage = one.numbers.get("storage")  # its links share what is too much for it
            size = _held_back(one) // (1 if storage is None else sharing[storage] or 1)
            if one.hold is not None and size > 0:
                held_back[one.key, one.hold].append(size)
    return Advice(
        given,
        [
            HeldLink(key, hold, hold.short, len(of), max(of) if hold is Hold.BACKLOG else sum(of))
            for (key, hold), of in sorted(held_back.items())
        ],
    )


def _held_back(one: Advised) -> int:
    """Return how many bytes would have been held back in a cycle: what is beyond the window once all is sent."""
    if one.hold is not Hold.BACKLOG:
        return 0 if one.hold is None else one.injected  # of dc_inject 0.1.0
    numbers = {name: int(one.numbers.get(name, 0)) for name in ("in_flight", "window", "arrives")}
    return numbers["in_flight"] + max(one.injected - numbers["arrives"], 0) - numbers["window"]


def rows(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the holds that would have been, those first that would have held back most."""
    return [
        {("held_back" if name == "missing" else name): value for name, value in row.items()}
        for row in why.reasons(held)
    ]
