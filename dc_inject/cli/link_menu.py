"""The menu of a mini-challenge: one link, within limits that are just above the most that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dc_inject import units
from dc_inject.climb import Ladder
from dc_inject.menu.writing import scalar
from dc_inject.model import Cycle, Link

SCENARIO = "link"
ROOM = 1.25  # of the highest rate: the limits, so that a coarse dataset or a debt of a cycle may go out
CYCLES = 6  # in a step, so that its second half has three
LONGEST = timedelta(minutes=15)
SHORTEST = timedelta(seconds=5)
PATIENCE = 2  # cycles after the last step, in which what is on its way may arrive


@dataclass(frozen=True, slots=True)
class MiniChallenge:
    """What is asked of one link; `until` is the end of the last step, at the end of a cycle."""

    campaign: str
    contact: str
    link: Link
    ladder: Ladder
    cycle: timedelta
    start: datetime
    until: datetime
    highest: float
    datasets: Sequence[str] = ()
    mean_file: str = ""
    folder: str = ""
    endpoint: str = ""
    accept: Sequence[str] = ()

    def text(self) -> str:
        """Return the menu."""
        limit = units.exact_rate(round(ROOM * self.highest))
        ends = f"from: {scalar(self.link.source)}, to: {scalar(self.link.destination)}"
        lines = [
            "# Made by `dc-inject link`, which sets the rates of later steps while it runs.",
            "menu: 1",
            f"campaign: {scalar(self.campaign)}",
            f"contact: {scalar(self.contact)}",
            "timezone: UTC",
            f"start: {_time(self.start)}",
            f"end: {_time(self.until + (PATIENCE + 1) * self.cycle)}  # what is on its way may arrive",
            f"limits: {{total: {limit}, per_site: {limit}}}",
            *([f"fts: {{endpoint: {scalar(self.endpoint)}}}"] if self.endpoint else []),
            *([f"accept: [{', '.join(self.accept)}]"] if self.accept else []),
            "defaults:",
            f"  through: {self.link.through}",
            f"  cycle: {self.cycle // timedelta(seconds=1)} s",
            f"  {self._what()}",
            "scenarios:",
            f"  {SCENARIO}:",
            "    links:",
            f"      - {{{ends}, rate: {units.exact_rate(self.ladder.first)}, end: {_time(self.until)}}}",
        ]
        return "\n".join(lines) + "\n"

    def _what(self) -> str:
        if self.link.through == "fts" and not self.datasets:
            return f"files: {{folder: {scalar(self.folder or '.')}}}"
        patterns = ", ".join(scalar(one) for one in self.datasets or ("*:*",))
        bounds = "" if self.link.through == "fts" else f", files: 1..1000, mean_file: {scalar(self.mean_file)}"
        return f"datasets: {{did: [{patterns}]{bounds}}}"


def cycle_for(every: timedelta) -> timedelta:
    """Return the length of cycles for steps of a length: so short that a step has several, in whole seconds."""
    seconds = min(max(every / CYCLES, SHORTEST), LONGEST) // timedelta(seconds=1)
    return timedelta(seconds=seconds)


def end_of(start: datetime, length: timedelta, cycle: timedelta) -> datetime:
    """Return the end of the cycle in which so much time is over."""
    slot = Cycle.at(start + length, cycle)
    return slot.start if slot.start == start + length else slot.end


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
