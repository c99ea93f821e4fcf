"""How many transfers at a time FTS will allow between storages, and how many wait, as far as it reports that.

`NamedServices` asks the FTS services that RSEs name, where Rucio moves the bytes, for their queues. To ask an FTS
is to show it credentials. An attribute of an RSE must not decide who gets them, so an FTS is asked only if the
person has named its host, as for FTS services in menus. Otherwise a hint shows how to name it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlencode

from dc_inject.backends.fts.connection import Connection, checked, understood
from dc_inject.credentials.trust import hint
from dc_inject.model import Link, urls
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary, UsageError
from dc_inject.model.ports import Clock, LinkQueue
from dc_inject.model.redaction import scrub
from dc_inject.model.transfers import LINK_LIMIT, STORAGE_LIMIT, TransferLimit

_ANY = "*"
LARGEST = 1e15  # files, bytes of a file, or bytes a second
_LATELY = 5  # rows of the optimizer, one a minute, of which the mean counts
_LONGEST = 80  # characters of the optimizer's reason for its decision
_APART = timedelta(minutes=10)  # rows that are older than the newest one by more are of another time

Row = Mapping[str, Any]
Pair = tuple[str, str]
REST = timedelta(minutes=5)  # for an FTS that does not answer, or refuses to


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
        rows: Sequence[Row] = connection.call("get", "/optimizer/current")
    except ServiceError:
        rows = ()
    return list(_optimized(pairs, {(row["source_se"], row["dest_se"]): int(row["active"]) for row in rows}))


def queues(connection: Connection, pairs: Iterable[Pair]) -> dict[Pair, LinkQueue]:
    """Return the queues between storages of which the optimizer has rows; every pair is a call."""
    queues_by_pair = {}
    for pair in pairs:
        ends = {"source_se": pair[0], "dest_se": pair[1]}
        rows: Sequence[Row] = connection.call("get", f"/optimizer/evolution?{urlencode(ends)}")
        ours = [row for row in rows if all(row[name] == end for name, end in ends.items())]
        newest = sorted(ours, key=_at, reverse=True)[:_LATELY]
        lately = [row for row in newest if _at(newest[0]) - _at(row) <= _APART]  # no earlier use of the link
        if lately:
            now, sizes = lately[0], [_number(row["filesize_avg"]) for row in lately if row["filesize_avg"]]
            rate = sum(_number(row["throughput"]) for row in lately) / len(lately)
            size = sum(sizes) / len(sizes) if sizes else 0.0
            waiting = int(_number(now["queue_size"]))
            decision = scrub(str(now.get("rationale") or ""))[:_LONGEST]
            queues_by_pair[pair] = LinkQueue(
                waiting,
                rate,
                int(size),
                _at(now),
                limit=int(_number(now["active"])),
                decision=decision,
            )
    return queues_by_pair


def _at(row: Row) -> datetime:
    """Return when the optimizer wrote a row; FTS gives times in UTC, without their zone."""
    moment = datetime.fromisoformat(str(row["datetime"]))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(value: object) -> float:
    """Read a number of FTS's; raises ValueError for one that is of no use for planning: it may be anything."""
    number = float(str(value))
    if not 0 <= number <= LARGEST:
        raise ValueError("a number is too large, or negative")
    return number


def _optimized(pairs: Sequence[Pair], rows: Mapping[Pair, int]) -> Iterator[TransferLimit]:
    for pair in pairs:
        yield _limit(pair, rows.get(pair), LINK_LIMIT, "optimizer")
    for pair in _ends(pairs):
        yield _limit(pair, None, STORAGE_LIMIT)


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
    return [(source, "") for source in sorted(sources)] + [("", storage) for storage in sorted(destinations)]


def _limit(pair: Pair, limit: int | None, usual: int, origin: str = "config") -> TransferLimit:
    return TransferLimit(*pair, usual, "default") if limit is None else TransferLimit(*pair, limit, origin)


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
    return int(min(fitting, key=lambda fitting_row: fitting_row[0])[1]) if fitting else None


def _of_storage(storage: str, direction: str, storages: Mapping[str, Row]) -> int | None:
    for name in (storage, _ANY):
        limit = (storages.get(name, {}).get("se_info") or {}).get(direction)
        if limit:
            return int(limit)
    return None


class NamedServices:
    """Asks each FTS by a connection of its own."""

    def __init__(self, clock: Clock, trusted: Callable[[str], bool], connect: Callable[[str], Connection]) -> None:
        """Take what decides whether the person has named the host of a URL, and what connects to an address."""
        self._clock = clock
        self._trusted = trusted
        self._connect = cache(connect)
        self._resting: dict[str, tuple[datetime, str]] = {}  # until when, and why

    def refusal(self, endpoint: str) -> str:
        """Return why an FTS is not asked, and how a person allows it; nothing where it may be."""
        try:
            address = checked(endpoint)
        except UsageError as error:
            return error.message
        if not self._trusted(address):
            return f"it is asked only if you name it: {hint(address)}"
        until, why = self._resting.get(endpoint, (None, ""))
        return why if until is not None and self._clock.now() < until else ""

    def queues(self, endpoint: str, pairs: Sequence[Pair]) -> Mapping[Pair, LinkQueue]:
        """Return the queues of links between storages that an FTS knows. Raises ServiceError.

        One that failed is left alone for a while: a campaign may have a thousand links to ask about.
        """
        if why := self.refusal(endpoint):
            raise Permanent(why)
        try:
            with understood():
                queues_by_pair = queues(self._connect(checked(endpoint)), pairs)
        except ServiceError as error:
            self._resting[endpoint] = self._clock.now() + REST, error.message
            raise
        return {pair: replace(queue, by=endpoint) for pair, queue in queues_by_pair.items()}
