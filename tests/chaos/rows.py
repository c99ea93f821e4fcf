"""The table: what was done, how often, and what came of it; `python -m tests.chaos.rows FILE ...` sums records."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Row:
    """A line of the table."""

    name: str
    runs: int = 0  # campaigns, from their first life until they are drained
    lives: int = 0
    kills: int = 0  # lives that ended by SIGKILL
    at_work: int = 0  # of those that died at a step, how many had asked a service to make or to end something
    checks: int = 0  # of invariants against the service's database
    given: int = 0  # rules or jobs
    calls: int = 0  # requests that passed the proxy
    faults: Counter[str] = field(default_factory=Counter)  # that the proxy answered with, by class
    steps: Counter[str] = field(default_factory=Counter)  # at which lives died
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    remarks: list[str] = field(default_factory=list)

    def __iadd__(self, other: Row) -> Row:
        """Add another one's numbers."""
        for name, value in vars(other).items():
            if name != "name":
                setattr(self, name, getattr(self, name) + value)
        return self

    @property
    def faulty(self) -> int:
        return self.faults.total()


COLUMNS = ("runs", "lives", "kills", "at_work", "checks", "given", "calls", "faulty")


def table(rows: Sequence[Row]) -> str:
    """Write the table, then kills by step and faulty calls by class."""
    total = Row("total")
    for row in rows:
        total += row
    total.remarks = []
    heads = [name.replace("_", " ") for name in COLUMNS] + ["violations"]
    lines = [f"{'what':33}" + "".join(f"{head:>{max(8, len(head) + 2)}}" for head in heads)]
    for row in [*rows, total]:
        numbers = [getattr(row, name) for name in COLUMNS] + [len(row.violations)]
        cells = (f"{number:>{max(8, len(head) + 2)}}" for head, number in zip(heads, numbers, strict=True))
        lines.append(f"{row.name:33}{''.join(cells)}  {'; '.join(row.remarks)}")
    lines += ["", f"kills by step ({total.steps.total()}): {_told(total.steps)}"]
    lines += [f"faulty calls by class ({total.faulty}): {_told(total.faults)}"]
    return "\n".join(line.rstrip() for line in lines)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def save(file: Path, rows: Iterable[Row]) -> None:
    """Keep rows in a file of JSON; several threads may do so at a time."""
    new = file.with_suffix(f".{threading.get_ident()}")
    new.write_text(json.dumps([vars(row) for row in rows], indent=1))
    new.replace(file)


def summed(files: Iterable[Path]) -> list[Row]:
    """Read files and add up rows of one name."""
    rows: dict[str, Row] = {}
    for file in files:
        for plain in json.loads(file.read_text()):
            counters = {name: Counter(plain[name]) for name in ("faults", "steps")}
            row = rows.setdefault(plain["name"], Row(plain["name"]))
            row += Row(**plain | counters)
    return list(rows.values())


def main() -> int:
    """Print the sum of all files."""
    rows = summed(map(Path, sys.argv[1:]))
    print(table(rows))
    return tell_violations(rows)


def tell_violations(rows: Iterable[Row]) -> int:
    """Print every violation; returns 1 when there was one."""
    told = [f"VIOLATION in {row.name}: {violation}" for row in rows for violation in row.violations]
    print("\n".join(told) or "no violations")
    return int(bool(told))


if __name__ == "__main__":
    sys.exit(main())
