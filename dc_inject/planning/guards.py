"""Guards: signals of trouble that hold a link where it is controlled, and let it go again without flapping.

Each guard has a reading, one number for a link and cycle, and hysteresis: it engages when the reading is at `on`,
and lets go when it has been at `off` or below for `calm` cycles in a row, or below `on` for `patience` cycles,
where it has that: what stays between the bounds is how the link is. A reading that is missing is not a hold: the
guard lets go at once, and the signal is reported as missing. One that is `inconclusive` changes nothing: a guard
that holds goes on, and none engages. So nobody is blamed for what is not known.

| guard | reading | on, off | engaged, the link gets |
|---|---|---|---|
| source-, destination-unavailable | 1 while the site, or the storage, says no | 1, 0 for 2 cycles | nothing |
| failing | part that failed of what ended in three cycles | 1/2, 1/4 (1/2 in 4 cycles) | a tenth, or one dataset |
| deletion-lag | part of our bytes there that is overdue, where room is short | 1/4, 1/10 | what is deleted there |
| destination-full | part of the space that is used, or will be by what is on its way | 0.97, 0.95 | nothing |
| fts-queue | time in which all is gone that waits on the link, as a part of the lifetime | 1/2, 1/4 | nothing |

`backlog` needs no such guard: the window of `control.py` is continuous. `api-errors` has its own, the breaker of a
service (five failures in a row; then one call at a time until one works).

Where a link is not controlled the same signals hold as they are read: at one bound, without memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dc_inject.model import Held, Hold, Numbers

USED = 0.98  # of a space: what is never exceeded where a link is controlled


@dataclass(frozen=True, slots=True)
class Guard:
    """When a hold engages and lets go; one that `paces` leaves a link something, so that it shows its recovery."""

    hold: Hold
    on: float
    off: float
    calm: int = 1
    patience: int | None = None
    paces: bool = False


GUARDS = (
    Guard(Hold.SOURCE_UNAVAILABLE, 1.0, 0.0, 2),
    Guard(Hold.DESTINATION_UNAVAILABLE, 1.0, 0.0, 2),
    Guard(Hold.FAILING, 0.5, 0.25, patience=4, paces=True),
    Guard(Hold.DELETION_LAG, 0.25, 0.1, paces=True),
    Guard(Hold.DESTINATION_FULL, 0.97, 0.95),
    Guard(Hold.FTS_QUEUE, 0.5, 0.25),
)
PACING = frozenset(guard.hold for guard in GUARDS if guard.paces)


@dataclass(frozen=True, slots=True)
class GuardReading:
    """What a guard reads of a link in a cycle, and the numbers behind it; None: the signal is missing.

    `inconclusive` says why a signal without a value shows neither trouble nor its end.
    """

    value: float | None
    numbers: Numbers
    inconclusive: str = ""


Engaged = Mapping[Hold, int]  # guards that hold a link -> for how many cycles their readings were low enough


def engaged(before: Engaged, readings: Mapping[Hold, GuardReading]) -> dict[Hold, int]:
    """Return which guards hold a link in the cycle that begins; `before` are those of the last one.

    They are the holds `source-unavailable`, `destination-unavailable`, `failing`, `deletion-lag`,
    `destination-full` and `fts-queue`.
    """
    now: dict[Hold, int] = {}
    for guard in GUARDS:
        reading = readings.get(guard.hold)
        if reading is None or reading.value is None:
            if reading is not None and reading.inconclusive and guard.hold in before:
                now[guard.hold] = before[guard.hold]
            continue
        if reading.value >= guard.on:
            now[guard.hold] = 0
        elif guard.hold in before:
            low = before[guard.hold] + 1
            is_calm = reading.value <= guard.off
            if guard.patience is None:
                low = low if is_calm else 0
            if not (is_calm and low >= guard.calm) and low != guard.patience:
                now[guard.hold] = low
    return now


def leading(now: Engaged, readings: Mapping[Hold, GuardReading]) -> Held | None:
    """Return the tightest guard, with its reading and the bound below which it lets go.

    Those that give a link nothing come before those that pace it; among equals the first one leads.
    """
    holds = sorted(holding(now, readings).items(), key=lambda held: held[0] in PACING)
    return next((Held(hold, numbers) for hold, numbers in holds), None)


def holding(now: Engaged, readings: Mapping[Hold, GuardReading]) -> dict[Hold, Numbers]:
    """Return the guards that hold, in their order, each with its reading and the bound below which it lets go."""
    numbers: dict[Hold, Numbers] = {}
    for guard in GUARDS:
        if guard.hold in now:
            reading = readings[guard.hold]
            value = reading.inconclusive if reading.value is None else round(reading.value, 3)
            numbers[guard.hold] = {**reading.numbers, "reading": value, "until": guard.off}
    return numbers
