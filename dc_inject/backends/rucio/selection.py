"""Why an entry of a menu's selection matches no dataset: of `did`, `containers`, or a line of `file`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.dids import Did, metadata
from dc_inject.backends.rucio.inventory import members_of
from dc_inject.model.errors import Permanent
from dc_inject.planning import pool


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
            members = members_of(connection, [did], ())
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
