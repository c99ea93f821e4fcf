"""Sums over the steps of a report: rows of cycles, and what was lost, read once and added up by name.

Each row belongs to one link of one scenario: every byte counts under exactly one scenario, one source and one
destination. Cycles that count, that are excluded and that are open have sums of their own.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import CycleKind, Period, Sums
from dc_inject.model import EPOCH, Cycle, FlowKey

DIMENSIONS = ("scenario", "source", "destination")
SITES = ("source_site", "destination_site")  # where menus or URLs tell the sites of the ends


class Times:
    """The steps of a report: when each starts, how many seconds of cycles it has, and which are of a day."""

    def __init__(self, cycles: Sequence[Cycle], long: timedelta, begun: datetime) -> None:
        """Take the cycles, the length of a step, and since when anything was due."""
        seconds: dict[datetime, float] = {}
        at = EPOCH + (cycles[0].start - EPOCH) // long * long
        while at <= cycles[-1].start:  # hours without a cycle are steps too
            seconds[at] = 0.0
            at += long
        for cycle in cycles:
            start = EPOCH + (cycle.start - EPOCH) // long * long
            seconds[start] += max((cycle.end - max(cycle.start, begun)).total_seconds(), 0.0)
        self.starts, self.seconds = list(seconds), list(seconds.values())
        self.number = {start: number for number, start in enumerate(self.starts)}
        days: dict[str, list[int]] = defaultdict(list)
        for number, start in enumerate(self.starts):
            days[f"{start:%Y-%m-%d}"].append(number)
        self.days = {day: range(numbers[0], numbers[-1] + 1) for day, numbers in days.items()}


class Track:
    """Sums over steps, of each kind of cycles apart."""

    def __init__(self, steps: int) -> None:
        """Take how many steps there are."""
        self._steps = steps
        self._of: dict[CycleKind, list[array[int]]] = {}

    def add(self, kind: CycleKind, number: int, sums: Sums) -> None:
        """Add sums to those of a step."""
        fields = self._of.get(kind)
        if fields is None:
            fields = self._of[kind] = [array("q", bytes(8 * self._steps)) for _ in sums]
        for field, value in zip(fields, sums, strict=True):
            if value:
                field[number] += value

    def total(self, *kinds: CycleKind, span: range | None = None) -> Sums:
        """Return the sums of kinds of cycles (of all, unless named) in a span of steps (in all)."""
        part = slice(None) if span is None else slice(span.start, span.stop)
        of_kinds = [self._of[kind] for kind in kinds or CycleKind if kind in self._of]
        return Sums(
            *(sum(sum(fields[column][part]) for fields in of_kinds) for column in range(len(Sums._fields)))
        )

    def series(self, name: str) -> list[int]:
        """Return the sums of one field by step, of all kinds of cycles."""
        column = Sums._fields.index(name)
        return [sum(values) for values in zip(*(f[column] for f in self._of.values()), strict=True)]


Tracks = dict[str, Track]


def added(
    view: Reader, chosen: Period, long: timedelta, times: Times, site_of: Mapping[str, str]
) -> tuple[Track, dict[str, Tracks], dict[FlowKey, list[int]]]:
    """Read all rows once; return the sums of all, by name in each dimension, and of each link's counted rows."""
    count = len(times.starts)
    total = Track(count)
    names: dict[str, Tracks] = {part: defaultdict(lambda: Track(count)) for part in (*DIMENSIONS, *SITES)}
    scenarios, sources, destinations, source_sites, destination_sites = names.values()
    links: dict[FlowKey, list[int]] = defaultdict(lambda: [0] * len(Sums._fields))
    for start, kind, key, sums in chain(view.spans(chosen, long), view.lost(chosen, long)):
        number = times.number[start]
        source, destination = key.link.source, key.link.destination
        for track in (total, scenarios[key.scenario], sources[source], destinations[destination]):
            track.add(kind, number, sums)
        if site_of:
            source_sites[site_of.get(source, source)].add(kind, number, sums)
            destination_sites[site_of.get(destination, destination)].add(kind, number, sums)
        link = links[key]
        if kind is CycleKind.COUNTED:
            link[:] = [a + b for a, b in zip(link, sums, strict=True)]
    return total, names, links
