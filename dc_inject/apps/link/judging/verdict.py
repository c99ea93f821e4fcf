"""What a step of a mini-challenge has shown: reached, not reached, or inconclusive because of something else.

A step is judged by the part of it after the time to completion, since what was injected before then is still on
its way. With `asked` = rate x that time, the bytes that are missing of it are somewhere:

    asked - moved  =  short (never injected)  +  waiting (injected, more on their way than before)  +  failed

The link is to blame only for what it was given: when most of what is missing waits on its way, and nothing was
broken meanwhile, the link is saturated. What was never injected has a hold with the reason. A service, a storage
or credentials that did not work make a step inconclusive, whatever else it shows; so do datasets that are too
coarse for the difference to mean anything.

A step that was ended before its time is inconclusive too; where something was broken, that is the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from dc_inject.apps.link.judging.reading import FILES, Reading, standstill
from dc_inject.model import Hold, units
from dc_inject.model.causes import FILE_CLASSES
from dc_inject.model.held import format_numbers
from dc_inject.model.holds import Trait
from dc_inject.planning.ramp import FOLLOWS

FAILS = 0.05  # part of what comes to its end that may fail
QUOTED = 120  # characters of a service's message that a cause quotes

# Outages by how much they explain: first what the user has to repair, then the service, its ends, and no injector.
_PARTS = (Hold.CREDENTIALS, Hold.LOCAL, Hold.API_ERRORS, Hold.OVERLOAD)
_OUTAGES = sorted(
    (hold for hold in Hold if Trait.OUTAGE in hold.traits),
    key=lambda hold: (_PARTS.index(hold) if hold in _PARTS else len(_PARTS), hold is Hold.NOT_RUNNING),
)
COARSE = "coarse-datasets"
EARLY = "ended-early"
# Classes of failed files that are not the link's fault.
OUTAGES = {name: about.excuse for name, about in FILE_CLASSES.items() if about.excuse}
FULL = "destination-full"


class StepOutcome(StrEnum):
    """What a step, or all of them, has shown."""

    REACHED = "reached"
    NOT_REACHED = "not reached"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a rate was not reached, or why that is not known.

    `code` is a hold, a class of failures, or one of `saturated`, `failing`, `coarse-datasets`, `standstill`,
    `no-answer`, `ended-early`, `time`. `outage` means that a service, a storage or credentials did not work: then
    the step is worth repeating. `since` and `until` are when.
    """

    code: str
    words: str
    outage: bool = False
    since: datetime | None = None
    until: datetime | None = None

    def __str__(self) -> str:
        if self.since is None or self.until is None:
            return self.words
        return f"{self.words} ({self.since:%H:%M:%S} to {self.until:%H:%M:%SZ})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a step has shown: asked and moved (bytes) from `measured` to `end`; `failed` is a part of one.

    `waiting` are the bytes on their way at its end, `file` the mean bytes of a file (0: not known), `counted_by`
    those of what is counted as a whole, and `quickest` is the least time to completion so far, if known.
    `held` describes its hold, if any, with its numbers, and `counts` of each reading after `measured` the seconds
    since then and the bytes that had moved since.
    """

    rate: float
    start: datetime
    measured: datetime
    end: datetime
    asked: float
    injected: int
    moved: int
    failed: float
    hold: Hold | None
    outcome: StepOutcome = StepOutcome.INCONCLUSIVE
    cause: Cause | None = None
    early: bool = False  # it was ended before its time
    disturbed: Cause | None = None  # what did not work for a while, though it was reached
    waiting: int = 0
    file: int = 0
    counted_by: int = 0
    quickest: timedelta | None = None
    held: str = ""
    counts: tuple[tuple[float, float], ...] = ()

    @property
    def ratio(self) -> float:
        """The fraction of what was asked for that moved."""
        return self.moved / self.asked if self.asked else 0.0

    @property
    def moved_rate(self) -> float:
        """Bytes per second that moved."""
        seconds = (self.end - self.measured).total_seconds()
        return self.moved / seconds if seconds else 0.0

    @property
    def grain(self) -> float:
        """Bytes per second by which one dataset or file more or less changes what moved (0: not known)."""
        seconds = (self.end - self.measured).total_seconds()
        return self.counted_by / seconds if seconds else 0.0

    @property
    def tolerance(self) -> str:
        """The same in words, to stand after a rate."""
        return f" (± {units.format_rate(self.grain)})" if self.grain else ""

    @property
    def course(self) -> tuple[tuple[float, float], ...]:
        """Seconds after `measured` and the bytes that had moved by then: of each reading, or of the end alone."""
        return self.counts or (((self.end - self.measured).total_seconds(), float(self.moved)),)

    @property
    def good(self) -> bool:
        """Whether the link follows, and hardly anything fails."""
        return self.outcome is StepOutcome.REACHED

    @property
    def outage(self) -> bool:
        """Whether it is worth repeating: something did not work that may work the next time."""
        return self.outcome is StepOutcome.INCONCLUSIVE and self.cause is not None and self.cause.outage

    @property
    def why(self) -> str:
        """What is wrong, in words; empty when it was reached."""
        early = ", ended early" if self.early and self.cause and self.cause.code != EARLY else ""
        return "" if self.cause is None or self.good else f"{self.cause}{early}"


def judge(
    rate: float,
    readings: Sequence[Reading],
    *,
    early: bool = False,
    idle: bool = False,
    settle: timedelta | None = None,
    before: Sequence[Reading] = (),
) -> Verdict:
    """Judge a step of a rate (bytes per second) by its readings, and by those `before` it how its link delivers.

    `early`: it was ended before its time, with the last reading at any moment; `idle` that it was
    given up since nothing could be injected; `settle` in which time its rate shows nothing yet, where that is
    known better than from its first reading.
    """
    first, last, since = readings[0], readings[-1], _measured(readings, settle)
    failed = max(last.failed - first.failed, 0)
    over, hold = failed + max(last.moved - first.moved, 0), leading(readings)
    verdict = Verdict(
        rate=rate,
        start=first.at,
        measured=since.at,
        end=last.at,
        asked=rate * (last.at - since.at).total_seconds(),
        injected=last.injected - first.injected,
        moved=max(last.moved - since.moved, 0),
        failed=failed / over if over else 0.0,
        hold=hold,
        held=_held(readings, hold) if hold is not None and hold.words else "",
        early=early or idle,
        waiting=last.waiting,
        file=last.file,
        counted_by=last.counted_by,
        counts=tuple(
            ((reading.at - since.at).total_seconds(), float(reading.moved - since.moved))
            for reading in readings
            if reading.at > since.at
        ),
    )
    # What was on its way before is not of this step: then all of it shows that the link follows, too. A step that
    # was ended early shows all that moved in it: what was measured of it may be a second.
    before_it = 0 if early else first.waiting
    own, whole = last.moved - first.moved - before_it, rate * (last.at - first.at).total_seconds()
    if early or (verdict.ratio < FOLLOWS and own >= FOLLOWS * whole > 0):
        verdict = replace(verdict, measured=first.at, asked=whole, moved=max(own, 0), counts=())
    turns = readings if not early or idle else readings[:-1]  # the last one was not read at the turn of a cycle
    still = _standstill(turns, before, early=early)
    if verdict.early:
        outcome, cause = _spoilt(verdict, readings, still, idle=idle)
    else:
        outcome, cause = _outcome(verdict, readings, still)
    broken = next(_broken(readings, 0.0, still), None) if outcome is StepOutcome.REACHED else None
    return replace(verdict, outcome=outcome, cause=cause, disturbed=broken)


def _spoilt(
    verdict: Verdict, readings: Sequence[Reading], still: Cause | None, *, idle: bool
) -> tuple[StepOutcome, Cause | None]:
    """Return why a step that did not last as long as it should is inconclusive, whatever moved in it."""
    broken = next(_broken(readings, verdict.failed * _excused(readings), still), None)
    if broken is not None:
        return StepOutcome.INCONCLUSIVE, broken
    return _missing(verdict, readings) if idle else (StepOutcome.INCONCLUSIVE, _ended(verdict, readings))


def _ended(verdict: Verdict, readings: Sequence[Reading]) -> Cause:
    """Describe a step that was ended before its time: how long it lasted, and what moved in it."""
    lasted = verdict.end - verdict.start
    moved = units.format_size(max(readings[-1].moved - readings[0].moved, 0))
    asked = units.format_size(verdict.rate * lasted.total_seconds())
    failed = f", and {100 * verdict.failed:.0f} % of the finished bytes failed" if verdict.failed else ""
    time = units.format_duration(lasted)
    return Cause(EARLY, f"it ended early, after {time}: {moved} of {asked} had moved in all of that time{failed}")


def _outcome(
    verdict: Verdict, readings: Sequence[Reading], still: Cause | None
) -> tuple[StepOutcome, Cause | None]:
    excused = _excused(readings)
    of_link = verdict.failed * (1 - excused)
    if verdict.ratio >= FOLLOWS and of_link <= FAILS:
        return StepOutcome.REACHED, None
    broken = next(_broken(readings, verdict.failed * excused, still), None)
    if broken is not None:
        return StepOutcome.INCONCLUSIVE, broken
    if of_link > FAILS:
        classes = ", ".join(_more(readings)) or "unknown reasons"
        return StepOutcome.NOT_REACHED, Cause("failing", f"{100 * of_link:.0f} % failed: {classes}")
    return _missing(verdict, readings)


def _missing(verdict: Verdict, readings: Sequence[Reading]) -> tuple[StepOutcome, Cause | None]:
    """Return where the missing bytes are, of a step in which nothing was broken."""
    last, since = readings[-1], next(reading for reading in readings if reading.at >= verdict.measured)
    waiting = last.waiting - since.waiting
    short = verdict.asked - (last.injected - since.injected)
    dataset = max(reading.dataset for reading in readings)
    hold = verdict.hold
    of_link = hold is not None and Trait.LINK in hold.traits
    if waiting >= short or of_link:
        if last.moved <= readings[0].moved and (not last.moved or last.waiting < FILES * last.file):
            return StepOutcome.INCONCLUSIVE, _unseen(verdict, last)
        if not of_link and waiting <= dataset:
            return StepOutcome.INCONCLUSIVE, _coarse(verdict, dataset)
        moved = units.format_rate(verdict.moved_rate) + verdict.tolerance
        words = f"only {moved} moved, and {units.format_size(max(last.waiting, 0))} are still on their way"
        return StepOutcome.NOT_REACHED, Cause("saturated", words)
    if hold is not None and hold.words:
        return StepOutcome.INCONCLUSIVE, Cause(str(hold), verdict.held)
    return StepOutcome.INCONCLUSIVE, _coarse(verdict, dataset)


def _coarse(verdict: Verdict, dataset: int) -> Cause:
    size = f" of {units.format_size(dataset)}" if dataset else ""
    count = f", {verdict.asked / dataset:.1f} in the time that was measured" if dataset else ""
    return Cause(COARSE, f"the datasets or files{size} are too coarse for this rate and step{count}")


def _unseen(verdict: Verdict, last: Reading) -> Cause:
    """Return the cause of a step that was too short for a single arrival."""
    size = f" of {units.format_size(last.file)}" if last.file else ""
    lasted = units.format_duration(verdict.end - verdict.start)
    words = (
        f"none of the files{size} arrived in {lasted}: they are too large for what the link carries in this time, "
        "or storages, FTS or Rucio's daemons do not run"
    )
    return Cause(COARSE, words)


def _held(readings: Sequence[Reading], hold: Hold) -> str:
    """Describe what held it, with the numbers of the last cycle that has them."""
    numbers = next(
        (reading.held.numbers for reading in reversed(readings) if reading.held and reading.held.hold is hold), {}
    )
    detail = format_numbers(numbers)
    return f"not all of it could be injected: {hold.words}; {hold}{f' {detail}' if detail else ''}"


def leading(readings: Sequence[Reading]) -> Hold | None:
    """Return why less was injected than was to be: the hold of most cycles, and of equals the last.

    `too-coarse` means only that a dataset was waited for: any other hold leads.
    """
    holds = [reading.held.hold for reading in readings[1:] if reading.held]
    candidates: list[Hold] = [hold for hold in holds if hold != Hold.TOO_COARSE] or holds
    return max(reversed(candidates), key=candidates.count, default=None)


def _measured(readings: Sequence[Reading], settle: timedelta | None) -> Reading:
    """Return the reading from which on a step is judged."""
    first, last = readings[0], readings[-1]
    middle = first.at + (last.at - first.at) / 2
    settled = min(first.at + first.completion, middle) if first.completion else middle
    if settle is not None:
        settled = first.at + settle
    return next(
        (reading for reading in readings[:-1] if reading.at >= settled), readings[max(len(readings) - 2, 0)]
    )


# --------------------------------------------------------------------------- what did not work


def _broken(readings: Sequence[Reading], excused: float, still: Cause | None) -> Iterator[Cause]:
    """Yield what did not work in a step, what explains most first.

    `excused` is the part that failed because of it, `still` its standstill, if there was one.
    """
    pairs = list(pairwise(readings))
    for hold in _OUTAGES:
        spoilt = [(a, b) for a, b in pairs if b.held is not None and b.held.hold is hold]
        if spoilt:
            message = next((str(b.held.numbers["message"]) for _, b in spoilt if b.held and _message(b)), "")
            service = spoilt[0][1].service or "the service"
            words = hold.words.format(service=service) + (f": {shorten_message(message)}" if message else "")
            yield Cause(str(hold), words, outage=True, since=spoilt[0][0].at, until=spoilt[-1][1].at)
    for name in dict.fromkeys(b.down for _, b in pairs if b.down):
        spoilt = [(a, b) for a, b in pairs if b.down == name]
        yield Cause(
            "storage-down",
            f"{name} did not accept connections",
            outage=True,
            since=spoilt[0][0].at,
            until=spoilt[-1][1].at,
        )
    silent = [(a, b) for a, b in pairs if b.silent]
    if silent:
        words = f"{silent[0][1].service or 'the service'} did not report what is on its way"
        yield Cause("no-answer", words, outage=True, since=silent[0][0].at, until=silent[-1][1].at)
    if excused > FAILS:
        name = next(name for name in _more(readings) if name in OUTAGES)
        spoilt = [(a, b) for a, b in pairs if b.classes.get(name, 0) > a.classes.get(name, 0)]
        words = f"{100 * excused:.0f} % failed, since {OUTAGES[name]} ({name})"
        yield Cause(name, words, outage=name != FULL, since=spoilt[0][0].at, until=spoilt[-1][1].at)
    if still is not None:
        yield still


def shorten_message(message: str) -> str:
    """Return a message that fits into a sentence; one that is cut ends with a whole word and `...`."""
    if len(message) <= QUOTED:
        return message
    cut = message[: QUOTED - 4]
    return f"{cut[: cut.rfind(' ') if ' ' in cut else None].rstrip(' ,;:([{<')} ..."


def _message(reading: Reading) -> bool:
    return reading.held is not None and "message" in reading.held.numbers


def _standstill(readings: Sequence[Reading], before: Sequence[Reading], *, early: bool) -> Cause | None:
    found = standstill(readings, before, early=early)
    if found is None:
        return None
    since, until = found
    words = (
        f"no file arrived in {units.format_duration(until.at - since.at)}, with "
        f"{units.format_size(until.waiting)} on their way: are storages, FTS and Rucio's daemons running?"
    )
    return Cause("standstill", words, outage=True, since=since.at, until=until.at)


def _excused(readings: Sequence[Reading]) -> float:
    """Return the part of the files that failed in a step for reasons that are not the link's."""
    more = _more(readings)
    total = sum(more.values())
    return sum(count for name, count in more.items() if name in OUTAGES) / total if total else 0.0


def _more(readings: Sequence[Reading]) -> dict[str, int]:
    """Return the files that failed in a step by class, the most first."""
    first, last = readings[0].classes, readings[-1].classes
    more = {name: count - first.get(name, 0) for name, count in last.items()}
    return dict(sorted(((n, c) for n, c in more.items() if c > 0), key=lambda pair: -pair[1]))
