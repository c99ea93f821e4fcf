"""`dc-inject data make`: upload a set of test files to a source, and register it in Rucio where it is an RSE."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from dc_inject.apps.data import places
from dc_inject.apps.data.filling import SetWriter, fill
from dc_inject.cli.shared import common, exits, log_output, tables
from dc_inject.engine import admission
from dc_inject.model import units, urls
from dc_inject.model.errors import Permanent, ServiceError, UsageError
from dc_inject.model.samples import FileSet
from dc_inject.storage import Writable
from dc_inject.storage.sets import StorageSet
from dc_inject.storage.upload import Moved, Written

PER_DATASET = 100  # files
LIFETIME = "30 d"
COLUMNS = (
    tables.Column("set", "set"),
    tables.Column("at", "at"),
    tables.Column("files", "files", right=True),
    tables.Column("file_bytes", "each", units.format_size, right=True),
    tables.Column("missing", "missing", right=True),
    tables.Column("missing_bytes", "to write", units.format_size, right=True),
    tables.Column("first", "first file to write"),
)
FOR_RUCIO = (
    tables.Column("account", "account"),
    tables.Column("scope", "scope"),
    tables.Column("scope_owned", "owned", tables.yes_no),
    tables.Column("quota_left", "quota left", units.format_size, right=True),
    tables.Column("free", "free", units.format_size, right=True),
)


@dataclass(frozen=True)
class _Request:
    """What a set is to be, and where; `missing` are numbers of files, `facts` what a dry run tells beside them."""

    place: SetWriter
    wanted: FileSet
    missing: Sequence[int]
    dids: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)


@click.command()
@click.argument("source")
@click.argument("name", metavar="SET")
@click.option("--files", required=True, type=click.IntRange(1), help="The number of files.")
@click.option("--size", required=True, help="The size of each file, such as 1GB.")
@click.option("--dataset-files", type=click.IntRange(1), help="Files of a dataset in Rucio.  [default: 100]")
@places.SCOPE
@places.BEFORE
@click.option(
    "--lifetime", help="The time after which Rucio deletes it all, such as 14d, or `none`.  [default: 30 d]"
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="The number of simultaneous uploads.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would be written and what is already there, without changing anything.",
)
@common.ALLOW_ADMIN
@common.TIMEOUT
@common.FORMAT
def make(
    source: str,
    name: str,
    files: int,
    size: str,
    parallel: int,
    dry_run: bool,
    timeout: float,
    fmt: str,
    **rucio: Any,
) -> None:
    r"""Make a SET of test files at SOURCE (an RSE or a storage's URL prefix), and print how to name it in a menu.

    The files are uploaded over WebDAV; their content cannot be compressed, and their checksums are compared with
    those of the storage. At an RSE they are registered in Rucio, in datasets that a rule of yours keeps for
    --lifetime, and the datasets' names are printed. Below a prefix they are for menus through FTS, and a list of
    the files is printed. --format applies to --dry-run only.

    If it is interrupted, run it again: it continues where it stopped, with the same files.

    \b
    Example: dc-inject data make T2_XX_SCRATCHDISK rehearsal --files 100 --size 1GB --lifetime 14d
    Example: dc-inject data make davs://se.example.org:443/dc27 rehearsal --files 1000 --size 512MiB > sources.csv
    """
    log_output.talk(quiet=True)
    at = places.place(source, **rucio)
    with places.storage(timeout) as storage:
        if urls.is_url(at):
            request = _at_storage(storage, at, _set(name, files, size), look=dry_run)
        else:
            per = min(rucio["dataset_files"] or PER_DATASET, files)
            wanted = _set(name, files, size, per, rucio["before"])
            request = _at_rse(storage, at, wanted, timeout=timeout, **rucio)
        if dry_run:
            _foretell(request, at, fmt)
            return
        written = _filled(request, parallel)
    _tell(request, written)


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


def _at_storage(storage: Writable, prefix: str, wanted: FileSet, *, look: bool) -> _Request:
    """Prepare a set below a prefix; `look` at which files there are, which making it does file by file."""
    place = StorageSet(storage, prefix, wanted)
    return _Request(place, wanted, place.unwritten() if look else place.missing())


def _at_rse(
    storage: Writable,
    rse: str,
    wanted: FileSet,
    *,
    timeout: float,
    scope: str | None,
    lifetime: str | None,
    allow_admin: bool,
    **_: object,
) -> _Request:
    """Prepare a set at an RSE."""
    from dc_inject.backends.rucio.connection import understood  # noqa: PLC0415  costs half a second
    from dc_inject.backends.rucio.sets import RucioSet  # noqa: PLC0415  as said

    with understood():
        connection = places.rucio(timeout)
        where = places.own_scope(connection, scope)
        place = RucioSet(connection, storage, rse, where, wanted, lifetime=_lifetime(lifetime or LIFETIME))
        prospect = place.prospect()
        if prospect.admin and not allow_admin:
            raise UsageError(f"{prospect.account} is an administrator's account", admission.ORDINARY)
        facts = {
            "account": prospect.account,
            "scope": where,
            "scope_owned": where in prospect.scopes,
            "quota_left": prospect.quota_left,
            "free": prospect.free,
        }
        return _Request(place, wanted, place.missing(), place.dids, facts)


def _foretell(request: _Request, at: str, fmt: str) -> None:
    row = {
        "set": request.wanted.name,
        "at": at,
        "files": request.wanted.files,
        "file_bytes": request.wanted.bytes,
        "missing": len(request.missing),
        "missing_bytes": len(request.missing) * request.wanted.bytes,
        "first": request.place.url(request.missing[0]) if request.missing else None,
    }
    tables.emit(fmt, COLUMNS + (FOR_RUCIO if request.facts else ()), [row | request.facts])


def _filled(request: _Request, parallel: int) -> list[tuple[int, Written]]:
    try:
        with _progress(len(request.missing) * request.wanted.bytes) as moved:
            return fill(request.place, request.missing, parallel=parallel, moved=moved)
    except ServiceError as error:
        if not isinstance(error, Permanent):
            click.echo("what has arrived is kept; run it again to continue", err=True)
        raise
    except KeyboardInterrupt:
        exits.say_interrupted("what has arrived is kept; run it again to continue")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None


@contextmanager
def _progress(total: int) -> Iterator[Moved]:
    """Show how far it is: a bar on a terminal, elsewhere a line for each tenth."""
    if not sys.stderr.isatty():
        yield _Tenths(total).moved
        return
    columns = (
        TextColumn("uploading"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("uploading", total=total)
        yield lambda count: progress.advance(task, count)


class _Tenths:
    """Says it in a line whenever another tenth is done; heard from several threads."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._said = 0
        self._lock = Lock()

    def moved(self, count: int) -> None:
        with self._lock:
            self._done += count
            tenth = 10 * self._done // self._total
            if tenth <= self._said:
                return
            self._said = tenth
        done, total = units.format_size(self._done), units.format_size(self._total)
        click.echo(f"{done} of {total} uploaded", err=True)


def _tell(request: _Request, written: Sequence[tuple[int, Written]]) -> None:
    """Print how a menu names the set, and say what is not certain of it."""
    files = [file for _, file in written]
    if request.dids:
        for did in request.dids:
            click.echo(did)
    else:
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerow(["url", "size", "checksum"])
        lines.writerows([file.url, file.bytes, f"adler32:{file.adler32}"] for file in files)
    blind = sum(not file.compared for file in files)
    if blind:
        click.echo(
            f"the checksums of {units.counted(blind, 'files')} could not be compared: "
            "the storage does not report any",
            err=True,
        )
    wrote = units.format_size(sum(file.bytes for file in files))
    click.echo(
        f"made {request.wanted}; written or found now: {units.counted(len(files), 'files')} ({wrote})",
        err=True,
    )
