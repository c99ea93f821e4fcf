"""What a link or scenario asks for: a rate with its shape, and a goal beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dc_inject.menu import shapes
from dc_inject.menu.nodes import Complain
from dc_inject.menu.schema import LinkEntry, Scenario
from dc_inject.menu.terms import Terms
from dc_inject.model.goals import Goal, Keep, Recycle, Volume
from dc_inject.model.shape import Shape


class Ask(NamedTuple):
    """What links share: a rate (bytes per second, NaN if it was not understood), its shape, and a goal."""

    rate: float
    shape: Shape | None
    goal: Goal | None

    def shared(self, shares: Sequence[float], total: float) -> Iterator[Ask]:
        """Yield what each of some shares of a total gets; the bytes of a goal sum exactly."""
        before = 0.0
        for share in shares:
            after = before + share
            goal = self.goal
            if isinstance(goal, Volume | Keep):
                first, last = (round(goal.bytes * edge / total) for edge in (before, after))
                goal = replace(goal, bytes=last - first)
            yield Ask(self.rate * share / total, self.shape, goal)
            before = after


def asked(entry: Scenario | LinkEntry, said: Terms, zone: ZoneInfo, complain: Complain) -> Ask | None:
    """Return what an entry asks for; None when that cannot be understood, which is complained of."""
    given = [key for key in ("volume", "keep", "again") if getattr(entry, key)]
    if len(given) > 1:
        what = f"`{given[1]}` stands beside `{given[0]}`"
        complain(entry.at(given[1]), what, "write one of them; `rate` may stand beside it")
        return None
    goal: Goal | None = None
    if entry.volume is not None:
        goal = Volume(entry.volume, steady=entry.rate is None)
    elif entry.keep is not None:
        goal = Keep(entry.keep)
    elif entry.again:
        goal = Recycle()
        if said.through == "fts":
            what = "`again` is for datasets of Rucio: through FTS a file may always go out again at once"
            complain(entry.at("again"), what, "remove it")
    rate = entry.rate if entry.rate is not None else _even(entry, said, complain)
    if rate is None:
        return None
    return Ask(rate, shapes.made(said, rate, zone, complain), goal)


def _even(entry: Scenario | LinkEntry, said: Terms, complain: Complain) -> float | None:
    """Return the rate of a volume that has none: even over its window."""
    if entry.written("rate"):
        return math.nan  # refused, with a complaint
    if not entry.written("volume"):
        hint = "add `rate: ...`, such as `rate: 10 Gb/s`"
        if entry.again:
            hint = "what comes round goes out at a rate at most: add `rate: ...`"
        elif entry.written("keep"):
            hint = "bytes that are kept are refilled at a rate at most: add `rate: ...`"
        elif isinstance(entry, Scenario):
            hint = "add `rate: ...`, which its links share, such as 10 Gb/s"
        complain(entry.place, "`rate` is missing", hint)
        return None
    if said.shape is not None and not said.shape.constant:
        what = "a shape, but no `rate` for it"
        complain(entry.at("volume"), what, "add `rate: ...`, or write `shape: constant`")
    if entry.volume is None or said.start.year < 2000 or said.end.year >= 2200 or said.start >= said.end:
        return math.nan
    return entry.volume / (said.end - said.start).total_seconds()
