"""`dc-inject ledger`: check a campaign's ledger, back it up, and rebuild it when it is lost."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from dc_inject import registry
from dc_inject.cli.shared import common, tables
from dc_inject.ledger import Finding, LedgerView, ledger_files, lock, paths
from dc_inject.ledger.check import check as contradictions
from dc_inject.model import units
from dc_inject.model.errors import LedgerError, UsageError

COLUMNS = tuple(tables.Column(key, key) for key in ("code", "severity", "subject", "message"))


@click.group()
def ledger() -> None:
    r"""Check, back up or rebuild the ledger of a campaign.

    \b
    Example: dc-inject ledger check dc27-rehearsal
    """


for subcommand in registry.SUBCOMMANDS["ledger"].values():
    ledger.add_command(registry.load(subcommand))


@ledger.command()
@common.CAMPAIGN
@common.LEDGER
@common.FORMAT
@click.pass_context
def check(ctx: click.Context, campaign: str, ledger_path: Path | None, fmt: str) -> None:
    r"""Look for contradictions in a ledger; exit code 0 if there are none, 3 if there are.

    It works while an injector runs, and asks no service. It recomputes the totals from single injections, and
    compares states with times. A note is worth knowing, but is not a contradiction.

    \b
    Example: dc-inject ledger check dc27-rehearsal
    Example: dc-inject ledger check backups/dc27-rehearsal.sqlite --format json
    """
    path = ledger_files.existing(campaign, ledger_path)
    findings = [finding for file in paths.files(path) for finding in contradictions(file)]
    if findings or fmt != "table":
        rows = [
            {"code": one.code, "severity": "note" if one.note else "error"}
            | {"subject": one.subject, "message": one.message}
            for one in findings
        ]
        tables.emit(fmt, COLUMNS, rows)
    errors = _errors(findings)
    notes = len(findings) - len(errors)
    words = units.counted(len(errors), "contradictions") if errors else "no contradiction"
    click.echo(f"{path}: {words}" + (f", {units.counted(notes, 'notes')}" if notes else ""), err=True)
    if errors:
        click.echo("hint: docs/reference/ledger.md explains each code, and what to do", err=True)
    ctx.exit(3 if errors else 0)


@ledger.command()
@common.CAMPAIGN
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if all is well; for cron.")
@common.LEDGER
def backup(campaign: str, file: Path, force: bool, quiet: bool, ledger_path: Path | None) -> None:
    r"""Copy a ledger to FILE; you can do this while an injector runs.

    The copy is checked before it replaces FILE, so FILE is always a whole ledger. The path is printed. Only you
    can read FILE (mode 0600).

    \b
    Example: dc-inject ledger backup dc27-rehearsal /backup/dc27.sqlite --force
    Example, for cron: dc-inject ledger backup dc27 /backup/dc27.sqlite --force --quiet
    """
    path = ledger_files.existing(campaign, ledger_path)
    if paths.files(path) != [path]:
        names = ", ".join(str(shard) for shard in paths.files(path))
        raise UsageError(f"{campaign} has a ledger for each of its shards", f"back up each by its name: {names}")
    _refuse(path, file, force=force)
    try:
        message = _copied(path, file)
    except OSError as error:
        raise LedgerError(
            f"{file} cannot be written: {error.strerror}", "check its folder, and the free space"
        ) from None
    if not quiet:
        click.echo(message, err=True)
        click.echo(str(file))


def _refuse(path: Path, file: Path, *, force: bool) -> None:
    """Refuse to put a copy where something is that is still wanted."""
    if not file.exists():
        return
    if file.samefile(path):
        raise UsageError(f"{file} is the ledger itself", "name another file")
    if not force:
        raise UsageError(f"{file} exists", "name another file, or replace it with --force")
    if holder := lock.holder(file):
        raise LedgerError(f"{file} is in use: {holder} is injecting with it", "name another file")


def _copied(path: Path, file: Path) -> str:
    """Copy a ledger next to its new place, check the copy, and only then give it its name; show what is in it."""
    with tempfile.TemporaryDirectory(prefix=".dc_inject-", dir=file.absolute().parent) as folder:
        copy = Path(folder) / file.name
        with LedgerView.open(path) as view:
            view.copy_to(copy)
        if errors := _errors(contradictions(copy)):
            raise LedgerError(
                f"not kept: the copy of {path} has {units.counted(len(errors), 'contradictions')}, such as: "
                f"{errors[0].subject}: {errors[0].message} [{errors[0].code}]",
                f"`dc-inject ledger check {shlex.quote(str(path.absolute()))}` lists them all; "
                "to keep the file as it is, `cp` it with its -wal",
            )
        with LedgerView.open(copy) as view:
            cycle, counts = view.last_cycle(), view.state_counts()
        paths.keep(copy, file)
    entries = sum(count for count, _ in counts.values())
    size = units.format_size(file.stat().st_size)
    return f"{size}: {units.counted(entries, 'injections')}, the last cycle is {cycle or 'none yet'}"


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if not finding.note]
