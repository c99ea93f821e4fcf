"""What else is kept: whom a ledger is bound to, menus in force, and what people did: pauses, rates, notes."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from urllib.parse import urlsplit

from dc_inject.ledger.database import (
    Database,
    Kept,
    Store,
    duration,
    moment,
    moment_or_none,
    read_json,
    stored,
    stored_or_never,
    stored_or_none,
)
from dc_inject.ledger.types import BoundIdentity, Change, MenuInForce, Pause
from dc_inject.model.errors import LedgerError
from dc_inject.model.overrides import EVERYTHING, Kind, Override, describe, shown
from dc_inject.model.ports import Identity
from dc_inject.model.services import SERVICES, SIMULATED
from dc_inject.model.units import format_duration

NOTES_KEPT = 200  # how many, of those that differ; a bug that shows at every step must not fill the disk
NOTES_FOR = timedelta(days=100)  # how long
LONGEST_NOTE = 20_000  # characters

INJECTOR = "dc_inject"  # who changes what no person does: an outage that begins or ends
NOTE = "note"  # what a change is called that is a person's remark; its text is the reason
# What a change begins with, before its subject: of pauses, and of outages, which are by `INJECTOR`.
STOP, RESUME, BEGIN, END = "stop ", "resume ", "begin ", "end "
_TRUSTS = "trust "  # what a change begins with that lets credentials go to the hosts behind it, by blanks apart
_SCALE = "run --scale "  # what a change begins with by which a run multiplies all rates of the menus
_SHARD = ("shard", "this")  # under which a resolution has the shard of this ledger
_PAUSES, _OVERRIDES = (  # those in force at a moment
    f"SELECT * FROM {table} WHERE since <= ?1 AND (until IS NULL OR until > ?1)"  # noqa: S608  our own words
    for table in ("pause", "override")
)
_PORTS = {"https": 443, "http": 80}


class RecordReader(Store):
    """What can be read of the binding, the menus and what people did."""

    @property
    def campaign(self) -> str | None:
        """The campaign's name; None before the ledger is bound."""
        name = self._db.row("SELECT name FROM campaign")["name"]
        return None if name is None else str(name)

    @property
    def cycle_length(self) -> timedelta | None:
        """The campaign's cycle length; None before the ledger is bound."""
        length = self._db.row("SELECT cycle_length FROM campaign")["cycle_length"]
        return None if length is None else duration(length)

    @property
    def since(self) -> datetime | None:
        """When the campaign's first run began; None before that."""
        return moment_or_none(self._db.row("SELECT since FROM campaign")["since"])

    def identities(self) -> tuple[BoundIdentity, ...]:
        """Return whom the ledger is bound to, by service, as it was when it was last checked."""
        rows = self._db.rows(
            "SELECT service, address, vo, account, version, may_end, credentials_until "
            "FROM identity ORDER BY service"
        )
        return tuple(
            BoundIdentity(service, url, vo, who, version, None if may is None else bool(may), moment_or_none(end))
            for service, url, vo, who, version, may, end in rows
        )

    @property
    def simulated_in(self) -> str | None:
        """The grid in which the campaign was simulated; None for a real one."""
        addresses = (identity.address for identity in self.identities())
        return next((text.removeprefix(SIMULATED) for text in addresses if text.startswith(SIMULATED)), None)

    def menus_in_force(self) -> tuple[MenuInForce, ...]:
        """Return the menus in force, by name."""
        return tuple(map(_menu, self._db.rows("SELECT * FROM menu WHERE until IS NULL ORDER BY name")))

    def last_menus(self) -> tuple[MenuInForce, ...]:
        """Return each menu that is or was in force, as it was last, by name."""
        sql = "SELECT * FROM menu WHERE id IN (SELECT max(id) FROM menu GROUP BY name) ORDER BY name"
        return tuple(map(_menu, self._db.rows(sql)))

    def all_menus(self) -> tuple[MenuInForce, ...]:
        """Return each version of each menu that is or was in force, oldest first."""
        return tuple(map(_menu, self._db.rows("SELECT * FROM menu ORDER BY id")))

    def menu_parts(self, digest: str) -> Mapping[str, bytes]:
        """Return the files that a menu brought in, by path; those that are large are not kept."""
        if self._db.row("PRAGMA user_version")[0] == 1:
            return {}
        rows = self._db.rows("SELECT path, content FROM menu_part WHERE digest = ?", digest)
        return {row["path"]: zlib.decompress(row["content"]) for row in rows}

    def starts(self) -> frozenset[str]:
        """Return the ids of all starts of injectors with this ledger."""
        if self._db.row("PRAGMA user_version")[0] == 1:
            return frozenset()
        return frozenset(row["id"] for row in self._db.rows("SELECT id FROM start"))

    def resolution(self, service: str, expression: str) -> tuple[str, ...] | None:
        """Return what an RSE expression meant when its menu came into force; None when it was not resolved yet."""
        row = self._db.row(
            "SELECT names FROM resolution WHERE service = ? AND expression = ?", service, expression
        )
        return None if row is None else tuple(read_json(row["names"], kind=list))

    def pauses(self, at: datetime | None = None) -> tuple[Pause, ...]:
        """Return what is paused now, or was paused at a moment."""
        rows = self._db.rows(f"{_PAUSES} ORDER BY subject, since", stored_or_never(at))
        return tuple(Pause(row["subject"], row["who"], row["why"], moment(row["since"])) for row in rows)

    def overrides(self, at: datetime | None = None) -> tuple[Override, ...]:
        """Return what is set over the menus now, or was set at a moment, by subject and kind."""
        rows = self._db.rows(f"{_OVERRIDES} ORDER BY subject, kind", stored_or_never(at))
        return tuple(
            Override(row["subject"], Kind(row["kind"]), row["value"], row["who"], row["why"], moment(row["since"]))
            for row in rows
        )

    def pauses_between(self, since: datetime, until: datetime) -> tuple[tuple[Pause, datetime | None], ...]:
        """Return what was paused at any moment of a time, oldest first, and until when (None: it still is)."""
        rows = self._db.rows(
            "SELECT * FROM pause WHERE since < ? AND (until IS NULL OR until > ?) ORDER BY since, id",
            stored(until),
            stored(since),
        )
        return tuple(
            (Pause(row["subject"], row["who"], row["why"], moment(row["since"])), moment_or_none(row["until"]))
            for row in rows
        )

    def changes(self, limit: int = 20, *, outages: bool = False) -> tuple[Change, ...]:
        """Return the last things that people changed, newest first; or when `outages` began and ended."""
        sql = "SELECT * FROM change WHERE (who = ?) = ? ORDER BY at DESC, id DESC LIMIT ?"
        rows = self._db.rows(sql, INJECTOR, outages, limit)
        return tuple(Change(moment(row["at"]), row["who"], row["what"], row["why"]) for row in rows)

    def trusted(self) -> tuple[str, ...]:
        """Return the hosts that credentials may go to in this campaign, as people have answered."""
        sql = "SELECT what FROM change WHERE substr(what, 1, ?) = ? ORDER BY id"
        rows = self._db.rows(sql, len(_TRUSTS), _TRUSTS)
        return tuple(dict.fromkeys(host for row in rows for host in row["what"].split()[1:]))

    def scales(self) -> tuple[tuple[datetime, float], ...]:
        """Return the factors by which runs have multiplied all rates of the menus, and since when, oldest first.

        The factor is 1 before the first of them. Each shard writes it; the first to write one counts.
        """
        sql = "SELECT at, what FROM change WHERE substr(what, 1, ?) = ? ORDER BY at, id"
        rows = self._db.rows(sql, len(_SCALE), _SCALE)
        scales = [(moment(row["at"]), float(row["what"].removeprefix(_SCALE))) for row in rows]
        befores = [1.0, *(scale for _, scale in scales)]
        return tuple((at, scale) for (at, scale), before in zip(scales, befores, strict=False) if scale != before)

    def notes(self, limit: int = 20) -> tuple[tuple[datetime, str], ...]:
        """Return the last notes with their times, newest first."""
        rows = self._db.rows("SELECT * FROM note ORDER BY at DESC, id DESC LIMIT ?", limit)
        return tuple((moment(row["at"]), row["text"]) for row in rows)


class Records(RecordReader):
    """What is written of the binding, the menus and what people do."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._pauses = Kept(database, super().pauses)  # both are asked for at each step of the engine
        self._overrides = Kept(database, super().overrides)

    def pauses(self, at: datetime | None = None) -> tuple[Pause, ...]:
        """Return what is paused now, or was paused at a moment."""
        return self._pauses() if at is None else super().pauses(at)

    def overrides(self, at: datetime | None = None) -> tuple[Override, ...]:
        """Return what is set over the menus now, or was set at a moment, by subject and kind."""
        return self._overrides() if at is None else super().overrides(at)

    def bind(
        self,
        campaign: str,
        cycle_length: timedelta,
        identities: Sequence[Identity],
        now: datetime,
        shard: str = "",
    ) -> None:
        """Bind the ledger to a campaign, cycle length and shard, and to an account at each service; later compare.

        A service that is new to the campaign is added. Raises LedgerError with what differs.
        """
        with self._db.write():
            bound = self._db.row("SELECT name, cycle_length FROM campaign")
            if bound["name"] is None:
                self._db.run(
                    "UPDATE campaign SET name = ?, cycle_length = ?, bound_at = ?",
                    campaign,
                    stored(cycle_length),
                    stored(now),
                )
            elif bound["name"] != campaign:
                raise self._other("campaign", bound["name"], campaign)
            elif bound["cycle_length"] != stored(cycle_length):
                was = format_duration(duration(bound["cycle_length"]))
                raise self._other("cycle length", was, format_duration(cycle_length))
            if bound["name"] is None and shard:
                self.record_resolution(*_SHARD, [shard], now)
            elif (was_shard := "".join(self.resolution(*_SHARD) or ())) != shard:
                raise self._other("shard", was_shard or "all destinations", shard or "all destinations")
            for identity in identities:
                self.identify(identity, now)

    def identify(self, identity: Identity, now: datetime) -> None:
        """Write who we are at a service now; raises LedgerError when the ledger is bound to another account."""
        with self._db.write():
            before = {known.service: known for known in self.identities()}
            if identity.service in before:
                self._compare(before[identity.service], identity)
            self._write(identity, now)

    def begin(self, now: datetime) -> datetime:
        """Return when the campaign's first run began: now, the first time that this is asked."""
        with self._db.write():
            self._db.run("UPDATE campaign SET since = ? WHERE since IS NULL", stored(now))
            return moment(self._db.row("SELECT since FROM campaign")["since"])

    def started(self, start: str, who: str, now: datetime) -> None:
        """Write that an injector has started, or that its rules and jobs are adopted; once for each id."""
        self._db.insert("start", "ON CONFLICT DO NOTHING", id=start, who=who, at=stored(now))

    def put_in_force(
        self,
        menus: Sequence[tuple[str, str, str]],
        now: datetime,
        parts: Mapping[str, Mapping[str, bytes]] = MappingProxyType({}),
    ) -> None:
        """Write the menus (name, digest, text) that are in force from now on; the others are no more.

        `parts` are the files that they brought in, by digest and path.
        """
        with self._db.write():
            wanted = {name: (digest, text) for name, digest, text in menus}
            for menu in self.menus_in_force():
                if wanted.get(menu.name) == (menu.digest, menu.text):
                    del wanted[menu.name]
                else:
                    self._db.run(
                        "UPDATE menu SET until = ? WHERE name = ? AND until IS NULL", stored(now), menu.name
                    )
            self._db.run_many(
                "INSERT INTO menu (name, digest, text, since) VALUES (?, ?, ?, ?)",
                ((name, digest, text, stored(now)) for name, (digest, text) in wanted.items()),
            )
            self._db.run_many(
                "INSERT INTO menu_part VALUES (?, ?, ?)",
                (
                    (digest, path, zlib.compress(content))
                    for digest, files in parts.items()
                    if not self.menu_parts(digest)
                    for path, content in files.items()
                ),
            )

    def record_resolution(self, service: str, expression: str, names: Sequence[str], now: datetime) -> None:
        """Write what an expression means; what was written first stays."""
        columns = {"service": service, "expression": expression, "names": json.dumps(list(names))}
        self._db.insert("resolution", "ON CONFLICT DO NOTHING", **columns, at=stored(now))

    def change(self, who: str, what: str, why: str, now: datetime) -> None:
        """Write what a person changed, and why."""
        self._db.insert("change", at=stored(now), who=who, what=what, why=why)

    def trust(self, hosts: Sequence[str], who: str, now: datetime) -> None:
        """Write that credentials may go to hosts; of those that are known nothing is written."""
        with self._db.write():
            trusted = self.trusted()
            if new := [host for host in hosts if host not in trusted]:
                self.change(who, _TRUSTS + " ".join(new), "credentials may go there", now)

    def scale(self, scale: float, now: datetime) -> None:
        """Write by what a run multiplies all rates of the menus, unless that is already in force."""
        with self._db.write():
            scales = self.scales()
            if scale != (scales[-1][1] if scales else 1.0):
                self.change("run", f"{_SCALE}{scale!r}".removesuffix(".0"), "", now)

    def pause(self, subject: str, who: str, why: str, now: datetime) -> bool:
        """Stop a subject: `*` (the campaign), a scenario or `SRC:DST`; returns False if it is stopped already."""
        with self._db.write():
            columns = {"subject": subject, "who": who, "why": why, "since": stored(now)}
            new = self._db.insert("pause", "ON CONFLICT DO NOTHING", **columns)
            self._pauses.forget()
            if new:
                self.change(who, f"{STOP}{shown(subject, EVERYTHING)}", why, now)
        return bool(new)

    def resume(self, subject: str, who: str, why: str, now: datetime) -> bool:
        """Let a subject go on; returns False if it was not stopped."""
        with self._db.write():
            was = self._db.run(
                "UPDATE pause SET until = ? WHERE subject = ? AND until IS NULL", stored(now), subject
            )
            self._pauses.forget()
            if was:
                self.change(who, f"{RESUME}{shown(subject, EVERYTHING)}", why, now)
        return bool(was)

    def override(self, subject: str, kind: Kind, value: float, who: str, why: str, now: datetime) -> bool:
        """Set a rate (bytes per second) or a scale for a subject, in place of the one before.

        Returns False, and writes nothing, when it is so already.
        """
        with self._db.write():
            if any((o.subject, o.kind, o.value) == (subject, kind, value) for o in self.overrides()):
                return False
            self._lift(subject, kind, now)
            columns = {"subject": subject, "kind": str(kind), "value": float(value), "who": who, "why": why}
            self._db.insert("override", **columns, since=stored(now))
            self._overrides.forget()
            self.change(who, f"set {shown(subject, EVERYTHING)} {describe(kind, value)}", why, now)
        return True

    def unset(self, subject: str, kind: Kind | None, who: str, why: str, now: datetime) -> tuple[Override, ...]:
        """Take back what is set for a subject (of one kind, or all), and return it."""
        with self._db.write():
            ours = tuple(o for o in self.overrides() if o.subject == subject and kind in {None, o.kind})
            for override in ours:
                self._lift(subject, override.kind, now)
                self.change(who, f"unset {shown(subject, EVERYTHING)} {override.words}", why, now)
        return ours

    def _lift(self, subject: str, kind: Kind, now: datetime) -> None:
        self._db.run(
            "UPDATE override SET until = ? WHERE subject = ? AND kind = ? AND until IS NULL",
            stored(now),
            subject,
            str(kind),
        )
        self._overrides.forget()

    def note(self, text: str, now: datetime) -> None:
        """Keep a remark or a trace: of one text the first and the last, in all the newest NOTES_KEPT."""
        if len(text) > LONGEST_NOTE:
            end = LONGEST_NOTE // 2 - 10
            text = f"{text[:end]}\n[...]\n{text[-end:]}"
        with self._db.write():
            oldest = "(SELECT min(id) FROM note WHERE text = ?)"
            self._db.run(f"DELETE FROM note WHERE text = ? AND id > {oldest}", text, text)  # noqa: S608  a constant
            self._db.insert("note", at=stored(now), text=text)
            last = "SELECT id FROM note ORDER BY id DESC LIMIT 1 OFFSET ?"  # none while there are less
            old = f"DELETE FROM note WHERE at < ? OR id <= ({last})"  # noqa: S608  a constant
            self._db.run(old, stored(now - NOTES_FOR), NOTES_KEPT)

    def _compare(self, bound: BoundIdentity, identity: Identity) -> None:
        # Another port of a host is another FTS, which knows none of the jobs; Rucio may move to another port.
        place = _place if SERVICES[identity.service].named_by_menus else _host
        for noun, was, now in (
            ("host", place(bound.address), place(identity.address)),
            ("VO", bound.vo, identity.vo),
            ("account", bound.account, identity.account),
        ):
            if was != now:
                raise self._other(f"{noun} at {identity.service}", was, now)

    def _write(self, identity: Identity, now: datetime) -> None:
        self._db.run(
            "INSERT OR REPLACE INTO identity VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            identity.service,
            identity.address,
            identity.vo,
            identity.account,
            identity.version,
            None if identity.may_end is None else int(identity.may_end),
            stored_or_none(identity.credentials_until),
            stored(now),
        )

    def _other(self, noun: str, was: str, now: str) -> LedgerError:
        return LedgerError(
            f"the ledger {self._db.path} is bound to another {noun}: {was}, not {now}",
            "continue with that one, or use another campaign name (or --ledger file)",
        )


def _menu(row: sqlite3.Row) -> MenuInForce:
    return MenuInForce(row["name"], row["digest"], row["text"], moment(row["since"]), moment_or_none(row["until"]))


def _host(address: str) -> str:
    return urlsplit(address).hostname or address


def _place(address: str) -> str:
    """Return host and port, also where an address leaves its scheme's own port out."""
    parts = urlsplit(address)
    return f"{_host(address)}:{parts.port or _PORTS.get(parts.scheme, '')}"
