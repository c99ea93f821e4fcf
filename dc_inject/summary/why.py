"""Why links get less than they are due: the one place that status, watch, reports, forecasts and verdicts ask.

In one cycle the hold of its row is the reason, with the numbers behind it. Before the row is closed, what the
services do counts as well (`explain_hold`). Over a campaign, links that were held for one reason share a line,
with the reason as it was in the last cycle of each; where that has figures, it names that cycle. So a
disk that is too small is one line, however many links lead to it. Holds that need no action are left out. Of
several seeds a link has the holds that half of them or more have, with medians, and the sentence of most seeds.

A link is short if it moves less than 95 % of its due. A hold is what dc_inject did; what files waited for, failed
of or found no room for comes from `Evidence`, which a simulated grid has. Where files fail at once, none waits:
what failed explains a hold that follows from what the link does. Where nothing but `too-coarse` held a link, it
waited for its next dataset to be due. Where none of that explains most of what is missing, the link is
inconclusive. Causes of one kind are in the order of the cycles that they have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple, Protocol

from dc_inject.engine.context import BLAMED
from dc_inject.ledger import Reader, Row, Signal, SummaryLine
from dc_inject.ledger.series import HeldFlow
from dc_inject.model import FlowKey, Held, Hold, State, units
from dc_inject.model.holds import Trait, read_hold, sentence
from dc_inject.model.services import SERVICES

MOST_NAMED = 2  # links that are named for each reason
SHORT = 0.95  # of its due: what moves less is short
MOST_CAUSES = 2  # holds that are named, and as many things that kept back bytes
SELDOM = 0.05  # of the cycles, of what was missing in them, or of the files that waited: what is no cause
MOST_OF_IT = 0.5  # of what is missing: what explains less leaves it unexplained
FILLED = 0.9  # of a disk: one that never was fuller is held for bytes on their way
OF_LINK = frozenset(hold for hold in Hold if Trait.LINK in hold.traits)
OF_SPACE = frozenset({Hold.DESTINATION_FULL, Hold.DELETION_LAG})
UNSEEN = "no file was seen to wait for anything"


# --------------------------------------------------------------------------- in one cycle


def of_cycle(held: Held | None) -> dict[str, Any]:
    """Return why a link got less in a cycle, as its row has it: hold, whether that needs no action, numbers."""
    return {
        "held": held.hold.value if held else None,
        "harmless": held.hold.harmless if held else None,
        "numbers": dict(held.numbers) if held else {},
    }


def holding_rows(
    rows: Iterable[Mapping[str, Any]], before: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows that hold links now: those of the cycle `before`, then those of this one, which count more.

    A hold that only explains why older debt is forgiven is left out: nothing holds its link in this cycle.
    """
    yield from before
    yield from (row for row in rows if row["held"] and not _of_older_debt(row))


def _of_older_debt(row: Mapping[str, Any]) -> bool:
    return row["held"] == Hold.NOT_RUNNING and "forgiven" in row["numbers"]


def explain_hold(key: FlowKey, ledger: Reader, since: datetime | None) -> Held | None:
    """Return why a link got less in the last cycle, as far as that is known before its row is closed.

    The cycles after a stop are `not-running`, too, where they forgive debt of the time before it: that shows
    nothing of a step that began afterwards, at `since`.
    """
    cycle = ledger.last_cycle()
    if cycle is None:
        return None
    every, service = ledger.signals(), key.link.through
    row = next((row for row in ledger.rows(cycle=cycle) if row.key == key), None)
    if row is not None and _no_injector(row) and since is not None and not _was_absent(key, ledger, since):
        row = row._replace(held=None)
    if row is not None and row.held is not None and Trait.OUTRANKS in row.held.hold.traits:
        return row.held
    if row is None or row.due == 0:
        return row.held if row else None
    if (outage := explain_outage(service, every, planned=ledger.is_planned(cycle))) is not None:
        return outage
    unanswered = [e for e in ledger.entries(State.INTENDED, State.CALLED, cycle=cycle) if e.error]
    if 2 * sum(entry.injection.item.bytes for entry in unanswered) > row.due - row.injected > 0:
        return read_hold(unanswered[-1].error)
    return row.held


def explain_outage(service: str, signals: Iterable[Signal], *, planned: bool = True) -> Held | None:
    """Return why nothing goes through a service: it does not work, or no cycle can be planned; None if neither."""
    by_name = {(signal.name, signal.subject): signal for signal in signals}
    blamed = by_name.get((BLAMED, service))
    for name in (("service", service), *([] if planned else [("plan", "cycle")])):
        if name in by_name and by_name[name].value is None:
            return Held(Hold(str(blamed.value) if blamed else Hold.API_ERRORS), {"message": by_name[name].why})
    return None


def _was_absent(key: FlowKey, ledger: Reader, since: datetime) -> bool:
    """Whether a whole cycle has passed since a moment in which no injector ran: it was not planned."""
    blamed = (row.cycle for row in ledger.rows(since=since) if row.key == key and _no_injector(row))
    return not all(ledger.is_planned(cycle) for cycle in blamed)


def _no_injector(row: Row) -> bool:
    return row.held is not None and row.held.hold is Hold.NOT_RUNNING


# --------------------------------------------------------------------------- over a campaign


def count(holds: Iterable[tuple[Hold, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return in how many cycles each hold led, the most frequent first, and apart those that are harmless."""
    held, harmless = Counter[str](), Counter[str]()
    for hold, cycles in holds:
        (harmless if hold.harmless else held)[hold.value] += cycles
    return dict(held.most_common()), dict(harmless.most_common())


def leading(holds: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the first hold in whose cycles bytes were missing and that needs an action; None if there is none."""
    return next((hold["hold"] for hold in holds if hold["missing"] and not hold["harmless"]), None)


class HeldLink(NamedTuple):
    """For how many cycles a hold held a link, why it did last, and how many bytes were missing in these cycles.

    `limit` is which of a campaign's limits it is, where it is one.
    """

    key: FlowKey
    hold: Hold
    why: str
    cycles: int
    missing: int
    limit: str = ""

    @property
    def name(self) -> str:
        """The hold, with the limit that it is: `campaign-limit (total)`."""
        return f"{self.hold.value} ({self.limit})" if self.limit else self.hold.value


def held_links(ledger: Reader) -> list[HeldLink]:
    """Return the links that were held, and why, but for holds that need no action."""
    return [
        HeldLink(line.key, line.held.hold, _why(line), line.cycles, line.missing, _limit(line.held))
        for line in ledger.held_flows()
        if not line.held.hold.harmless
    ]


def _why(line: HeldFlow) -> str:
    """Return the reason; a message is that of one cycle, with figures that others of its cycles need not have."""
    words = sentence(line.held)
    return f"in the last such cycle: {words}" if line.held.numbers.get("message") else words


def _limit(held: Held) -> str:
    return str(held.numbers.get("limit", "")) if held.hold is Hold.CAMPAIGN_LIMIT else ""


def merge_seed_causes(runs: Sequence[Sequence[HeldLink]]) -> list[HeldLink]:
    """Return what at least half of the seeds have in common: medians, and the sentence that most of them have."""
    seeds: dict[tuple[FlowKey, Hold, str], list[HeldLink]] = defaultdict(list)
    for run in runs:
        for link in run:
            seeds[link.key, link.hold, link.limit].append(link)
    common = []
    for (key, hold, limit), links in seeds.items():
        if 2 * len(links) >= len(runs):
            none = [0] * (len(runs) - len(links))
            ((why, _),) = Counter(link.why for link in links).most_common(1)
            amounts = zip(*((link.cycles, link.missing) for link in links), strict=True)
            cycles, missing = (median([*of, *none]) for of in amounts)
            common.append(HeldLink(key, hold, why, round(cycles), round(missing), limit))
    return common


def reasons(held: Sequence[HeldLink]) -> list[dict[str, Any]]:
    """Return the reasons for which links were held, those first in whose cycles most bytes were missing."""
    groups: dict[tuple[Hold, str], list[HeldLink]] = defaultdict(list)
    for link in held:
        groups[link.hold, link.why].append(link)
    rows = [
        {
            "hold": hold.value,
            "why": why,
            "links": len(links),
            "cycles": sum(link.cycles for link in links),
            "missing": sum(link.missing for link in links),
            "most_held": [str(link.key) for link in sorted(links, key=lambda link: -link.missing)[:MOST_NAMED]],
        }
        for (hold, why), links in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row["missing"], row["hold"], row["why"]))


# --------------------------------------------------------------------------- links that are short


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


class Evidence(Protocol):
    """What is known of links besides their holds: of a simulation, its grid has it."""

    def storage(self, line: SummaryLine) -> str:
        """Return the storage at which a link ends."""
        ...

    def failed(self, line: SummaryLine) -> Mapping[str, int]:
        """Return the bytes of a link's files that failed in all attempts, by reason."""
        ...

    def filled(self, storage: str) -> float:
        """Return which part of a storage's space was used at most, at any time; 0 without space."""
        ...

    def nearly_full(self, storage: str) -> timedelta:
        """Return for how long a storage was above 98 %."""
        ...

    def due_in(self, line: SummaryLine, time: timedelta) -> int:
        """Return the bytes that a link is due in so much time, in the mean."""
        ...

    def waited(self, line: SummaryLine, led: Collection[Hold], *, expired: bool) -> list[Cause]:
        """Return what files of a link waited for, which explains the holds that led, or that files expired."""
        ...


def find_short_links(lines: Iterable[SummaryLine]) -> list[SummaryLine]:
    """Return the links that move less than 95 % of their due, those first that lack most."""
    return sorted(
        (line for line in lines if line.moved < SHORT * line.due),
        key=lambda line: (line.moved - line.due, line.key),
    )


def explain(lines: Iterable[SummaryLine], held: Iterable[HeldLink], evidence: Evidence) -> list[ShortLink]:
    """Return why each of these links is short, by what held links and by the evidence."""
    holds: dict[FlowKey, list[HeldLink]] = defaultdict(list)
    for link in held:
        holds[link.key].append(link)
    return [
        ShortLink(line.key, line.due, line.moved, tuple(_causes(line, holds[line.key], evidence)))
        for line in lines
    ]


def _causes(line: SummaryLine, held: Iterable[HeldLink], evidence: Evidence) -> Iterator[Cause]:
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
        why = ": bytes on their way count too" if Hold.DESTINATION_FULL in led else ""  # others pace by deletions
        figures = {"storage": storage, "filled": filled}
        yield Cause(f"{storage} filled to {units.percent(filled)} at most{why}", kind=Kind.DISK, figures=figures)
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
