"""Injections: intents, what became of them, and what planning has to know of them."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import median
from types import MappingProxyType
from typing import Any

from dc_inject.errors import LedgerError
from dc_inject.ledger import life
from dc_inject.ledger.accounts import AccountReader
from dc_inject.ledger.database import duration, moment, moment_or_none, stored, stored_or_none
from dc_inject.ledger.given import Given, GivenReader
from dc_inject.ledger.part import flow_key
from dc_inject.ledger.schema import ENDS
from dc_inject.model import Cycle, Entry, FlowKey, Injection, Item, JobOptions, State, Verify
from dc_inject.ports import Observation, Outcome

_TIMES = (
    "not_before",
    "called_at",
    "accepted_at",
    "expires_at",
    "completed_at",
    "end_asked_at",
    "ended_at",
    "gone_at",
    "observed_at",
)
_PLAIN = ("external_id", "attempt", "present", "failed", "moved", "files_done", "files_stuck", "error")
_KEPT = (
    *("key", "cycle", "campaign", "item", "bytes", "files", "release", "lifetime", "activity", "service_priority"),
    *("contact", "state", "job", "keeps_files", "undone", "moved_exact", *_PLAIN, *_TIMES),
)
_COLUMNS = f"{', '.join(f'injection.{name}' for name in _KEPT)}, scenario, source, destination, through, length"
_FROM = "FROM injection JOIN account ON account.id = injection.account JOIN cycle ON cycle.start = injection.cycle"
_WITH_FILES = f"SELECT {_COLUMNS}, members {_FROM}"
# There may be millions of files, of which most readers want to know nothing.
_PLAINLY = f"SELECT {_COLUMNS}, iif(state IN ('intended', 'called'), members, NULL) AS members {_FROM}"
_DROPPED = frozenset({State.REFUSED, State.WITHDRAWN})
_HERE = frozenset({State.LIVE, State.COMPLETE})
_MOVING = frozenset({State.CALLED, State.LIVE})


class InjectionReader(AccountReader, GivenReader):
    """What can be read of injections."""

    def entries(self, *states: State, cycle: Cycle | None = None, since: datetime | None = None) -> list[Entry]:
        """Return entries in these states (or in any), of one cycle, or of those from a start on, by release.

        Files are named in those that are still to be asked for; `with_files` names those of others.
        """
        found = self._entries(states, cycle, since)
        return sorted(found, key=lambda e: (e.injection.cycle, e.injection.release, e.injection.key))

    def entry(self, key: str) -> Entry:
        """Return the entry of a key; raises LedgerError when there is none."""
        row = self._db.row(f"{_WITH_FILES} WHERE key = ?", key)
        if row is None:
            raise LedgerError(f"the ledger {self._db.path} knows no injection {key}")
        return _entry(row)

    def with_files(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return entries by their keys, with the names of their files as far as they are kept."""
        rows = self._db.rows_among(_WITH_FILES + " WHERE key IN ({})", list(dict.fromkeys(keys)))
        return {row["key"]: _entry(row) for row in rows}

    def taken(self, now: datetime) -> set[tuple[str, str]]:
        """Return every (item, destination) that is resident or on its way through Rucio, or set aside now."""
        found = self._db.rows(
            "SELECT item, destination FROM injection JOIN account ON account.id = account "  # noqa: S608  our own words
            f"WHERE state NOT IN {ENDS} AND through = 'rucio' "
            "UNION SELECT item, destination FROM quarantine WHERE until IS NULL OR until > ?",
            stored(now),
        )
        return {(row["item"], row["destination"]) for row in found}

    def leaving(self) -> set[tuple[str, str]]:
        """Return every (item, source) that leaves that source now, or is about to."""
        found = self._db.rows(
            "SELECT DISTINCT item, source FROM injection JOIN account ON account.id = account "  # noqa: S608  our own words
            f"WHERE state NOT IN {ENDS} AND state IN ('intended', 'called', 'live')"
        )
        return {(row["item"], row["source"]) for row in found}

    def completion_times(self, since: datetime) -> Mapping[FlowKey, timedelta]:
        """Return the median time from acceptance to completion of what was completed since a moment."""
        found = self._db.rows(
            "SELECT scenario, source, destination, through, completed_at - accepted_at AS taken "
            "FROM injection JOIN account ON account.id = account WHERE completed_at >= ?",
            stored(since),
        )
        times: dict[FlowKey, list[int]] = defaultdict(list)
        for row in found:
            times[flow_key(row)].append(max(row["taken"], 0))
        return {key: duration(round(median(some))) for key, some in times.items()}

    def on_their_way_since(self) -> Mapping[FlowKey, tuple[datetime, datetime]]:
        """Return since when the oldest of what is on its way is so, and since when not all of it was looked at.

        Of each flow that has something on its way.
        """
        found = self._db.rows(
            "SELECT scenario, source, destination, through, min(accepted_at) AS since, "  # noqa: S608  our own words
            "min(coalesce(observed_at, accepted_at)) AS seen FROM injection JOIN account ON account.id = account "
            f"WHERE state = 'live' AND state NOT IN {ENDS} GROUP BY account.id"
        )
        return {flow_key(row): (moment(row["since"]), moment(row["seen"])) for row in found}

    def failed_parts(self, since: datetime) -> Mapping[FlowKey, float]:
        """Return the part of the bytes whose transfers came to their end since a moment that did not arrive.

        What was ended before it was complete counts with what had come to an end by then.
        """
        found = self._db.rows(
            "SELECT scenario, source, destination, through, sum(lost) AS lost, sum(size) AS size FROM ("  # noqa: S608  our own words
            "SELECT account, failed AS lost, bytes AS size FROM injection WHERE completed_at >= ? UNION ALL "
            "SELECT account, failed, moved + failed FROM injection "
            f"WHERE state = 'ended' AND state NOT IN {ENDS} AND completed_at IS NULL AND ended_at >= ?"
            ") JOIN account ON account.id = account GROUP BY account.id",
            stored(since),
            stored(since),
        )
        return {flow_key(row): row["lost"] / row["size"] for row in found if row["size"]}

    def _entries(
        self, states: Sequence[State] = (), cycle: Cycle | None = None, since: datetime | None = None
    ) -> Iterator[Entry]:
        conditions: list[str] = ["1"]
        values: list[str | int] = []
        if states:
            conditions.append(f"state IN ({', '.join('?' * len(states))})")
            values += [str(state) for state in states]
            if all(f"'{state}'" not in ENDS for state in states):
                conditions.append(f"state NOT IN {ENDS}")  # in the words of the partial index, which it takes then
        if cycle is not None:
            conditions.append("cycle = ?")
            values.append(stored(cycle.start))
        if since is not None:
            conditions.append("cycle >= ?")
            values.append(stored(since))
        for row in self._db.stream(f"{_PLAINLY} WHERE {' AND '.join(conditions)}", *values):
            yield _entry(row)


class Injections(InjectionReader, Given):
    """What happens to injections; each method is one transaction, and doing it twice is doing it once."""

    def add_injections(self, injections: Sequence[Injection], now: datetime) -> None:
        """Write intents of an open cycle. One that was dropped before is intended again; others are left alone."""
        with self._db.write():
            accounts = self._account_ids(injection.flow for injection in injections)
            self._db.run_many(_INTEND, (_columns(i, accounts[i.flow], now) for i in injections))
            self._give(injections)

    def call(self, keys: Sequence[str], now: datetime) -> tuple[str, ...]:
        """Write that intents are about to be asked for; returns the keys for which that is so.

        A key that is not intended (any more) is not among them and must not be sent.
        """
        with self._db.write():
            intents = [entry for entry in self._found(keys) if entry.state is State.INTENDED]
            self._save(intents, lambda entry: life.called(entry, now), now)
        return tuple(entry.injection.key for entry in intents)

    def answer(self, outcomes: Sequence[Outcome], now: datetime, retry_at: Mapping[str, datetime]) -> None:
        """Write what the service answered: accepted, refused, to be tried again (`retry_at`, by key), or lost."""
        news = {outcome.key: outcome for outcome in outcomes}
        self._change(
            list(news), lambda entry, key: life.answered(entry, news[key], now, retry_at.get(key, now)), now
        )

    def withdraw(self, keys: Sequence[str], why: str, now: datetime) -> None:
        """Drop intents, and entries in doubt that are known not to have been carried out."""
        self._change(keys, lambda entry, _key: life.withdrawn(entry, why), now)

    def observe(self, observations: Sequence[Observation], now: datetime) -> None:
        """Write how entries stand in the service; one that is absent has ended, unless it was in doubt."""
        news = {seen.key: seen for seen in observations}
        failures: Counter[tuple[FlowKey, str]] = Counter()

        def after(entry: Entry, key: str) -> Entry:
            later = life.observed(entry, news[key], now)
            if entry.state in _MOVING and later.state not in _MOVING:  # its files are counted once, at the last
                failures.update({(entry.injection.flow, why): n for why, n in news[key].reasons.items()})
            return later

        with self._db.write():
            self._change(list(news), after, now, {key: seen.undone for key, seen in news.items() if seen.undone})
            self._count(failures)

    def end_asked(self, keys: Sequence[str], now: datetime) -> None:
        """Write that the service is about to be asked to end these."""
        with self._db.write():
            self._db.run_many(
                "UPDATE injection SET end_asked_at = ? WHERE key = ?", ((stored(now), key) for key in keys)
            )

    def ended(self, keys: Sequence[str], now: datetime) -> None:
        """Write that rules or jobs are gone from the service."""
        self._change(keys, lambda entry, _key: life.ended(entry, now), now)

    def gone(self, keys: Sequence[str], now: datetime) -> None:
        """Write that the bytes of ended ones are gone from the destination."""
        self._change(keys, lambda entry, _key: life.gone(entry, now), now)

    def _change(
        self,
        keys: Sequence[str],
        after: Callable[[Entry, str], Entry],
        now: datetime,
        undone: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        if keys:
            with self._db.write():
                self._save(self._found(keys), lambda entry: after(entry, entry.injection.key), now, undone)

    def _count(self, failures: Mapping[tuple[FlowKey, str], int]) -> None:
        accounts = self._account_ids(flow for flow, _ in failures) if failures else {}
        self._db.run_many(
            "INSERT INTO failure VALUES (?, ?, ?) "
            "ON CONFLICT (account, reason) DO UPDATE SET files = files + excluded.files",
            ((accounts[flow], reason, count) for (flow, reason), count in failures.items() if count > 0),
        )

    def _found(self, keys: Sequence[str]) -> list[Entry]:
        return [
            _entry(row) for row in self._db.rows_among(_PLAINLY + " WHERE key IN ({})", list(dict.fromkeys(keys)))
        ]

    def _save(
        self,
        entries: Iterable[Entry],
        after: Callable[[Entry], Entry],
        now: datetime,
        undone: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        changed = [(before, entry) for before in entries if (entry := after(before)) != before]
        self._db.run_many(_UPDATE, (_state(entry, now) for _, entry in changed))
        for before, entry in changed:
            if entry.state is not before.state:
                self._take_back(before, entry, undone.get(entry.injection.key, ()))


_GIVEN = (
    "bytes",
    "files",
    "release",
    "lifetime",
    "activity",
    "service_priority",
    "contact",
    "state",
    "intended_at",
    "members",
    "job",
    "keeps_files",
)
_FIXED = ("key", "account", "cycle", "campaign", "item", *_GIVEN, "external_id", "attempt", "error")
_INTEND = (
    f"INSERT INTO injection ({', '.join(_FIXED)}) VALUES ({', '.join('?' * len(_FIXED))}) "  # noqa: S608  our own words
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _GIVEN)}, "
    "not_before = NULL, dropped_at = NULL, error = '' WHERE state IN ('refused', 'withdrawn')"
)
_UPDATE = (
    # Members are kept for the call that names them, and for a second hop: whatever else follows finds its files by
    # their key and number.
    "UPDATE injection SET state = ?1, members = iif(?1 IN ('intended', 'called') "  # noqa: S608  our own words
    "OR (keeps_files AND ?1 IN ('live', 'complete')), members, NULL), moved_exact = ?, undone = ?, "
    f"{', '.join(f'{name} = ?' for name in _PLAIN + _TIMES)}, dropped_at = coalesce(dropped_at, ?) WHERE key = ?"
)


def _columns(injection: Injection, account: int, now: datetime) -> tuple[object, ...]:
    return (
        injection.key,
        account,
        stored(injection.cycle.start),
        injection.campaign,
        injection.item.name,
        injection.item.bytes,
        injection.item.files,
        stored(injection.release),
        stored(injection.lifetime),
        injection.activity,
        injection.service_priority,
        injection.contact,
        str(State.INTENDED),
        stored(now),
        json.dumps([[m.name, m.bytes, m.checksum] for m in injection.item.members]) if injection.job else None,
        None if injection.job is None else _job_text(injection.job),
        int(injection.keeps_files),
        "",
        0,
        "",
    )


def _state(entry: Entry, now: datetime) -> tuple[object, ...]:
    return (
        str(entry.state),
        int(entry.moved_exact),
        json.dumps(entry.undone) if entry.undone and entry.state in _HERE else None,
        *(getattr(entry, name) for name in _PLAIN),
        *(stored_or_none(getattr(entry, name)) for name in _TIMES),
        stored(now) if entry.state in _DROPPED else None,
        entry.injection.key,
    )


def _entry(row: sqlite3.Row) -> Entry:
    flow = flow_key(row)
    injection = Injection(
        key=row["key"],
        campaign=row["campaign"],
        cycle=Cycle(moment(row["cycle"]), duration(row["length"])),
        scenario=flow.scenario,
        link=flow.link,
        item=Item(row["item"], row["bytes"], row["files"], members=_members(row["members"])),
        release=moment(row["release"]),
        lifetime=duration(row["lifetime"]),
        activity=row["activity"],
        service_priority=row["service_priority"],
        contact=row["contact"],
        job=None if row["job"] is None else _job(row["job"]),
        keeps_files=bool(row["keeps_files"]),
    )
    news: dict[str, Any] = {name: row[name] for name in _PLAIN}
    news |= {name: moment_or_none(row[name]) for name in _TIMES}
    news["undone"] = () if row["undone"] is None else tuple(json.loads(row["undone"]))
    return Entry(injection, State(row["state"]), moved_exact=bool(row["moved_exact"]), **news)


def _members(text: str | None) -> tuple[Item, ...]:
    return tuple(Item(name, size, 1, checksum) for name, size, checksum in json.loads(text or "[]"))


def _job_text(job: JobOptions) -> str:
    return json.dumps(asdict(job) | {"longest_transfer": stored(job.longest_transfer)})


@lru_cache(maxsize=256)  # a campaign has a few of them, an observation thousands of entries
def _job(text: str) -> JobOptions:
    told = json.loads(text)
    more = {"verify": Verify(told["verify"]), "longest_transfer": duration(told["longest_transfer"])}
    return JobOptions(**told | more)
