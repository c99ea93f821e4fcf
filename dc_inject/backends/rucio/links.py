"""What Rucio knows of links between RSEs: what waits on them in FTS, and what a campaign has to reckon with.

Rucio keeps a request until it gives it to the FTS that the destination names in its attribute `fts`. There it
waits on the link of the two storages that Rucio copies between. FTS shows all users of a VO what its optimizer
sees. But the attribute of an RSE is no word of the person whose credentials it would get: an FTS is asked only if
`NamedFts` reports that the person has named it.

Attributes and protocols are read once in twelve hours.
"""

from __future__ import annotations

import ast
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TypeVar

from dc_inject.backends.answers import count, name
from dc_inject.backends.rucio.connection import SCHEME_MAP, Connection, Row
from dc_inject.backends.rucio.facts import attributes
from dc_inject.backends.rucio.write_endpoints import protocols, read_protocols
from dc_inject.model import Link
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError
from dc_inject.model.ports import LinkQueue, Missing
from dc_inject.model.redaction import scrub
from dc_inject.system.executor import Workers

Pair = tuple[str, str]  # of storages as FTS names them: scheme://host

_LONGEST = 200  # characters of an endpoint
THREADS = 8  # that ask at a time: a campaign may have a thousand links
T = TypeVar("T")


class NamedFts(Protocol):
    """The FTS services that the person has named, wherever RSEs name others."""

    def refusal(self, endpoint: str) -> str:
        """Return why an FTS is not asked, and how a person allows it; nothing where it may be."""

    def queues(self, endpoint: str, pairs: Sequence[Pair]) -> Mapping[Pair, LinkQueue]:
        """Return the queues of links between storages that an FTS knows. Raises ServiceError."""


def queues(connection: Connection, links: Iterable[Link], fts: NamedFts | None) -> dict[Link, LinkQueue | Missing]:
    """Return what waits in FTS on links, or why that cannot be read; a link unknown there is left out."""
    by_link: dict[Link, LinkQueue | Missing] = {}
    pairs: dict[str, dict[Link, Pair]] = defaultdict(dict)
    for link in links:
        # The one that gets Rucio's requests to an RSE at their first try is the first that it names.
        named = str(attributes(connection, link.destination).get("fts") or "")
        endpoint = scrub(named.partition(",")[0].strip())[:_LONGEST]
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


@dataclass(frozen=True, slots=True)
class Protocols:
    """The schemes with which an RSE lets others fetch from it, and lets files be fetched to it, over the WAN."""

    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers; for what is not in a mapping there was none, for the reason in `missing`.

    `distances` are those of links, None where none is set: Rucio then has no way from there. `expired` are bytes
    of replicas that may be deleted and are still there. `activities` are those of the client's own schema, which
    need not be the server's (None: it has none).
    """

    protocols: Mapping[str, Protocols] = field(default_factory=dict)
    expired: Mapping[str, int] = field(default_factory=dict)
    distances: Mapping[Pair, int | None] = field(default_factory=dict)
    activities: frozenset[str] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    def can_copy(self, source: str, destination: str) -> bool | None:
        """Whether two RSEs have schemes for a copy by third party that go together; None: not known."""
        if source not in self.protocols or destination not in self.protocols:
            return None
        reads, writes = self.protocols[source].reads, self.protocols[destination].writes
        return any(other in writes for scheme in reads for other in SCHEME_MAP.get(scheme, [scheme]))


def survey_all(connection: Connection, pairs: Iterable[Pair]) -> Survey:
    """Ask about links and their ends, a few at a time; what has no answer is missing, and stops nothing.

    Raises NeedsOperator when Rucio does not let us ask at all.
    """
    links = sorted(set(pairs))
    rses = sorted({rse for pair in links for rse in pair})
    missing: dict[str, str] = {}
    workers = Workers(THREADS, "survey")

    def ask(signal: str, subjects: list[T], read: Callable[[T], int | Protocols | None]) -> dict[T, object]:
        answers = dict(zip(subjects, workers.map(lambda subject: _tried(read, subject), subjects), strict=True))
        errors = [answer for answer in answers.values() if isinstance(answer, ServiceError)]
        fatal = next((error for error in errors if isinstance(error, NeedsOperator)), None)
        if fatal is not None:
            raise fatal
        if errors:
            missing[signal] = f"{errors[0].message} ({len(errors)} of {len(subjects)})"
        return {subject: answer for subject, answer in answers.items() if not isinstance(answer, ServiceError)}

    copying = [f"third_party_copy_{what}" for what in ("read", "write")]
    schemes = ask("protocols", rses, lambda rse: _schemes(read_protocols(connection, rse), copying))
    expired = ask("expired", rses, lambda rse: _expired(connection, rse))
    distances = ask("distances", links, lambda pair: _distance(connection, pair))
    return Survey(
        {rse: answer for rse, answer in schemes.items() if isinstance(answer, Protocols)},
        {rse: answer for rse, answer in expired.items() if isinstance(answer, int)},
        {pair: answer if isinstance(answer, int) else None for pair, answer in distances.items()},
        activities(),
        missing,
    )


def _tried(read: Callable[[T], object], subject: T) -> object:
    """Return an answer, or the error that came instead."""
    try:
        return read(subject)
    except ServiceError as error:
        return error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return Permanent(f"the answer cannot be understood ({type(error).__name__})")


def _schemes(rows: Sequence[Row], operations: Iterable[str]) -> Protocols:
    """Return the schemes of protocols that allow each operation: its priority is not 0."""
    allow = ({name(row["scheme"]) for row in rows if row["domains"].get("wan", {}).get(one)} for one in operations)
    return Protocols(*map(frozenset, allow))


def _expired(connection: Connection, rse: str) -> int | None:
    rows = connection.call("get_rse_usage", rse)
    return next((count(row["used"]) for row in rows if row["source"] == "expired"), None)


def _distance(connection: Connection, pair: Pair) -> int | None:
    rows = connection.call("get_distance", *pair)
    return next((count(row["distance"]) for row in rows), None)


def activities() -> frozenset[str] | None:
    """Return the activities of the client's own schema: no call returns those of the server.

    The client's schemas cannot be imported without the server's modules, so the list is read from its source.
    """
    spec = find_spec("rucio.common")
    for place in (spec and spec.submodule_search_locations) or ():
        with contextlib.suppress(OSError, SyntaxError, ValueError, TypeError, LookupError):
            for node in ast.parse((Path(place) / "schema" / "generic.py").read_text()).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ACTIVITY":
                    return frozenset(map(name, ast.literal_eval(node.value)["enum"]))
    return None
