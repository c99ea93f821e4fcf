"""How rules of ours stand: dataset locks in bulk, and a closer look at a bounded number of rules."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from rucio.common.exception import RuleNotFound

from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection, Row, account_of
from dc_inject.backends.rucio.dids import Did
from dc_inject.backends.rucio.replica_check import list_locks
from dc_inject.backends.rucio.rules import Rules, read_lock_proof, read_rule_proof, status
from dc_inject.backends.service_connection import Breaker
from dc_inject.model import Entry, State, deletion, units
from dc_inject.model.deletion import NotOurs, ObservedRule
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError
from dc_inject.model.ports import VANISHED, Observation, Status
from dc_inject.model.redaction import scrub

log = logging.getLogger(__name__)

GIVE_UP_AFTER = 3  # failures in a row: the service does not answer now, and each one costs a time-out
_ONE_IN = 50  # rules that are under way is looked at by itself in one observation
_LOOKED = 100_000  # rules of which it is kept when they were looked at
SURE_AFTER = timedelta(seconds=30)  # a front end that loses rules for a moment is mended, or silent, by then
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_LOCK = {"OK": Status.COMPLETE, "REPLICATING": Status.MOVING, "STUCK": Status.STUCK}


@dataclass(frozen=True, slots=True)
class Observing:
    """Finds the state of entries.

    One bulk call shows what is complete, and what was complete and is gone. What is stuck or takes longer than a
    cycle gets a call of its own for its progress: when it is one cycle old, then two, four and so on; but one in
    50 at a time and at most `estimates`, those looked at longest ago first. Of the others it is known from before.

    An id was named by an answer, which proves nothing: a rule counts only if its lock, or the rule itself, shows
    our account, dataset, RSE and comment. If the id is not that of our rule, our own is looked for. That Rucio has
    no such rule is believed when it is expected, or when Rucio answers so again, `SURE_AFTER` later.
    """

    connection: Connection
    rules: Rules
    estimates: int
    looked: dict[str, datetime] = field(default_factory=dict)  # rules, and when they were looked at by themselves
    ended: set[str] = field(default_factory=set)  # rules whose end Rucio has accepted
    missed: dict[str, datetime] = field(default_factory=dict)  # by key: since when Rucio does not know its rule
    compared: set[str] = field(default_factory=set)  # rules, with those of others for the same dataset there
    found_nothing: set[str] = field(default_factory=set)  # rules that had no file in place at their birth

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """Return one observation for each entry."""
        seen: dict[str, Observation] = {}
        dids = {entry.injection.key: Did.of_item(entry.injection.item.id) for entry in entries}
        account = account_of(self.connection)
        rows = {read_lock_proof(row): row for row in list_locks(self.connection, dids.values())}
        held, own = {shown.did for shown in rows}, {(s.did, s.rse) for s in rows if s.account == account}
        locks: dict[str, Row] = {}  # by key
        moving: list[Entry] = []
        breaker = Breaker[Observation](GIVE_UP_AFTER)
        for entry in entries:
            key, place = entry.injection.key, (str(dids[entry.injection.key]), entry.injection.link.destination)
            lock = rows.get(ObservedRule(entry.external_id, account, *place))
            if lock is not None and _LOCK.get(lock["state"]) is not Status.COMPLETE and not exact:
                locks[key] = lock
                moving.append(entry)
            elif lock is None and entry.state is State.COMPLETE and place[0] in held and place not in own:
                # A complete rule has a lock. The answer has locks of its dataset, so it is not incomplete.
                seen[key] = _gone(entry)
            else:
                seen[key] = _unknown(entry) if breaker.open else self._look_at(entry, lock, exact=exact)
                breaker.note(seen[key] if seen[key].silent else None)
        seen |= {entry.injection.key: _glance(entry, locks[entry.injection.key]) for entry in moving}
        seen |= self._progress(self._to_look_at(moving, locks))
        for key in [key for key, observation in seen.items() if observation.status is not Status.UNKNOWN]:
            self.missed.pop(key, None)
        for key, size in self._moved_for_others(entries, rows).items():
            seen[key] = seen[key]._replace(present=size)
        return [seen[entry.injection.key] for entry in entries]

    def _look_at(self, entry: Entry, lock: Row | None, *, exact: bool) -> Observation:
        """Look at one entry; trouble with it is no trouble of the others, unless nothing works at all."""
        try:
            if not entry.external_id:
                return self._search(entry, exact=exact)
            if lock is not None and _LOCK.get(lock["state"]) is Status.COMPLETE:
                return self._complete(entry)
            return self._closely(entry, exact=exact)
        except NeedsOperator:
            raise
        except ServiceError as error:
            log.debug("nothing known of %s: %s", entry.injection.item.name, error.message)
            return _unknown(entry)

    def _to_look_at(self, moving: Sequence[Entry], locks: Mapping[str, Row]) -> list[Entry]:
        """Return which rules to look at by themselves: each time it is twice as old as the time before."""
        now = self.connection.now()
        due = []
        for entry in moving:
            age = now - (entry.accepted_at or entry.injection.release)
            last = self.looked.get(entry.external_id, _NEVER)
            stuck = locks[entry.injection.key]["state"] == "STUCK"
            if (stuck or age >= entry.injection.cycle.length) and 2 * (now - last) >= age:
                due.append((last, entry))
        due.sort(key=lambda looked: looked[0])
        return [entry for _, entry in due[: min(self.estimates, -(-len(moving) // _ONE_IN))]]

    def _progress(self, entries: Sequence[Entry]) -> dict[str, Observation]:
        """Look at rules one by one, as long as Rucio answers: what they are is known, it is only how far."""
        seen: dict[str, Observation] = {}
        if len(self.looked) > _LOOKED:
            self.looked.clear()
        for entry in entries:
            self.looked[entry.external_id] = self.connection.now()
            try:
                seen[entry.injection.key] = self._closely(entry, exact=False)
            except ServiceError as error:
                log.debug("no progress of %s: %s", units.counted(len(entries) - len(seen), "rules"), error.message)
                break
        return seen

    def _search(self, entry: Entry, *, exact: bool) -> Observation:
        """Look for the rule of an entry by its dataset: no id is known, or the id is not that of our rule."""
        rule, _ = self.rules.find(entry.injection.item.id, entry.injection.link.destination)
        if rule is None or rule.key != entry.injection.key:
            return self._note_missing(entry)
        return self._closely(entry.changed(external_id=rule.external_id), exact=exact, searched=True)

    def _note_missing(self, entry: Entry) -> Observation:
        """Note that Rucio has no rule for an entry, and return what follows.

        One that was accepted and never seen was not made, or is lost: it counts as failed.
        """
        if entry.state not in {State.LIVE, State.COMPLETE}:
            return Observation(entry.injection.key, Status.ABSENT)
        if self._may_be_gone(entry):
            return _gone(entry)
        now, key = self.connection.now(), entry.injection.key
        if key not in self.missed:
            log.info("Rucio does not know the rule %s (any more): asking again", entry.external_id)
        sure_at = self.missed.setdefault(key, now) + SURE_AFTER
        if sure_at > now:
            return Observation(key, Status.UNKNOWN, again_at=sure_at)
        if entry.observed_at is not None:
            return _gone(entry)
        item, why = entry.injection.item, "Rucio does not know a rule that it accepted"
        return _gone(entry)._replace(
            files_stuck=item.files, failed=item.bytes, reasons={VANISHED: item.files}, error=why
        )

    def _may_be_gone(self, entry: Entry) -> bool:
        """Return whether it is no surprise that Rucio does not know a rule any more."""
        expired = entry.expires_at is not None and entry.expires_at <= self.connection.now()
        return expired or entry.external_id in self.ended

    def _closely(self, entry: Entry, *, exact: bool, searched: bool = False) -> Observation:
        """Look at one rule; `exact` adds up the bytes of its locks, `searched` that its id comes from a search."""
        rule = entry.external_id
        try:
            row: Row = self.connection.call("get_replication_rule", rule)
        except Permanent as error:
            if not isinstance(error.__cause__, RuleNotFound):
                raise
            known = searched or self._may_be_gone(entry)
            return self._note_missing(entry) if known else self._search(entry, exact=exact)
        shown = read_rule_proof(row, entry.injection.link.through)
        if not deletion.is_ours(deletion.Rule(rule, account_of(self.connection), entry.injection, shown)):
            level = logging.DEBUG if entry.injection.key in self.missed else logging.WARNING  # once for each rule
            is_shown = f"{shown.did} at {shown.rse} of {shown.account}"
            log.log(level, "Rucio shows %s under the id %s: this is not our rule", scrub(is_shown), rule)
            if searched:
                raise NotOurs(f"Rucio shows another rule under the id {rule}")
            return self._search(entry, exact=exact)
        done, stuck = count(row["locks_ok_cnt"]), count(row["locks_stuck_cnt"])
        files = done + stuck + count(row["locks_replicating_cnt"])
        if files and not done:
            if len(self.found_nothing) > _LOOKED:
                self.found_nothing.clear()
            self.found_nothing.add(entry.external_id)
        state = status(row)
        size = entry.injection.item.bytes
        certain = state is Status.COMPLETE
        moved = size if certain else size * done // files if files else 0
        if exact and not certain:
            moved, certain = self._bytes_done(entry), True
        return Observation(
            entry.injection.key,
            state,
            entry.external_id,
            files_done=done,
            files_stuck=stuck,
            moved=moved,
            exact=certain,
            present=self._present(entry) if done else None,
            expires_at=utc(row["expires_at"]),
            error=scrub(str(row["error"] or "")),
        )

    def _complete(self, entry: Entry) -> Observation:
        item = entry.injection.item
        return Observation(
            entry.injection.key,
            Status.COMPLETE,
            entry.external_id,
            files_done=item.files,
            moved=item.bytes,
            exact=True,
            present=self._present(entry),
        )

    def _moved_for_others(self, entries: Sequence[Entry], shown: Iterable[ObservedRule]) -> dict[str, int]:
        """Return the bytes of entries whose datasets an older rule of others was bringing to the same destination.

        It was made after the last check of the dataset and before ours. Rucio moves the files for that rule, and
        makes no transfer for ours. A younger rule changes nothing. Each of ours is compared once.
        """
        rules: dict[tuple[str, str], set[str]] = defaultdict(set)
        for rule in shown:
            rules[rule.did, rule.rse].add(rule.id)
        found: dict[str, int] = {}
        compared = 0
        for entry in entries:
            injection, ours = entry.injection, entry.external_id
            there = rules.get((str(Did.of_item(injection.item.id)), injection.link.destination), set())
            if ours not in there or len(there) == 1 or entry.present or ours in self.compared:
                continue
            if compared == self.estimates:
                break
            compared += 1
            try:
                if min(map(self._made_at, sorted(there - {ours}))) <= self._made_at(ours):
                    found[injection.key] = injection.item.bytes
            except ServiceError as error:
                log.debug("the rules for %s cannot be compared: %s", injection.item.name, error.message)
                continue
            if len(self.compared) > _LOOKED:
                self.compared.clear()
            self.compared.add(ours)
        return found

    def _made_at(self, rule: str) -> datetime:
        try:
            return utc(self.connection.call("get_replication_rule", rule)["created_at"]) or _LATEST
        except Permanent:
            return _LATEST  # gone, or not ours to read

    def _bytes_done(self, entry: Entry) -> int:
        """Add up the files whose locks are OK."""
        did = Did.of_item(entry.injection.item.id)
        locks = self.connection.call("list_replica_locks", entry.external_id)
        done = {Did.of(lock) for lock in locks if lock["state"] == "OK"}
        files = self.connection.call("list_files", did.scope, did.name)
        return sum(count(file["bytes"]) for file in files if Did.of(file) in done)

    def _present(self, entry: Entry) -> int | None:
        """Return the bytes that were at the destination when the rule was made, by its history.

        Asked once, when files of it are first seen to be there. The history counts files, so that the bytes
        are an estimate unless it was none or all of them. None: not known, or known from before.
        """
        if entry.files_done or entry.present or entry.external_id in self.found_nothing:
            return None
        did, item = Did.of_item(entry.injection.item.id), entry.injection.item
        try:
            rows = self.connection.call("list_replication_rule_full_history", did.scope, did.name)
        except ServiceError as error:
            log.debug("no history of %s: %s", did, error.message)
            return None
        born = next((row for row in rows if row["rule_id"] == entry.external_id), None)
        if born is None:
            return None
        done = count(born["locks_ok_cnt"])
        files = done + count(born["locks_replicating_cnt"]) + count(born["locks_stuck_cnt"])
        return item.bytes * done // files if files else None


def _gone(entry: Entry) -> Observation:
    return Observation(entry.injection.key, Status.ABSENT, entry.external_id)


def _unknown(entry: Entry) -> Observation:
    return Observation(entry.injection.key, Status.UNKNOWN)


def _glance(entry: Entry, lock: Row) -> Observation:
    """Return what the bulk call shows of a rule that is not checked more closely now."""
    return Observation(
        entry.injection.key,
        _LOCK.get(lock["state"], Status.MOVING),
        entry.external_id,
        files_done=entry.files_done,
        files_stuck=entry.files_stuck,
        error=entry.error,  # a lock has none; why a rule is being ended would be forgotten
    )
