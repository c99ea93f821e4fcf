"""What FTS3's optimizer tells of links: how many copies at a time, how fast, how long the queue."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

Pair = tuple[str, str]  # source and destination storage
_ROWS = 500  # kept
MOST_ROWS = 50  # answered


@dataclass
class _Window:
    """What happened on a link since the last look."""

    sizes: list[int] = field(default_factory=list)
    failed: int = 0


class Optimizer:
    """Watches links; it changes no limits, since on one machine there is nothing to be found out by that."""

    def __init__(self) -> None:
        self._windows: defaultdict[Pair, _Window] = defaultdict(_Window)
        self._evolution: deque[dict[str, Any]] = deque(maxlen=_ROWS)
        self._current: dict[Pair, dict[str, Any]] = {}
        self._looked: float | None = None

    def arrived(self, pair: Pair, size: int) -> None:
        """Note a file that arrived, with its size in bytes."""
        self._windows[pair].sizes.append(size)

    def failed(self, pair: Pair) -> None:
        """Note a copy that failed."""
        self._windows[pair].failed += 1

    def look(
        self, now: float, active: Mapping[Pair, int], waiting: Mapping[Pair, int], limits: Mapping[Pair, int]
    ) -> None:
        """Write a row for every link that has anything to do; throughput is in bytes per second."""
        seconds = max(now - self._looked, 1e-3) if self._looked is not None else 1.0
        self._looked = now
        for pair in sorted({*self._windows, *active, *waiting, *self._current}):
            window = self._windows.pop(pair, _Window())
            before = self._current.get(pair)
            throughput = sum(window.sizes) / seconds
            ema = throughput if before is None else 0.1 * throughput + 0.9 * before["ema"]
            tried = len(window.sizes) + window.failed
            limit = limits.get(pair, before["active"] if before else 2)
            row = {
                "source_se": pair[0], "dest_se": pair[1], "datetime": now, "ema": ema, "active": limit,
                "throughput": throughput, "success": 100.0 * len(window.sizes) / tried if tried else 100.0,
                "rationale": "Limit of the link", "diff": limit - before["active"] if before else 0,
                "actual_active": active.get(pair, 0), "queue_size": waiting.get(pair, 0),
                "filesize_avg": fmean(window.sizes) if window.sizes else 0.0,
                "filesize_stddev": pstdev(window.sizes) if window.sizes else 0.0,
            }  # fmt: skip
            if tried or row["actual_active"] or row["queue_size"] or before is None:
                self._evolution.appendleft(row)
            self._current[pair] = row

    def evolution(self, source: str | None, destination: str | None) -> list[dict[str, Any]]:
        """Return the newest rows, newest first."""
        return [row for row in self._evolution if _fits(row, source, destination)][:MOST_ROWS]

    def current(self, source: str | None, destination: str | None) -> list[dict[str, Any]]:
        """Return the current state, one row per link."""
        columns = ("source_se", "dest_se", "datetime", "ema", "active")
        rows = [row for row in self._current.values() if _fits(row, source, destination)]
        return [{key: row[key] for key in columns} | {"nostreams": 1} for row in rows]


def _fits(row: Mapping[str, Any], source: str | None, destination: str | None) -> bool:
    return (not source or row["source_se"] == source) and (not destination or row["dest_se"] == destination)
