"""What waits on links between RSEs: in Rucio itself, and in the FTS to which Rucio gives its requests.

Rucio keeps a request until it gives it to the FTS that the destination names in its attribute `fts`. There it
waits again, on the link of the two storages that Rucio copies between. So a link has two queues, and who tells of
them are two services, each with rights of its own:

- **FTS** shows all users of a VO what its optimizer sees. But the attribute of an RSE is no word of the person
  whose credentials it would get: an FTS is asked only if `NamedFts` says that the person has named it.
- **Rucio** shows the figures of its requests (`/requests/metrics`) to accounts that may see them, usually those of
  administrators. After a refusal it is not asked again for hours.

Attributes and protocols are read once in twelve hours, and the figures of requests once in the five minutes in
which Rucio adds them up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from rucio.common.exception import AccessDenied

from dc_inject.backends.answers import count, name
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.facts import attributes
from dc_inject.backends.rucio.releases import SCHEME_MAP
from dc_inject.backends.rucio.write_endpoints import protocols
from dc_inject.model import Link
from dc_inject.model.errors import Permanent, ServiceError
from dc_inject.model.ports import LinkQueue, Missing, Requests
from dc_inject.model.redaction import scrub

Pair = tuple[str, str]  # of storages as FTS names them: scheme://host

_LONG = timedelta(hours=12)  # attributes of RSEs, and whether the account may see requests
_SUMMED = timedelta(minutes=5)  # how often Rucio adds up what was done
_HOUR = 3600  # seconds over which it sums
_LONGEST = 200  # characters of an endpoint


class NamedFts(Protocol):
    """The FTS services that the person has named, wherever RSEs name others."""

    def refusal(self, endpoint: str) -> str:
        """Say why an FTS is not asked, and how a person allows it; nothing where it may be."""
        ...

    def queues(self, endpoint: str, pairs: Sequence[Pair]) -> Mapping[Pair, LinkQueue]:
        """Return the queues of links between storages that an FTS knows. Raises ServiceError."""
        ...


def queues(connection: Connection, links: Iterable[Link], fts: NamedFts | None) -> dict[Link, LinkQueue | Missing]:
    """Return what waits in FTS on links, or why that cannot be read; a link unknown there is left out."""
    by_link: dict[Link, LinkQueue | Missing] = {}
    pairs: dict[str, dict[Link, Pair]] = defaultdict(dict)
    for link in links:
        endpoint = _endpoint(connection, link.destination)
        if not endpoint:
            by_link[link] = Missing(link.destination, "the RSE has no attribute `fts`")
        elif fts is None or (why := fts.refusal(endpoint)):
            by_link[link] = Missing(endpoint, why if fts else "no FTS is asked")
        elif pair := _storages(connection, link):
            pairs[endpoint][link] = pair
        else:
            by_link[link] = Missing(str(link), "its RSEs have no schemes for a copy by third party")
    for endpoint, asked in pairs.items():
        assert fts is not None
        try:
            by_pair = fts.queues(endpoint, sorted(set(asked.values())))
        except ServiceError as error:
            by_link |= dict.fromkeys(asked, Missing(endpoint, error.message))
        else:
            by_link |= {link: by_pair[pair] for link, pair in asked.items() if pair in by_pair}
    return by_link


def requests(connection: Connection, links: Sequence[Link]) -> dict[Link, Requests]:
    """Return what waits in Rucio on links, and what was done on them in the last hour, whoever asked for it.

    Raises Permanent, with Rucio's words, where the account may not see that.
    """
    places = sorted({link.destination for link in links})
    if places and (why := connection.kept(("requests",), _LONG, lambda: _refusal(connection, places[0]))):
        raise Permanent(why)
    wanted = {link[:2]: link for link in links}
    rows = (row for place in places for row in _figures(connection, place))
    ends = ((wanted.get((row["src_rse"], row["dst_rse"])), row) for row in rows)
    return {link: _requests(row) for link, row in ends if link is not None}


def _refusal(connection: Connection, destination: str) -> str:
    """Return why the account may not see figures of requests; nothing where it may."""
    try:
        _figures(connection, destination)
    except Permanent as error:
        if isinstance(error.__cause__, AccessDenied):
            return error.message
        raise
    return ""


def _figures(connection: Connection, destination: str) -> list[Row]:
    """Return the figures of requests to an RSE, a row for each source."""

    def read() -> list[Row]:
        rows: list[Row] = connection.call("request_metrics", destination)
        return rows

    return connection.kept(("requests", destination), _SUMMED, read)


def _requests(row: Row) -> Requests:
    files, sizes = row.get("files") or {}, row.get("bytes") or {}
    done = count(sizes.get("done-total-1h"))
    return Requests(count(files.get("queued-total")), count(sizes.get("queued-total")), done / _HOUR)


def _endpoint(connection: Connection, rse: str) -> str:
    """Return the FTS that gets Rucio's requests to an RSE at their first try: the first one that it names."""
    named = str(attributes(connection, rse).get("fts") or "")
    return scrub(named.partition(",")[0].strip())[:_LONGEST]


def _storages(connection: Connection, link: Link) -> Pair | None:
    """Return the storages between which Rucio copies on a link: by the schemes that the RSEs like best."""
    sources = list(_copying(connection, link.source, "third_party_copy_read"))
    destinations = list(_copying(connection, link.destination, "third_party_copy_write"))
    fitting = (
        (to[0], from_[0], from_, to)
        for to in destinations
        for from_ in sources
        if from_[1] in SCHEME_MAP.get(to[1], [to[1]])
    )
    best = min(fitting, default=None)
    return None if best is None else (best[2][2], best[3][2])


def _copying(connection: Connection, rse: str, operation: str) -> Iterator[tuple[int, str, str]]:
    """Give the protocols of an RSE for an operation over the WAN: priority, scheme, and the storage for FTS."""
    for row in protocols(connection, rse):
        if priority := count(row["domains"].get("wan", {}).get(operation)):
            scheme = name(row["scheme"])
            yield priority, scheme, f"{scheme}://{name(row['hostname'])}"
