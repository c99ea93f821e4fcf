"""The adder of rows, for every view: rows of cycles, and what was lost, read once and added up by name and step.

Each row belongs to one link of one scenario: every byte counts under exactly one scenario, one source and one
destination. Cycles that count, that are excluded and that are open have sums of their own.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, pairwise
from operator import add, sub
from typing import TypeVar

from dc_inject.ledger import Reader
from dc_inject.ledger.series import NO_TIME, CycleKind, Period, Span, Sums
from dc_inject.model import EPOCH, Cycle, FlowKey
from dc_inject.summary.days import Days

HOUR = timedelta(hours=1)
DIMENSIONS = ("scenario", "source", "destination")
T = TypeVar("T", bound=Hashable)  # the name of some links

TYPE = "type"  # what menus call such links, else their scenario
SITES = ("source_site", "destination_site")  # where menus or URLs name the sites of the ends


class Times:
    """The steps of a report: when each starts, how many seconds of cycles it has, and which are of a day.

    The steps of a day count from its start, and the last one ends with it. Rows are read in steps of `fine`, which
    begin `phase` after those that count from 1970: as long as the report's, unless those begin at odd times.
    """

    def __init__(
        self, cycles: Sequence[Cycle], days: Days, long: timedelta | None, begun: datetime, *, exact: bool = False
    ) -> None:
        """Take the cycles, the days, the length of a step (None: a day), and since when anything was due.

        With `exact`, rows are read by cycle.
        """
        self.long, length = long, cycles[-1].length
        numbers = range(days.of(cycles[0]), days.until(cycles[-1]) + 1)
        within = {number: days.start(number) for number in numbers[1:] if number != 1}
        within = {number: at for number, at in within.items() if (at - EPOCH) % length}
        self._cut: dict[datetime, list[datetime]] = {}  # beginning of a cycle -> of the days that begin within it
        for at in within.values():
            self._cut.setdefault(at - (at - EPOCH) % length, []).append(at)
        firsts = [days.first_cycle(number, length) for number in (*numbers, numbers.stop)]
        firsts[-1] = max(firsts[-1], cycles[-1].end)
        self.fine = max(HOUR, length) if long is None else long
        phases = {(first - EPOCH) % self.fine for first in firsts[:-1]}
        if len(phases) > 1 or exact or self._cut:
            self.fine, phases = length, {NO_TIME}
        self.phase = phases.pop()
        self.starts: list[datetime] = []
        self.days: dict[int, range] = {}
        for number, (begin, end) in zip(numbers, pairwise(firsts), strict=True):
            first, step = len(self.starts), long or end - begin or length
            cut = [within[number]] if number in within else []
            every = (begin + count * step for count in range(-(-(end - begin) // step)))
            most = min(within.get(number + 1, end) - timedelta.resolution, cycles[-1].start)
            whole = [at for at in every if cycles[0].start - step < at <= most]
            self.starts += [*cut, *(whole[1:] if cut and long is None else whole)]
            self.days[number] = range(first, len(self.starts))  # hours without a cycle are steps too
        is_part = self.starts[-1] in within.values()  # of the last cycle
        self.end = end if long is None else max(min(self.starts[-1] + step * (not is_part), end), cycles[-1].end)
        self.seconds = [0.0] * len(self.starts)
        self.due_seconds = self.seconds[:]  # of times of menus: what arrives later is no rate
        spans = days.menus or [("", cycles[0].start, cycles[-1].end)]
        for cycle in cycles:
            for begin, end in pairwise([cycle.start, *self._cut.get(cycle.start, ()), cycle.end]):
                seconds = max((end - max(begin, begun)).total_seconds(), 0)
                self.seconds[self.number(begin)] += seconds
                is_due = any(at < end and begin < to for _, at, to in spans)
                self.due_seconds[self.number(begin)] += seconds * is_due

    def number(self, at: datetime) -> int:
        """Return the number of the step that a moment is in."""
        return bisect_right(self.starts, at) - 1

    def divided(self, start: datetime, sums: Sums) -> Iterator[tuple[int, Sums]]:
        """Yield the number of each step that sums belong to, and its part: one cycle may be in two days."""
        begin = start
        for border in self._cut.get(start, ()):
            time, left = ((at - begin) // timedelta.resolution for at in (border, start + self.fine))
            part = Sums(*(size * time // left for size in sums))
            yield self.number(begin), part
            sums, begin = Sums(*map(sub, sums, part)), border
        yield self.number(begin), sums


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
    """Return the sums of all spans whose links share a name; `number` maps the start of a step to its number."""
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


def move_made_up_bytes(spans: Iterable[Span]) -> Iterator[Span]:
    """Count what is made up after an excluded window with that window, where it was due.

    Of spans by cycle, in the order of time: what a flow key lacks when a window ends is owed. What it gets beyond
    its due from then on, in all since then, is made up, until nothing is owed. The same for injected bytes.
    """
    owed: dict[tuple[FlowKey, str], int] = defaultdict(int)
    ahead: dict[tuple[FlowKey, str], int] = defaultdict(int)
    for span in spans:
        late: dict[str, int] = {}
        for name in ("injected", "moved"):
            at, got = (span.key, name), getattr(span.sums, name) - span.sums.due
            if span.kind is CycleKind.EXCLUDED:
                owed[at], ahead[at] = owed[at] - got, 0
            elif owed.get(at, 0) > 0:
                ahead[at] += got
                if (late_bytes := min(ahead[at], owed[at])) > 0:
                    late[name] = late_bytes
                    ahead[at] -= late_bytes
                    owed[at] -= late_bytes
        rest = {name: getattr(span.sums, name) - count for name, count in late.items()}
        yield span._replace(sums=span.sums._replace(**rest))
        if late:
            yield span._replace(kind=CycleKind.EXCLUDED, sums=Sums(**late))


ByName = dict[str, Added]


def read_rows(
    view: Reader, chosen: Period, times: Times, site_of: Mapping[str, str], types: Mapping[FlowKey, str]
) -> tuple[Added, dict[str, ByName], dict[FlowKey, Added]]:
    """Read all rows once; return the sums of all, by name in each dimension, and of each link without steps."""
    count = len(times.starts)
    total = Added(count)
    names: dict[str, ByName] = {part: defaultdict(lambda: Added(count)) for part in (*DIMENSIONS, *SITES, TYPE)}
    scenarios, sources, destinations, source_sites, destination_sites, of_types = names.values()
    links: dict[FlowKey, Added] = defaultdict(Added)
    steps = (chosen, times.fine, times.phase)
    for start, kind, key, sums in chain(move_made_up_bytes(view.spans(*steps)), view.lost(*steps)):
        source, destination = key.link.source, key.link.destination
        places = [total, scenarios[key.scenario], sources[source], destinations[destination]]
        if types:
            places.append(of_types[types.get(key, key.scenario)])
        if site_of:
            places.append(source_sites[site_of.get(source, source)])
            places.append(destination_sites[site_of.get(destination, destination)])
        for number, part in times.divided(start, sums):
            for added in places:
                added.add(kind, number, part)
        links[key].add(kind, 0, sums)
    return total, names, links
