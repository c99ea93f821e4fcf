"""The adder of rows, for every view: rows of cycles, and what was lost, read once and added up by name and step.

Each row belongs to one link of one scenario: every byte counts under exactly one scenario, one source and one
destination. Cycles that count, that are excluded and that are open have sums of their own.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from operator import add
from typing import TypeVar

from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import CycleKind, Period, Span, Sums
from dc_inject.model import EPOCH, Cycle, FlowKey

DIMENSIONS = ("scenario", "source", "destination")
T = TypeVar("T", bound=Hashable)  # the name of some links

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


class Added:
    """Sums of rows by step, those of each kind of cycles apart."""

    def __init__(self, steps: int = 1) -> None:
        """Begin with nothing; `steps` is how many steps there are."""
        self.steps = steps
        self._of: dict[CycleKind, dict[int, array[int]]] = {}  # a field of Sums that is 0 in all steps has none

    def add(self, kind: CycleKind, number: int, sums: Sums) -> None:
        """Add sums to those of a step."""
        fields = self._of.setdefault(kind, {})
        for column, value in enumerate(sums):
            if value:
                self._field(fields, column)[number] += value

    def include(self, other: Added) -> None:
        """Add the sums of others, which have as many steps."""
        for kind, others in other._of.items():
            fields = self._of.setdefault(kind, {})
            for column, values in others.items():
                fields[column] = array("q", map(add, self._field(fields, column), values))

    def has(self, kind: CycleKind) -> bool:
        """Whether there was any row of such a cycle."""
        return kind in self._of

    def total(self, *kinds: CycleKind, span: range | None = None) -> Sums:
        """Return the sums of kinds of cycles (of all, unless named) in a span of steps (in all)."""
        part = slice(None) if span is None else slice(span.start, span.stop)
        totals = [0] * len(Sums._fields)
        for kind in kinds or CycleKind:
            for column, values in self._of.get(kind, {}).items():
                totals[column] += sum(values[part])
        return Sums(*totals)

    def series(self, name: str, *kinds: CycleKind) -> list[int]:
        """Return the sums of one field by step, of kinds of cycles (of all, unless named)."""
        column = Sums._fields.index(name)
        of_kinds = [fields[column] for kind in kinds or CycleKind if column in (fields := self._of.get(kind, {}))]
        return [sum(values) for values in zip([0] * self.steps, *of_kinds, strict=True)]

    def _field(self, fields: dict[int, array[int]], column: int) -> array[int]:
        field = fields.get(column)
        if field is None:
            field = fields[column] = array("q", bytes(8 * self.steps))
        return field


def add_up(
    spans: Iterable[Span],
    name: Callable[[FlowKey], T],
    steps: int = 1,
    number: Callable[[datetime], int] = lambda _: 0,
) -> dict[T, Added]:
    """Return the sums of all spans whose links share a name; `number` tells which step begins when."""
    sums: dict[T, Added] = defaultdict(lambda: Added(steps))
    for span in spans:
        sums[name(span.key)].add(span.kind, number(span.start), span.sums)
    return dict(sums)


def together(parts: Collection[Added]) -> Added:
    """Return the sums of several, which have the same steps."""
    whole = Added(max((part.steps for part in parts), default=1))
    for part in parts:
        whole.include(part)
    return whole


ByName = dict[str, Added]


def read_rows(
    view: Reader, chosen: Period, long: timedelta, times: Times, site_of: Mapping[str, str]
) -> tuple[Added, dict[str, ByName], dict[FlowKey, Added]]:
    """Read all rows once; return the sums of all, by name in each dimension, and of each link without steps."""
    count = len(times.starts)
    total = Added(count)
    names: dict[str, ByName] = {part: defaultdict(lambda: Added(count)) for part in (*DIMENSIONS, *SITES)}
    scenarios, sources, destinations, source_sites, destination_sites = names.values()
    links: dict[FlowKey, Added] = defaultdict(Added)
    for start, kind, key, sums in chain(view.spans(chosen, long), view.lost(chosen, long)):
        number = times.number[start]
        source, destination = key.link.source, key.link.destination
        for added in (total, scenarios[key.scenario], sources[source], destinations[destination]):
            added.add(kind, number, sums)
        links[key].add(kind, 0, sums)
        if site_of:
            source_sites[site_of.get(source, source)].add(kind, number, sums)
            destination_sites[site_of.get(destination, destination)].add(kind, number, sums)
    return total, names, links
