"""Series over time for reports: rows of cycles added up into steps, by SQLite, so that nothing large is held.

A campaign of 12 days and 1,200 links has more than a million rows. They are added up here into steps (such as
hours) for each flow key, and read one by one.

What became known since the last close is in no row yet (`ledger/cycles.py`). It counts in the oldest open cycle,
whose close will write it down, or else in the last cycle. So the sums of all steps are the accounts, to the byte,
at any moment.

Three kinds of cycles are kept apart: those that count in averages, those in windows that a user excludes, and
those that are not over yet, which are due more than they can have got.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import IntEnum
from operator import add
from typing import NamedTuple

from dc_inject.ledger.cycles import NEWS, REPORTED, CycleReader
from dc_inject.ledger.database import duration, flow_key, held, moment, moment_or_none, read_object, stored
from dc_inject.ledger.entry_rows import PLAINLY, entry_of
from dc_inject.model import EPOCH, Cycle, FlowKey, Held, Hold, Numbers, losses
from dc_inject.model.control import Mode

NO_TIME = timedelta(0)


class Window(NamedTuple):
    """A time (from the first moment, before the second) of all flow keys, or of some."""

    since: datetime
    until: datetime
    keys: frozenset[FlowKey] | None = None

    def touches(self, cycle: Cycle) -> bool:
        """Whether a cycle has a part in it."""
        return cycle.start < self.until and cycle.end > self.since


class CycleKind(IntEnum):
    """Whether a cycle counts in averages, and why not."""

    COUNTED = 0
    EXCLUDED = 1  # it has a part in an excluded window
    OPEN = 2  # it is not closed


class Period(NamedTuple):
    """Which cycles to read: those that start from `since` on and before `until`; windows are excluded."""

    since: datetime
    until: datetime
    excluded: tuple[Window, ...] = ()


ALWAYS = Period(EPOCH, datetime.max.replace(tzinfo=EPOCH.tzinfo))


class Sums(NamedTuple):
    """Sums in bytes but for `rules`; `estimated` is the change of the part of `moved` that is one.

    The first six are of rows. The others are of injections that are over, as `Lost` has them.
    """

    due: int = 0
    injected: int = 0
    moved: int = 0
    estimated: int = 0
    forgiven: int = 0
    rules: int = 0
    not_moved_failed: int = 0
    expired: int = 0
    cancelled: int = 0
    ended_otherwise: int = 0
    not_moved_estimated: int = 0
    failed: int = 0

    def plus(self, other: Sums) -> Sums:
        """Return the sums of both."""
        return Sums(*map(add, self, other))

    @property
    def not_moved(self) -> int:
        """What was injected, and had not moved when its rule or job ended."""
        return self.not_moved_failed + self.expired + self.cancelled + self.ended_otherwise


class Span(NamedTuple):
    """What a flow key got in the cycles of one kind that start within a step; `start` is that of the step."""

    start: datetime
    kind: CycleKind
    key: FlowKey
    sums: Sums


class Accepted(NamedTuple):
    """A rule or job that a service accepted, as it is known now; `bytes` are without those that were there."""

    key: FlowKey
    activity: str
    service_priority: int
    bytes: int
    files: int
    accepted_at: datetime
    expires_at: datetime
    completed_at: datetime | None
    ended_at: datetime | None
    gone_at: datetime | None
    files_done: int
    files_stuck: int


class HoldSpan(NamedTuple):
    """In how many cycles a hold led, and the bytes that were due and not injected in them."""

    start: datetime
    hold: Hold
    cycles: int
    missing: int


class HeldFlow(NamedTuple):
    """How often a hold led for a flow key, what was missing then (bytes), and its last reason."""

    key: FlowKey
    held: Held
    cycles: int
    missing: int


class ControlMode(NamedTuple):
    """How many links control held in a mode (or left alone), in how many rows (a link in a cycle), and when."""

    mode: Mode
    links: int
    cycles: int
    since: datetime
    until: datetime


_LAST = "(SELECT coalesce(min(iif(closed_at IS NULL, start, NULL)), max(start)) FROM cycle)"
_LOST = (
    "injection.failed > 0 OR (state IN ('complete', 'ended', 'gone') "
    "AND injection.moved + present + injection.failed < bytes)"
)
_ROWS = (
    "SELECT cycle AS at, account, due, forgiven, injected, moved, estimated, rules FROM cycle_row UNION ALL "  # noqa: S608  our own words
    f"SELECT {_LAST}, id, 0, 0, {NEWS} FROM account "
    f"WHERE {' OR '.join(f'{name} <> reported_{name}' for name in REPORTED)}"
)


_OF_ROWS = Sums._fields[: Sums._fields.index("rules") + 1]


class SeriesReader(CycleReader):
    """What can be read of the past, added up."""

    def cycles(self, period: Period) -> list[tuple[Cycle, CycleKind]]:
        """Return the cycles of a period, oldest first, and whether they count."""
        kind, values = _kind(period, {})
        rows = self._db.rows(
            f"SELECT start, length, {kind} AS kind FROM cycle WHERE start >= ? AND start < ? ORDER BY start",  # noqa: S608  our own words
            *values,
            stored(period.since),
            stored(period.until),
        )
        return [(Cycle(moment(row["start"]), duration(row["length"])), CycleKind(row["kind"])) for row in rows]

    def _keys(self) -> dict[int, FlowKey]:
        """Return the flow keys of accounts, by their numbers."""
        return {row["id"]: flow_key(row) for row in self._db.rows("SELECT * FROM account")}

    def first_cycle(self) -> Cycle | None:
        """Return the oldest cycle."""
        row = self._db.row("SELECT start, length FROM cycle ORDER BY start LIMIT 1")
        return None if row is None else Cycle(moment(row["start"]), duration(row["length"]))

    def spans(self, period: Period, step: timedelta, phase: timedelta = NO_TIME) -> Iterator[Span]:
        """Yield what each flow key got in each step of a period, in the order of time.

        Steps count from 1970, or from `phase` (less than a step) later.
        """
        keys = self._keys()
        kind, values = _kind(period, keys)
        starts: dict[int, datetime] = {}
        sums = ", ".join(f"sum({name})" for name in _OF_ROWS)
        rows = self._db.stream(
            f"SELECT (at - ?) / ? AS step, {kind} AS kind, account, {sums} FROM ({_ROWS}) "  # noqa: S608  our own words
            "JOIN cycle ON start = at WHERE start >= ? AND start < ? GROUP BY step, kind, account",
            stored(EPOCH + phase),
            stored(step),
            *values,
            stored(period.since),
            stored(period.until),
        )
        for number, apart, account, *added in rows:
            if number not in starts:
                starts[number] = moment(number * stored(step)) + phase
            yield Span(starts[number], CycleKind(apart), keys[account], Sums(*added))

    def lost(self, period: Period, step: timedelta, phase: timedelta = NO_TIME) -> Iterator[Span]:
        """Yield what each flow key lost in each step of a period, in the order of time (`model/losses.py`).

        It counts in the cycle in which its rule or job ended or, if none was open then, in the one before.
        """
        first, last = self.first_cycle(), self.last_cycle()
        if first is None or last is None:
            return
        cycles = self.cycles(Period(first.start, last.end, period.excluded))
        starts = [cycle.start for cycle, _ in cycles]
        sums: dict[tuple[datetime, CycleKind, FlowKey], Sums] = defaultdict(Sums)
        for row in self._db.stream(f"{PLAINLY} WHERE {_LOST}"):
            entry = entry_of(row)
            over_at = entry.completed_at or entry.ended_at or entry.observed_at or entry.injection.cycle.start
            cycle, kind = cycles[max(bisect_right(starts, over_at) - 1, 0)]
            if period.since <= cycle.start < period.until:
                apart = (w for w in period.excluded if w.keys and entry.injection.flow in w.keys)
                if any(window.touches(cycle) for window in apart):
                    kind = CycleKind.EXCLUDED
                start = cycle.start - (cycle.start - EPOCH - phase) % step
                lost, key = Sums(**losses.sum_losses(entry)._asdict()), entry.injection.flow
                sums[start, kind, key] = sums[start, kind, key].plus(lost)
        for (start, kind, key), total in sorted(sums.items()):
            yield Span(start, kind, key, total)

    def by_scenario(self, period: Period) -> Iterator[tuple[Cycle, str, int, int]]:
        """Yield what each scenario was due, and what of it moved, in each cycle that counts, oldest first."""
        kind, values = _kind(period, self._keys())
        rows = self._db.stream(
            f"SELECT start, length, scenario, sum(r.due), sum(r.moved), {kind} AS kind FROM cycle "  # noqa: S608  our own words
            f"JOIN ({_ROWS}) AS r ON start = at JOIN account AS a ON a.id = account "
            f"WHERE start >= ? AND start < ? AND kind = {CycleKind.COUNTED:d} "
            "GROUP BY start, scenario ORDER BY start",
            *values,
            stored(period.since),
            stored(period.until),
        )
        for start, length, scenario, due, moved, _ in rows:
            yield Cycle(moment(start), duration(length)), scenario, due, moved

    def accepted(self) -> Iterator[Accepted]:
        """Yield every rule and job that was ever accepted, in the order in which they were."""
        keys = self._keys()
        for account, activity, priority, size, files, at, until, *ends, done, stuck in self._db.stream(
            "SELECT account, activity, service_priority, bytes - present, files, accepted_at, expires_at, "
            "completed_at, ended_at, gone_at, files_done, files_stuck FROM injection "
            "WHERE accepted_at IS NOT NULL ORDER BY accepted_at, key"
        ):
            times = (moment(at), moment(until), *map(moment_or_none, ends))
            yield Accepted._make((keys[account], activity, priority, size, files, *times, done, stuck))

    def held_in(self, hold: Hold) -> Iterator[tuple[FlowKey, datetime, int]]:
        """Yield each flow key that a hold led, with the beginning of the cycle, and the bytes missing in it."""
        keys = self._keys()
        for account, start, missing in self._db.stream(
            "SELECT account, cycle, max(due - injected, 0) FROM cycle_row WHERE hold = ?", hold.value
        ):
            yield keys[account], moment(start), missing

    def sums_of_cycles(self, since: datetime = EPOCH, *, closed: bool = False) -> list[tuple[datetime, int, int]]:
        """Return when each cycle (that is `closed`) from then on began, and what all were due and moved in it.

        What became known since the last close is not in it.
        """
        rows = self._db.rows(
            "SELECT cycle, sum(due), sum(moved) FROM cycle_row WHERE cycle >= ? AND "
            "(NOT ? OR cycle NOT IN (SELECT start FROM cycle WHERE closed_at IS NULL)) GROUP BY cycle",
            stored(since),
            closed,
        )
        return [(moment(start), due, moved) for start, due, moved in rows]

    def releases(self, before: datetime) -> Iterator[tuple[FlowKey, datetime, int]]:
        """Yield flow key, moment and bytes of each injection that was released before a moment and accepted."""
        keys = self._keys()
        for account, release, size in self._db.stream(
            "SELECT account, release, bytes FROM injection WHERE accepted_at IS NOT NULL AND release < ?",
            stored(before),
        ):
            yield keys[account], moment(release), size

    def holds_over_time(self, period: Period, step: timedelta, phase: timedelta = NO_TIME) -> list[HoldSpan]:
        """Return which holds led in the rows of each step (as in `spans`) of a period, in the order of time."""
        rows = self._db.rows(
            "SELECT (cycle - ?) / ? AS step, hold, count(*) AS cycles, sum(max(due - injected, 0)) AS missing "
            "FROM cycle_row WHERE hold IS NOT NULL AND cycle >= ? AND cycle < ? GROUP BY step, hold",
            stored(EPOCH + phase),
            stored(step),
            stored(period.since),
            stored(period.until),
        )
        return [
            HoldSpan(moment(row["step"] * stored(step)) + phase, Hold(row["hold"]), row["cycles"], row["missing"])
            for row in rows
        ]

    def holds_of_links(self, period: Period) -> Mapping[FlowKey, Mapping[Hold, int]]:
        """Return in how many cycles of a period each hold led, for each flow key, the most frequent first."""
        rows = self._db.rows(
            "SELECT scenario, source, destination, through, hold, count(*) AS cycles FROM cycle_row "
            "JOIN account ON id = account WHERE hold IS NOT NULL AND cycle >= ? AND cycle < ? "
            "GROUP BY account, hold ORDER BY cycles DESC, hold",
            stored(period.since),
            stored(period.until),
        )
        counts: dict[FlowKey, dict[Hold, int]] = defaultdict(dict)
        for row in rows:
            counts[flow_key(row)][Hold(row["hold"])] = row["cycles"]
        return counts

    def held_flows(self, period: Period = ALWAYS) -> list[HeldFlow]:
        """Return how often each hold led for each flow key in a period, and why it did last, by flow key and hold.

        The limits of a campaign, which are one hold, are separate.
        """
        # SQLite takes columns that are not added up, such as `numbers`, from the row with the maximum.
        rows = self._db.rows(
            "SELECT scenario, source, destination, through, hold, numbers, max(cycle), count(*) AS cycles, "
            "sum(max(r.due - r.injected, 0)) AS missing "
            "FROM cycle_row AS r JOIN account ON id = account "
            "WHERE hold IS NOT NULL AND cycle >= ? AND cycle < ? GROUP BY account, hold, CASE WHEN hold = ? THEN "
            "(numbers LIKE '%\"rules_per_hour\"%') + 2 * (numbers LIKE '%\"files_in_flight\"%') END",
            stored(period.since),
            stored(period.until),
            Hold.CAMPAIGN_LIMIT.value,
        )
        lines = (
            HeldFlow(flow_key(row), why, row["cycles"], row["missing"])
            for row in rows
            if (why := held(row["hold"], row["numbers"])) is not None
        )
        return sorted(lines, key=lambda line: (line.key, line.held.hold))

    def control_modes(self, period: Period) -> list[ControlMode]:
        """Return in which modes links were controlled, in the planned cycles of a period that they were due any.

        Nothing is planned while nothing is injected any more.
        """
        rows = self._db.rows(
            "SELECT coalesce(d.mode, ?) AS how, count(DISTINCT r.account) AS links, count(*) AS cycles, "
            "min(r.cycle) AS since, max(r.cycle + length) AS until FROM cycle_row AS r "
            "JOIN cycle ON start = r.cycle LEFT JOIN decision AS d ON d.cycle = r.cycle AND d.account = r.account "
            "WHERE planned_at IS NOT NULL AND r.due > 0 AND r.cycle >= ? AND r.cycle < ? "
            "GROUP BY how ORDER BY since, how",
            Mode.OFF.value,
            stored(period.since),
            stored(period.until),
        )
        return [
            ControlMode(Mode(row["how"]), row["links"], row["cycles"], moment(row["since"]), moment(row["until"]))
            for row in rows
        ]

    def advice(self) -> Iterator[Advised]:
        """Yield what control advised of each link in each cycle, one cycle after the other."""
        keys = self._keys()
        for cycle, account, hold, numbers, injected in self._db.stream(
            "SELECT d.cycle, d.account, d.hold, d.numbers, r.injected FROM decision AS d "
            "JOIN cycle_row AS r ON r.cycle = d.cycle AND r.account = d.account WHERE mode = ? ORDER BY d.cycle",
            Mode.ADVISE.value,
        ):
            advised = None if hold is None else Hold(hold)
            yield Advised(moment(cycle), keys[account], advised, read_object(numbers), injected)


class Advised(NamedTuple):
    """What control advised of a link in the cycle that began then: its hold, None for none; bytes `injected`."""

    at: datetime
    key: FlowKey
    hold: Hold | None
    numbers: Numbers
    injected: int


def _kind(period: Period, accounts: Mapping[int, FlowKey]) -> tuple[str, list[int]]:
    """Return the expression for the kind of a row, or without accounts of a cycle, and its values."""
    conditions, values = ["0"], []
    for window in period.excluded:
        ids = ", ".join(str(number) for number, key in accounts.items() if window.keys and key in window.keys)
        if window.keys is None or ids:
            of = "" if window.keys is None else f" AND account IN ({ids})"
            conditions.append(f"(start < ? AND start + length > ?{of})")
            values += [stored(window.until), stored(window.since)]
    inside = " OR ".join(conditions)
    excluded, opened = int(CycleKind.EXCLUDED), int(CycleKind.OPEN)
    return f"CASE WHEN {inside} THEN {excluded} WHEN closed_at IS NULL THEN {opened} ELSE 0 END", values
