"""`dc-inject data`: make, list and drop files to make traffic with, where there are none."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Lock
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from dc_inject.apps.data import sets
from dc_inject.apps.data.filling import Filled, fill
from dc_inject.apps.data.sets import NewSet
from dc_inject.cli.shared import common, exits, log_output, params, tables, trusting
from dc_inject.cli.shared.trusting import agreed
from dc_inject.model import units, urls
from dc_inject.model.errors import Permanent, ServiceError

LISTED = (
    tables.Column("set", "set", name=True),
    tables.Column("at", "at", name=True),
    tables.Column("scope", "scope", spare=2),
    tables.Column("files", "files", right=True),
    tables.Column("of", "of", right=True, spare=1),
    tables.Column("file_bytes", "each", units.format_size, right=True, spare=3),
    tables.Column("bytes", "bytes", units.format_size, right=True),
    tables.Column("datasets", "datasets", right=True, spare=4),
    tables.Column("rules_elsewhere", "rules elsewhere", right=True),
    tables.Column("until", "until (UTC)"),
)
OF_RUCIO = {"scope", "datasets", "rules_elsewhere", "until"}
PLANNED = (
    tables.Column("set", "set"),
    tables.Column("at", "at"),
    tables.Column("files", "files", right=True),
    tables.Column("file_bytes", "each", units.format_size, right=True),
    tables.Column("missing", "missing", right=True),
    tables.Column("missing_bytes", "to write", units.format_size, right=True),
    tables.Column("first", "first file to write"),
)
PLANNED_IN_RUCIO = (
    tables.Column("account", "account"),
    tables.Column("scope", "scope"),
    tables.Column("scope_owned", "owned", tables.yes_no),
    tables.Column("quota_left", "quota left", units.format_size, right=True),
    tables.Column("free", "free", units.format_size, right=True),
)
_SCOPE = click.option("--scope", help="The scope in Rucio.  [default: user.ACCOUNT]")
_NAME_PREFIX = click.option(
    "--name-prefix",
    metavar="TEXT",
    default="",
    help="A prefix for all names in Rucio, if the experiment's policy requires one, such as user.me.",
)


@click.group()
def data() -> None:
    """Make, list or delete test data at a source.

    A source is an RSE, or a URL prefix of a storage for menus through FTS.

    Example: dc-inject data make T2_XX_SCRATCHDISK rehearsal --files 100 --size 1GB
    """


def _place(source: str, **rucio_only: object) -> str:
    """Return a source in its one form; raises UsageError for options that a storage has no use for."""
    if "://" not in source:
        return source
    prefix = params.PREFIX.convert(source, None, None)
    sets.check_prefix(prefix, **rucio_only)
    trusting.trust().name(prefix)  # on the command line
    return prefix


def _storage(timeout: float) -> closing[Any]:
    def warn(sentence: str) -> None:
        click.echo(f"dc-inject: {sentence}", err=True)

    return sets.open_storage(trusting.trust().destinations(), timeout, warn)


# --------------------------------------------------------------------------- make


@data.command()
@click.argument("source")
@click.argument("name", metavar="SET")
@click.option("--files", required=True, type=click.IntRange(1), help="The number of files.")
@click.option("--size", required=True, help="The size of each file, such as 1GB.")
@click.option("--dataset-files", type=click.IntRange(1), help="Files of a dataset in Rucio.  [default: 100]")
@_SCOPE
@_NAME_PREFIX
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
    at = _place(source, **rucio)
    with _storage(timeout) as storage:
        new = (
            sets.new_at_storage(storage, at, name, files, size, look=dry_run)
            if urls.is_url(at)
            else sets.new_in_rucio(storage, at, name, files, size, timeout=timeout, **rucio)
        )
        if dry_run:
            _show_plan(new, at, fmt)
            return
        written = _filled(new, parallel)
    _show_made(new, written)


def _show_plan(new: NewSet, at: str, fmt: str) -> None:
    row = {
        "set": new.wanted.name,
        "at": at,
        "files": new.wanted.files,
        "file_bytes": new.wanted.bytes,
        "missing": len(new.missing),
        "missing_bytes": len(new.missing) * new.wanted.bytes,
        "first": new.writer.url(new.missing[0]) if new.missing else None,
    }
    tables.emit(fmt, PLANNED + (PLANNED_IN_RUCIO if new.facts else ()), [row | new.facts])


def _filled(new: NewSet, parallel: int) -> list[Filled]:
    try:
        with _progress(len(new.missing) * new.wanted.bytes) as moved:
            return fill(new.writer, new.missing, parallel=parallel, moved=moved)
    except ServiceError as error:
        if not isinstance(error, Permanent):
            click.echo("what has arrived is kept; run it again to continue", err=True)
        raise
    except KeyboardInterrupt:
        exits.report_interruption("what has arrived is kept; run it again to continue")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
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
    """Prints a line whenever another tenth is done; called from several threads."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = self._printed = 0
        self._lock = Lock()

    def moved(self, count: int) -> None:
        with self._lock:
            self._done += count
            tenth = 10 * self._done // self._total
            if tenth <= self._printed:
                return
            self._printed = tenth
        done, total = units.format_size(self._done), units.format_size(self._total)
        click.echo(f"{done} of {total} uploaded", err=True)


def _show_made(new: NewSet, written: Sequence[Filled]) -> None:
    """Print how a menu names the set, and what is not certain of it."""
    files = [file for _, file in written]
    if new.dids:
        for did in new.dids:
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
        f"made {new.wanted}; written or found now: {units.counted(len(files), 'files')} ({wrote})",
        err=True,
    )


# --------------------------------------------------------------------------- list


@data.command("list")
@click.argument("source", required=False)
@_SCOPE
@_NAME_PREFIX
@common.TIMEOUT
@common.FORMAT
def list_(source: str | None, scope: str | None, name_prefix: str, timeout: float, fmt: str) -> None:
    r"""List the sets of test files at SOURCE (an RSE or a storage's URL prefix), or all sets in the scope.

    \b
    Example: dc-inject data list
    Example: dc-inject data list davs://se.example.org:443/dc27 --format json
    """
    log_output.talk(quiet=True)
    at = _place(source, scope=scope, name_prefix=name_prefix) if source else ""
    if is_storage := urls.is_url(at):
        with _storage(timeout) as storage:
            found = sets.find_sets_at_storage(storage, at)
    else:
        found = sets.find_sets_in_rucio(at, scope, name_prefix, timeout)
    if not found:
        click.echo(f"no sets of test files at {at or 'Rucio'}", err=True)
    absent = OF_RUCIO if is_storage and fmt == "table" else set()
    rows = [{**one._asdict(), "until": units.format_time_or_none(one.until)} for one in found]
    tables.emit(fmt, [column for column in LISTED if column.key not in absent], rows)


# --------------------------------------------------------------------------- drop


@data.command()
@click.argument("source")
@click.argument("name", metavar="SET")
@_SCOPE
@_NAME_PREFIX
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without changing anything.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.TIMEOUT
def drop(
    source: str, name: str, scope: str | None, name_prefix: str, dry_run: bool, yes: bool, timeout: float
) -> None:
    r"""Delete the SET of test files at SOURCE, which is an RSE or a storage's URL prefix.

    Only what `data make` made is deleted, recognised by its name. At a storage, the files are deleted now, and
    then the empty folders. In Rucio, the datasets are erased: Rucio deletes them within minutes to hours, with all
    rules on them, anywhere, and all replicas; files that an interrupted `make` left at the RSE are deleted now.

    \b
    Example: dc-inject data drop T2_XX_SCRATCHDISK rehearsal --dry-run
    Example: dc-inject data drop davs://se.example.org:443/dc27 rehearsal --yes
    """
    log_output.talk(quiet=True)
    at = _place(source, scope=scope, name_prefix=name_prefix)
    with _storage(timeout) as storage:
        deletions = (
            sets.prepare_storage_deletions(storage, at, name)
            if urls.is_url(at)
            else sets.prepare_rucio_deletions(storage, at, name, scope, name_prefix, timeout)
        )
        for deletion in deletions:
            if dry_run:
                click.echo(f"would: {deletion.words}")
            elif yes or agreed(f"{deletion.words}?"):
                for sentence in deletion.carry_out():
                    click.echo(sentence, err=True)
            else:
                click.echo("nothing was deleted", err=True)
