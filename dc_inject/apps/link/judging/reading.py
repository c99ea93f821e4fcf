"""Readings of the link of a mini-challenge, by which its steps are judged, and whether the link stood still.

A link that is slow goes on; one on which nothing arrives for a while was stopped, if that is no chance. At least
five files have to be missing: at the pace of the rest of the step, or of the time before where nothing arrived in
the step. Files that share a slow link arrive together, with long waits between them, so the time has to be longer
than such waits, too. Where nothing has ever arrived no pace is known: then it is a whole step that lasts as long
as a very slow file takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from dc_inject.model import Held

FILES = 5  # that would have arrived otherwise: that there was none is no chance
WAITS = 1.5  # times the usual wait from one arrival to the next: what is longer is no chance either
SLOWEST = 1e6  # bytes per second of a file, while nothing is known of its link


@dataclass(frozen=True, slots=True)
class Reading:
    """The account of the link at a moment: bytes that moved, were injected and failed since the begin.

    `completion` is the median time from a rule to its completion lately, if anything was completed. `coming` are
    bytes on their way, `classes` failed files by class since the begin, `dataset` and `file` the mean bytes of
    what was injected of late (0: not known). `held` and `service` are those of the last cycle. `silent` means that
    something is on its way and the service has not reported it since the reading before. `fresh` is the first
    reading after a start: what was before it is not part of its step. `down` names what did not answer.
    """

    at: datetime
    moved: int = 0
    injected: int = 0
    failed: int = 0
    completion: timedelta | None = None
    held: Held | None = None
    coming: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    dataset: int = 0
    file: int = 0
    counted_by: int = 0
    silent: bool = False
    fresh: bool = False
    down: str = ""
    service: str = ""

    @property
    def waiting(self) -> int:
        """Bytes that are on their way."""
        return self.injected - self.moved - self.failed if self.coming is None else self.coming


def standstill(
    readings: Sequence[Reading], before: Sequence[Reading], *, early: bool
) -> tuple[Reading, Reading] | None:
    """Return from which reading to which of a step nothing arrived, if that is no chance; of several the longest.

    `readings` are those of the step, a cycle apart, and `before` those before it; `early` means that
    the step was ended before its time.
    """
    pairs = list(pairwise(readings))
    if not pairs:
        return None
    past = [(a, b) for a, b in pairwise([*before, readings[0]]) if a.at < b.at and not b.fresh]
    begun = 0  # the wait for the first file of all does not count, once it has arrived
    if readings[0].completion is None and not _arrived(past):
        begun = next((place for place, pair in enumerate(pairs) if _arrived([pair])), 0)
    start, length = _longest([place >= begun and _is_still(a, b) for place, (a, b) in enumerate(pairs)])
    if not length:
        return None
    stretch, file = pairs[start : start + length], max(b.file for _, b in pairs)
    lasted, waiting = _seconds(stretch), stretch[-1][1].waiting
    rest = [*pairs[:start], *pairs[start + length :]]
    if start == 0:
        while past and _is_still(*past[-1]):
            past.pop()  # the same wait
    usual = next((some for some in (rest, past) if _arrived(some)), None)
    if usual is None:
        is_chance = early or bool(rest[1:]) or waiting < FILES * file or lasted * SLOWEST < file
    else:
        missing = min(lasted * _arrived(usual) / _seconds(usual), waiting)
        wait = lasted + _seconds(stretch[:1])
        is_chance = not file or missing < FILES * file or wait <= WAITS * _usual_wait([*past, *rest])
    return None if is_chance else (stretch[0][0], stretch[-1][1])


def _is_still(a: Reading, b: Reading) -> bool:
    """Whether nothing arrived from one reading to the next, though something was on its way."""
    return b.moved <= a.moved and min(a.waiting, b.waiting) > 0


def _arrived(pairs: Iterable[tuple[Reading, Reading]]) -> int:
    return sum(max(b.moved - a.moved, 0) for a, b in pairs)


def _seconds(pairs: Iterable[tuple[Reading, Reading]]) -> float:
    return sum((b.at - a.at).total_seconds() for a, b in pairs)


def _usual_wait(pairs: Iterable[tuple[Reading, Reading]]) -> float:
    """Return how many seconds there often are from one arrival to the next.

    That is the second longest wait, since the longest may have been an outage, or the mean over this time, if that
    is longer. Times of which the service reported nothing are left out.
    """
    waits, wait = [0.0, 0.0], 0.0
    for a, b in pairs:
        wait += (b.at - a.at).total_seconds()
        if b.moved > a.moved:
            waits.append(wait)
        if b.moved > a.moved or not b.waiting or b.silent:
            wait = 0.0
    return max(sorted(waits)[-2], sum(wait**2 for wait in waits) / (sum(waits) or 1.0))


def _longest(flags: Sequence[bool]) -> tuple[int, int]:
    """Return where the longest row of true flags starts, and how long it is; the first of several."""
    rows: list[tuple[int, int]] = []
    for place, flag in enumerate(flags):
        if flag and rows and sum(rows[-1]) == place:
            rows[-1] = (rows[-1][0], rows[-1][1] + 1)
        elif flag:
            rows.append((place, 1))
    return max(rows, key=lambda row: row[1], default=(0, 0))
