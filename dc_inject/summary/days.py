"""Challenge days: 24 hours from the clock time at which the campaign's first menu starts, in its zone.

Day 1 begins when the first menu starts, and each other day at the same time of the clock, so that the day of a
change of summer time has 23 or 25 hours. A day is named by its number, its date (in the zone, where it begins) and
the menus in force. The first menu is the earliest of all that are in force or were in force within their window:
so neither an edit nor a menu that is removed moves the days. What was before the first menu is on day 0, -1, ...
A campaign without a menu (a mini-challenge) has days from its first cycle, in UTC. The menus of a simulation that
was stopped before they ended are over with the last cycle that it planned.

A cycle belongs to the day in which it begins. The one in which the first menu starts belongs to day 1, and those
after the last menu, in which something may still arrive, to the last day. Where a day begins within a cycle (of
4 hours), figures divide what the cycle got between the days, in proportion to time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from dc_inject import menu
from dc_inject.ledger import MenuInForce, Reader
from dc_inject.menu.includes import load_kept_first
from dc_inject.model import EPOCH, Cycle
from dc_inject.model.units import format_time
from dc_inject.system import files

ONE = timedelta(days=1)
FOREVER = datetime.max.replace(tzinfo=UTC)
MOST_WINDOWS = 1000  # of menus that are kept in memory
# By name, digest and text. Views ask for them every few seconds, and what a menu brought in may be large.
_windows: dict[tuple[str, str, str], tuple[datetime, datetime, tzinfo]] = {}


@dataclass(frozen=True, slots=True)
class Days:
    """The days of a campaign: when the first one begins (UTC), its zone, and when each menu was in force."""

    begun: datetime
    zone: tzinfo = UTC
    menus: tuple[tuple[str, datetime, datetime], ...] = ()

    def start(self, number: int) -> datetime:
        """Return when a day begins, in UTC."""
        if number == 1:
            return self.begun
        clock = self.begun.astimezone(self.zone).replace(tzinfo=None) + (number - 1) * ONE
        return clock.replace(tzinfo=self.zone).astimezone(UTC)

    def number(self, at: datetime) -> int:
        """Return the number of the day that a moment is on."""
        number = (at.astimezone(self.zone).date() - self.begun.astimezone(self.zone).date()).days + 1
        return number - 1 if at < self.start(number) else number + 1 if at >= self.start(number + 1) else number

    def of(self, cycle: Cycle) -> int:
        """Return the number of the day that a cycle belongs to."""
        return self._number(self.begun if cycle.start < self.begun < cycle.end else cycle.start)

    def _number(self, at: datetime) -> int:
        ended = max((until for _, _, until in self.menus), default=self.begun)
        return self.number(ended - timedelta.resolution if at >= ended > self.begun else at)

    def until(self, cycle: Cycle) -> int:
        """Return the number of the day on which a cycle ends."""
        return max(self._number(cycle.end - timedelta.resolution), self.of(cycle))

    def first_cycle(self, number: int, length: timedelta) -> datetime:
        """Return when the first cycle of a day begins."""
        start = self.start(number)
        beyond = (start - EPOCH) % length
        return start - beyond + (length if beyond and number != 1 else timedelta(0))

    def ended_at(self, now: datetime) -> datetime | None:
        """Return when the last menu ended; None if one is in force or will be, or there was none."""
        end = max((until for _, _, until in self.menus), default=FOREVER)
        return end if end <= now else None

    def current(self, now: datetime) -> dict[str, Any] | None:
        """Return the day of a moment, if a menu is in force on it."""
        day = self.day(self.number(now))
        return day if day["menus"] else None

    def day(self, number: int) -> dict[str, Any]:
        """Return a day as reports, `status` and others print it."""
        start, end = self.start(number), self.start(number + 1)
        names = dict.fromkeys(name for name, since, until in self.menus if since < end and until > start)
        return {
            "number": number,
            "date": f"{start.astimezone(self.zone):%Y-%m-%d}",
            "start": format_time(start),
            "end": format_time(end),
            "menus": list(names),
        }

    def calendar(self) -> Days:
        """Return the days of the calendar in the same zone, from midnight to midnight; the first one is day 1."""
        midnight = self.begun.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        return replace(self, begun=midnight.astimezone(UTC))


def list_days(view: Reader) -> Days:
    """Return the days of a campaign, by the menus in its ledger."""
    windows: list[tuple[datetime, tzinfo, tuple[str, datetime, datetime], bool]] = []
    ended = _stopped_at(view) or FOREVER
    for record in view.all_menus():
        if found := read_window(view, record):
            start, end, zone = found
            span = (Path(record.name).stem, max(start, record.since), min(end, record.until or FOREVER, ended))
            windows.append((start, zone, span, record.until is None))
    counting = [window for window in windows if window[3] or window[2][1] < window[2][2]]
    if not counting:
        first = view.first_cycle()
        return Days(first.start if first else view.since or EPOCH)
    begun, zone, *_ = min(counting, key=lambda window: window[0])
    spans = sorted((span for _, _, span, _ in counting), key=lambda span: span[1:])
    return Days(begun, zone, tuple(span for span in spans if span[1] < span[2]))


def _stopped_at(view: Reader) -> datetime | None:
    """Return when a simulation stopped injecting, and waited for what was on its way; None if it goes on."""
    last, due = view.last_closed(), view.last_due() if view.simulated_in is not None else None
    return due.end if last and due and last > due else None


def read_window(view: Reader, record: MenuInForce) -> tuple[datetime, datetime, tzinfo] | None:
    """Return when a menu begins and ends, and its zone; None if it cannot be read any more."""
    key = record.name, record.digest, record.text
    if (window := _windows.get(key)) is None:
        load = load_kept_first(view.menu_parts(record.digest), files.load)
        if len(_windows) >= MOST_WINDOWS:
            _windows.clear()
        if window := menu.window_of(record.text, record.name, load):
            _windows[key] = window
    return window
