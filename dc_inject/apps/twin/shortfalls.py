"""What the grid of a simulation knows of links that are short (`summary/why.py`): what their files waited for.

What files waited for in the grid (`grid/world.py`) explains a hold only where the hold follows from what the
link does, such as `backlog`, and only in the cycles that it led: on a link that is held for want of space files
wait for a moment, too, and that is not why it is short. There it counts only if the disk never was nearly full,
since bytes on their way took the space, and if files waited most of the time. If less arrived than was injected,
all cycles count. What most files waited for is the cause. What a slow reaper left on a disk is the cause of a lack
of space if it would have been room enough.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from dc_inject.ledger import Reader, SummaryLine
from dc_inject.model import Cycle, FlowKey, Hold
from dc_inject.summary import why
from dc_inject.summary.why import FILLED, MOST_CAUSES, OF_LINK, OF_SPACE, SELDOM, Cause, Kind, ShortLink

if TYPE_CHECKING:
    from dc_inject.apps.twin.simulation import Simulated

MOST_OF_THEM = 0.5  # of the cycles in which space was short: files that wait less keep no space from others


def short(lines: Sequence[SummaryLine], ledger: Reader, made: Simulated) -> list[ShortLink]:
    """Return the links that move less than 95 % of their due, those first that lack most, and why."""
    missing = why.find_short_links(lines)
    past = _Past(ledger, made, lines, {line.key for line in missing})
    return why.explain(missing, why.held_links(ledger), past)


class _Past:
    """In which cycles holds led that the grid explains, in which the world's samples are, and what is in these."""

    def __init__(
        self,
        ledger: Reader,
        made: Simulated,
        lines: Sequence[SummaryLine],
        keys: Collection[FlowKey],
    ) -> None:
        first, world, start = ledger.first_cycle(), made.world, made.start
        self._length = timedelta(0) if first is None else first.length
        self._samples, self._world = {sample.at: sample for sample in world.samples}, world
        self._injected = Counter[tuple[str, str]]()  # between two storages
        for line in lines:
            self._injected[self._storages(line)] += line.injected
        self._led: dict[tuple[FlowKey, Hold], set[datetime]] = defaultdict(set)
        self._lacked: dict[str | None, Counter[datetime]] = defaultdict(Counter)  # bytes without room at a storage
        for hold in OF_LINK | OF_SPACE if keys else ():
            for key, cycle, lacked in ledger.held_in(hold):
                if hold in OF_SPACE:
                    self._lacked[world.grid.storage_at(key.link.destination)][cycle] += lacked
                if key in keys:
                    self._led[key, hold].add(cycle)
        self._due = {cycle for cycle, due, _ in ledger.sums_of_cycles() if due}
        self._cycles: dict[float, list[datetime]] = {}  # that each sample of the world stands for
        if first is not None and world.samples:
            half = timedelta(seconds=world.samples[0].at)  # of the time between two of them
            moments = ((sample.at, start + timedelta(seconds=sample.at)) for sample in world.samples)
            self._cycles = {at: list(_around(moment, half, first.length)) for at, moment in moments}

    def _storages(self, line: SummaryLine) -> tuple[str, str]:
        """Return the storages of the grid at the ends of a link."""
        source, destination = (
            self._world.grid.storage_at(end) or "" for end in (line.key.link.source, line.key.link.destination)
        )
        return source, destination

    def storage(self, line: SummaryLine) -> str:
        """Return the storage at which a link ends."""
        return self._storages(line)[1]

    def filled(self, storage: str) -> float:
        """Return which part of a storage's space was used at most, at any time; 0 without space."""
        number, space = self._world.network.storages[storage], self._world.grid.storages[storage].space
        return float(self._world.storages.most_used[number]) / space if space else 0.0

    def nearly_full(self, storage: str) -> timedelta:
        """Return for how long a storage was above 98 %."""
        number = self._world.network.storages[storage]
        return timedelta(hours=float(self._world.storages.hours_nearly_full[number]))

    def due_in(self, line: SummaryLine, time: timedelta) -> int:
        """Return what a link is due in so much time, in the mean."""
        return round(line.due * (time / (line.cycles * self._length))) if line.cycles and self._length else 0

    def failed(self, line: SummaryLine) -> dict[str, int]:
        """Return the bytes of a link's files that failed in all attempts, by reason.

        Links between the same two storages have a part each, as they were injected.
        """
        ends = self._storages(line)
        part = line.injected / self._injected[ends] if self._injected[ends] else 0.0
        return {reason: round(part * size) for reason, size in self._world.failed_for_good(ends).items()}

    def waited(self, line: SummaryLine, led: Collection[Hold], *, expired: bool) -> list[Cause]:
        """Return what files of a link waited for, which explains the holds that led, or that files expired."""
        storage = self.storage(line)
        of_link, of_space = ({hold for hold in led if hold in kind} for kind in (OF_LINK, OF_SPACE))
        causes = self._slowly_deleted(line.key, of_space, storage) if of_space else []
        waits = self._waits(line)
        if expired:
            causes += self._waited_for(line.key, (), waits)
        elif of_link:
            causes += self._waited_for(line.key, of_link, waits)
        if of_space and self.filled(storage) < FILLED and not causes:
            causes = self._waited_for(line.key, of_space, waits, MOST_OF_THEM)
        return causes

    def _waits(self, line: SummaryLine) -> dict[str, dict[float, float]]:
        """Return what a link's files waited for: in which samples, and how many."""
        waits = self._world.held_back.get(self._storages(line), {})
        return {cause: dict(zip(moments, files, strict=True)) for cause, (moments, files) in waits.items()}

    def _slowly_deleted(self, key: FlowKey, holds: Collection[Hold], storage: str) -> list[Cause]:
        """Return whether fast deletions would have given a storage enough room in most cycles."""
        number, lacked = self._world.network.storages[storage], self._lacked[storage]
        enough = {
            at: 1.0
            for at, cycles in self._cycles.items()
            if self._samples[at].overdue[number] > max(lacked[cycle] for cycle in cycles)
        }
        what = f"deletions at {storage} are slow: there was room without what they left"
        return self._waited_for(key, holds, {what: enough}, MOST_OF_THEM)

    def _waited_for(
        self,
        key: FlowKey,
        holds: Collection[Hold],
        waits: Mapping[str, Mapping[float, float]],
        least: float = 0.0,
    ) -> list[Cause]:
        """Return what most files of a link waited for, and in which part of the samples that count.

        `waits` has, for each cause, the moments of samples and how many files waited then. The samples that count
        are those in cycles that one of `holds` led, or without holds in all that anything was due in. Nothing is
        returned if files waited in less than the part `least` of them.
        """
        cycles = set[datetime]().union(*(self._led[key, hold] for hold in holds)) if holds else self._due
        samples = {at for at, around in self._cycles.items() if not cycles.isdisjoint(around)}
        seen = {cause: samples.intersection(moments) for cause, moments in waits.items()}
        files = Counter({cause: sum(waits[cause][at] for at in moments) for cause, moments in seen.items()})
        if not samples or sum(map(len, seen.values())) < least * len(samples):
            return []
        with_holds = f" with {' or '.join(sorted(holds))}" if holds else ""
        the = "the" if holds else "all"

        def cause(what: str) -> Cause:
            part = len(seen[what]) / len(samples)
            cycles = "all" if part == 1.0 else f"{100 * part:.0f} % of {the}"
            figures = {"part": part, "holds": sorted(holds)}
            return Cause(what, f"(in {cycles} cycles{with_holds})", Kind.WAITED, figures)

        most = [
            what
            for what, waited in files.most_common(MOST_CAUSES)
            if waited >= SELDOM * files.total() and len(seen[what]) >= SELDOM * len(samples)
        ]
        return [cause(what) for what in sorted(most, key=lambda what: -len(seen[what]))]


def _around(moment: datetime, half: timedelta, length: timedelta) -> Iterator[datetime]:
    """Yield the start of the cycle of a moment, and of each whose middle is at most `half` away."""
    cycle = Cycle.at(moment - half, length)
    while cycle.start < moment + half:
        if cycle.start <= moment < cycle.end or -half <= cycle.start + length / 2 - moment < half:
            yield cycle.start
        cycle = cycle.next
