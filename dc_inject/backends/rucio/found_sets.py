"""Sets of test files registered in Rucio: found by the names of their datasets, and erased."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from rucio.common.exception import AccessDenied, DataIdentifierNotFound

from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.deletion import let_go
from dc_inject.backends.rucio.dids import Did, metadata
from dc_inject.backends.rucio.identity import account_of
from dc_inject.backends.rucio.write_endpoints import places, write_endpoint
from dc_inject.model import samples
from dc_inject.model.deletion import RegisteredFile, SampleDataset
from dc_inject.model.errors import Permanent, ServiceError, UsageError
from dc_inject.model.samples import MARK, FileSet
from dc_inject.storage import Storage

COMMENT = "dc_inject data"  # of the rule that keeps a set
GONE = 1  # second that an erased dataset has left to live


@dataclass(slots=True)
class RegisteredSet:
    """A set as Rucio has it.

    `rse` is where our rule keeps it, empty if none does; `files` are those available there. `elsewhere` counts the
    rules at other RSEs by RSE, `until` is when the first dataset goes.
    """

    set: FileSet
    scope: str
    datasets: list[str] = field(default_factory=list)
    rse: str = ""
    files: int = 0
    bytes: int = 0
    elsewhere: dict[str, int] = field(default_factory=dict)
    until: datetime | None = None


def find_sets(connection: Connection, scope: str, before: str = "", name: str = "") -> list[RegisteredSet]:
    """Return the sets in a scope, sorted; `name` is that of one."""
    if name and not samples.is_name(name):
        return []
    sets: dict[FileSet, RegisteredSet] = {}
    pattern = f"{before}{MARK}.{f'{name}.' if name else ''}*"
    for dataset in sorted(map(str, connection.call("list_dids", scope, [{"name": pattern}], did_type="dataset"))):
        made = samples.from_dataset(dataset, before)
        if made is not None:
            sets.setdefault(made, RegisteredSet(made, scope)).datasets.append(dataset)
    for found_set in sets.values():
        _keepers(connection, found_set)
        _amounts(connection, found_set)
    return [sets[key] for key in sorted(sets)]


def erase(connection: Connection, found_set: RegisteredSet) -> None:
    """Let the datasets of a set expire now: Rucio then deletes them, their rules everywhere, and the replicas."""
    for dataset in found_set.datasets:
        try:
            let_go(connection, SampleDataset(found_set.scope, dataset, found_set.set), GONE)
        except ServiceError as error:
            if isinstance(error.__cause__, DataIdentifierNotFound):
                continue  # gone meanwhile
            if isinstance(error.__cause__, AccessDenied):
                account = account_of(connection)
                raise Permanent(
                    f"Rucio does not let {account} erase {found_set.scope}:{dataset}",
                    f"ask who owns the scope {found_set.scope}, or Rucio's administrators, to erase it",
                ) from error
            raise


def sweep(connection: Connection, storage: Storage, found_set: RegisteredSet, rse: str) -> int:
    """Delete the files that an interrupted making left at an RSE without a replica; return how many there were."""
    registered = {
        found_set.set.number_of(str(row["name"]))
        for dataset in found_set.datasets
        for row in connection.call("list_files", found_set.scope, dataset)
    }
    names = [
        found_set.set.file(number) for number in range(1, found_set.set.files + 1) if number not in registered
    ]
    if not names:
        return 0
    try:
        through = write_endpoint(connection, rse)
    except UsageError:
        return 0  # nothing can have been written there by us
    return sum(
        storage.delete(RegisteredFile(through.prefix, url, found_set.set, found_set.set.number_of(name)))
        for name, url in places(connection, through, found_set.scope, names)
    )


def _keepers(connection: Connection, found_set: RegisteredSet) -> None:
    """Note the RSE of the rule that keeps a set, and which rules there are elsewhere."""
    for dataset in found_set.datasets:
        for rule in connection.call("list_did_rules", found_set.scope, dataset):
            if rule.get("comments") == COMMENT:
                found_set.rse = str(rule["rse_expression"])
            else:
                rse = str(rule["rse_expression"])
                found_set.elsewhere[rse] = found_set.elsewhere.get(rse, 0) + 1


def _amounts(connection: Connection, found_set: RegisteredSet) -> None:
    """Note how much there is, counted by files: Rucio's own sums of datasets come minutes later."""
    dids = [Did(found_set.scope, dataset) for dataset in found_set.datasets]
    for row in metadata(connection, dids):
        until = utc(row.get("expired_at"))
        if until is not None:
            found_set.until = min(found_set.until or until, until)
    for did in dids:
        for row in connection.call("list_dataset_replicas", *did, deep=True):
            if row["rse"] == found_set.rse:
                found_set.files += count(row["available_length"])
                found_set.bytes += count(row["available_bytes"])
