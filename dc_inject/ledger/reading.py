"""What can be read of a ledger: accounts, rows, injections, pauses, signals; the same for every reader."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dc_inject.ledger.database import Database
from dc_inject.model import (
    EPOCH,
    Cycle,
    Entry,
    FlowKey,
    Held,
    Hold,
    Injection,
    Item,
    Link,
    State,
)

_MICROSECOND = timedelta(microseconds=1)
ALIVE = tuple(state for state in State if state.resident)


@dataclass(frozen=True, slots=True)
class Totals:
    """The account of a flow up to now, in bytes; `estimated` is the part of `moved` that is an estimate."""

    due: int = 0
    injected: int = 0
    forgiven: int = 0
    in_doubt: int = 0
    moved: int = 0
    estimated: int = 0
    resident: int = 0
    rules: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """What one cycle did for one flow, in bytes; of a closed cycle it never changes."""

    cycle: Cycle
    key: FlowKey
    due: int
    want: int
    cap: int
    budget: int
    lifetime: timedelta | None
    pool_items: int | None
    pool_bytes: int | None
    held: Held | None
    injected: int
    forgiven: int
    moved: int
    estimated: int
    rules: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """A stop by a person: of everything (`*`), a scenario, or a link `SRC:DST`."""

    subject: str
    who: str
    why: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a person changed."""

    at: datetime
    who: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An item that is not given to a destination, until a time or for good (None)."""

    item: str
    destination: str
    why: str
    since: datetime
    until: datetime | None
    times: int


@dataclass(frozen=True, slots=True)
class Signal:
    """The latest value of something observed; None where it could not be read, and why."""

    name: str
    subject: str
    value: float | str | None
    why: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Known:
    """Whom the ledger is bound to at a service, and what may be done there."""

    service: str
    address: str
    vo: str
    account: str
    version: str
    may_end: bool | None
    credentials_until: datetime | None


class Reader:
    """Reads one ledger; everything here leaves it as it is."""

    def __init__(self, database: Database) -> None:
        """Take an open database."""
        self._db = database

    # ------------------------------------------------------------------ the campaign

    def fact(self, name: str) -> str | None:
        """Return one of the ledger's own facts: campaign, cycle, since."""
        found = self._db.one("SELECT value FROM facts WHERE name = ?", name)
        return None if found is None else str(found["value"])

    @property
    def cycle_length(self) -> timedelta:
        """The length of this campaign's cycles; 15 minutes before it is bound."""
        text = self.fact("cycle_microseconds")
        return timedelta(microseconds=int(text)) if text else timedelta(minutes=15)

    def identities(self) -> tuple[Known, ...]:
        """Return whom the ledger is bound to, by service."""
        return tuple(
            Known(
                row["service"],
                row["address"],
                row["vo"],
                row["account"],
                row["version"],
                None if row["may_end"] is None else bool(row["may_end"]),
                when(row["credentials_until"]),
            )
            for row in self._db.read("SELECT * FROM identities ORDER BY service")
        )

    def menus_in_force(self) -> tuple[tuple[str, str, str], ...]:
        """Return (name, digest, text) of the menus in force."""
        sql = "SELECT name, digest, text FROM menus WHERE until IS NULL ORDER BY name"
        return tuple((row["name"], row["digest"], row["text"]) for row in self._db.read(sql))

    def resolution(self, service: str, expression: str) -> tuple[str, ...] | None:
        """Return what an RSE expression was found to mean when its menu came into force."""
        sql = "SELECT names FROM resolutions WHERE service = ? AND expression = ?"
        found = self._db.one(sql, service, expression)
        return None if found is None else tuple(json.loads(found["names"]))

    def pauses(self) -> tuple[Pause, ...]:
        """Return the stops by people that are in force."""
        sql = "SELECT * FROM pauses ORDER BY subject"
        return tuple(
            Pause(row["subject"], row["who"], row["why"], moment(row["since"])) for row in self._db.read(sql)
        )

    def changes(self, limit: int = 20) -> tuple[Change, ...]:
        """Return the last changes by people, newest first."""
        sql = "SELECT * FROM changes ORDER BY at DESC, rowid DESC LIMIT ?"
        return tuple(
            Change(moment(row["at"]), row["who"], row["what"], row["why"]) for row in self._db.read(sql, limit)
        )

    def notes(self, limit: int = 20) -> tuple[tuple[datetime, str], ...]:
        """Return the last notes, newest first."""
        sql = "SELECT * FROM notes ORDER BY at DESC, rowid DESC LIMIT ?"
        return tuple((moment(row["at"]), row["text"]) for row in self._db.read(sql, limit))

    def quarantine_list(self, now: datetime) -> tuple[Quarantined, ...]:
        """Return the items that are not given to a destination now."""
        sql = "SELECT * FROM quarantine WHERE until IS NULL OR until > ? ORDER BY item, destination"
        return tuple(
            Quarantined(
                row["item"],
                row["destination"],
                row["why"],
                moment(row["since"]),
                when(row["until"]),
                row["times"],
            )
            for row in self._db.read(sql, micros(now))
        )

    def quarantined(self, now: datetime) -> set[tuple[str, str]]:
        """Return (item, destination) of what is set aside now."""
        sql = "SELECT item, destination FROM quarantine WHERE until IS NULL OR until > ?"
        return {(row["item"], row["destination"]) for row in self._db.read(sql, micros(now))}

    def times_set_aside(self, item: str, destination: str) -> int:
        """Return how often an item was set aside for a destination, also when that has run out."""
        found = self._db.one("SELECT times FROM quarantine WHERE item = ? AND destination = ?", item, destination)
        return 0 if found is None else int(found["times"])

    def signals(self) -> tuple[Signal, ...]:
        """Return the latest of every signal."""
        return tuple(
            Signal(row["name"], row["subject"], row["value"], row["why"], moment(row["at"]))
            for row in self._db.read("SELECT * FROM signals ORDER BY name, subject")
        )

    # ------------------------------------------------------------------ cycles and accounts

    def last_cycle(self) -> Cycle | None:
        """Return the latest cycle that was opened."""
        found = self._db.one("SELECT max(start) AS start FROM cycles")
        return None if found is None or found["start"] is None else self._cycle(found["start"])

    def last_planned(self) -> Cycle | None:
        """Return the latest cycle whose plan is on disk."""
        found = self._db.one("SELECT max(start) AS start FROM cycles WHERE planned IS NOT NULL")
        return None if found is None or found["start"] is None else self._cycle(found["start"])

    def is_planned(self, cycle: Cycle) -> bool:
        """Whether a cycle's plan is on disk."""
        found = self._db.one("SELECT planned FROM cycles WHERE start = ?", micros(cycle.start))
        return found is not None and found["planned"] is not None

    def unclosed(self) -> tuple[Cycle, ...]:
        """Return the cycles that are open, oldest first."""
        sql = "SELECT start FROM cycles WHERE closed IS NULL ORDER BY start"
        return tuple(self._cycle(row["start"]) for row in self._db.read(sql))

    def rows(self, *, since: datetime | None = None, cycle: Cycle | None = None) -> tuple[Row, ...]:
        """Return rows by cycle and flow; those of an open cycle show what it has done so far."""
        where, values = "1 = 1", []
        if cycle is not None:
            where, values = "r.cycle = ?", [micros(cycle.start)]
        elif since is not None:
            where, values = "r.cycle >= ?", [micros(since)]
        sql = f"""
            SELECT r.*, f.scenario, f.source, f.destination, f.service,
                   f.injected - coalesce(c.injected, 0) AS open_injected,
                   f.forgiven - coalesce(c.forgiven, 0) AS open_forgiven,
                   f.moved - coalesce(c.moved, 0) AS open_moved,
                   f.estimated - coalesce(c.estimated, 0) AS open_estimated,
                   f.rules - coalesce(c.rules, 0) AS open_rules
            FROM rows r JOIN flows f ON f.id = r.flow LEFT JOIN closed_totals c ON c.flow = r.flow
            WHERE {where} ORDER BY r.cycle, f.scenario, f.source, f.destination, f.service
        """  # noqa: S608  no text from outside is in it
        return tuple(self._row(row) for row in self._db.read(sql, *values))

    def recent_due(self, cycle: Cycle, count: int = 3) -> dict[FlowKey, int]:
        """Return the largest due of each flow in the last `count` cycles, this one included."""
        first = cycle.start - (count - 1) * cycle.length
        sql = """
            SELECT f.scenario, f.source, f.destination, f.service, max(r.due) AS due
            FROM rows r JOIN flows f ON f.id = r.flow WHERE r.cycle BETWEEN ? AND ? GROUP BY r.flow
        """
        found = self._db.read(sql, micros(first), micros(cycle.start))
        return {flow_key(row): row["due"] for row in found}

    def accounts(self) -> dict[FlowKey, Totals]:
        """Return the running totals of every flow."""
        names = Totals.__slots__
        return {
            flow_key(row): Totals(*(row[name] for name in names)) for row in self._db.read("SELECT * FROM flows")
        }

    # ------------------------------------------------------------------ injections

    def entries(self, *states: State, cycle: Cycle | None = None) -> list[Entry]:
        """Return injections, of these states or of all, of one cycle or of all, by cycle and release."""
        conditions: list[str] = []
        values: list[str | int] = []
        if states:
            # Written out, not bound: only so the partial index of what is alive can be used.
            names = ", ".join(f"'{state.value}'" for state in states)
            conditions.append(f"i.state IN ({names})")
        if cycle is not None:
            conditions.append("i.cycle = ?")
            values.append(micros(cycle.start))
        where = " AND ".join(conditions) or "1 = 1"
        sql = f"""
            SELECT i.*, f.scenario, f.source, f.destination, f.service FROM injections i
            JOIN flows f ON f.id = i.flow WHERE {where} ORDER BY i.cycle, i.release, i.key
        """  # noqa: S608  no text from outside is in it
        campaign, length = self.fact("campaign") or "", self.cycle_length
        return [entry_of(row, campaign, length) for row in self._db.read(sql, *values)]

    def entry(self, key: str) -> Entry:
        """Return one injection; raises KeyError for a key that is not in the ledger."""
        sql = """
            SELECT i.*, f.scenario, f.source, f.destination, f.service FROM injections i
            JOIN flows f ON f.id = i.flow WHERE i.key = ?
        """
        found = self._db.one(sql, key)
        if found is None:
            raise KeyError(key)
        return entry_of(found, self.fact("campaign") or "", self.cycle_length)

    def taken(self, now: datetime) -> set[tuple[str, str]]:
        """Return (item, destination) of what is resident or on its way through Rucio, and of what is set aside."""
        alive = self._alive("i.item, f.destination", "f.service = 'rucio'")
        return {(row["item"], row["destination"]) for row in alive} | self.quarantined(now)

    def leaving(self) -> set[tuple[str, str]]:
        """Return (item, source) of what leaves its source now."""
        states = (State.INTENDED, State.CALLED, State.LIVE)
        return {(row["item"], row["source"]) for row in self._alive("i.item, f.source", states=states)}

    def on_its_way(self) -> dict[str, int]:
        """Return bytes asked for and not yet moved, by destination."""
        what = "f.destination, sum(i.bytes - i.present - i.moved) AS bytes"
        states = (State.INTENDED, State.CALLED, State.LIVE)
        return {row["destination"]: row["bytes"] for row in self._alive(what, group=True, states=states)}

    def resident(self) -> dict[str, int]:
        """Return bytes that are or may come to be at each destination, and are not known to be gone."""
        what = "f.destination, sum(i.bytes - i.present) AS bytes"
        return {row["destination"]: row["bytes"] for row in self._alive(what, group=True)}

    def files_in_flight(self) -> int:
        """Return how many files are asked for and have not arrived."""
        what = "sum(i.files - i.files_done) AS files"
        found = self._alive(what, states=(State.INTENDED, State.CALLED, State.LIVE))
        return int(found[0]["files"] or 0)

    def rules_since(self, since: datetime) -> int:
        """Return how many injections were asked for since then."""
        found = self._db.one("SELECT count(*) AS rules FROM injections WHERE called_at >= ?", micros(since))
        return 0 if found is None else int(found["rules"])

    def completion_times(self, since: datetime) -> dict[FlowKey, timedelta]:
        """Return the median time from acceptance to completion of each flow that completed something since."""
        sql = """
            SELECT f.scenario, f.source, f.destination, f.service, i.completed_at - i.accepted_at AS took
            FROM injections i JOIN flows f ON f.id = i.flow WHERE i.completed_at >= ? ORDER BY took
        """
        times: dict[FlowKey, list[int]] = {}
        for row in self._db.read(sql, micros(since)):
            times.setdefault(flow_key(row), []).append(row["took"])
        return {key: timedelta(microseconds=some[len(some) // 2]) for key, some in times.items()}

    def state_counts(self) -> dict[State, tuple[int, int]]:
        """Return (injections, bytes) by state."""
        sql = "SELECT state, count(*) AS number, sum(bytes) AS bytes FROM injections GROUP BY state"
        return {State(row["state"]): (row["number"], row["bytes"]) for row in self._db.read(sql)}

    # ------------------------------------------------------------------ inventories

    def _alive(
        self, what: str, where: str = "1 = 1", *, states: tuple[State, ...] = ALIVE, group: bool = False
    ) -> list[sqlite3.Row]:
        """Select over what is alive only; `group` groups by destination."""
        names = ", ".join(f"'{state.value}'" for state in states)
        sql = f"""
            SELECT {what} FROM injections i JOIN flows f ON f.id = i.flow
            WHERE i.state IN ({names}) AND {where} {"GROUP BY f.destination" if group else ""}
        """  # noqa: S608  no text from outside is in it
        return self._db.read(sql)

    def _cycle(self, start: int) -> Cycle:
        return Cycle(moment(start), self.cycle_length)

    def _row(self, row: sqlite3.Row) -> Row:
        def done(name: str) -> int:
            return int(row[name] if row["closed"] else row[f"open_{name}"])

        return Row(
            cycle=self._cycle(row["cycle"]),
            key=flow_key(row),
            due=row["due"],
            want=row["want"] or 0,
            cap=row["cap"] or 0,
            budget=row["budget"] or 0,
            lifetime=None if row["lifetime"] is None else row["lifetime"] * _MICROSECOND,
            pool_items=row["pool_items"],
            pool_bytes=row["pool_bytes"],
            held=Held(Hold(row["hold"]), json.loads(row["numbers"])) if row["hold"] else None,
            injected=done("injected"),
            forgiven=done("forgiven"),
            moved=done("moved"),
            estimated=done("estimated"),
            rules=done("rules"),
            closed=bool(row["closed"]),
        )


def flow_key(row: sqlite3.Row) -> FlowKey:
    """Return the flow that a row speaks of."""
    return FlowKey(row["scenario"], Link(row["source"], row["destination"], row["service"]))


def entry_of(row: sqlite3.Row, campaign: str, length: timedelta) -> Entry:
    """Return an injection as the ledger keeps it."""
    key = flow_key(row)
    injection = Injection(
        key=row["key"],
        campaign=campaign,
        cycle=Cycle(moment(row["cycle"]), length),
        scenario=key.scenario,
        link=key.link,
        item=Item(row["item"], row["bytes"], row["files"]),
        release=moment(row["release"]),
        lifetime=row["lifetime"] * _MICROSECOND,
        activity=row["activity"],
        service_priority=row["service_priority"],
        contact=row["contact"],
    )
    return Entry(
        injection=injection,
        state=State(row["state"]),
        external_id=row["external_id"],
        attempt=row["attempt"],
        not_before=when(row["not_before"]),
        called_at=when(row["called_at"]),
        accepted_at=when(row["accepted_at"]),
        expires_at=when(row["expires_at"]),
        completed_at=when(row["completed_at"]),
        end_asked_at=when(row["end_asked_at"]),
        ended_at=when(row["ended_at"]),
        gone_at=when(row["gone_at"]),
        observed_at=when(row["observed_at"]),
        present=row["present"],
        moved=row["moved"],
        moved_exact=bool(row["moved_exact"]),
        files_done=row["files_done"],
        files_stuck=row["files_stuck"],
        error=row["error"],
    )


def micros(at: datetime) -> int:
    """Return an aware time as whole microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """Return microseconds since 1970 as an aware UTC time."""
    return EPOCH + value * _MICROSECOND


def when(value: int | None) -> datetime | None:
    """Return microseconds since 1970 as an aware UTC time, where there is one."""
    return None if value is None else moment(value)


def inventory_filter(parts: Mapping[str, object]) -> str:
    """Return a text that is the same for the same filter."""
    return json.dumps(parts, sort_keys=True, default=str)
