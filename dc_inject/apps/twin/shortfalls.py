"""Why links are short in a simulation: the holds of their cycles, and what its grid knows of their files.

A link is short if it moves less than 95 % of its due. A hold is what dc_inject did; what files waited for, failed
of or found no room for comes from the grid. Where files fail at once, none waits: what failed explains a hold that
follows from what the link does. Where nothing but `too-coarse` held a link, it waited for its next dataset to be
due. Where none of that explains most of what is missing, the link is inconclusive. Causes of one kind are in the
order of the cycles that they have.

What files waited for in the grid (`grid/world.py`) explains a hold only where the hold follows from what the
link does, such as `backlog`, and only in the cycles that it led: on a link that is held for want of space files
wait for a moment, too, and that is not why it is short. There it counts only if the disk never was nearly full,
since bytes on their way took the space, and if files waited most of the time. If less arrived than was injected,
all cycles count. What most files waited for is the cause. What a slow reaper left on a disk is the cause of a lack
of space if it would have been room enough.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dc_inject.ledger import Reader, SummaryLine
from dc_inject.model import Cycle, FlowKey, Hold, units
from dc_inject.model.holds import Trait
from dc_inject.model.services import SERVICES
from dc_inject.summary import why
from dc_inject.summary.why import HeldLink

if TYPE_CHECKING:
    from dc_inject.apps.twin.simulation import Simulated

SHORT = 0.95  # of its due: what moves less is short
MOST_CAUSES = 2  # holds that are named, and as many things that kept back bytes
SELDOM = 0.05  # of the cycles, of what was missing in them, or of the files that waited: what is no cause
MOST_OF_IT = 0.5  # of what is missing: what explains less leaves it unexplained
FILLED = 0.9  # of a disk: one that never was fuller is held for bytes on their way
OF_LINK = frozenset(hold for hold in Hold if Trait.LINK in hold.traits)
OF_SPACE = frozenset({Hold.DESTINATION_FULL, Hold.DELETION_LAG})
UNSEEN = "no file was seen to wait for anything"
MOST_OF_THEM = 0.5  # of the cycles in which space was short: files that wait less keep no space from others


class Kind(StrEnum):
    """What a cause is about, and which figures it has."""

    HOLD = "hold"  # of the plan: `hold`, `cycles`, `of_cycles`
    FAILED = "failed"  # files that failed in all attempts: `bytes`
    DISK = "disk"  # how full it was: `storage`, `filled` or `seconds_above_98`
    WAITED = "waited"  # what files waited for: `part` of the cycles with `holds`, or of all cycles
    ON_ITS_WAY = "on-its-way"  # at the end
    INCONCLUSIVE = "inconclusive"  # no cause was found: `bytes` that did not arrive


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a link is short, and how much of that there was, in which seeds differ."""

    what: str
    how_much: str = ""
    kind: Kind = Kind.WAITED
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what} {self.how_much}".rstrip()

    @property
    def row(self) -> dict[str, Any]:
        """The cause for programs."""
        return {"kind": self.kind.value, "what": self.what, **self.figures}


@dataclass(frozen=True, slots=True)
class ShortLink:
    """A link that moves less than 95 % of its due, in bytes, and why."""

    key: FlowKey
    due: int
    moved: int
    causes: tuple[Cause, ...]

    @property
    def row(self) -> dict[str, Any]:
        """The link as a row of the forecast."""
        return {
            "scenario": self.key.scenario,
            "source": self.key.link.source,
            "destination": self.key.link.destination,
            "due": self.due,
            "moved": self.moved,
            "missing": self.due - self.moved,
            "moved_of_due": self.moved / self.due,
            "why": "; ".join(map(str, self.causes)),
            "causes": [cause.row for cause in self.causes],
        }


def short(lines: Sequence[SummaryLine], ledger: Reader, made: Simulated) -> list[ShortLink]:
    """Return the links that move less than 95 % of their due, those first that lack most, and why."""
    missing = find_short_links(lines)
    past = _Past(ledger, made, lines, {line.key for line in missing})
    return explain(missing, why.held_links(ledger), past)


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
        source, destination = (self._world.grid.storage_at(end) or "" for end in line.key.link.ends)
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


# --------------------------------------------------------------------------- causes


def find_short_links(lines: Iterable[SummaryLine]) -> list[SummaryLine]:
    """Return the links that move less than 95 % of their due, those first that lack most."""
    return sorted(
        (line for line in lines if line.moved < SHORT * line.due),
        key=lambda line: (line.moved - line.due, line.key),
    )


def explain(lines: Iterable[SummaryLine], held: Iterable[HeldLink], evidence: _Past) -> list[ShortLink]:
    """Return why each of these links is short, by what held links and by the evidence."""
    holds: dict[FlowKey, list[HeldLink]] = defaultdict(list)
    for link in held:
        holds[link.key].append(link)
    return [
        ShortLink(line.key, line.due, line.moved, tuple(_causes(line, holds[line.key], evidence)))
        for line in lines
    ]


def _causes(line: SummaryLine, held: Iterable[HeldLink], evidence: _Past) -> Iterator[Cause]:
    """Yield what held a link: in the plan, and by the evidence."""
    holds = sorted(held, key=lambda link: (-link.missing, -link.cycles))
    missing = sum(link.missing for link in holds)
    most = [link for link in holds[:MOST_CAUSES] if link.missing >= SELDOM * missing]
    most.sort(key=lambda link: -link.cycles)
    for link in most:
        of_cycles = f"in {units.grouped(link.cycles)} of {units.counted(line.cycles, 'cycles')}"
        yield Cause(link.name, of_cycles, Kind.HOLD, _cycles(line, link.hold, link.cycles))
    led, failed = {link.hold for link in most}, evidence.failed(line)
    yield from _of_failed(line, failed)
    expired = line.injected - line.moved - sum(failed.values()) > (1 - SHORT) * line.due
    storage = evidence.storage(line)
    if led & OF_SPACE and (filled := evidence.filled(storage)) < FILLED:
        but = ": bytes on their way count too" if Hold.DESTINATION_FULL in led else ""  # others pace by deletions
        figures = {"storage": storage, "filled": filled}
        yield Cause(f"{storage} filled to {units.percent(filled)} at most{but}", kind=Kind.DISK, figures=figures)
    waited = evidence.waited(line, led, expired=expired)
    yield from waited
    if not led and not expired and (coarse := line.holds.get(Hold.TOO_COARSE)):
        waited.append(_too_coarse(line, coarse))
        yield waited[-1]
    hours = evidence.nearly_full(storage)
    if hours:
        figures = {"storage": storage, "seconds_above_98": round(hours.total_seconds())}
        yield Cause(f"{storage} above 98 %", f"for {units.format_duration(hours)}", Kind.DISK, figures)
    if not waited:
        explained = evidence.due_in(line, hours) + sum(failed.values())
        unseen = {link.hold for link in most if link.hold in OF_LINK}
        if sum(link.missing for link in most if link.hold in unseen) < MOST_OF_IT * missing:
            unseen = set()  # another hold is the cause
        elif unseen and sum(failed.values()) >= SELDOM * (line.due - line.moved):
            unseen = set()  # files that fail at once wait for nothing
        yield from _unexplained(line, explained, sum(failed.values()), led, unseen)


def _of_failed(line: SummaryLine, sizes: Mapping[str, int]) -> Iterator[Cause]:
    """Yield why most bytes failed, with how many."""
    for cause, size in Counter(sizes).most_common(MOST_CAUSES):
        if size >= SELDOM * (line.due - line.moved):
            yield Cause(cause, f"({units.format_size(size)})", Kind.FAILED, {"bytes": size})


def _cycles(line: SummaryLine, hold: Hold, cycles: int) -> dict[str, Any]:
    """Return the figures of a hold."""
    return {"hold": hold.value, "cycles": cycles, "of_cycles": line.cycles}


def _too_coarse(line: SummaryLine, cycles: int) -> Cause:
    """Return the cause of a link that only ever waited until its next dataset or file was due."""
    service = SERVICES[line.key.link.through]
    cure = f"smaller {service.items}{', or slices' if service.has_slices else ''}"
    what = f"the next of its {service.items} is larger than what is due: {cure}"
    of_cycles = f"({Hold.TOO_COARSE} in {units.grouped(cycles)} of {units.counted(line.cycles, 'cycles')})"
    return Cause(what, of_cycles, Kind.HOLD, _cycles(line, Hold.TOO_COARSE, cycles))


def _unexplained(
    line: SummaryLine, explained: int, failed: int, led: Collection[Hold], unseen: Collection[Hold]
) -> Iterator[Cause]:
    """Yield a cause for a link of which nothing explains why it is short, with what is known; else nothing.

    `explained` are bytes whose cause is named, `failed` those of them that failed for good, and `led` the holds
    that are named; those of them that are `unseen` follow from what the link does, of which nothing is known.
    """
    coming, most = line.totals.coming, (1 - SHORT) * line.due
    missing = line.due - line.moved - coming
    if missing <= most:
        yield Cause("what is due at the end is still on its way", kind=Kind.ON_ITS_WAY)
    elif explained >= MOST_OF_IT * missing:
        return
    elif line.injected - line.moved - coming - failed > most:
        lost = line.injected - line.moved - coming - failed
        what = f"inconclusive: part of what was injected did not arrive, and {UNSEEN}"
        yield Cause(what, f"({units.format_size(lost)})", Kind.INCONCLUSIVE, {"bytes": lost})
    elif not led:
        yield Cause("inconclusive: too little was injected, and no hold explains it", kind=Kind.INCONCLUSIVE)
    elif unseen:
        cycles = f"in the cycles with {' or '.join(sorted(unseen))}"
        yield Cause(f"inconclusive: {cycles} {UNSEEN} (seen every 15 minutes)", kind=Kind.INCONCLUSIVE)
