"""How many transfers at a time FTS will allow between storages, as far as it tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dc_inject.backends.fts.connection import Connection
from dc_inject.model import Link, urls
from dc_inject.model.errors import NeedsOperator, ServiceError, Temporary
from dc_inject.model.transfers import LINK_LIMIT, STORAGE_LIMIT, TransferLimit

_ANY = "*"

Row = Mapping[str, Any]
Pair = tuple[str, str]


def limits(connection: Connection, links: Iterable[Link]) -> list[TransferLimit]:
    """Return the limits on links, then those out of and into their storages.

    They come from the configuration where we may read it, else from the optimizer, which knows links only.
    """
    pairs = sorted({(urls.host_key(link.source), urls.host_key(link.destination)) for link in links})
    try:
        configured = connection.call("get", "/config/links"), connection.call("get", "/config/se")
        return list(_configured(pairs, *configured))
    except ServiceError as error:
        if connection.status not in {401, 403, 404} and isinstance(error, Temporary | NeedsOperator):
            raise
    try:
        rows = {(row["source_se"], row["dest_se"]): int(row["active"]) for row in _rows(connection)}
    except ServiceError:
        rows = {}
    return list(_optimized(pairs, rows))


def _rows(connection: Connection) -> Sequence[Row]:
    rows: Sequence[Row] = connection.call("get", "/optimizer/current")
    return rows


def _optimized(pairs: Sequence[Pair], rows: Mapping[Pair, int]) -> Iterator[TransferLimit]:
    for pair in pairs:
        known = rows.get(pair)
        yield (
            TransferLimit(*pair, LINK_LIMIT, "default")
            if known is None
            else TransferLimit(*pair, known, "optimizer")
        )
    for pair in _ends(pairs):
        yield TransferLimit(*pair, STORAGE_LIMIT, "default")


def _configured(
    pairs: Sequence[Pair], links: Sequence[Row], storages: Mapping[str, Row]
) -> Iterator[TransferLimit]:
    for pair in pairs:
        yield _limit(pair, _of_link(*pair, links), LINK_LIMIT)
    for source, destination in _ends(pairs):
        direction = "outbound_max_active" if source else "inbound_max_active"
        yield _limit((source, destination), _of_storage(source or destination, direction, storages), STORAGE_LIMIT)


def _ends(pairs: Sequence[Pair]) -> list[Pair]:
    """Return what stands for each storage as a source, and for each as a destination."""
    sources, destinations = {source for source, _ in pairs}, {destination for _, destination in pairs}
    return [(source, "") for source in sorted(sources)] + [("", one) for one in sorted(destinations)]


def _limit(pair: Pair, known: int | None, usual: int) -> TransferLimit:
    return TransferLimit(*pair, usual, "default") if known is None else TransferLimit(*pair, known, "config")


def _of_link(source: str, destination: str, links: Sequence[Row]) -> int | None:
    """Return the limit of the row that fits best: both ends named, one of them, or neither."""
    fitting = [
        (names.count(_ANY), row["max_active"])
        for row in links
        if (names := [row.get("source") or _ANY, row.get("destination") or _ANY])
        and names[0] in {source, _ANY}
        and names[1] in {destination, _ANY}
        and row.get("max_active")
    ]
    return int(min(fitting, key=lambda one: one[0])[1]) if fitting else None


def _of_storage(storage: str, direction: str, storages: Mapping[str, Row]) -> int | None:
    for name in (storage, _ANY):
        limit = (storages.get(name, {}).get("se_info") or {}).get(direction)
        if limit:
            return int(limit)
    return None
