"""What becomes of injections, written step by step, with their flows' running totals in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta

from dc_inject.errors import AnotherNow, Permanent, Temporary
from dc_inject.ledger.reading import Reader, Totals, micros
from dc_inject.model import Entry, FlowKey, Injection, State
from dc_inject.ports import Observation, Outcome, Status

# The columns that change in the life of an injection, in the order of the UPDATE below.
_TIMES = ("not_before", "called_at", "accepted_at", "expires_at", "completed_at", "end_asked_at", "ended_at",
          "gone_at", "observed_at")  # fmt: skip
_PLAIN = ("external_id", "attempt", "present", "moved", "files_done", "files_stuck", "error")
_UPDATE = ", ".join(f"{name} = ?" for name in ("state", "moved_exact", *_TIMES, *_PLAIN))


def contribution(entry: Entry) -> Totals:
    """Return what one injection adds to the totals of its flow; due and forgiven come from elsewhere."""
    size = entry.injection.item.bytes
    there = entry.state.resident and entry.state is not State.INTENDED
    return Totals(
        injected=entry.injected,
        in_doubt=size if entry.state is State.CALLED else 0,
        moved=entry.moved,
        estimated=0 if entry.moved_exact else entry.moved,
        resident=size - entry.present if there else 0,
        rules=0 if entry.accepted_at is None else 1,
    )


class Journal(Reader):
    """The life of injections: intended, called, answered, observed, ended, gone."""

    def call(self, keys: Iterable[str], now: datetime) -> None:
        """Write down that these are about to be asked for: from here on they are in doubt."""
        with self._db.transaction():
            for key in keys:
                entry = self.entry(key)
                if entry.state is State.INTENDED:
                    after = replace(entry, state=State.CALLED, called_at=now, attempt=entry.attempt + 1)
                    self._update(entry, after)

    def answer(self, outcomes: Sequence[Outcome], now: datetime, retry_at: Mapping[str, datetime]) -> None:
        """Write down what the service answered; `retry_at` says from when on what failed may be tried again."""
        with self._db.transaction():
            for outcome in outcomes:
                entry = self.entry(outcome.key)
                if entry.state is State.CALLED:
                    self._update(entry, _answered(entry, outcome, now, retry_at.get(outcome.key)))

    def withdraw(self, keys: Iterable[str], why: str, now: datetime) -> None:
        """Drop intents that never were, or are known not to be, in the service."""
        del now
        with self._db.transaction():
            for key in keys:
                entry = self.entry(key)
                if entry.state in {State.INTENDED, State.CALLED}:
                    self._update(entry, replace(entry, state=State.WITHDRAWN, error=why))

    def observe(self, observations: Iterable[Observation], now: datetime) -> None:
        """Write down what was seen: found ones count as injected, complete ones are exact, absent ones ended."""
        with self._db.transaction():
            for seen in observations:
                entry = self.entry(seen.key)
                if entry.state.in_service:
                    self._update(entry, _observed(entry, seen, now))

    def end_asked(self, keys: Iterable[str], now: datetime) -> None:
        """Write down that the service is asked to end these."""
        self._each(keys, lambda entry: replace(entry, end_asked_at=now))

    def ended(self, keys: Iterable[str], now: datetime) -> None:
        """Write down that the rules or jobs of these are gone."""
        self._each(keys, lambda e: replace(e, state=State.ENDED, ended_at=now) if e.state.in_service else e)

    def gone(self, keys: Iterable[str], now: datetime) -> None:
        """Write down that the bytes of these are gone from the destination."""
        self._each(keys, lambda e: replace(e, state=State.GONE, gone_at=now) if e.state is State.ENDED else e)

    def totals_from_rows(self) -> dict[FlowKey, Totals]:
        """Return the totals added up anew from all injections and rows, to compare with the running ones."""
        sums: dict[FlowKey, Totals] = {key: Totals() for key in self.accounts()}
        for entry in self.entries():
            sums[entry.injection.flow] = _plus(sums[entry.injection.flow], contribution(entry))
        for row in self.rows():
            sums[row.key] = _plus(sums[row.key], Totals(due=row.due, forgiven=row.forgiven if row.closed else 0))
        return sums

    # ------------------------------------------------------------------ for the ledger itself

    def _intend(self, injections: Iterable[Injection]) -> None:
        with self._db.write() as db:
            for one in injections:
                db.execute(
                    "INSERT OR IGNORE INTO injections (key, flow, cycle, item, bytes, files, release, lifetime,"
                    " activity, service_priority, contact, state)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'intended')",
                    (
                        one.key,
                        self._flow(one.flow),
                        micros(one.cycle.start),
                        one.item.name,
                        one.item.bytes,
                        one.item.files,
                        micros(one.release),
                        one.lifetime // timedelta(microseconds=1),
                        one.activity,
                        one.service_priority,
                        one.contact,
                    ),
                )

    def _flow(self, key: FlowKey) -> int:
        values = (key.scenario, key.link.source, key.link.destination, key.link.through)
        sql = "SELECT id FROM flows WHERE scenario = ? AND source = ? AND destination = ? AND service = ?"
        found = self._db.one(sql, *values)
        if found is None:
            with self._db.write() as db:
                db.execute(
                    "INSERT INTO flows (scenario, source, destination, service) VALUES (?, ?, ?, ?)", values
                )
            found = self._db.one(sql, *values)
            assert found is not None
        return int(found["id"])

    def _change(self, who: str, what: str, why: str, now: datetime) -> None:
        with self._db.write() as db:
            db.execute("INSERT INTO changes VALUES (?, ?, ?, ?)", (micros(now), who, what, why))

    def _each(self, keys: Iterable[str], step: Callable[[Entry], Entry]) -> None:
        with self._db.transaction():
            for key in keys:
                entry = self.entry(key)
                self._update(entry, step(entry))

    def _update(self, before: Entry, after: Entry) -> None:
        """Write an entry and what it changes in its flow's totals."""
        if before == after:
            return
        old, new = contribution(before), contribution(after)
        names = [field.name for field in fields(Totals) if field.name not in {"due", "forgiven"}]
        steps = [getattr(new, name) - getattr(old, name) for name in names]
        times = [None if (at := getattr(after, name)) is None else micros(at) for name in _TIMES]
        plain = [getattr(after, name) for name in _PLAIN]
        with self._db.write() as db:
            db.execute(
                f"UPDATE injections SET {_UPDATE} WHERE key = ?",  # noqa: S608  names of our own columns
                (after.state.value, int(after.moved_exact), *times, *plain, after.injection.key),
            )
            if any(steps):
                sets = ", ".join(f"{name} = {name} + ?" for name in names)
                flow = self._flow(after.injection.flow)
                db.execute(f"UPDATE flows SET {sets} WHERE id = ?", (*steps, flow))  # noqa: S608  as above


def _answered(entry: Entry, outcome: Outcome, now: datetime, retry_at: datetime | None) -> Entry:
    error = outcome.error
    if error is None:
        return replace(
            entry,
            state=State.LIVE,
            external_id=outcome.external_id,
            accepted_at=now,
            present=outcome.present,
            expires_at=now + entry.injection.lifetime,
            error="",
        )
    if isinstance(error, Temporary) and error.lost:
        return replace(entry, error=error.message)
    if isinstance(error, AnotherNow | Permanent):
        return replace(entry, state=State.REFUSED, error=error.message)
    return replace(entry, state=State.INTENDED, not_before=retry_at, error=error.message)


def _observed(entry: Entry, seen: Observation, now: datetime) -> Entry:
    after = replace(entry, observed_at=now)
    if seen.status is Status.ABSENT:
        # One in doubt that is not found may still be under way: the engine decides when to give it up.
        return after if entry.state is State.CALLED else replace(after, state=State.ENDED, ended_at=now)
    if entry.state is State.CALLED:
        after = replace(
            after,
            state=State.LIVE,
            accepted_at=entry.called_at or now,
            expires_at=(entry.called_at or now) + entry.injection.lifetime,
            error="",
        )
    after = replace(
        after,
        external_id=seen.external_id or after.external_id,
        present=after.present if seen.present is None else seen.present,
        expires_at=seen.expires_at or after.expires_at,
        files_done=seen.files_done,
        files_stuck=seen.files_stuck,
        error=seen.error or after.error,
    )
    if seen.status is Status.COMPLETE:
        size = entry.injection.item.bytes
        done = replace(after, moved=size - after.present, moved_exact=True, files_done=entry.injection.item.files)
        if entry.state is State.COMPLETE:
            return done
        return replace(done, state=State.COMPLETE, completed_at=now)
    if seen.moved is not None and (seen.exact or not after.moved_exact):
        after = replace(after, moved=max(seen.moved - after.present, 0), moved_exact=seen.exact)
    return after


def _plus(one: Totals, other: Totals) -> Totals:
    return Totals(*(getattr(one, f.name) + getattr(other, f.name) for f in fields(Totals)))
