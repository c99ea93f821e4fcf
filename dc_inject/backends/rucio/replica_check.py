"""One more check, in bulk, of datasets that are about to be chosen, or whose rules have ended.

For a new rule, Rucio makes a transfer of a file only where the destination has no replica of it, or one that is
UNAVAILABLE. It makes none for a replica that is AVAILABLE, or that a transfer for another rule brings (COPYING).
So files and the states of their replicas are listed, in a few calls for many datasets.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta

from dc_inject.backends import answers
from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did, bulk, metadata, rows_of, split_into_batches
from dc_inject.backends.rucio.inventory import DATASET_REPLICAS, complete
from dc_inject.backends.rucio.slice_datasets import Slices
from dc_inject.model import Dataset, Item
from dc_inject.model.errors import Permanent
from dc_inject.model.groups import grouped
from dc_inject.model.items import ItemId, SliceId, sized
from dc_inject.model.ports import Candidate, ReplicaStatus

_EXPIRY_AGE = timedelta(hours=12)
_EXPIRIES = 100_000  # rules whose expiry is kept
_PAST = datetime(1970, 1, 1, tzinfo=UTC)
MOST_FILES = 100_000  # of a dataset whose files are listed: the answer has to fit into memory
_FILES_AT_ONCE = 50_000  # of several datasets in one call
_PLACES_AT_ONCE = 100_000  # files times destinations in one call
AVAILABLE = frozenset({"AVAILABLE", "TEMPORARY_UNAVAILABLE"})
NEEDS_TRANSFER = frozenset({"", "UNAVAILABLE"})  # no replica, or one that no transfer is bringing
Sizes = Mapping[Did, int]  # files and their bytes


class ReplicaCheck:
    """Checks candidates; remembers for 12 hours when rules that hold datasets at sources expire."""

    def __init__(self, connection: Connection, slices: Slices) -> None:
        self._connection = connection
        self._slices = slices
        self._expiries: dict[str, tuple[datetime, datetime | None]] = {}  # rule -> when asked, expiry
        self._lock = threading.Lock()

    def check(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Return the state of each candidate: five bulk calls for 200, and one for each new rule.

        A slice is looked up by its parent, and by its files at the destination: its dataset may not be there
        yet, or not any more.
        """
        dids = {candidate.item: _parent(candidate.item) for candidate in candidates}
        described = {Did.of(row): row for row in metadata(self._connection, dids.values())}
        replicas = self._dataset_replicas(dids.values())
        locks = self._locks(dids)
        files = self._files({item: did for item, did in dids.items() if did in described}, described, replicas)
        states = self._states(candidates, files)
        statuses = {}
        for candidate in candidates:
            did, source = dids[candidate.item], candidate.link.source
            row, listed, replica = described.get(did), files.get(candidate.item), replicas.get((did, source))
            holding = [lock for lock in locks.get((did, source), []) if lock["state"] == "OK"]
            there = {file: states.get((file, candidate.link.destination), "") for file in listed or ()}
            statuses[candidate] = ReplicaStatus(
                item=_item(candidate.item, listed, row),
                closed=row is not None and row["is_open"] is False,
                source_complete=replica is not None and complete(replica),
                source_locked=bool(holding),
                source_until=_first(self._until(holding), utc(row.get("expired_at")) if row else None),
                destination_bytes=_available(there, listed),
                destination_locked=bool(_destination_locks(locks, candidate)),
                destination_busy=any(state not in AVAILABLE | NEEDS_TRANSFER for state in there.values()),
                files=None if listed is None else frozenset(map(hash, listed)),
            )
        return statuses

    def left(self, candidates: Sequence[Candidate]) -> dict[Candidate, tuple[int, bool]]:
        """Return the bytes available at each destination, and whether a rule holds the item there."""
        dids = {candidate.item: _parent(candidate.item) for candidate in candidates}
        replicas = self._dataset_replicas(did for item, did in dids.items() if isinstance(item, str))
        locks = self._locks(dids)
        files: dict[ItemId, Sizes | None] = {
            item: self._slice_files(item) for item in dids if isinstance(item, SliceId)
        }
        states = self._states([c for c in candidates if c.item in files], files)
        left = {}
        for candidate in candidates:
            rse = candidate.link.destination
            if candidate.item in files:
                listed = files[candidate.item] or {}  # unknown files are no longer there for us to ask about
                size = _available({file: states.get((file, rse), "") for file in listed}, listed)
            else:
                size = _there(replicas.get((dids[candidate.item], rse)))
            left[candidate] = size, bool(_destination_locks(locks, candidate))
        return left

    def _dataset_replicas(self, dids: Iterable[Did]) -> dict[tuple[Did, str], Row]:
        return {(Did.of(row), row["rse"]): row for row in bulk(self._connection, DATASET_REPLICAS, dids)}

    def _locks(self, dids: Mapping[ItemId, Did]) -> dict[tuple[Did, str], list[Row]]:
        rows = list_locks(self._connection, {*dids.values(), *map(Did.of_item, dids)})
        return grouped(((Did.of(row), row["rse"]), row) for row in rows)

    def _files(
        self, dids: Mapping[ItemId, Did], described: Mapping[Did, Row], replicas: Mapping[tuple[Did, str], Row]
    ) -> dict[ItemId, Sizes | None]:
        """Return the files of items, None for those whose files cannot be listed."""
        lengths = {did: count(described[did]["length"]) for item, did in dids.items() if isinstance(item, str)}
        for (did, _), row in replicas.items():  # what was never closed has its size in its replicas only
            if did in lengths:
                lengths[did] = max(lengths[did], count(row["length"]))
        listed = list_files(self._connection, {d: size for d, size in lengths.items() if size <= MOST_FILES})
        return {
            item: self._slice_files(item) if isinstance(item, SliceId) else listed.get(did)
            for item, did in dids.items()
        }

    def _slice_files(self, item: SliceId) -> Sizes | None:
        try:
            return {Did.of(row): row["bytes"] for row in self._slices.files(item.range)}
        except Permanent:
            return None

    def _states(
        self, candidates: Iterable[Candidate], files: Mapping[ItemId, Sizes | None]
    ) -> dict[tuple[Did, str], str]:
        places: dict[Did, set[str]] = defaultdict(set)
        lengths: dict[Did, int] = {}
        for item, link in candidates:
            listed = files.get(item) or {}
            if isinstance(item, SliceId):
                asked = dict.fromkeys(listed, 1)  # its dataset may not exist
            else:
                asked = {_parent(item): len(listed)} if listed else {}
            for did in asked:
                places[did].add(link.destination)
            lengths |= asked
        return replica_states(self._connection, places, lengths)

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


def list_locks(connection: Connection, dids: Iterable[Did]) -> list[Row]:
    """Return the dataset locks of datasets at all RSEs."""
    return list(
        split_into_batches(
            sorted(set(dids)),
            lambda part: connection.call("get_locks_for_dids", [did.row(type="dataset") for did in part]),
        )
    )


def _parent(item: ItemId) -> Did:
    """Return the dataset of an item: of a slice the one that it is cut from."""
    return Did.read(item.range.parent if isinstance(item, SliceId) else item)


def _item(item: ItemId, files: Sizes | None, metadata: Row | None) -> Item | None:
    """Return an item as it is now; the size of a dataset with too many files is what Rucio has as its sum."""
    if files is not None:
        return sized(item, sum(files.values()), len(files))
    if isinstance(item, SliceId) or metadata is None:
        return None
    return Dataset(item, count(metadata["bytes"]), count(metadata["length"]))


def _destination_locks(locks: Mapping[tuple[Did, str], list[Row]], candidate: Candidate) -> list[Row]:
    """Return the locks on the dataset of a candidate at its destination, or on that of its slice."""
    rse = candidate.link.destination
    return [
        lock
        for did in {_parent(candidate.item), Did.of_item(candidate.item)}
        for lock in locks.get((did, rse), ())
    ]


def _available(states: Mapping[Did, str], files: Sizes | None) -> int:
    return sum(size for file, size in (files or {}).items() if states[file] in AVAILABLE)


def _first(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _there(destination: Row | None) -> int:
    """Return the bytes that are available; a replica row without available files is a ghost."""
    if destination is None or not destination["available_length"]:
        return 0
    return max(count(destination["available_bytes"]), 1)


def list_files(connection: Connection, lengths: Mapping[Did, int]) -> dict[Did, dict[Did, int]]:
    """Return the files of datasets, by dataset; `lengths` are how many files each is known to have."""
    files: dict[Did, dict[Did, int]] = {did: {} for did in lengths}
    rows = split_into_batches(
        sorted(lengths),
        lambda batch: rows_of(connection, "bulk_list_files", batch),
        lambda batch: sum(lengths[did] for did in batch) > _FILES_AT_ONCE,
    )
    for row in rows:
        dataset = Did(answers.name(row["parent_scope"]), answers.name(row["parent_name"]))
        if dataset in files:
            files[dataset][Did.of(row)] = answers.count(row["bytes"])
    return files


def replica_states(
    connection: Connection, places: Mapping[Did, AbstractSet[str]], lengths: Mapping[Did, int]
) -> dict[tuple[Did, str], str]:
    """Return the state of each replica at the `places` (RSEs) of datasets or files, by file and RSE.

    `lengths` are how many files each has. Files without a replica at a place are left out.
    """

    def rses(batch: Iterable[Did]) -> list[str]:
        return sorted(set().union(*(places[did] for did in batch)))

    def read(batch: Sequence[Did]) -> list[Row]:
        return rows_of(
            connection,
            "list_replicas",
            batch,
            all_states=True,
            resolve_archives=False,
            rse_expression="|".join(rses(batch)),
        )

    rows = split_into_batches(
        sorted(places, key=lambda did: (min(places[did]), did)),
        read,
        lambda batch: sum(lengths[did] for did in batch) * len(rses(batch)) > _PLACES_AT_ONCE,
    )
    return {
        (Did.of(row), rse): answers.name(state) for row in rows for rse, state in (row.get("states") or {}).items()
    }
