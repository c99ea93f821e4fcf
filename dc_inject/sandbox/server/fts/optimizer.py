"""How many copies at a time a link may have, as FTS3's optimizer decides it, and what it reports of links.

Once a minute it looks at every link with files that wait or are copied, and writes a row. A link whose files are
over between two looks has no rows, and the last row of any link does not show that it is empty.

- A link that it does not know starts half way in its range (2 to 130 by default: at 66).
- `throughput` is the bytes of the last 5, 15 or 30 minutes (files of 1 to 29 s, of 31 to 899 s, others, or none)
  divided by that time, however young the link is. `success` counts files that are over in that time, after all
  their retries.
- While at least as many files wait as the link may copy, and throughput does not fall, it gets two more (mode 2,
  the default); with a success under 97 % it loses one.

Source: OptimizerConnections.cpp of github.com/cern-fts/fts3, and rows of a real service (3.14.4). All times
are those of the real service multiplied with the setting `time_scale`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any, NamedTuple

Pair = tuple[str, str]  # source and destination storage
MOST_ROWS = 50  # answered
STEADY = 300.0  # seconds after which a link is looked at again though nothing has changed
_ROWS = 500  # kept
_MINUTES = (5, 15, 30)  # the windows
_SHORT, _LONG = 30, 900  # seconds: files that take less have the first window, or the second
_LOW, _BASE = 97.0, 96.0  # percent of files that arrived
_UP, _DOWN = 2, 1  # copies at a time that one look adds or takes away
_STREAMS = 10  # the largest number of copies at a time for each file that waits
_WEIGHT = 0.1  # of the newest throughput in the mean


class Over(NamedTuple):
    """A file that is over, or an attempt that failed and is made again."""

    at: float
    size: int | None  # bytes; None if it did not arrive
    seconds: float  # that its copy took
    again: bool = False


@dataclass
class _Link:
    """What the optimizer remembers of a link."""

    slots: int
    files: deque[Over] = field(default_factory=deque)
    looked: float | None = None
    mean: float = 0.0
    success: float = 100.0
    retries: int = 0
    size: float = 0.0


class _Window(NamedTuple):
    """What happened on a link lately."""

    throughput: float
    success: float
    retries: int
    sizes: tuple[int, ...]


class Optimizer:
    """Decides how many copies at a time each link may have."""

    def __init__(self) -> None:
        self._links: dict[Pair, _Link] = {}
        self._evolution: deque[dict[str, Any]] = deque(maxlen=_ROWS)

    def slots(self, pair: Pair, least: int, most: int) -> int:
        """Return how many copies at a time a link may have now, within its range."""
        link = self._links.get(pair)
        if link is None:
            link = self._links[pair] = _Link(least + (most - least) // 2)
        return min(max(link.slots, least), most)

    def note(self, pair: Pair, over: Over) -> None:
        """Note a copy that is over on a link."""
        if pair in self._links:
            self._links[pair].files.append(over)

    def look(
        self,
        now: float,
        active: Mapping[Pair, int],
        waiting: Mapping[Pair, int],
        ranges: Mapping[Pair, tuple[int, int]],
        time_scale: float,
    ) -> None:
        """Decide for each link that has files, and write a row where something has changed."""
        for pair in sorted({*active, *waiting}):
            least, most = ranges[pair]
            slots, link = self.slots(pair, least, most), self._links[pair]
            window = _window(link, now, time_scale)
            size = fmean(window.sizes) if window.sizes else link.size
            mean = link.mean
            if window.throughput:
                mean = _WEIGHT * window.throughput + (1 - _WEIGHT) * mean if link.looked else window.throughput
            unchanged = link.looked is not None and (window.success, mean) == (link.success, link.mean)
            if link.looked is not None and unchanged and now - link.looked < STEADY * time_scale:
                continue
            wanted, why = slots, "No information yet"
            if least == most:
                wanted, why = most, "Range fixed"
            elif link.looked is not None:
                wanted, why = _decision(link, slots, waiting.get(pair, 0), window, mean, size)
                if wanted > most:
                    wanted, why = most, f"{why}. Hit upper range limit"
                elif wanted < least:
                    wanted, why = least, f"{why}. Hit lower range limit"
            link.slots, link.looked, link.mean, link.size = wanted, now, mean, size
            link.success, link.retries = window.success, window.retries
            self._evolution.appendleft(
                {
                    "source_se": pair[0], "dest_se": pair[1], "datetime": now, "ema": mean, "active": wanted,
                    "throughput": window.throughput, "success": window.success, "rationale": why,
                    "diff": wanted - slots, "actual_active": active.get(pair, 0),
                    "queue_size": waiting.get(pair, 0), "filesize_avg": size,
                    "filesize_stddev": pstdev(window.sizes) if window.sizes else 0.0,
                }
            )  # fmt: skip

    def evolution(self, source: str | None, destination: str | None) -> list[dict[str, Any]]:
        """Return the newest rows, newest first."""
        return [row for row in self._evolution if _fits(row, source, destination)][:MOST_ROWS]

    def current(self, source: str | None, destination: str | None) -> list[dict[str, Any]]:
        """Return the last row of each link, in short."""
        columns = ("source_se", "dest_se", "datetime", "ema", "active")
        newest: dict[Pair, dict[str, Any]] = {}
        for row in self._evolution:
            newest.setdefault((row["source_se"], row["dest_se"]), row)
        rows = [row for row in newest.values() if _fits(row, source, destination)]
        return [{key: row[key] for key in columns} | {"nostreams": 1} for row in rows]


def _window(link: _Link, now: float, time_scale: float) -> _Window:
    """Add up what a link did in its window."""
    minute = 60.0 * time_scale
    while link.files and link.files[0].at <= now - _MINUTES[-1] * minute:
        link.files.popleft()
    arrived = [over.seconds / time_scale for over in link.files if over.size is not None]
    took = int(fmean(arrived)) if arrived else 0
    first, second, longest = _MINUTES
    minutes = first if 1 <= took < _SHORT else second if _SHORT < took < _LONG else longest
    lately = [over for over in link.files if over.at > now - minutes * minute]
    over = [file for file in lately if not file.again]
    sizes = tuple(file.size for file in over if file.size is not None)
    success = math.ceil(100 * len(sizes) / len(over)) if over else 100
    return _Window(sum(sizes) / (minutes * minute), float(success), len(lately) - len(over), sizes)


def _decision(link: _Link, slots: int, waiting: int, window: _Window, mean: float, size: float) -> tuple[int, str]:
    """Return how many copies at a time a link should have, whatever its range is, and why."""
    wanted, why = slots + _UP, "Good link efficiency"
    if window.success < _LOW:
        improving = link.success < window.success >= _BASE and window.retries <= link.retries
        wanted, why = (
            (slots, "Bad link efficiency, improving") if improving else (slots - _DOWN, "Bad link efficiency")
        )
    elif mean == 0:
        wanted, why = slots, "No throughput"
    elif waiting < slots:
        wanted, why = slots, "Queue emptying. Hold on."
    elif mean < link.mean and _order(size) >= _order(link.size):
        collapsing = _order(mean) < _order(link.mean)
        wanted, why = (slots - _DOWN if collapsing else slots), "Throughput deteriorates"
    if wanted > _STREAMS * waiting:
        return slots, f"{why}. Too few files wait"
    return wanted, why


def _order(value: float) -> int:
    """Return the order of magnitude."""
    return round(math.log10(max(value, 1e-9)))


def _fits(row: Mapping[str, Any], source: str | None, destination: str | None) -> bool:
    return (not source or row["source_se"] == source) and (not destination or row["dest_se"] == destination)
