"""Files that Rucio knows at a storage: the replicas of datasets below a URL prefix, for those who copy by FTS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from fnmatch import fnmatchcase

from dc_inject.backends.answers import count
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.dids import Did, bulk
from dc_inject.backends.rucio.inventory import members_of
from dc_inject.model import Dataset, DatasetFilter, File, urls
from dc_inject.planning import pool

_WILD = re.compile(r"[*?\[]")
_LONG = timedelta(hours=12)  # protocols of RSEs hardly ever change


def replicas(connection: Connection, source: str, datasets: DatasetFilter) -> Iterator[File]:
    """Stream the files below a source prefix that belong to datasets which pass the filter, each once.

    A file is named by its URL; its size and adler32 are Rucio's. Datasets count with what they have at an RSE of
    the prefix's storage. Looked up in bulk: without the RSE, Rucio takes its time for each dataset.
    """
    named = [Did.read(text) for text in datasets.dids if not pool.is_pattern(text)]
    inside = members_of(connection, [Did.read(text) for text in datasets.containers], named)
    patterns = [Did.read(text) for text in datasets.dids if pool.is_pattern(text)]
    wanted = map(Did.read, {*inside, *_matching(connection, patterns)})
    there: dict[str, set[Did]] = {}  # what passes, by RSE
    for row in bulk(wanted, lambda dids: connection.call("list_dataset_replicas_bulk", [d.row() for d in dids])):
        did = Did.of(row)
        whole = Dataset(str(did), count(row["available_bytes"]), count(row["available_length"]))
        if pool.matches(whole, datasets, in_container=whole.name in inside) and _serves(
            connection, row["rse"], source
        ):
            there.setdefault(row["rse"], set()).add(did)
    given: set[str] = set()
    for rse, dids in sorted(there.items()):
        for file in _files(connection, rse, dids, source):
            if file.name not in given:  # one file may be in several datasets
                given.add(file.name)
                yield file


def _serves(connection: Connection, rse: str, source: str) -> bool:
    """Whether an RSE's files have URLs at the storage of a prefix."""
    protocols = connection.kept(("protocols", rse), _LONG, lambda: connection.call("get_protocols", rse))
    return any(_place(protocol) == urls.parse(source)[:3] for protocol in protocols)


def _place(protocol: Row) -> tuple[str, str, int | None] | None:
    port = f":{protocol['port']}" if protocol.get("port") else ""
    try:
        return urls.parse(f"{protocol['scheme']}://{protocol['hostname']}{port}")[:3]
    except ValueError:
        return None  # of a scheme that FTS is not used for here


def _matching(connection: Connection, patterns: Iterable[Did]) -> Iterator[str]:
    """Give the datasets whose names begin as a pattern does; Rucio knows fewer wildcards than we do."""
    for pattern in patterns:
        for scope in _scopes(connection, pattern.scope):
            beginning = f"{_WILD.split(pattern.name)[0]}*"
            for name in connection.stream("list_dids", scope, [{"name": beginning}], did_type="dataset"):
                yield str(Did(scope, str(name)))


def _scopes(connection: Connection, pattern: str) -> list[str]:
    if not _WILD.search(pattern):
        return [pattern]
    return [scope for scope in connection.call("list_scopes") if fnmatchcase(scope, pattern)]


def _files(connection: Connection, rse: str, dids: Iterable[Did], source: str) -> Iterator[File]:
    scheme = urls.parse(source).scheme
    rows = bulk(
        dids,
        lambda part: connection.call(
            "list_replicas", [did.row() for did in part], schemes=[scheme], rse_expression=rse
        ),
    )
    for row in rows:
        url = _below(row, source)
        if url and row["bytes"]:
            yield File(url, count(row["bytes"]), f"adler32:{row['adler32']}" if row.get("adler32") else "")


def _below(row: Row, source: str) -> str:
    """Return the URL of a replica below a prefix, in its canonical form, or nothing."""
    for pfn in row.get("pfns") or {}:
        try:
            url = urls.normal(pfn)
        except ValueError:
            continue  # of a scheme that FTS is not used for here
        if urls.is_below(source, url):
            return url
    return ""
