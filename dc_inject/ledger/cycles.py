"""Cycles and their rows: opened with dues, planned, and closed for good."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dc_inject.ledger.database import (
    Database,
    Kept,
    cycle_of,
    duration,
    flow_key,
    flow_of,
    held,
    hold_columns,
    moment,
    read_object,
    stored,
    stored_or_never,
)
from dc_inject.ledger.injections import InjectionReader, Injections
from dc_inject.ledger.types import ControlDecision, Row
from dc_inject.model import Cycle, FlowKey, Held, Hold, Mode, transitions
from dc_inject.model.goals import Goal
from dc_inject.model.groups import grouped
from dc_inject.model.held import choose_control_hold, is_of_earlier_cycles
from dc_inject.model.plan import FlowDecision, Plan

REPORTED = ("injected", "moved", "estimated", "rules")  # what closed rows have reported of each account
NEWS = ", ".join(f"{name} - reported_{name}" for name in REPORTED)
SILENT, SILENT_FOR = 2, timedelta(minutes=30)  # closed cycles without any arrival, and their time: it is news
_HARMLESS = ", ".join(f"'{hold.value}'" for hold in Hold if hold.harmless)
# `Row.expected`, of a row `r` and its account `a`.
_EXPECTED = f"iif(r.hold IN ({_HARMLESS}) AND NOT a.coming, min(r.due, max(r.injected, 0)), r.due)"
KEPT_CLOSED = 8  # cycles: plans and control look back at four
# A row of a cycle that is not closed shows what it would be closed with; news goes to the oldest such cycle.
_TAKES_NEWS = "closed_at IS NULL AND cycle = (SELECT min(start) FROM cycle WHERE closed_at IS NULL)"
_ROWS = (
    "SELECT cycle, length, closed_at IS NOT NULL AS closed, "  # noqa: S608  our own words
    "scenario, source, destination, through, r.due, coalesce(want, 0), coalesce(cap, 0), coalesce(budget, 0), "
    "r.forgiven, "
    + ", ".join(f"iif({_TAKES_NEWS}, a.{name} - reported_{name}, r.{name}) AS {name}" for name in REPORTED)
    + ", hold, numbers, lifetime, pool_items, pool_bytes"
    + " FROM cycle_row AS r JOIN cycle ON cycle.start = cycle JOIN account AS a ON a.id = account"
)


class CycleReader(InjectionReader):
    """What can be read of cycles."""

    def last_cycle(self) -> Cycle | None:
        """Return the newest cycle that was opened."""
        return self._last("opened_at")

    def last_closed(self) -> Cycle | None:
        """Return the newest cycle that is closed."""
        return self._last("closed_at")

    def last_planned(self) -> Cycle | None:
        """Return the newest cycle whose plan is on disk."""
        return self._last("planned_at")

    def last_due(self) -> Cycle | None:
        """Return the newest cycle that was planned, or in which anything was due."""
        row = self._db.row(
            "SELECT start, length FROM cycle WHERE planned_at IS NOT NULL "
            "OR EXISTS (SELECT 1 FROM cycle_row WHERE cycle = start AND due > 0) ORDER BY start DESC LIMIT 1"
        )
        return None if row is None else cycle_of(*row)

    def _last(self, time: str) -> Cycle | None:
        """Return the newest cycle that has a time of this name."""
        row = self._db.row(f"SELECT start, length FROM cycle WHERE {time} IS NOT NULL ORDER BY start DESC LIMIT 1")  # noqa: S608  our own words
        return None if row is None else cycle_of(*row)

    def silent_since(self) -> datetime | None:
        """Return since when nothing has arrived on any link; None unless that lasts for two cycles and 30 minutes.

        Only closed cycles count in which something should have arrived and an injector ran, and what has arrived
        since the last of them was closed.
        """
        if self._db.row("SELECT 1 FROM account WHERE moved > reported_moved LIMIT 1") is not None:
            return None
        silent: list[Cycle] = []
        for start, length, expected, moved, ran in self._db.stream(
            f"SELECT cycle, length, sum({_EXPECTED}), sum(max(r.moved, 0)), "  # noqa: S608  our own words
            "sum(hold IS NOT ?) FROM cycle_row AS r JOIN cycle ON start = cycle "
            "JOIN account AS a ON a.id = account WHERE closed_at IS NOT NULL GROUP BY cycle ORDER BY cycle DESC",
            Hold.NOT_RUNNING.value,
        ):
            if moved or not expected or not ran:
                break
            silent.append(cycle_of(start, length))
        is_news = len(silent) >= SILENT and silent[0].end - silent[-1].start >= SILENT_FOR
        return silent[-1].start if is_news else None

    def last_arrivals(self, since: datetime) -> Mapping[FlowKey, datetime]:
        """Return of each flow key since when nothing arrives: when it was first due after its last arrival.

        Cycles from `since` on are looked at; where nothing arrived in them, it can be longer ago than this.
        """
        rows = self._db.rows(
            "SELECT a.*, min(r.cycle) AS at FROM cycle_row AS r "  # noqa: S608  our own words
            "JOIN account AS a ON a.id = r.account LEFT JOIN (SELECT account, max(cycle) AS cycle FROM cycle_row "
            "WHERE moved > 0 AND cycle >= ?1 GROUP BY account) AS last ON last.account = a.id "
            f"WHERE r.cycle >= ?1 AND {_EXPECTED} > 0 "
            "AND r.cycle > coalesce(last.cycle, 0) GROUP BY a.id",
            stored(since),
        )
        return {flow_key(row): moment(row["at"]) for row in rows}

    def is_planned(self, cycle: Cycle) -> bool:
        """Whether the plan of a cycle is on disk."""
        return bool(self._db.row("SELECT count(planned_at) FROM cycle WHERE start = ?", stored(cycle.start))[0])

    def unclosed(self) -> tuple[Cycle, ...]:
        """Return the cycles that are open, oldest first."""
        rows = self._db.rows("SELECT start, length FROM cycle WHERE closed_at IS NULL ORDER BY start")
        return tuple(cycle_of(*row) for row in rows)

    def rows(
        self, since: datetime | None = None, cycle: Cycle | None = None, before: datetime | None = None
    ) -> tuple[Row, ...]:
        """Return rows by cycle, scenario and link: of one cycle, or of those since a start and before another."""
        conditions, values = ["1"], []
        for condition, value in (
            ("cycle >= ?", since),
            ("cycle = ?", None if cycle is None else cycle.start),
            ("cycle < ?", before),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(stored(value))
        rows = self._db.rows(f"{_ROWS} WHERE {' AND '.join(conditions)}", *values)
        return tuple(sorted(map(_row, rows), key=lambda row: (row.cycle.start, row.key)))

    def decisions(self, since: datetime | None = None) -> tuple[ControlDecision, ...]:
        """Return what control decided or advised in the cycles from a start on, by cycle, scenario and link."""
        rows = self._db.rows(
            "SELECT d.*, start, length, scenario, source, destination, through, "
            "r.hold AS row_hold, r.numbers AS row_numbers "
            "FROM decision AS d JOIN cycle ON start = d.cycle JOIN account AS a ON a.id = d.account "
            "LEFT JOIN cycle_row AS r ON r.cycle = d.cycle AND r.account = d.account WHERE d.cycle >= ?",
            stored(since) if since is not None else 0,
        )
        return tuple(sorted(map(_decision, rows), key=lambda decision: (decision.cycle, decision.key)))

    def given_in(self, since: datetime, before: datetime) -> Mapping[FlowKey, tuple[int, int]]:
        """Return what each flow key was given in the cycles of a time: bytes injected, and rules and jobs."""
        given: dict[FlowKey, tuple[int, int]] = {}
        for row in self.rows(since=since, before=before):
            injected, rules = given.get(row.key, (0, 0))
            given[row.key] = injected + row.injected, rules + row.rules
        return given

    def submitted(self, since: datetime, before: datetime) -> Mapping[str, list[tuple[int, int]]]:
        """Return for each service by cycle how many rules and jobs it made, and for how many there was no time.

        Only of cycles with intents. There was no time for what was dropped without ever having been asked for.
        """
        rows = self._db.rows(
            "SELECT cycle, through, sum(accepted_at IS NOT NULL) AS made, "
            "sum(state = 'withdrawn' AND called_at IS NULL AND error = ?) AS unsent "
            "FROM injection JOIN account ON account.id = account WHERE cycle >= ? AND cycle < ? "
            "GROUP BY cycle, through ORDER BY cycle",
            transitions.OVER,
            stored(since),
            stored(before),
        )
        return grouped((row["through"], (row["made"], row["unsent"])) for row in rows)


def _decision(row: sqlite3.Row) -> ControlDecision:
    acts, law = row["mode"] == Mode.ACT.value, read_object(row["numbers"])
    guards = {Hold(name): numbers for name, numbers in read_object(row["guards"]).items()}
    of_row = held(row["row_hold"], row["row_numbers"])
    hold = choose_control_hold(None if row["hold"] is None else Hold(row["hold"]), of_row, acts=acts)
    by_hold = {Hold.BACKLOG: law, **guards}
    if acts and of_row is not None and not is_of_earlier_cycles(of_row):
        by_hold[of_row.hold] = of_row.numbers
    return ControlDecision(
        cycle=cycle_of(row["start"], row["length"]),
        key=flow_key(row),
        mode=row["mode"],
        hold=hold,
        target=row["target"],
        bias=row["bias"],
        numbers=law,
        guards=guards,
        held={} if hold is None else by_hold.get(hold, {}),
    )


class Cycles(Injections, CycleReader):
    """What happens to cycles; each method is one transaction, and doing it twice is doing it once."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._goals = Kept(database, super().goals)  # asked for in each round of observation
        self._closed: Kept[dict[Cycle, tuple[Row, ...]]] = Kept(database, dict)  # rows, which never change again

    def goals(self) -> Mapping[FlowKey, tuple[str, int]]:
        """Return what flow keys are to reach besides their rate: the kind of their goal, and its bytes."""
        return self._goals()

    def rows(
        self, since: datetime | None = None, cycle: Cycle | None = None, before: datetime | None = None
    ) -> tuple[Row, ...]:
        """Return rows as a reader does; those of the last closed cycles are read once."""
        if since is None and cycle is None:
            return super().rows(before=before)
        closed, wanted = self._closed(), self._cycles(since, before) if cycle is None else [cycle]
        rows: list[Row] = []
        for each in wanted:
            rows_of_cycle = closed.get(each) or super().rows(cycle=each)
            if rows_of_cycle and rows_of_cycle[0].closed:
                closed[each] = rows_of_cycle
            rows += rows_of_cycle
        for old in sorted(closed)[:-KEPT_CLOSED]:
            del closed[old]
        return tuple(rows)

    def _cycles(self, since: datetime | None, before: datetime | None) -> list[Cycle]:
        rows = self._db.rows(
            "SELECT start, length FROM cycle WHERE start >= ? AND start < ? ORDER BY start",
            0 if since is None else stored(since),
            stored_or_never(before),
        )
        return [cycle_of(*row) for row in rows]

    def open_cycle(
        self,
        cycle: Cycle,
        dues: Mapping[FlowKey, tuple[int, Held | None]],
        now: datetime,
        extras: Mapping[FlowKey, int] | None = None,
        goals: Mapping[FlowKey, Goal | None] | None = None,
    ) -> bool:
        """Write what each flow key is due in a cycle, and the hold of one that will get nothing.

        Returns False where that was done before.

        `extras` are the bytes that overheads add to the dues; `goals` is what flow keys are to reach besides their
        rate, which `status` shows.
        """
        more = extras or {}
        start = stored(cycle.start)
        with self._db.write():
            columns = {"start": start, "length": stored(cycle.length), "opened_at": stored(now)}
            if not self._db.insert("cycle", "ON CONFLICT (start) DO NOTHING", **columns):
                return False
            accounts = self._open_accounts(dues)
            self._db.run_many(
                "INSERT INTO cycle_row (cycle, account, due, extra, hold, numbers) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (start, accounts[key], due, more.get(key, 0), *hold_columns(hold))
                    for key, (due, hold) in dues.items()
                ),
            )
            before = self.goals()
            aims = {key: None if goal is None else (goal.kind, goal.bytes) for key, goal in (goals or {}).items()}
            if changed := {key: aim for key, aim in aims.items() if aim != before.get(key)}:
                self._db.run_many(
                    "UPDATE account SET goal = ?, goal_bytes = ? WHERE id = ?",
                    ((*(aim or (None, None)), accounts[key]) for key, aim in changed.items()),
                )
                self._goals.forget()
        return True

    def record_plan(self, plan: Plan, now: datetime) -> None:
        """Write what was decided for each flow key of an open cycle, and the intents, at once."""
        start = stored(plan.cycle.start)
        with self._db.write():
            planned = self._db.run(
                "UPDATE cycle SET planned_at = ? WHERE start = ? AND planned_at IS NULL AND closed_at IS NULL",
                stored(now),
                start,
            )
            if not planned:
                return
            accounts = self._open_accounts(decision.key for decision in plan.decisions)
            self._db.run_many(_DECIDE, ((start, accounts[one.key], *_columns(one)) for one in plan.decisions))
            self.add_injections(plan.injections, now)

    def record_decisions(self, decisions: Iterable[ControlDecision]) -> None:
        """Write what control decided or advised of links; what is decided again replaces what was before."""
        with self._db.write():
            accounts = self._open_accounts()
            self._db.run_many(
                "INSERT OR REPLACE INTO decision VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        stored(decision.cycle.start),
                        accounts[decision.key],
                        decision.mode,
                        None if decision.hold is None else decision.hold.value,
                        decision.target,
                        decision.bias,
                        json.dumps(dict(decision.numbers)),
                        json.dumps({hold.value: dict(numbers) for hold, numbers in decision.guards.items()}),
                    )
                    for decision in decisions
                ),
            )

    def forgive(self, cycle: Cycle, amounts: Mapping[FlowKey, int]) -> None:
        """Forgive more of what flows were due in a cycle; one that is closed already never changes."""
        with self._db.write():
            accounts = self._open_accounts(amounts)
            self._db.run_many(
                "UPDATE cycle_row SET forgiven = forgiven + ?1 WHERE cycle = ?2 AND account = ?3 "
                "AND EXISTS (SELECT 1 FROM cycle WHERE start = ?2 AND closed_at IS NULL)",
                ((amount, stored(cycle.start), accounts[key]) for key, amount in amounts.items() if amount > 0),
            )

    def close_cycle(
        self,
        cycle: Cycle,
        now: datetime,
        holds: Mapping[FlowKey, Held] | None = None,
        leading: Mapping[FlowKey, Held] | None = None,
    ) -> None:
        """Write what became known of each flow since the last close into the cycle's rows, for good.

        Flows of which something became known get a row even if they were due nothing here. A row that got less
        than its due takes the hold from `leading`, or, when it has none, from `holds`.
        """
        start = stored(cycle.start)
        with self._db.write():
            open_ = self._db.row("SELECT 1 FROM cycle WHERE start = ? AND closed_at IS NULL", start)
            if open_ is None:
                return
            news = " OR ".join(f"{name} <> reported_{name}" for name in REPORTED)
            self._db.run(
                "INSERT INTO cycle_row (cycle, account, due) SELECT ?, id, 0 FROM account "  # noqa: S608  our own words
                f"WHERE ({news}) AND NOT EXISTS (SELECT 1 FROM cycle_row WHERE cycle = ? AND account = id)",
                start,
                start,
            )
            self._db.run(_REPORT, start)
            accounts = self._open_accounts()
            for by_flow, which in ((leading, ""), (holds, "AND hold IS NULL")):
                self._db.run_many(
                    f"UPDATE cycle_row SET hold = ?, numbers = ? "  # noqa: S608  our own words
                    f"WHERE cycle = ? AND account = ? AND injected < due {which}",
                    (
                        (*hold_columns(hold), start, accounts[key])
                        for key, hold in (by_flow or {}).items()
                        if key in accounts
                    ),
                )
            assignments = ", ".join(f"reported_{name} = {name}" for name in REPORTED)
            self._db.run(f"UPDATE account SET {assignments} WHERE {news}")  # noqa: S608  our own words
            self._db.run(
                "INSERT INTO account_hold SELECT account, hold, 1 FROM cycle_row "
                "WHERE cycle = ? AND hold IS NOT NULL "
                "ON CONFLICT (account, hold) DO UPDATE SET cycles = cycles + 1",
                start,
            )
            self._db.run("UPDATE cycle SET closed_at = ? WHERE start = ?", stored(now), start)


_REPORT = (
    f"UPDATE cycle_row SET ({', '.join(REPORTED)}) = (SELECT {NEWS} FROM account "  # noqa: S608  our own words
    "WHERE id = cycle_row.account) WHERE cycle = ?"
)
_DECIDED = ("want", "cap", "budget", "forgiven", "pool_items", "lifetime", "pool_bytes")
_DECIDE = (
    f"INSERT INTO cycle_row (cycle, account, due, hold, numbers, {', '.join(_DECIDED)}) "  # noqa: S608  our own words
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (cycle, account) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _DECIDED)
    + ", hold = coalesce(excluded.hold, hold), numbers = coalesce(excluded.numbers, numbers)"
)


def _columns(decision: FlowDecision) -> tuple[object, ...]:
    pool_bytes = decision.pool_bytes and min(decision.pool_bytes, 2**63 - 1)  # a sum of many sizes
    plain = (getattr(decision, name) for name in _DECIDED[:5])
    return decision.due, *hold_columns(decision.held), *plain, stored(decision.lifetime), pool_bytes


def _row(columns: Any) -> Row:  # noqa: ANN401  those of `_ROWS`, by their place: by name they cost much more
    start, length, closed, scenario, source, destination, through = columns[:7]
    hold, numbers, lifetime, *pool = columns[16:]
    cycle, key = cycle_of(start, length), flow_of(scenario, source, destination, through)
    stays = None if lifetime is None else duration(lifetime)
    return Row._make((cycle, key, *columns[7:16], held(hold, numbers), stays, *pool, bool(closed)))
