"""`dc-inject campaigns`: list the campaigns that have a ledger here, and delete ledgers no longer needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dc_inject import ledger
from dc_inject.cli.shared import common, tables, trusting
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.ledger.paths import link_menu
from dc_inject.model import units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.summary import days
from dc_inject.system import account

COLUMNS = (
    tables.Column("campaign", "campaign", whole=True),
    tables.Column("running", "running", tables.yes_no),
    tables.Column("start", "from", spare=2),
    tables.Column("end", "to", spare=1),
    tables.Column("last_cycle", "last cycle", spare=1),
    tables.Column("unended", "not ended", right=True),
    tables.Column("ledger", "ledger", name=True, spare=3),
    tables.Column("error", "because"),
)


@click.command()
@click.option(
    "--forget",
    "forgotten",
    multiple=True,
    metavar="NAME",
    help="Delete the ledger of this campaign (may be repeated).",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Forget it even if some of its rules, jobs or files may be left.")
@common.FORMAT
def campaigns(forgotten: tuple[str, ...], yes: bool, force: bool, fmt: str) -> None:
    r"""List the campaigns with a ledger in the default folder, or delete ledgers with --forget.

    The table shows the times of the menus in force, the start of the last cycle, whether an injector runs now, and
    how many rules and jobs have not ended (through FTS, also those whose files are not known to be deleted).

    --forget refuses a campaign with a running injector, or with rules or jobs that have not ended; end them with
    `dc-inject end NAME`. With --force it forgets the campaign anyway: rules then end with their lifetime,
    and copies that FTS jobs made stay until `dc-inject end NAME --sweep PREFIX` deletes them.

    \b
    Example: dc-inject campaigns
    Example: dc-inject campaigns --forget dc27-rehearsal --yes
    """
    folder = ledger.default_folder(os.environ)
    if forgotten:
        _forget(forgotten, yes=yes, force=force)
        return
    rows = [_row(name) for name in ledger_files.campaigns()]
    if rows or fmt != "table":
        shown = [column for column in COLUMNS if column.key != "error" or any(row["error"] for row in rows)]
        tables.emit(fmt, shown if fmt == "table" else COLUMNS, rows)
    click.echo(f"{units.counted(len(rows), 'campaigns')} in {folder}", err=True)


def _row(name: str) -> dict[str, Any]:
    """Return how a campaign stands; what cannot be read of it is in its row."""
    path = ledger_files.file_of(None, name)
    row = {column.key: None for column in COLUMNS} | {"campaign": name, "ledger": str(path)}
    try:
        with LedgerView.open(path) as view, view.snapshot():
            windows = [found for one in view.menus_in_force() if (found := days.read_window(view, one))]
            cycle = view.last_cycle()
            return row | {
                "running": view.holder() is not None,
                "start": units.format_time(min(start for start, *_ in windows)) if windows else None,
                "end": units.format_time(max(end for _, end, _ in windows)) if windows else None,
                "last_cycle": units.format_time(cycle.start) if cycle else None,
                "unended": ledger_files.count_unended(view),
            }
    except LedgerError as error:
        return row | {"error": error.message}


def _forget(names: Sequence[str], *, yes: bool, force: bool) -> None:
    """Delete the ledgers of campaigns; all are looked at before the first one goes."""
    paths = {name: ledger_files.existing(name) for name in dict.fromkeys(names)}
    for name, path in paths.items():
        files_left = _left(path)
        if files_left and not force:
            hint = f"end them with `dc-inject end {name}`, or use --force"
            raise UsageError(f"campaign {name} still has {files_left}", hint)
        if files_left:
            click.echo(f"warning: campaign {name} still has {files_left}", err=True)
    if not yes:
        click.echo("These ledgers will be deleted, with all that is known of their campaigns:", err=True)
        click.echo("\n".join(f"  {path}" for path in paths.values()), err=True)
        if not trusting.agreed("Delete them?"):
            raise UsageError("nothing was deleted", "answer y, or use --yes in a script")
    for name, path in paths.items():
        for file in ledger.files(path):
            ledger_files.forget_campaign(file, account.who())
        if path.parent.resolve() == ledger.default_folder(os.environ).resolve():  # else it is a menu of yours
            link_menu(path).unlink(missing_ok=True)
        click.echo(f"forgotten: {name}", err=True)


def _left(path: Path) -> str:
    """Return what a campaign may have left in services and at storages; nothing where there is nothing."""
    try:
        with LedgerView.open(path) as view:
            holder, count = view.holder(), ledger_files.count_unended(view)
    except LedgerError as error:
        return f"a ledger that cannot be read ({error.message})"
    if holder:
        raise LedgerError(f"{holder} is injecting with {path}", "end that process first (Ctrl-C, SIGTERM)")
    return f"{units.counted(count, 'rules and jobs')} that have not ended" if count else ""
