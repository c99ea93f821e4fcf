"""What waits on links between RSEs, in the FTS to which Rucio gives its requests.

Rucio keeps a request until it gives it to the FTS that the destination names in its attribute `fts`. There it
waits on the link of the two storages that Rucio copies between. FTS shows all users of a VO what its optimizer
sees. But the attribute of an RSE is no word of the person whose credentials it would get: an FTS is asked only if
`NamedFts` says that the person has named it.

Attributes and protocols are read once in twelve hours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from dc_inject.backends.answers import count, name
from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.facts import attributes
from dc_inject.backends.rucio.releases import SCHEME_MAP
from dc_inject.backends.rucio.write_endpoints import protocols
from dc_inject.model import Link
from dc_inject.model.errors import ServiceError
from dc_inject.model.ports import LinkQueue, Missing
from dc_inject.model.redaction import scrub

Pair = tuple[str, str]  # of storages as FTS names them: scheme://host

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
