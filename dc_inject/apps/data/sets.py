"""Sets of test files, below a prefix of a storage or at an RSE: found, deleted and prepared."""

# ruff: noqa: PLC0415  Rucio's client costs half a second

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dc_inject.apps.data.filling import SetWriter
from dc_inject.credentials import Credentials
from dc_inject.credentials.trust import Destinations, hint, is_unencrypted, refusal
from dc_inject.engine import admission
from dc_inject.model import units, urls
from dc_inject.model.errors import UsageError
from dc_inject.model.events import Silent
from dc_inject.model.samples import FileSet
from dc_inject.storage import AccessDenied, Storage, WebDav, Writable, trust
from dc_inject.storage import sets as at_storage
from dc_inject.storage.sets import SetStatus, StorageSet
from dc_inject.system.clock import SystemClock

if TYPE_CHECKING:
    from dc_inject.backends.rucio.connection import Connection
    from dc_inject.backends.rucio.sets import RegisteredSet

PER_DATASET = 100  # files
LIFETIME = "30 d"


class FoundSet(NamedTuple):
    """A set that exists: where it is (None: no rule of ours keeps it), and which `files` `of` all it has.

    `scope` and what comes after `bytes` are None at a storage. `until` is when the first dataset expires.
    """

    set: str
    at: str | None
    scope: str | None
    files: int
    of: int
    file_bytes: int
    bytes: int
    datasets: int | None = None
    rules_elsewhere: int | None = None
    until: datetime | None = None


class Deletion(NamedTuple):
    """What would be deleted, in words, and what deletes it and yields sentences about what was done."""

    words: str
    carry_out: Callable[[], Iterator[str]]


@dataclass(frozen=True)
class NewSet:
    """A set that is wanted, and where it is made.

    `missing` are the numbers of the files to write; `facts` are what Rucio knows of the account, the scope and the
    room; `dids` are the datasets.
    """

    writer: SetWriter
    wanted: FileSet
    missing: Sequence[int]
    dids: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)


# --------------------------------------------------------------------------- where sets are


def check_prefix(prefix: str, **rucio_only: object) -> None:
    """Raise UsageError for a storage without WebDAV, and for options that are only for Rucio."""
    if urls.parse(prefix).scheme in urls.XROOTD:
        raise UsageError(
            "test data are written and deleted over WebDAV", "use a prefix that starts with davs:// or https://"
        )
    for name, value in rucio_only.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is only for Rucio, but {prefix} is a storage", "leave it out")


def open_storage(trusted: Destinations, timeout: float, warn: Callable[[str], None]) -> closing[WebDav]:
    """Open storages with the credentials that also delete copies; warn of what is wrong with these."""
    credentials = Credentials(os.environ, SystemClock())
    for warning in credentials.warnings():
        warn(warning)

    def may_open(url: str) -> None:
        """Raise AccessDenied where a token would go over plain http to an address that only Rucio names."""
        if is_unencrypted(url) and credentials.access("destination").token and not trusted.allow(url):
            raise AccessDenied(refusal(url, "your token", "Rucio"), hint(url), hold="credentials")

    return closing(
        WebDav(
            lambda: credentials.access("destination"), verify=trust(os.environ), read=timeout, may_open=may_open
        )
    )


def rucio(timeout: float) -> Connection:
    """Return a connection to Rucio."""
    from dc_inject.backends.rucio.connection import Connection

    return Connection(timeout=timeout, clock=SystemClock(), observer=Silent())


def _own_scope(connection: Connection, scope: str | None) -> str:
    """Return the scope that was named, or that of the account's own."""
    from dc_inject.backends.rucio.connection import account_of

    return scope or f"user.{account_of(connection)}"


# --------------------------------------------------------------------------- sets that exist


def find_sets_at_storage(storage: Storage, prefix: str) -> list[FoundSet]:
    """Return the sets below a prefix."""
    return [
        FoundSet(found.set.name, prefix, None, found.files, found.set.files, found.set.bytes, found.bytes)
        for found in at_storage.find_sets(storage, prefix)
    ]


def find_sets_in_rucio(rse: str, scope: str | None, before: str, timeout: float) -> list[FoundSet]:
    """Return the sets in a scope: those at an RSE, or all where none is named."""
    from dc_inject.backends.rucio.connection import understood
    from dc_inject.backends.rucio.sets import find_sets

    with understood():
        connection = rucio(timeout)
        sets = find_sets(connection, _own_scope(connection, scope), before)
    return [
        FoundSet(
            *(found.set.name, found.rse or None, found.scope, found.files, found.set.files, found.set.bytes),
            *(found.bytes, len(found.datasets), sum(found.elsewhere.values()), found.until),
        )
        for found in sets
        if not rse or found.rse == rse
    ]


# --------------------------------------------------------------------------- deleting them


def prepare_storage_deletions(storage: Storage, prefix: str, name: str) -> list[Deletion]:
    """Return what deletes the sets of a name below a prefix; raises UsageError where there is none."""
    deletions = [
        Deletion(
            f"delete {units.counted(found.files, 'files')} ({units.format_size(found.bytes)}) of the set "
            f"{found.set} at {prefix}",
            partial(_drop_at_storage, storage, prefix, found),
        )
        for found in at_storage.find_sets(storage, prefix, name)
    ]
    return _some(deletions, name, prefix)


def _drop_at_storage(storage: Storage, prefix: str, found: SetStatus) -> Iterator[str]:
    gone = list(at_storage.drop(storage, prefix, found.set))
    yield f"deleted {units.counted(len(gone), 'files')} ({units.format_size(sum(gone))})"


def prepare_rucio_deletions(
    storage: Storage, rse: str, name: str, scope: str | None, before: str, timeout: float
) -> list[Deletion]:
    """Return what erases the sets of a name at an RSE, or those without a rule; raises UsageError if none is."""
    from dc_inject.backends.rucio.connection import understood
    from dc_inject.backends.rucio.sets import find_sets

    with understood():
        connection = rucio(timeout)
        where = _own_scope(connection, scope)
        sets = [found for found in find_sets(connection, where, before, name) if found.rse in {rse, ""}]
    deletions = [
        Deletion(_erasure(found), partial(_drop_in_rucio, connection, storage, rse, found)) for found in sets
    ]
    return _some(deletions, name, f"{rse} in the scope {where}")


def _erasure(found: RegisteredSet) -> str:
    rules, places = sum(found.elsewhere.values()), ", ".join(sorted(found.elsewhere))
    also = f", with {units.counted(rules, 'rules')} on them at {places}" if rules else ""
    size = f"{units.counted(found.files, 'files')} ({units.format_size(found.bytes)})"
    return f"erase {units.counted(len(found.datasets), 'datasets')}, {size}, of the set {found.set}{also}"


def _drop_in_rucio(connection: Connection, storage: Storage, rse: str, found: RegisteredSet) -> Iterator[str]:
    from dc_inject.backends.rucio.connection import understood
    from dc_inject.backends.rucio.sets import erase, sweep

    with understood():
        dark = sweep(connection, storage, found, rse)
        erase(connection, found)
    if dark:
        yield f"deleted {units.counted(dark, 'files')} that were never registered"
    yield (
        f"erased {units.counted(len(found.datasets), 'datasets')}; files and rules remain until Rucio's daemons "
        "(undertaker, reaper) have deleted them; until then `dc-inject data list` shows the set"
    )


def _some(deletions: list[Deletion], name: str, where: str) -> list[Deletion]:
    if not deletions:
        raise UsageError(f"there is no set {name!r} at {where}", "`dc-inject data list` lists the sets")
    return deletions


# --------------------------------------------------------------------------- making one


def new_at_storage(storage: Writable, prefix: str, name: str, files: int, size: str, *, look: bool) -> NewSet:
    """Prepare a set below a prefix; `look` at which files there are, which making it does file by file."""
    wanted = _set(name, files, size)
    writer = StorageSet(storage, prefix, wanted)
    return NewSet(writer, wanted, writer.find_unwritten() if look else writer.missing())


def new_in_rucio(
    storage: Writable,
    rse: str,
    name: str,
    files: int,
    size: str,
    *,
    timeout: float,
    scope: str | None,
    name_prefix: str,
    dataset_files: int | None,
    lifetime: str | None,
    allow_admin: bool,
) -> NewSet:
    """Prepare a set at an RSE; raises UsageError for an administrator's account, unless it is allowed."""
    from dc_inject.backends.rucio.connection import understood
    from dc_inject.backends.rucio.sets import RucioSet

    wanted = _set(name, files, size, min(dataset_files or PER_DATASET, files), name_prefix)
    with understood():
        connection = rucio(timeout)
        where = _own_scope(connection, scope)
        writer = RucioSet(connection, storage, rse, where, wanted, lifetime=_lifetime(lifetime or LIFETIME))
        prospect = writer.prospect()
        if prospect.admin and not allow_admin:
            raise UsageError(f"{prospect.account} is an administrator's account", admission.ORDINARY)
        facts = {
            "account": prospect.account,
            "scope": where,
            "scope_owned": where in prospect.scopes,
            "quota_left": prospect.quota_left,
            "free": prospect.free,
        }
        return NewSet(writer, wanted, writer.missing(), writer.dids, facts)


def _set(name: str, files: int, size: str, per: int = 0, before: str = "") -> FileSet:
    try:
        return FileSet(name, files, units.parse_size(size), per, before)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _lifetime(text: str) -> timedelta | None:
    if text == "none":
        return None
    try:
        return units.parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error), "or use `none` to keep the set until you delete it") from None
