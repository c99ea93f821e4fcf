"""Sets of test files in Rucio: files with replicas at one RSE, in datasets that a rule of ours protects there.

They are found by the names of their datasets. Every call can be made again: what is there already is left as it
is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rucio.common.exception import (
    AccessDenied,
    DataIdentifierAlreadyExists,
    DataIdentifierNotFound,
    DuplicateRule,
    InsufficientAccountLimit,
    InvalidObject,
    ScopeNotFound,
)

from dc_inject.backends.answers import count, utc
from dc_inject.backends.rucio.connection import Connection, Row, account_of, is_admin
from dc_inject.backends.rucio.deletion import let_go
from dc_inject.backends.rucio.dids import Did, metadata
from dc_inject.backends.rucio.errors import tolerated
from dc_inject.backends.rucio.facts import Facts
from dc_inject.backends.rucio.write_endpoints import WriteEndpoint, places, write_endpoint
from dc_inject.model import samples, units
from dc_inject.model.deletion import RegisteredFile, SampleDataset
from dc_inject.model.errors import Permanent, ServiceError, Temporary, UsageError
from dc_inject.model.groups import grouped
from dc_inject.model.samples import MARK, FileSet
from dc_inject.storage import Storage, Writable
from dc_inject.storage.sets import Moved, Written, upload

ASKED = 6  # times at most that Rucio is asked for one thing: a lock of its database must not cost hours of upload

_NAMES = (
    "put before all names what your experiment wants there (--name-prefix), "
    "or make the files by the storage's URL prefix, for menus through FTS"
)
COMMENT = "dc_inject data"  # of the rule that keeps a set
GONE = 1  # second that an erased dataset has left to live


@dataclass(frozen=True, slots=True)
class Prospect:
    """What making a set in Rucio has to reckon with; `quota_left` is None where there is no limit."""

    account: str
    admin: bool
    scopes: tuple[str, ...]  # that the account owns
    quota_left: int | None
    free: int | None
    write_endpoint: WriteEndpoint


class RucioSet:
    """A set of test files that is being made in Rucio; see `filling.SetWriter`."""

    def __init__(
        self,
        connection: Connection,
        storage: Writable,
        rse: str,
        scope: str,
        wanted: FileSet,
        *,
        lifetime: timedelta | None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take where it is to be, and for how long (None: until it is dropped); nothing is asked yet."""
        self._connection = connection
        self._storage = storage
        self._rse = rse
        self._scope = scope
        self._set = wanted
        self._lifetime = lifetime
        self._sleep = sleep
        self._prospect: Prospect | None = None
        self._unready: list[Did] = []  # datasets of which something is missing
        self._urls: dict[str, str] = {}
        self._kept_any = False

    def prospect(self) -> Prospect:
        """Return what is known beforehand, asked once. Raises UsageError for an RSE that cannot be filled."""
        if self._prospect is not None:
            return self._prospect
        connection, rse = self._connection, self._rse
        facts = Facts(connection).sites([rse])[rse]
        if not facts.exists:
            raise UsageError(f"Rucio knows no RSE {rse}", "check its spelling")
        if facts.ambiguity:
            raise UsageError(facts.ambiguity, "take another RSE, or ask Rucio's operators")
        if facts.tape:
            raise UsageError(f"{rse} is tape", "take a disk RSE: test data are read again and again")
        if not facts.writable:
            raise Temporary(f"{rse} does not take data now: its site has blocked writing", "wait, or take another")
        account, admin = account_of(connection), is_admin(connection)
        through = write_endpoint(connection, rse)
        self._prospect = Prospect(account, admin, self._own_scopes(account), facts.quota_left, facts.free, through)
        return self._prospect

    def missing(self) -> Sequence[int]:
        """Return the numbers of files that are not in their datasets yet; nothing is changed.

        Raises UsageError for a set of this name with other files or at another RSE, and where there is no room.
        """
        prospect = self.prospect()
        self._no_other_set()
        numbers: set[int] = set()
        self._unready = []
        for dataset, numbered in self._set.datasets.items():
            did = Did(self._scope, dataset)
            there = self._there(did)
            numbers |= there or set()
            if there is None or len(there) < len(numbered):
                self._unready.append(did)
        waiting = [number for number in range(1, self._set.files + 1) if number not in numbers]
        self._enough(prospect, len(waiting) * self._set.bytes)
        self._urls = dict(
            places(self._connection, prospect.write_endpoint, self._scope, [*map(self._set.file, waiting)])
        )
        self._kept_any = bool(numbers)
        return waiting

    def begin(self) -> None:
        """Make the datasets that are missing, each with its rule, before there is a file.

        So a missing right or quota costs nothing. Raises ServiceError with what to ask for.
        """
        for did in self._unready:
            self._begin(self.prospect(), did)

    def url(self, number: int) -> str:
        """Return where a file that is missing has to lie."""
        return self._urls[self._set.file(number)]

    def write(self, number: int, moved: Moved) -> Written:
        """Write a file to where Rucio will look for it, unless it is there."""
        content, top = self._set.content(number), self.prospect().write_endpoint.top
        return upload(self._storage, self._stored(number), content, below=top, moved=moved, sleep=self._sleep)

    def keep(self, written: Sequence[tuple[int, Written]]) -> None:
        """Register replicas, then attach the files; if the very first is refused, it is deleted again."""
        try:
            with self._ask_for(
                f"register replicas at {self._rse}",
                f"ask Rucio's administrators for the permission add_replicas at {self._rse}, or take an RSE where "
                "you have it (the policy `generic` gives it to all at RSEs named ...SCRATCHDISK, ...USERDISK and "
                "...LOCALGROUPDISK, and everywhere to accounts with the attribute admin)",
            ):
                self._again("add_replicas", self._rse, [self._file(*entry) for entry in written])
        except Permanent:
            if not self._kept_any:
                self._undo(written)
            raise
        attachments = grouped((self._set.dataset_of(number), self._did(number).row()) for number, _ in written)
        rows = [Did(self._scope, name).row() | {"dids": dids} for name, dids in attachments.items()]
        self._again("attach_dids_to_dids", rows, ignore_duplicate=True)
        self._kept_any = True

    def finish(self) -> None:
        """Close the datasets, so that they can be injected."""
        for dataset in self._set.datasets:
            did = Did(self._scope, dataset)
            if self._connection.call("get_metadata", *did).get("is_open"):
                self._again("set_status", *did, open=False)

    @property
    def dids(self) -> list[str]:
        """The datasets, as a menu names them."""
        return [str(Did(self._scope, dataset)) for dataset in self._set.datasets]

    def _begin(self, prospect: Prospect, did: Did) -> None:
        own = ", ".join(prospect.scopes) or "none"
        hint = f"take --scope with one that {prospect.account} owns ({own}), or ask Rucio's administrators for one"
        seconds = None if self._lifetime is None else round(self._lifetime.total_seconds())
        with self._ask_for(f"make datasets in the scope {did.scope}", hint):
            try:
                with tolerated(DataIdentifierAlreadyExists):
                    self._again("add_dataset", *did, lifetime=seconds)
            except ServiceError as error:
                if isinstance(error.__cause__, InvalidObject):
                    raise Permanent(f"Rucio's schema refuses the name {did} ({error.message})", _NAMES) from error
                raise
        quota = (
            f"ask for quota of {prospect.account} at {self._rse}: {units.format_size(self._set.total)} are needed"
        )
        with self._ask_for(f"make a rule at {self._rse}", quota), tolerated(DuplicateRule):
            self._again(
                "add_replication_rule",
                dids=[did.row()],
                copies=1,
                rse_expression=self._rse,
                lifetime=seconds,
                grouping="DATASET",
                purge_replicas=True,
                comment=COMMENT,
            )

    def _no_other_set(self) -> None:
        for found_set in find_sets(self._connection, self._scope, self._set.before, self._set.name):
            if found_set.until is not None and found_set.until <= self._connection.now():
                raise Temporary(
                    f"Rucio is deleting the set {self._set.name}, which was dropped or has expired",
                    "wait until `dc-inject data list` does not show it any more, or take another name",
                )
            drop = f"dc-inject data drop {found_set.rse or self._rse} {self._set.name} --scope {self._scope}"
            if found_set.set != self._set:
                raise UsageError(
                    f"{self._scope} has a set {found_set.set} in datasets of {found_set.set.per} already",
                    f"take another name, or drop it: {drop}",
                )
            if found_set.rse not in {"", self._rse}:
                raise UsageError(
                    f"the set {self._set.name} is at {found_set.rse} already",
                    "take another name: copies of it are made by rules",
                )

    def _enough(self, prospect: Prospect, needed: int) -> None:
        if prospect.quota_left is not None and needed and prospect.quota_left < needed:
            raise UsageError(
                f"{prospect.account} has {units.format_size(prospect.quota_left)} of quota left at {self._rse}, "
                f"and {units.format_size(needed)} are needed",
                f"ask {self._rse}'s people or Rucio's administrators for quota, or make fewer or smaller files",
            )
        if prospect.free is not None and prospect.free < needed:
            free, wanted = units.format_size(prospect.free), units.format_size(needed)
            raise UsageError(
                f"{self._rse} has {free} free, and {wanted} are needed",
                "make fewer or smaller files, or take another RSE",
            )

    def _own_scopes(self, account: str) -> tuple[str, ...]:
        with tolerated(ScopeNotFound):
            return tuple(sorted(map(str, self._connection.call("list_scopes_for_account", account))))
        return ()

    def _there(self, did: Did) -> set[int] | None:
        with tolerated(DataIdentifierNotFound):
            rows = self._connection.call("list_files", *did)
            return {self._set.number_of(str(row["name"])) for row in rows} - {0}
        return None

    def _undo(self, written: Sequence[tuple[int, Written]]) -> None:
        for number, _ in written:
            self._storage.delete(self._stored(number))
        for dataset in self._set.datasets:
            self._repeat(let_go, self._connection, SampleDataset(self._scope, dataset, self._set), GONE)

    def _stored(self, number: int) -> RegisteredFile:
        return RegisteredFile(self.prospect().write_endpoint.prefix, self.url(number), self._set, number)

    def _did(self, number: int) -> Did:
        return Did(self._scope, self._set.file(number))

    def _file(self, number: int, file: Written) -> Row:
        return {**self._did(number).row(), "bytes": file.bytes, "adler32": file.adler32, "state": "A"}

    def _again(self, method: str, *args: object, **kwargs: object) -> None:
        self._repeat(self._connection.call, method, *args, writes=True, **kwargs)

    def _repeat(self, call: Callable[..., object], *args: object, **kwargs: object) -> object:
        """Make a call up to `ASKED` times, as its answer may be lost and none of these does harm twice."""
        for left in reversed(range(ASKED)):
            try:
                return call(*args, **kwargs)
            except Temporary as error:
                if not left or isinstance(error.__cause__, InsufficientAccountLimit):
                    raise
                self._sleep(2.0 ** (ASKED - 2 - left))  # 0.5, 1, 2, 4, 8 seconds
        raise AssertionError("one of the tries returns or raises")

    @contextmanager
    def _ask_for(self, action: str, hint: str) -> Iterator[None]:
        """Return a refusal with what was refused, and what to ask whom for."""
        try:
            yield
        except ServiceError as error:
            if isinstance(error.__cause__, AccessDenied | ScopeNotFound | InsufficientAccountLimit):
                account = account_of(self._connection)
                raise Permanent(f"Rucio does not let {account} {action} ({error.message})", hint) from error
            raise


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
            with tolerated(DataIdentifierNotFound):  # gone meanwhile
                let_go(connection, SampleDataset(found_set.scope, dataset, found_set.set), GONE)
        except ServiceError as error:
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
