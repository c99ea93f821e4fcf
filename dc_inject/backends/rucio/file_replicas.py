"""The files of datasets, and the state of their replicas at destinations, in a few calls for many datasets.

For a new rule, Rucio makes a transfer of a file only where the destination has no replica of it, or one that is
UNAVAILABLE. It makes none for a replica that is AVAILABLE, or that a transfer for another rule brings (COPYING).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from dc_inject.backends import answers
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did, in_batches

MOST_FILES = 100_000  # of a dataset whose files are listed: the answer has to fit into memory
_FILES_AT_ONCE = 50_000  # of several datasets in one call
_PLACES_AT_ONCE = 100_000  # files times destinations in one call

AVAILABLE = frozenset({"AVAILABLE", "TEMPORARY_UNAVAILABLE"})
NEEDS_TRANSFER = frozenset({"", "UNAVAILABLE"})  # no replica, or one that no transfer is bringing

Sizes = Mapping[Did, int]  # files and their bytes


def list_files(connection: Connection, lengths: Mapping[Did, int]) -> dict[Did, dict[Did, int]]:
    """Return the files of datasets, by dataset; `lengths` are how many files each is known to have."""
    files: dict[Did, dict[Did, int]] = {did: {} for did in lengths}
    rows = in_batches(
        sorted(lengths),
        lambda batch: _rows(connection, "bulk_list_files", batch),
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
        return _rows(
            connection,
            "list_replicas",
            batch,
            all_states=True,
            resolve_archives=False,
            rse_expression="|".join(rses(batch)),
        )

    rows = in_batches(
        sorted(places, key=lambda did: (min(places[did]), did)),
        read,
        lambda batch: sum(lengths[did] for did in batch) * len(rses(batch)) > _PLACES_AT_ONCE,
    )
    return {
        (Did.of(row), rse): answers.name(state) for row in rows for rse, state in (row.get("states") or {}).items()
    }


def _rows(connection: Connection, method: str, dids: Sequence[Did], **more: Any) -> list[Row]:
    rows: list[Row] = connection.call(method, [did.row() for did in dids], **more)
    return rows
