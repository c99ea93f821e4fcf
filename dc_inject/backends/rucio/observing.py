"""How rules of ours stand: dataset locks in bulk, and a closer look at a bounded number of rules."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rucio.common.exception import RuleNotFound

from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did
from dc_inject.backends.rucio.replica_check import locks_of
from dc_inject.backends.rucio.rules import Rules, status
from dc_inject.model import Entry, State, units
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError
from dc_inject.model.ports import Observation, Status
from dc_inject.model.redaction import scrub

log = logging.getLogger(__name__)

GIVE_UP_AFTER = 3  # failures in a row: the service does not answer now, and each one costs a time-out
_ONE_IN = 50  # rules that are under way is looked at by itself in one observation
_LOOKED = 100_000  # rules of which it is kept when they were looked at
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_LOCK = {"OK": Status.COMPLETE, "REPLICATING": Status.MOVING, "STUCK": Status.STUCK}


@dataclass(frozen=True, slots=True)
class Observing:
    """Finds the state of entries.

    One bulk call shows what is complete, and what was complete and is gone. What is stuck or takes longer than a
    cycle gets a call of its own for its progress: when it is one cycle old, then two, four and so on; but one in
    50 at a time and at most `estimates`, those looked at longest ago first. Of the others it is known from before.
    """

    connection: Connection
    rules: Rules
    estimates: int
    looked: dict[str, datetime] = field(default_factory=dict)  # rules, and when they were looked at by themselves

    def observe(self, entries: Sequence[Entry], *, exact: bool) -> list[Observation]:
        """Return one observation for each entry."""
        seen: dict[str, Observation] = {}
        dids = {entry.injection.key: Did.of_item(entry.injection.item.id) for entry in entries}
        rows = locks_of(self.connection, dids.values())
        locks, held = {row["rule_id"]: row for row in rows}, {Did.of(row) for row in rows}
        moving: list[Entry] = []
        failures = 0  # in a row
        for entry in entries:
            lock = locks.get(entry.external_id)
            if lock is not None and _LOCK.get(lock["state"]) is not Status.COMPLETE and not exact:
                moving.append(entry)
            elif lock is None and entry.state is State.COMPLETE and dids[entry.injection.key] in held:
                # A complete rule has a lock. The answer has locks of its dataset, so it is not incomplete.
                seen[entry.injection.key] = _gone(entry)
            else:
                observation = (
                    _unknown(entry) if failures == GIVE_UP_AFTER else self._look_at(entry, lock, exact=exact)
                )
                failures = 0 if observation.status is not Status.UNKNOWN else min(failures + 1, GIVE_UP_AFTER)
                seen[entry.injection.key] = observation
        seen |= {entry.injection.key: _glance(entry, locks) for entry in moving}
        seen |= self._progress(self._to_look_at(moving, locks))
        return [seen[entry.injection.key] for entry in entries]

    def _look_at(self, entry: Entry, lock: Row | None, *, exact: bool) -> Observation:
        """Look at one entry; trouble with it is no trouble of the others, unless nothing works at all."""
        try:
            if not entry.external_id:
                return self._in_doubt(entry)
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
            stuck = locks[entry.external_id]["state"] == "STUCK"
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

    def _in_doubt(self, entry: Entry) -> Observation:
        """Look for the rule of a call whose answer was lost."""
        rule, _ = self.rules.find(entry.injection.item.id, entry.injection.link.destination)
        if rule is None or rule.key != entry.injection.key:
            return Observation(entry.injection.key, Status.ABSENT)
        return self._closely(entry.changed(external_id=rule.external_id), exact=False)

    def _closely(self, entry: Entry, *, exact: bool) -> Observation:
        """Look at one rule; `exact` adds up the bytes of its locks."""
        try:
            row: Row = self.connection.call("get_replication_rule", entry.external_id)
        except Permanent as error:
            if isinstance(error.__cause__, RuleNotFound):
                return _gone(entry)
            raise
        done, stuck = count(row["locks_ok_cnt"]), count(row["locks_stuck_cnt"])
        files = done + stuck + count(row["locks_replicating_cnt"])
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
        if entry.files_done:
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


def _glance(entry: Entry, locks: Mapping[str, Row]) -> Observation:
    """Return what the bulk call shows of a rule that is not checked more closely now."""
    return Observation(
        entry.injection.key,
        _LOCK.get(locks[entry.external_id]["state"], Status.MOVING),
        entry.external_id,
        files_done=entry.files_done,
        files_stuck=entry.files_stuck,
        error=entry.error,  # a lock has none; why a rule is being ended would be forgotten
    )
