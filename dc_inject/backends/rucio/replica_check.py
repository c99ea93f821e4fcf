"""One more check, in bulk, of datasets that are about to be chosen, or whose rules have ended."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did, bulk, metadata
from dc_inject.backends.rucio.inventory import complete
from dc_inject.backends.rucio.slice_datasets import Slices
from dc_inject.model import Dataset, Item
from dc_inject.model.errors import Permanent
from dc_inject.model.items import SliceId
from dc_inject.model.ports import Candidate, ReplicaStatus

_EXPIRY_AGE = timedelta(hours=12)
_EXPIRIES = 100_000  # rules whose expiry is kept
_PAST = datetime(1970, 1, 1, tzinfo=UTC)


class ReplicaCheck:
    """Checks candidates; remembers for 12 hours when rules that hold datasets at sources expire."""

    def __init__(self, connection: Connection, slices: Slices) -> None:
        self._connection = connection
        self._slices = slices
        self._expiries: dict[str, tuple[datetime, datetime | None]] = {}  # rule -> when asked, expiry
        self._lock = threading.Lock()

    def check(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Return what Rucio says of each candidate: three bulk calls for 200, and one for each new rule.

        A slice is asked about by its parent, and by its files at the destination: its dataset may not be there
        yet, or not any more.
        """
        wanted = {candidate.item for candidate in candidates}
        dids = {item: Did.read(item.range.parent if isinstance(item, SliceId) else item) for item in wanted}
        described = {Did.of(row): row for row in metadata(self._connection, dids.values())}
        replicas = {
            (Did.of(row), row["rse"]): row for row in self._rows("list_dataset_replicas_bulk", dids.values())
        }
        locks: dict[tuple[Did, str], list[Row]] = defaultdict(list)
        for row in locks_of(self._connection, {*dids.values(), *map(Did.of_item, wanted)}):
            locks[Did.of(row), row["rse"]].append(row)
        statuses = {}
        for candidate in candidates:
            item, did = candidate.item, dids[candidate.item]
            part = item if isinstance(item, SliceId) else None
            at_source, at_destination = (did, candidate.link.source), (did, candidate.link.destination)
            holding = [lock for lock in locks.get(at_source, []) if lock["state"] == "OK"]
            source, destination = replicas.get(at_source), replicas.get(at_destination)
            statuses[candidate] = ReplicaStatus(
                item=self._slices.sized(part) if part else _item(did, described.get(did), source),
                closed=did in described and described[did]["is_open"] is False,
                source_complete=source is not None and complete(source),
                source_locked=bool(holding),
                source_until=self._until(holding),
                destination_bytes=self._slices.there(part.range, candidate.link.destination)
                if part
                else _there(destination),
                destination_locked=at_destination in locks or (Did.of_item(item), at_destination[1]) in locks,
            )
        return statuses

    def _rows(self, method: str, dids: Iterable[Did]) -> Iterable[Row]:
        return bulk(dids, lambda part: self._connection.call(method, [did.row() for did in part]))

    def _until(self, locks: Iterable[Row]) -> datetime | None:
        """Return when the last of the rules ends that hold a dataset at its source; None if one never does."""
        latest = _PAST
        for rule in sorted({lock["rule_id"] for lock in locks}):
            expiry = self._expiry(rule)
            if expiry is None:
                return None
            latest = max(latest, expiry)
        return latest

    def _expiry(self, rule: str) -> datetime | None:
        now = self._connection.now()
        with self._lock:
            cached = self._expiries.get(rule)
        # What should have expired and still holds a dataset was prolonged.
        if cached is not None and now - cached[0] < _EXPIRY_AGE and (cached[1] is None or cached[1] > now):
            return cached[1]
        try:
            expiry = utc(self._connection.call("get_replication_rule", rule)["expires_at"])
        except Permanent:
            return _PAST  # gone, or not ours to read: then it is no promise that the dataset stays
        with self._lock:
            if len(self._expiries) >= _EXPIRIES:
                self._expiries.clear()
            self._expiries[rule] = now, expiry
        return expiry


def locks_of(connection: Connection, dids: Iterable[Did]) -> list[Row]:
    """Return the dataset locks of datasets at all RSEs."""
    return list(
        bulk(
            dids,
            lambda part: connection.call("get_locks_for_dids", [did.row(type="dataset") for did in part]),
        )
    )


def _item(did: Did, metadata: Row | None, source: Row | None) -> Item | None:
    """Return the dataset as it is now; what was never closed has its size in its replica only."""
    if metadata is None:
        return None
    sized = [row for row in (metadata, source) if row is not None and row["bytes"] and row["length"]]
    return (
        Dataset(str(did), count(sized[0]["bytes"]), count(sized[0]["length"]))
        if sized
        else Dataset(str(did), 0, 0)
    )


def _there(destination: Row | None) -> int:
    """Return the bytes that are available; a replica row without available files is a ghost."""
    if destination is None or not destination["available_length"]:
        return 0
    return max(count(destination["available_bytes"]), 1)
