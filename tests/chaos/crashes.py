"""Accidents: the process dies at each of its own steps, or wherever it is; it is frozen, and its clock steps.

No list of steps is written by hand: a calm run tells what the observer hears, and each of that is a boundary.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Wish = Mapping[str, Any]


class Boundary(NamedTuple):
    """The moment when the observer hears of an event for the `count`-th time in a life."""

    event: str
    count: int


def boundaries(journal: Path, most: int) -> list[Boundary]:
    """Return the boundaries that a calm run passed: of each event the first so many."""
    lines = (line.split() for line in journal.read_text().splitlines())
    return sorted({Boundary(event, int(count)) for event, count in lines if int(count) <= most})


def killed_at(known: Iterable[Boundary], hit: Path, dice: random.Random, most: int) -> Iterator[Wish]:
    """Give lives that end at a boundary at which none has ended yet, until there are no more, or so many lives.

    Each has half of those that are left, drawn by lot: so it dies at one of them, and not always at the first.
    """
    for _ in range(most):
        left = sorted(set(known) - was_hit(hit))
        if not left:
            return
        some = dice.sample(left, -(-len(left) // 2))
        yield {"hit": str(hit), "accidents": [{**one._asdict(), "signals": ["SIGKILL"]} for one in some]}


def killed_anywhere(count: int, dice: random.Random, longest: float) -> list[Wish]:
    """Return lives that end after a random time, between any two instructions."""
    return [{"killed_after": dice.uniform(0.5, longest)} for _ in range(count)]


def clock_stepping(hours: Iterable[int]) -> list[Wish]:
    """Return a life for each step of the clock by so many hours, which is taken back a while later."""
    there, back = Boundary("observed", 2), Boundary("observed", 6)
    return [
        {"accidents": [{**there._asdict(), "clock": 3600 * step}, {**back._asdict(), "clock": -3600 * step}]}
        for step in hours
    ]


def disk_full(some: Iterable[Boundary]) -> list[Wish]:
    """Return lives in which no file can grow from a boundary on, and which end soon if nothing else ends them."""
    full = {"limits": {"FSIZE": 8192}}
    return [{"killed_after": 12, "accidents": [{**one._asdict(), **full}]} for one in some]


def memory_short(some: Iterable[Boundary], spare: int = 2**21) -> list[Wish]:
    """Return lives in which memory comes to its end at a boundary, `spare` bytes later."""
    return [{"killed_after": 12, "accidents": [{**one._asdict(), "spare": spare}]} for one in some]


def tear(ledger: Path, dice: random.Random) -> None:
    """Leave what a write that was cut short leaves: a piece of a frame at the end of the write-ahead log."""
    log = ledger.with_name(f"{ledger.name}-wal")
    if log.exists():
        with log.open("ab") as out:
            out.write(dice.randbytes(dice.randrange(1, 4096)))


def was_hit(hit: Path) -> set[Boundary]:
    """Return the boundaries at which lives really ended."""
    if not hit.exists():
        return set()
    return {
        Boundary(event, int(count)) for event, count in (line.split() for line in hit.read_text().splitlines())
    }
