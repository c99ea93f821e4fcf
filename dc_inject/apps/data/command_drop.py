"""`dc-inject data drop`: delete a set of test files, which `data make` made, and nothing else."""

from __future__ import annotations

import click

from dc_inject.apps.data import places as data_places
from dc_inject.cli.shared import common, log_output
from dc_inject.cli.shared.end_files import agreed
from dc_inject.model import units, urls
from dc_inject.model.errors import UsageError
from dc_inject.storage import Storage
from dc_inject.storage import sets as at_storage


@click.command()
@click.argument("source")
@click.argument("name", metavar="SET")
@data_places.SCOPE
@data_places.BEFORE
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without changing anything.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.TIMEOUT
def drop(source: str, name: str, scope: str | None, before: str, dry_run: bool, yes: bool, timeout: float) -> None:
    r"""Delete the SET of test files at SOURCE, which is an RSE or a storage's URL prefix.

    Only what `data make` made is deleted, recognised by its name. At a storage, the files are deleted now, and
    then the empty folders. In Rucio, the datasets are erased: Rucio deletes them within minutes to hours, with all
    rules on them, anywhere, and all replicas; files that an interrupted `make` left at the RSE are deleted now.

    \b
    Example: dc-inject data drop T2_XX_SCRATCHDISK rehearsal --dry-run
    Example: dc-inject data drop davs://se.example.org:443/dc27 rehearsal --yes
    """
    log_output.talk(quiet=True)
    at = data_places.place(source, scope=scope, name_prefix=before)
    with data_places.storage(timeout) as storage:
        if urls.is_url(at):
            _at_storage(storage, at, name, dry_run=dry_run, yes=yes)
        else:
            _in_rucio(storage, at, name, scope, before, timeout, dry_run=dry_run, yes=yes)


def _go(question: str, *, dry_run: bool, yes: bool) -> bool:
    """Say what is going to be deleted, and return whether it is."""
    if dry_run:
        click.echo(f"would: {question}")
        return False
    if yes or agreed(f"{question}?"):
        return True
    click.echo("nothing was deleted", err=True)
    return False


def _at_storage(storage: Storage, prefix: str, name: str, *, dry_run: bool, yes: bool) -> None:
    sets = list(at_storage.find_sets(storage, prefix, name))
    if not sets:
        raise _unknown(name, prefix)
    for file_set in sets:
        size = units.format_size(file_set.bytes)
        if _go(
            f"delete {units.counted(file_set.files, 'files')} ({size}) of the set {file_set.set} at {prefix}",
            dry_run=dry_run,
            yes=yes,
        ):
            gone = list(at_storage.drop(storage, prefix, file_set.set))
            click.echo(f"deleted {units.counted(len(gone), 'files')} ({units.format_size(sum(gone))})", err=True)


def _in_rucio(
    storage: Storage,
    rse: str,
    name: str,
    scope: str | None,
    before: str,
    timeout: float,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    from dc_inject.backends.rucio import found_sets as rucio  # noqa: PLC0415  costs half a second
    from dc_inject.backends.rucio.connection import understood  # noqa: PLC0415  as said

    with understood():
        connection = data_places.rucio(timeout)
        where = data_places.own_scope(connection, scope)
        sets = [
            candidate
            for candidate in rucio.find_sets(connection, where, before, name)
            if candidate.rse in {rse, ""}
        ]
        if not sets:
            raise _unknown(name, f"{rse} in the scope {where}")
        for rucio_set in sets:
            size, rules = units.format_size(rucio_set.bytes), sum(rucio_set.elsewhere.values())
            places = ", ".join(sorted(rucio_set.elsewhere))
            datasets, files = (
                units.counted(len(rucio_set.datasets), "datasets"),
                units.counted(rucio_set.files, "files"),
            )
            also = f", with {units.counted(rules, 'rules')} on them at {places}" if rules else ""
            action = f"erase {datasets}, {files} ({size}), of the set {rucio_set.set}{also}"
            if not _go(action, dry_run=dry_run, yes=yes):
                continue
            dark = rucio.sweep(connection, storage, rucio_set, rse)
            rucio.erase(connection, rucio_set)
            if dark:
                click.echo(f"deleted {units.counted(dark, 'files')} that were never registered", err=True)
            click.echo(
                f"erased {datasets}; files and rules remain until Rucio's daemons "
                "(undertaker, reaper) have deleted them; until then `dc-inject data list` shows the set",
                err=True,
            )


def _unknown(name: str, where: str) -> UsageError:
    return UsageError(f"there is no set {name!r} at {where}", "`dc-inject data list` lists the sets")
