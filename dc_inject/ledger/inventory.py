"""Inventories, signals, quarantine and a mini-challenge's readings: what is known of the world."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from dc_inject.ledger.database import (
    FLOW,
    Database,
    Store,
    flow_of,
    moment,
    moment_or_none,
    read_json,
    read_object,
    stored,
    stored_or_none,
)
from dc_inject.ledger.records import BEGIN, END, INJECTOR
from dc_inject.ledger.types import Signal
from dc_inject.model import Dataset, File, FileFilter, FlowKey, Item, PoolKey, State, TapeFiles
from dc_inject.model.groups import grouped

_MOVING = frozenset({State.CALLED.value, State.LIVE.value})  # of these, files wait for tape
_TURNED = ("cycle", "injector")  # the signal that keeps when an injector last turned to a new cycle
OUTAGES = frozenset(  # signals whose loss is an event, as is a site's own word that it cannot be read or written
    {"service", "observation", "deletion", "credentials", "menus", "clock", "clocks", "arrivals"}
    | {"readable", "writable"}
)
Reading = tuple[str, str, float | str | None, str]  # a signal's name, its subject, its value, why it is missing


class ChallengeRecord(NamedTuple):
    """One thing that is kept of a mini-challenge: `asked`, a `reading`, or `stopped` with a last reading."""

    at: datetime
    kind: str
    values: Mapping[str, Any]


class InventoryReader(Store):
    """What can be read of inventories, signals and quarantine."""

    def inventory(self, service: str, pool: PoolKey) -> list[Item]:
        """Return the items of a pool as they were last read, by name; none when it never was."""
        rows = self._db.rows(
            "SELECT item, bytes, files, checksum FROM pool_item JOIN pool ON pool.id = pool "
            "WHERE service = ? AND source = ? AND datasets = ? ORDER BY item",
            *_pool(service, pool),
        )
        if isinstance(pool.datasets, FileFilter):
            return [File(row["item"], row["bytes"], row["checksum"] or "") for row in rows]
        return [Dataset(row["item"], row["bytes"], row["files"]) for row in rows]

    def inventory_read_at(self, service: str, pool: PoolKey) -> datetime | None:
        """Return when a pool was last read; None when it never was."""
        sql = "SELECT max(read_at) FROM pool WHERE service = ? AND source = ? AND datasets = ?"
        return moment_or_none(self._db.row(sql, *_pool(service, pool))[0])

    def sizes_at_sources(self) -> Mapping[str, list[tuple[int, int]]]:
        """Return files and bytes of what each source held when its pools were last read."""
        sql = "SELECT DISTINCT source, item, files, bytes FROM pool_item JOIN pool ON pool.id = pool"
        return grouped((row["source"], (row["files"], row["bytes"])) for row in self._db.stream(sql))

    def signals(self, name: str | None = None) -> tuple[Signal, ...]:
        """Return the latest reading of each signal, or of those of one name; one without a value is missing.

        Without a name those of `tape` are left out: there is one of each injection.
        """
        which, values = ("name <> 'tape'", ()) if name is None else ("name = ?", (name,))
        columns = "name, subject, value, at, why"
        rows = self._db.rows(f"SELECT {columns} FROM signal WHERE {which} ORDER BY name, subject", *values)  # noqa: S608  our own words
        return tuple(Signal(name, subject, value, moment(at), why) for name, subject, value, at, why in rows)

    def tape_files(self) -> dict[FlowKey, TapeFiles]:
        """Return how the files of flows stand with tape systems; files of what has ended wait for none."""
        counts, waits = dict[FlowKey, TapeFiles](), defaultdict[FlowKey, list[int]](list)
        for state, value, *flow in self._db.rows(
            f"SELECT state, value, {FLOW} FROM signal JOIN injection ON key = subject "  # noqa: S608  our own words
            "JOIN account ON account.id = account WHERE name = 'tape' ORDER BY scenario, source, destination, key"
        ):
            staging, archiving, archived, *waited = map(int, read_json(value, kind=list))
            key, waits_on = flow_of(*flow), state in _MOVING
            before = counts.get(key, TapeFiles())
            counts[key] = TapeFiles(
                before.staging + staging * waits_on,
                before.archiving + archiving * waits_on,
                before.archived + archived,
            )
            waits[key] += waited
        return {key: files._replace(waits=tuple(waits[key])) for key, files in counts.items()}

    def last_turn(self) -> datetime | None:
        """Return when an injector last turned to a new cycle, also to one in which nothing was due."""
        row = self._db.row(
            "SELECT max(at) AS at FROM "
            "(SELECT at FROM signal WHERE name = ? AND subject = ? UNION ALL SELECT max(start) FROM cycle)",
            *_TURNED,
        )
        return None if row is None else moment_or_none(row["at"])

    def quarantined(self, now: datetime) -> Mapping[tuple[str, str], str]:
        """Return every (item, destination) that is set aside at a time, and why."""
        rows = self._db.rows(
            "SELECT item, destination, why FROM quarantine WHERE until IS NULL OR until > ?", stored(now)
        )
        return {(row["item"], row["destination"]): row["why"] for row in rows}

    def times_set_aside(self, item: str, destination: str) -> int:
        """Return how often an item was set aside for a destination."""
        sql = "SELECT coalesce(max(times), 0) FROM quarantine WHERE item = ? AND destination = ?"
        return int(self._db.row(sql, item, destination)[0])

    def challenge(self) -> tuple[ChallengeRecord, ...]:
        """Return all that is kept of a mini-challenge, in the order in which it was written."""
        rows = self._db.rows("SELECT * FROM challenge ORDER BY id")
        return tuple(ChallengeRecord(moment(row["at"]), row["kind"], read_object(row["text"])) for row in rows)


class Inventory(InventoryReader):
    """What is written of inventories, signals and quarantine."""

    def store_inventory(self, service: str, pool: PoolKey, items: Iterable[Item], now: datetime) -> None:
        """Replace the items of a pool; an error of the iterable leaves the old ones.

        It is read to its end first, so that a slow service does not keep the ledger locked.
        """
        coming = {item.name: item for item in items}
        key = _pool(service, pool)
        with self._db.write():
            known = "ON CONFLICT (service, source, datasets) DO UPDATE SET read_at = excluded.read_at"
            columns = dict(zip(("service", "source", "datasets"), key, strict=True))
            self._db.insert("pool", known, **columns, read_at=stored(now))
            (number,) = self._db.row("SELECT id FROM pool WHERE service = ? AND source = ? AND datasets = ?", *key)
            self._db.run("DELETE FROM pool_item WHERE pool = ?", number)
            self._db.run_many(
                "INSERT INTO pool_item (pool, item, bytes, files, checksum) VALUES (?, ?, ?, ?, ?)",
                (
                    (number, i.name, i.bytes, i.files, getattr(i, "checksum", "") or None)
                    for _, i in sorted(coming.items())
                ),
            )

    def signal(self, name: str, subject: str, value: float | str | None, now: datetime, why: str = "") -> None:
        """Write the latest reading of a signal; None means that it is missing, for the reason `why`.

        The time of a missing one is that of the first reading that missed it.
        """
        self.record_signals([(name, subject, value, why)], now)

    def record_signals(self, readings: Iterable[Reading], now: datetime) -> None:
        """Write the latest readings of signals: name, subject, value, and why it is missing.

        Where one of `OUTAGES` begins or ends, that is also written among the changes, by `INJECTOR`.
        """
        readings = list(readings)
        with self._db.write():
            self._db.run_many(
                "INSERT INTO change (at, who, what, why) VALUES (?, ?, ?, ?)",
                [
                    (stored(now), INJECTOR, f"{END if works else BEGIN}{name} {subject}", why)
                    for name, subject, value, why in readings
                    if name in OUTAGES and (works := _works(value)) != self._worked(name, subject)
                ],
            )
            self._db.run_many(  # one that stays missing has been so since it was first
                "INSERT INTO signal VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, subject) DO UPDATE SET "
                "at = iif(value IS NULL AND excluded.value IS NULL, at, excluded.at), "
                "value = excluded.value, why = excluded.why",
                (_columns(*reading, stored(now)) for reading in readings),
            )

    def _worked(self, name: str, subject: str) -> bool:
        row = self._db.row("SELECT value FROM signal WHERE name = ? AND subject = ?", name, subject)
        return row is None or _works(row["value"])

    def turned(self, now: datetime) -> None:
        """Write that the injector turns to a new cycle."""
        self.signal(*_TURNED, "turned", now)

    def quarantine(
        self, item: str, destination: str, why: str, now: datetime, until: datetime | None = None
    ) -> None:
        """Set an (item, destination) aside, for good or until a time; when it is already, the later end holds."""
        known = (
            "ON CONFLICT (item, destination) DO UPDATE SET "
            "why = excluded.why, since = excluded.since, times = times + 1, until = CASE "
            "WHEN until IS NULL OR excluded.until IS NULL THEN NULL ELSE max(until, excluded.until) END"
        )
        columns = {"item": item, "destination": destination, "why": why, "since": stored(now), "times": 1}
        self._db.insert("quarantine", known, **columns, until=stored_or_none(until))

    def keep_challenge(self, kind: str, values: Mapping[str, Any], now: datetime) -> None:
        """Keep one more record of a mini-challenge."""
        self._db.insert("challenge", at=stored(now), kind=kind, text=json.dumps(dict(values)))


def record_tape(database: Database, files: Mapping[str, TapeFiles], now: datetime) -> None:
    """Write how the files of injections stand, by their keys: three counts, and the waits."""
    database.run_many(
        "INSERT OR REPLACE INTO signal VALUES ('tape', ?, ?, ?, '')",
        [(key, json.dumps([*counts, *waits]), stored(now)) for key, (*counts, waits) in files.items()],
    )


def _works(value: float | str | None) -> bool:
    """Whether a signal is a good one: it has a value, and not that of a `no`."""
    return value is not None and value != 0


def _columns(name: str, subject: str, value: float | str | None, why: str, at: int) -> tuple[object, ...]:
    """Return what is written of the reading of a signal."""
    if isinstance(value, float) and math.isnan(value):
        value, why = None, why or "it is not a number"
    if isinstance(value, int) and abs(value) >= 2**63:
        value = float(value)
    return name, subject, value, at, why


def _pool(service: str, pool: PoolKey) -> tuple[str, str, str]:
    datasets = pool.datasets
    if isinstance(datasets, FileFilter) and datasets.listing is not None:
        # A list may have a million files, which its digest stands for.
        datasets = replace(datasets, listing=replace(datasets.listing, files=()))
    names = [field.name for field in fields(datasets) if field.name != "landed"]  # such pools are never read
    values = {name: getattr(datasets, name) for name in names}
    for name in ("reading", "recalls"):
        if not values.get(name, True):
            del values[name]  # as in ledgers from before there were any
    return service, pool.source, json.dumps(values, sort_keys=True, default=asdict)
