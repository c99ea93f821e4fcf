"""How many transfers at a time FTS will allow on a link, as far as it tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dc_inject import urls
from dc_inject.backends.fts.connection import Connection
from dc_inject.errors import Fatal, ServiceError, Temporary
from dc_inject.model import Link

LINK = 200  # FTS's usual limits, where it tells none
STORAGE = 200
_ANY = "*"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LinkLimit:
    """The most transfers at a time on a link; `by` says what sets the limit, `source` who told.

    `by` is `link`, `source` or `destination` (the storage's own limit); `source` is `config`, `optimizer` (what
    FTS allows just now, which it changes) or `default` (nobody told: FTS's usual one).
    """

    link: Link
    max_active: int
    by: str
    source: str


def limits(connection: Connection, links: Iterable[Link]) -> list[LinkLimit]:
    """Return the limit of each link: from the configuration where we may read it, else from the optimizer."""
    wanted = sorted(set(links))
    try:
        configured = connection.call("get", "/config/links"), connection.call("get", "/config/se")
        return [_configured(link, *configured) for link in wanted]
    except ServiceError as error:
        if connection.status not in {401, 403, 404} and isinstance(error, Temporary | Fatal):
            raise
    try:
        rows = {(row["source_se"], row["dest_se"]): int(row["active"]) for row in _rows(connection)}
    except ServiceError:
        rows = {}
    return [_optimized(link, rows) for link in wanted]


def _rows(connection: Connection) -> Sequence[Row]:
    rows: Sequence[Row] = connection.call("get", "/optimizer/current")
    return rows


def _optimized(link: Link, rows: Mapping[tuple[str, str], int]) -> LinkLimit:
    known = rows.get((urls.host_key(link.source), urls.host_key(link.destination)))
    return (
        LinkLimit(link, LINK, "link", "default") if known is None else LinkLimit(link, known, "link", "optimizer")
    )


def _configured(link: Link, links: Sequence[Row], storages: Mapping[str, Row]) -> LinkLimit:
    """Return the smallest of the limits of the link and its two storages; the usual one where none is set."""
    source, destination = urls.host_key(link.source), urls.host_key(link.destination)
    of_link = _of_link(source, destination, links)
    told = [
        (of_link, "link"),
        (_of_storage(source, "outbound_max_active", storages), "source"),
        (_of_storage(destination, "inbound_max_active", storages), "destination"),
    ]
    known = [(limit, by) for limit, by in told if limit is not None]
    usual = [(LINK if by == "link" else STORAGE, by) for limit, by in told if limit is None]
    most, by = min(known + usual, key=lambda one: one[0])
    return LinkLimit(link, most, by, "config" if (most, by) in known else "default")


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
