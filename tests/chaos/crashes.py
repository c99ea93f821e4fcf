"""Accidents: the process dies at each of its own steps, or wherever it is; it is frozen, and its clock steps.

No list of steps is written by hand: each life that dies tells which steps it had come to (see driver).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

OperatorAction = Mapping[str, Any]


FIRST = 5  # lives that die at any time after some work, to hear which steps there are


class Aim:
    """Chooses where lives die: at the steps that earlier lives have come to, those met least first, by lot."""

    def __init__(self, deaths: Path, dice: random.Random, after: float, most: int = 12) -> None:
        """Take the file that lives write their deaths to, and seconds in which a step has to come (see driver)."""
        self.deaths, self.dice, self.after, self.most = deaths, dice, after, most
        self.heard: Counter[str] = Counter()  # how often a life at work came to a step, at most
        self.met: Counter[str] = Counter()  # lives that ended at a step
        self.at_work = 0  # of those, how many had asked a service to make or to end something
        self._read = 0

    def wish(self) -> OperatorAction:
        """Return the wish for one more life."""
        self.learn()
        die: dict[str, Any] = {"after": self.dice.uniform(0.0, self.after)}
        steps = sorted(self.heard)
        if self.met.total() >= FIRST and steps and self.dice.random() < 0.9:
            step = self.dice.choices(steps, [1 / (1 + self.met[step]) ** 2 for step in steps])[0]
            count = self.dice.randint(1, min(self.heard[step], self.most))
            die |= {"step": step, "count": count, "after": self.after}
            if self.dice.random() < 0.1:
                die["idle"] = True
        return {"deaths": str(self.deaths), "die": die}

    def learn(self) -> None:
        """Hear of the deaths since the last time."""
        lines = self.deaths.read_text().splitlines() if self.deaths.exists() else []
        for death in map(json.loads, lines[self._read :]):
            self.met[death["step"]] += 1
            self.at_work += death["work"] > 0
            self.heard |= Counter(death["heard"])
        self._read = len(lines)


def killed_anywhere(count: int, dice: random.Random, longest: float) -> list[OperatorAction]:
    """Return lives that end after a random time, between any two instructions."""
    return [{"killed_after": dice.uniform(0.5, longest)} for _ in range(count)]


def clock_stepping(hours: Iterable[int], lasting: float = 10.0) -> list[OperatorAction]:
    """Return a life for each step of the clock by so many hours, which is taken back some seconds later."""
    there = {"event": "Observed", "count": 2}
    return [{"accidents": [{**there, "clock": 3600 * step, "lasting": lasting}]} for step in hours]


def disk_full(steps: Iterable[tuple[str, int]]) -> list[OperatorAction]:
    """Return lives in which no file can grow from a step on, and which end soon if nothing else ends them."""
    full = {"limits": {"FSIZE": 8192}}
    return [{"killed_after": 12, "accidents": [{"event": event, "count": n, **full}]} for event, n in steps]


def memory_short(steps: Iterable[tuple[str, int]], spare: int = 2**21) -> list[OperatorAction]:
    """Return lives in which memory comes to its end at a step, `spare` bytes later."""
    return [
        {"killed_after": 12, "accidents": [{"event": event, "count": n, "spare": spare}]} for event, n in steps
    ]


def tear(ledger: Path, dice: random.Random) -> None:
    """Leave what a write that was cut short leaves: a piece of a frame at the end of the write-ahead log."""
    log = ledger.with_name(f"{ledger.name}-wal")
    if log.exists():
        with log.open("ab") as out:
            out.write(dice.randbytes(dice.randrange(1, 4096)))
