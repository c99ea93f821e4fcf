"""Injections: intents, what became of them, and what planning has to know of them."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from statistics import median
from types import MappingProxyType

from dc_inject.ledger import active_entries, entry_rows, uniqueness
from dc_inject.ledger.accounts import AccountReader
from dc_inject.ledger.active_entries import Completion, Completions, Living
from dc_inject.ledger.database import FLOW, Database, duration, flow_key, flow_of, moment, stored, stored_or_never
from dc_inject.ledger.inventory import record_tape
from dc_inject.ledger.schema import ENDS
from dc_inject.ledger.uniqueness import EntryReader
from dc_inject.model import Cycle, Entry, FlowKey, Injection, State, transitions
from dc_inject.model.errors import LedgerError
from dc_inject.model.groups import grouped
from dc_inject.model.items import ItemId, read_id
from dc_inject.model.ports import Observation, Outcome

LONG = timedelta(days=1)  # before its deletion an injection has begun, as far as deletions are measured
# `count_stuck` of `model/losses.py`; a product of bytes and files may be more than SQLite's numbers hold.
_LEFT = "bytes - present - injection.failed - injection.moved"
_STUCK = (
    "max(min(bytes / max(files, 1) * files_stuck "
    f"+ (bytes % max(files, 1) * files_stuck + max(files, 1) - 1) / max(files, 1), {_LEFT}), 0)"
)
_MOVING = frozenset({State.CALLED, State.LIVE})
_OVER = tuple(state for state in State if state not in active_entries.STATES)


class InjectionReader(AccountReader, EntryReader):
    """What can be read of injections."""

    def entries(self, *states: State, cycle: Cycle | None = None, since: datetime | None = None) -> list[Entry]:
        """Return entries in these states (or in any), of one cycle, or of those from a start on, by release.

        Files are named in those that are still to be asked for; `with_files` names those of others.
        """
        return sorted(self._entries(states, cycle, since), key=active_entries.by_release)

    def entry(self, key: str) -> Entry:
        """Return the entry of a key; raises LedgerError when there is none."""
        row = self._db.row(f"{entry_rows.WITH_FILES} WHERE key = ?", key)
        if row is None:
            raise LedgerError(f"the ledger {self._db.path} knows no injection {key}")
        return entry_rows.entry_of(row)

    def states(self, keys: Iterable[str]) -> dict[str, State]:
        """Return the states of entries by their keys."""
        rows = self._db.rows_among("SELECT key, state FROM injection WHERE key IN ({})", list(keys))
        return {row["key"]: entry_rows.STATE_OF[row["state"]] for row in rows}

    def asked_for(self, keys: Iterable[str]) -> set[str]:
        """Return those of these keys for which a service was ever called."""
        return {entry.injection.key for entry in self._found(list(keys)) if entry.called_at is not None}

    def with_files(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return entries by their keys, with the names of their files as far as they are kept."""
        rows = self._db.rows_among(entry_rows.WITH_FILES + " WHERE key IN ({})", list(dict.fromkeys(keys)))
        return {row["key"]: entry_rows.entry_of(row) for row in rows}

    def leaving(self) -> set[tuple[ItemId, str]]:
        """Return every (item, source) that leaves that source now, or is about to."""
        leaving = self._entries((State.INTENDED, State.CALLED, State.LIVE))
        return {(entry.injection.item.id, entry.injection.link.source) for entry in leaving}

    def used(self, since: datetime) -> Iterator[tuple[ItemId, str, datetime]]:
        """Yield item, source and cycle of the last use of each item in the cycles since a moment.

        What was refused or withdrawn was not used. Asks for those cycles only, by their index.
        """
        for row in self._db.rows(
            "SELECT item, source, max(cycle) AS cycle FROM injection JOIN account ON account.id = account "
            "WHERE cycle >= ? AND state NOT IN ('refused', 'withdrawn') GROUP BY item, source",
            stored(since),
        ):
            yield read_id(row["item"]), row["source"], moment(row["cycle"])

    def completion_times(self, since: datetime) -> Mapping[FlowKey, timedelta]:
        """Return the median time from acceptance to completion of what was completed since then."""
        times = self.times_to_completion(since)
        return {key: duration(round(median(durations))) for key, durations in times.items()}

    def times_to_completion(
        self, since: datetime, until: datetime | None = None
    ) -> Mapping[FlowKey, Sequence[int]]:
        """Return the microseconds from acceptance to completion of all that was completed since then."""
        times: dict[FlowKey, array[int]] = defaultdict(lambda: array("q"))
        for _, flow, taken in self._completed(since, until):
            times[flow].append(taken)
        return times

    def _completed(self, since: datetime, until: datetime | None = None) -> Iterator[Completion]:
        for at, taken, *flow in self._db.stream(
            f"SELECT completed_at, completed_at - accepted_at, {FLOW} "  # noqa: S608  our own words
            "FROM injection JOIN account ON account.id = account WHERE completed_at >= ? AND completed_at < ?",
            stored(since),
            stored_or_never(until),
        ):
            yield Completion(moment(at), flow_of(*flow), max(taken, 0))

    def deletions(self, since: datetime, lately: datetime) -> Mapping[str, tuple[timedelta, int]]:
        """Return, by destination, the median time from end to deletion, and the bytes that went lately.

        Of what is known to be gone since a moment, and since a later one. Times hold the wait until it was seen.
        """
        rows = self._db.rows(
            "SELECT destination, gone_at - ended_at AS taken, iif(gone_at >= ?, bytes, 0) AS size "
            "FROM injection JOIN account ON account.id = account "
            "WHERE cycle >= ? AND gone_at >= ? AND ended_at IS NOT NULL",
            stored(lately),
            stored(since - LONG),
            stored(since),
        )
        times: dict[str, list[int]] = defaultdict(list)
        sizes: dict[str, int] = defaultdict(int)
        for row in rows:
            times[row["destination"]].append(max(row["taken"], 0))
            sizes[row["destination"]] += row["size"]
        return {place: (duration(round(median(taken))), sizes[place]) for place, taken in times.items()}

    def on_their_way_since(self) -> Mapping[FlowKey, tuple[datetime, datetime]]:
        """Return since when the oldest of what is on its way is so, and since when not all of it was looked at.

        Of each flow that has something on its way.
        """
        oldest: dict[FlowKey, tuple[datetime, datetime]] = {}
        for entry in self._entries((State.LIVE,)):
            if entry.accepted_at is not None:
                times = entry.accepted_at, entry.observed_at or entry.accepted_at
                so_far = oldest.setdefault(entry.injection.flow, times)
                oldest[entry.injection.flow] = min(so_far[0], times[0]), min(so_far[1], times[1])
        return oldest

    def expired(self, since: datetime, begun: datetime) -> Mapping[FlowKey, Sequence[tuple[datetime, int]]]:
        """Return, by flow, when something ended that had not arrived, and how many bytes of it had not.

        Of what ended since a moment, in cycles since another one. What failed or was given up did not wait, and
        what was asked to end early has not expired (`model/losses.py`).
        """
        rows = self._db.rows(
            "SELECT scenario, source, destination, through, ended_at, size FROM ("  # noqa: S608  our own words
            "SELECT account, ended_at, "
            f"{_LEFT} - {_STUCK} AS size FROM injection "
            "WHERE cycle >= ? AND ended_at >= ? AND completed_at IS NULL "
            "AND (end_asked_at IS NULL OR end_asked_at >= accepted_at + lifetime)"
            ") JOIN account ON account.id = account WHERE size > 0",
            stored(begun),
            stored(since),
        )
        return grouped((flow_key(row), (moment(row["ended_at"]), row["size"])) for row in rows)

    def not_moved_failed(self) -> Mapping[FlowKey, int]:
        """Return the bytes of each flow that failed in all attempts of rules that are over (`model/losses.py`)."""
        rows = self._db.rows(
            "SELECT scenario, source, destination, through, sum(CASE WHEN files_done + files_stuck >= files "  # noqa: S608  our own words
            f"THEN {_LEFT} ELSE {_STUCK} END) AS size "
            "FROM injection JOIN account ON account.id = account "
            "WHERE state IN ('complete', 'ended', 'gone') AND files_stuck > 0 AND injection.failed = 0 "
            "GROUP BY account"
        )
        return {flow_key(row): row["size"] for row in rows}

    def stuck_until_ended(
        self, since: datetime, begun: datetime
    ) -> Mapping[FlowKey, Sequence[tuple[datetime, int]]]:
        """Return, by flow, when something ended with files that its service had given up, and their bytes.

        Of what ended since a moment, in cycles since another one.
        """
        rows = self._db.rows(
            f"SELECT scenario, source, destination, through, ended_at, {_STUCK} AS size "  # noqa: S608  our own words
            "FROM injection JOIN account ON account.id = account "
            "WHERE cycle >= ? AND ended_at >= ? AND files_stuck > 0 AND completed_at IS NULL",
            stored(begun),
            stored(since),
        )
        return grouped((flow_key(row), (moment(row["ended_at"]), row["size"])) for row in rows)

    def failed_parts(self, since: datetime) -> Mapping[FlowKey, float]:
        """Return the part of the bytes whose transfers came to their end since a moment that did not arrive.

        What was ended before it was complete counts with what had come to an end by then.
        """
        rows = self._db.rows(
            "SELECT scenario, source, destination, through, sum(lost) AS lost, sum(size) AS size FROM ("  # noqa: S608  our own words
            "SELECT account, failed AS lost, bytes AS size FROM injection WHERE completed_at >= ? UNION ALL "
            "SELECT account, failed, moved + failed FROM injection "
            f"WHERE state = 'ended' AND state NOT IN {ENDS} AND completed_at IS NULL AND ended_at >= ?"
            ") JOIN account ON account.id = account GROUP BY account.id",
            stored(since),
            stored(since),
        )
        return {flow_key(row): row["lost"] / row["size"] for row in rows if row["size"]}

    def _found(self, keys: Sequence[str]) -> list[Entry]:
        return [
            entry_rows.entry_of(row)
            for row in self._db.rows_among(entry_rows.PLAINLY + " WHERE key IN ({})", list(dict.fromkeys(keys)))
        ]


def _of_living(states: Sequence[State], cycle: Cycle | None, since: datetime | None) -> bool:
    """Whether all that is asked for is among what the writer keeps in memory."""
    return cycle is None and since is None and bool(states) and active_entries.STATES.issuperset(states)


class Injections(InjectionReader):
    """What happens to injections; each method is one transaction, and doing it twice is doing it once."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._living = Living(database, partial(super()._entries, tuple(active_entries.STATES)))
        self._completions = Completions(database, super()._completed)
        self._any_once = uniqueness.any_once(database)
        self._looks: dict[str, tuple[Entry, Observation]] = {}  # the last one at each, and what it made of it

    def states(self, keys: Iterable[str]) -> dict[str, State]:
        """Return the states of entries by their keys."""
        active, wanted = self._living.entries(), list(keys)
        others = super().states([key for key in wanted if key not in active])
        return {key: active[key].state for key in wanted if key in active} | others

    def entries(self, *states: State, cycle: Cycle | None = None, since: datetime | None = None) -> list[Entry]:
        """Return entries as a reader does; what lives is in its order already."""
        if not _of_living(states, cycle, since):
            return super().entries(*states, cycle=cycle, since=since)
        return list(self._entries(states))

    def _entries(
        self, states: Sequence[State] = (), cycle: Cycle | None = None, since: datetime | None = None
    ) -> Iterator[Entry]:
        if _of_living(states, cycle, since):
            wanted = frozenset(states)
            return iter([entry for entry in self._living.entries().values() if entry.state in wanted])
        if cycle is not None and not states:
            living = [e for e in self._living.entries().values() if e.injection.cycle == cycle]
            return chain(living, super()._entries(_OVER, cycle))
        return super()._entries(states, cycle, since)

    def _completed(self, since: datetime, until: datetime | None = None) -> Iterator[Completion]:
        return self._completions.since(since) if until is None else super()._completed(since, until)

    def _found(self, keys: Sequence[str]) -> list[Entry]:
        active = self._living.entries()
        others = super()._found([key for key in keys if key not in active])
        return [active[key] for key in dict.fromkeys(keys) if key in active] + others

    def add_injections(self, injections: Sequence[Injection], now: datetime) -> None:
        """Write intents of an open cycle. One that was dropped before is intended again; others are left alone."""
        with self._db.write():
            accounts = self._open_accounts(injection.flow for injection in injections)
            before = {entry.injection.key for entry in self._found([injection.key for injection in injections])}
            intents = {one.key: (Entry(one, State.INTENDED), accounts[one.flow], now) for one in injections}
            new = [intent for key, intent in intents.items() if key not in before]
            with self._living.changing() as put:
                self._write_intents(new)
                self._db.run_many(entry_rows.INTEND, [entry_rows.intended(*intents[key]) for key in before])
                for entry in (*super()._found(list(before)), *(intent for intent, *_ in new)):
                    put(entry)
            if uniqueness.keep_once_only(self._db, injections):
                self._any_once.forget()

    def call(self, keys: Sequence[str], now: datetime) -> tuple[str, ...]:
        """Write that intents are about to be asked for; returns the keys for which that is so.

        A key that is not intended (any more) is not among them and must not be sent.
        """
        with self._db.write():
            intents = [entry for entry in self._found(keys) if entry.state is State.INTENDED]
            self._save(intents, lambda entry: transitions.called(entry, now), now)
        return tuple(entry.injection.key for entry in intents)

    def answer(self, outcomes: Sequence[Outcome], now: datetime, retry_at: Mapping[str, datetime]) -> None:
        """Write what the service answered: accepted, refused, to be tried again (`retry_at`, by key), or lost."""
        news = {outcome.key: outcome for outcome in outcomes}
        self._change(
            list(news), lambda entry, key: transitions.answered(entry, news[key], now, retry_at.get(key, now)), now
        )

    def withdraw(self, keys: Sequence[str], why: str, now: datetime) -> None:
        """Drop intents, and entries in doubt that are known not to have been carried out."""
        self._change(keys, lambda entry, _key: transitions.withdrawn(entry, why), now)

    def observe(self, observations: Sequence[Observation], now: datetime) -> None:
        """Write how entries stand in the service; one that is absent has ended, unless it was in doubt."""
        news: dict[str, Observation] = {}
        repeatable: dict[str, Observation] = {}  # those that would make nothing more of the same entry
        failures: Counter[tuple[FlowKey, str]] = Counter()

        def after(entry: Entry, key: str) -> Entry:
            later = transitions.observed(entry, news[key], now)
            if later.state is entry.state and later.observed_at == now:
                repeatable[key] = news[key]
            if entry.state in _MOVING and later.state not in _MOVING:  # its files are counted once, at the last
                failures.update({(entry.injection.flow, why): n for why, n in news[key].reasons.items()})
            return later

        with self._db.write():
            again = self._looked_at_again(observations, now)
            news = {observation.key: observation for observation in observations if observation.key not in again}
            self._change(
                list(news),
                after,
                now,
                {key: observation.undone for key, observation in news.items() if observation.undone},
            )
            self._count(failures)
            record_tape(self._db, {key: o.tape for key, o in news.items() if o.tape is not None}, now)
            active = self._living.entries()
            self._looks |= {key: (active[key], look) for key, look in repeatable.items() if key in active}

    def _looked_at_again(self, observations: Iterable[Observation], now: datetime) -> set[str]:
        """Write the time of observations of entries that did not change; return keys.

        Most looks do, and what a look makes of an entry is made once (`transitions.observed`).
        """
        active, looks = self._living.entries(), self._looks
        again = {
            look.key: before
            for look in observations
            if (before := active.get(look.key)) is not None
            and (last := looks.get(look.key)) is not None
            and last[0] is before
            and (last[1] is look or last[1] == look)
        }
        if again:
            with self._living.changing() as put:
                seen = {key: before.changed(observed_at=now) for key, before in again.items()}
                for key, entry in seen.items():
                    put(entry)
                    looks[key] = entry, looks[key][1]
                self._write_looks(seen, now)
        return set(again)

    def end_asked(self, keys: Sequence[str], now: datetime) -> None:
        """Write that the service is about to be asked to end these."""
        self._change(keys, lambda entry, _key: transitions.end_asked(entry, now), now)

    def ended(self, keys: Sequence[str], now: datetime) -> None:
        """Write that rules or jobs are gone from the service."""
        self._change(keys, lambda entry, _key: transitions.ended(entry, now), now)

    def gone(self, keys: Sequence[str], now: datetime) -> None:
        """Write that the bytes of ended ones are gone from the destination."""
        self._change(keys, lambda entry, _key: transitions.gone(entry, now), now)

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

    # The ledger of a simulation (`apps/twin/simulated_ledger.py`) overrides how these three write.

    def _write_intents(self, intents: Iterable[tuple[Entry, int, datetime]]) -> None:
        self._db.run_many(entry_rows.INTEND, [entry_rows.intended(*intent) for intent in intents])

    def _write_looks(self, seen: Mapping[str, Entry], now: datetime) -> None:
        self._db.run(entry_rows.update(("observed_at",), several=True), stored(now), json.dumps(list(seen)))

    def _write_changes(self, changes: Iterable[tuple[Entry, Entry, datetime]]) -> None:
        # What becomes of many at once is mostly the same: one statement for all is half the work of one for each.
        alike: dict[tuple[tuple[str, ...], tuple[object, ...]], list[str]] = defaultdict(list)
        for before, entry, now in changes:
            if names := entry_rows.differing(before, entry):
                alike[names, entry_rows.written(entry, names, now)].append(entry.injection.key)
        statements: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        for (names, values), keys in alike.items():
            several = len(keys) > 1
            row = (*values, json.dumps(keys) if several else keys[0])
            statements[entry_rows.update(names, several=several)].append(row)
        for statement, rows in statements.items():
            self._db.run_many(statement, rows)

    def _count(self, failures: Mapping[tuple[FlowKey, str], int]) -> None:
        if not failures:
            return
        accounts = self._open_accounts(flow for flow, _ in failures)
        self._db.run_many(
            "INSERT INTO failure VALUES (?, ?, ?) "
            "ON CONFLICT (account, reason) DO UPDATE SET files = files + excluded.files",
            ((accounts[flow], reason, count) for (flow, reason), count in failures.items() if count > 0),
        )

    def _save(
        self,
        entries: Iterable[Entry],
        after: Callable[[Entry], Entry],
        now: datetime,
        undone: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        changes, moved_on = list[tuple[Entry, Entry, datetime]](), list[tuple[Entry, Entry]]()
        with self._living.changing() as put, self._completions.changing() as put_completed:
            for before in entries:
                entry = after(before)
                if entry is before:
                    continue
                put(entry)
                changes.append((before, entry, now))
                if entry.state is not before.state:
                    moved_on.append((before, entry))
                    put_completed(before, entry)
            self._write_changes(changes)
        for _, entry in moved_on:
            self._looks.pop(entry.injection.key, None)
        if self._any_once():
            uniqueness.let_out_again(self._db, moved_on, undone)
