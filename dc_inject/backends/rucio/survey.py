"""What Rucio reports about RSEs and links before a campaign begins; only `check --online` asks."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from rucio.common.exception import RSEProtocolNotSupported

from dc_inject.backends.answers import count, name
from dc_inject.backends.rucio.connection import Connection, Row
from dc_inject.backends.rucio.releases import SCHEME_MAP
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError
from dc_inject.system.executor import Workers

THREADS = 8  # that ask at a time: a campaign may have a thousand links
Pair = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Protocols:
    """The schemes with which an RSE lets others fetch from it, and lets files be fetched to it, over the WAN."""

    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Survey:
    """The answers; for what is not in a mapping there was none, and `missing` says why.

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


def surveyed(connection: Connection, pairs: Iterable[Pair]) -> Survey:
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

    protocols = ask("protocols", rses, lambda rse: _protocols(connection, rse))
    expired = ask("expired", rses, lambda rse: _expired(connection, rse))
    distances = ask("distances", links, lambda pair: _distance(connection, pair))
    return Survey(
        {rse: answer for rse, answer in protocols.items() if isinstance(answer, Protocols)},
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


def _protocols(connection: Connection, rse: str) -> Protocols:
    try:
        answer = connection.call("get_protocols", rse)
    except Permanent as error:
        if not isinstance(error.__cause__, RSEProtocolNotSupported):
            raise
        answer = []  # it has none
    rows: list[Row] = [answer] if isinstance(answer, Mapping) else list(answer)
    return Protocols(_schemes(rows, "third_party_copy_read"), _schemes(rows, "third_party_copy_write"))


def _schemes(rows: Iterable[Row], operation: str) -> frozenset[str]:
    """Return the schemes of protocols that allow an operation: its priority is not 0."""
    return frozenset(name(row["scheme"]) for row in rows if row["domains"].get("wan", {}).get(operation))


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
