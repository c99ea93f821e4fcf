"""The inventory of a source: the datasets there that could be injected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dc_inject.backends.answers import count
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did, bulk, metadata
from dc_inject.model import Dataset, DatasetFilter, Item, naming
from dc_inject.model.errors import Permanent
from dc_inject.model.ports import Note
from dc_inject.planning import pool

_DEEPEST = 20  # containers within containers


def inventory(
    connection: Connection, source: str, datasets: DatasetFilter, note: Note | None = None
) -> Iterator[Dataset]:
    """Stream the datasets at a source that pass the filter.

    Datasets and containers that the filter names are looked up. For patterns, the dataset locks of the whole RSE
    are streamed: what no rule holds at the source is not eligible anyway, and, unlike list_datasets_per_rse, the
    server does not build this list in its memory. `note` is given each dataset before the filter.
    """
    note = note or _no_note
    named = [Did.read(text) for text in datasets.dids if not pool.is_pattern(text)]
    members = members_of(connection, [Did.read(text) for text in datasets.containers], named)
    if len(named) < len(datasets.dids):
        yield from _locked(connection, source, datasets, members, note)
    else:
        yield from _looked_up(connection, source, datasets, members, note)


def _no_note(item: Item, *, in_container: bool) -> None:
    """Note nothing."""


def _locked(
    connection: Connection, source: str, datasets: DatasetFilter, members: frozenset[str], note: Note
) -> Iterator[Dataset]:
    given: set[str] = set()
    for row in connection.stream("get_dataset_locks_by_rse", source):
        if row["state"] != "OK" or naming.is_slice(row["name"]):
            continue  # what is in a slice is there as a part of its parent
        item = Dataset(str(Did.of(row)), count(row["bytes"]), count(row["length"]))
        if item.name in given:
            continue  # a dataset has a lock for every rule on it
        note(item, in_container=item.name in members)
        if pool.matches(item, datasets, in_container=item.name in members):
            given.add(item.name)
            yield item


def _looked_up(
    connection: Connection, source: str, datasets: DatasetFilter, members: frozenset[str], note: Note
) -> Iterator[Dataset]:
    rows = bulk(
        map(Did.read, members),
        lambda dids: connection.call("list_dataset_replicas_bulk", [did.row() for did in dids]),
    )
    for row in rows:
        if row["rse"] == source and complete(row):
            item = Dataset(str(Did.of(row)), count(row["bytes"]), count(row["length"]))
            note(item, in_container=True)
            if pool.matches(item, datasets, in_container=True):
                yield item


def complete(replica: Row) -> bool:
    """Whether a dataset's replica has all its files; Rucio lists empty ones as available too."""
    length = count(replica["length"])
    return (
        replica["state"] == "AVAILABLE"
        and 0 < length <= count(replica["available_length"])
        and bool(replica["bytes"])
    )


def members_of(connection: Connection, containers: Iterable[Did], named: Iterable[Did]) -> frozenset[str]:
    """Return the datasets in containers, and those named; a container among the latter counts as one."""
    kinds = {Did.of(row): row["did_type"] for row in metadata(connection, named)}
    datasets = {str(did) for did, kind in kinds.items() if kind == "DATASET"}
    level = {*containers, *(did for did, kind in kinds.items() if kind == "CONTAINER")}
    seen: set[Did] = set()
    for _ in range(_DEEPEST):
        seen |= level
        children = [row for did in sorted(level) for row in _content(connection, did)]
        datasets |= {str(Did.of(row)) for row in children if row["type"] == "DATASET"}
        level = {Did.of(row) for row in children if row["type"] == "CONTAINER"} - seen
        if not level:
            break
    return frozenset(datasets)


def _content(connection: Connection, container: Did) -> list[Row]:
    try:
        rows: list[Row] = connection.call("list_content", container.scope, container.name)
    except Permanent:
        return []  # it does not exist (any more): its datasets are not there, which the pool will show
    return rows
