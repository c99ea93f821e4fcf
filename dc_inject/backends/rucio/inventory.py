"""The inventory of a source: the datasets there that could be injected, and their files for those who copy by FTS.

`explain` finds out why an entry of a menu's selection (`did`, `containers`, a line of `file`) matches no dataset.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

from dc_inject.backends.answers import count
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did, bulk, metadata
from dc_inject.backends.rucio.write_endpoints import protocols
from dc_inject.model import Dataset, DatasetFilter, File, naming, urls
from dc_inject.model.errors import Permanent
from dc_inject.model.ports import Note
from dc_inject.planning import pool

DATASET_REPLICAS = "list_dataset_replicas_bulk"
_DEEPEST = 20  # containers within containers
_WILD = re.compile(r"[*?\[]")


def inventory(
    connection: Connection, source: str, datasets: DatasetFilter, note: Note | None = None
) -> Iterator[Dataset]:
    """Stream the datasets at a source that pass the filter.

    Datasets and containers that the filter names are looked up. For patterns, the dataset locks of the whole RSE
    are streamed: what no rule holds at the source is not eligible anyway, and, unlike list_datasets_per_rse, the
    server does not build this list in its memory. `note` is given each dataset before the filter.
    """
    named = [Did.read(text) for text in datasets.dids if not pool.is_pattern(text)]
    members = list_members(connection, [Did.read(text) for text in datasets.containers], named)
    has_patterns = len(named) < len(datasets.dids)
    given: set[str] = set()  # a dataset has a lock for every rule on it
    for item in _locked(connection, source) if has_patterns else _looked_up(connection, source, members):
        inside = item.name in members
        if item.name in given:
            continue
        if note is not None:
            note(item, in_container=inside)
        if pool.matches(item, datasets, in_container=inside):
            given.add(item.name)
            yield item


def _locked(connection: Connection, source: str) -> Iterator[Dataset]:
    for row in connection.stream("get_dataset_locks_by_rse", source):
        if row["state"] == "OK" and not naming.is_slice(row["name"]):  # a slice is there as a part of its parent
            yield _dataset(row)


def _looked_up(connection: Connection, source: str, members: frozenset[str]) -> Iterator[Dataset]:
    for row in bulk(connection, DATASET_REPLICAS, map(Did.read, members)):
        if row["rse"] == source and complete(row):
            yield _dataset(row)


def _dataset(row: Row) -> Dataset:
    return Dataset(str(Did.of(row)), count(row["bytes"]), count(row["length"]))


def complete(replica: Row) -> bool:
    """Whether a dataset's replica has all its files; Rucio lists empty ones as available too."""
    length = count(replica["length"])
    return (
        replica["state"] == "AVAILABLE"
        and 0 < length <= count(replica["available_length"])
        and bool(replica["bytes"])
    )


def list_members(connection: Connection, containers: Iterable[Did], named: Iterable[Did]) -> frozenset[str]:
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


def explain(
    connection: Connection, dids: Iterable[str], containers: Iterable[str], there: AbstractSet[str]
) -> Iterator[tuple[str, str]]:
    """Yield each entry that matched nothing, with the reason as far as Rucio knows one.

    `dids` are names or patterns that no dataset of a source has, `containers` names, and `there` the datasets that
    sources have of containers. It takes two calls, and one more for each container.
    """
    read = {text: _read(text) for text in (*dids, *containers)}
    names = {text: did for text, did in read.items() if did is not None and not pool.is_pattern(text)}
    described = {Did.of(row): row for row in metadata(connection, names.values())}
    scopes, only_containers = set(connection.call("list_scopes")), frozenset(containers)
    for text, did in read.items():
        if did is None:
            yield text, "it is no DID: write scope:name"
        elif not pool.is_pattern(did.scope) and did.scope not in scopes:
            yield text, f"Rucio has no scope {did.scope}"
        elif text not in names:
            yield text, "no source has a dataset of such a name, held by a rule"
        elif did not in described:
            yield text, "Rucio does not know it"
        elif described[did]["did_type"] == "CONTAINER":
            members = list_members(connection, [did], ())
            if not members & there:
                yield text, "no source has a dataset of it" if members else "it is empty"
        elif text in only_containers:
            yield text, "it is no container: name it under `did`"
        elif described[did]["did_type"] == "FILE":
            yield text, "it is a file, and rules take datasets"
        elif described[did]["is_open"]:
            yield text, "it is still open"
        else:
            yield text, "no source has it complete, held by a rule"


def _read(text: str) -> Did | None:
    try:
        return Did.read(text)
    except Permanent:
        return None


def replicas(connection: Connection, source: str, datasets: DatasetFilter) -> Iterator[File]:
    """Stream the files below a source (a URL prefix, or an RSE) of datasets which pass the filter, each once.

    A file is named by its URL; its size and adler32 are Rucio's. Datasets count with what they have at an RSE of
    the prefix's storage. Looked up in bulk: without the RSE, Rucio takes its time for each dataset.
    """
    named = [Did.read(text) for text in datasets.dids if not pool.is_pattern(text)]
    inside = list_members(connection, [Did.read(text) for text in datasets.containers], named)
    patterns = [Did.read(text) for text in datasets.dids if pool.is_pattern(text)]
    wanted = map(Did.read, {*inside, *_matching(connection, patterns)})
    there: dict[str, set[Did]] = {}  # what passes, by RSE
    where = urls.parse(source)[:3] if urls.is_url(source) else source
    for row in bulk(connection, DATASET_REPLICAS, wanted):
        did = Did.of(row)
        whole = Dataset(str(did), count(row["available_bytes"]), count(row["available_length"]))
        fits = pool.matches(whole, datasets, in_container=whole.name in inside)
        if fits and where in [row["rse"], *map(_place, protocols(connection, row["rse"]))]:
            there.setdefault(row["rse"], set()).add(did)
    given: set[str] = set()
    for rse, dids in sorted(there.items()):
        for file in _files(connection, rse, dids, source):
            if file.name not in given:  # one file may be in several datasets
                given.add(file.name)
                yield file


def _place(protocol: Row) -> tuple[str, str, int | None] | None:
    port = f":{protocol['port']}" if protocol.get("port") else ""
    try:
        return urls.parse(f"{protocol['scheme']}://{protocol['hostname']}{port}")[:3]
    except ValueError:
        return None  # of a scheme that FTS is not used for here


def _matching(connection: Connection, patterns: Iterable[Did]) -> Iterator[str]:
    """Give the datasets whose names begin as a pattern does; Rucio knows fewer wildcards than we do."""
    for pattern in patterns:
        scopes = connection.call("list_scopes") if _WILD.search(pattern.scope) else [pattern.scope]
        for scope in [one for one in scopes if fnmatchcase(one, pattern.scope)]:
            beginning = f"{_WILD.split(pattern.name)[0]}*"
            for name in connection.stream("list_dids", scope, [{"name": beginning}], did_type="dataset"):
                yield str(Did(scope, str(name)))


def _files(connection: Connection, rse: str, dids: Iterable[Did], source: str) -> Iterator[File]:
    schemes = [urls.parse(source).scheme] if urls.is_url(source) else list(urls.PORTS)
    for row in bulk(connection, "list_replicas", dids, schemes=schemes, rse_expression=rse):
        url = _below(row, source)
        if url and row["bytes"]:
            yield File(url, count(row["bytes"]), f"adler32:{row['adler32']}" if row.get("adler32") else "")


def _below(row: Row, source: str) -> str:
    """Return the URL of a replica below a prefix, or at an RSE, in its canonical form, or nothing."""
    found: list[tuple[int, str]] = []
    for pfn, how in (row.get("pfns") or {}).items():
        try:
            url = urls.normal(pfn)
        except ValueError:
            continue  # of a scheme that FTS is not used for here
        if urls.is_below(source, url) if urls.is_url(source) else how.get("rse") == source:
            found.append((count(how.get("priority", 0)), url))
    return min(found)[1] if found else ""
