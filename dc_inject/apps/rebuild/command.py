"""`dc-inject ledger rebuild`: a new ledger when the old one is lost, from what the services still have.

With a backup it has the past from there, and from the services what came after it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import click

from dc_inject import menu
from dc_inject.apps.rebuild import new_ledger
from dc_inject.apps.rebuild.rebuilding import Rebuilt
from dc_inject.cli.shared import common, log_output, params, trusting
from dc_inject.ledger import ledger_files, paths
from dc_inject.model import units
from dc_inject.model.errors import UsageError
from dc_inject.model.shards import Shard, shard_name
from dc_inject.system import account, files


@click.command()
@click.argument("campaign")
@common.MENUS
@common.LEDGER
@click.option("--backup", type=params.FILE, help="Begin with this backup, and add what the services have since.")
@click.option(
    "--adopt", is_flag=True, help="Begin with the ledger that exists, and add what the services have since."
)
@common.SHARD
@click.option("--since", type=params.TIME, help="Ignore rules and jobs older than this [default: none].")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.ALLOW_ADMIN
@common.TIMEOUT
def rebuild(
    campaign: str,
    menus: tuple[Path, ...],
    ledger_path: Path | None,
    backup: Path | None,
    adopt: bool,
    shard: Shard | None,
    since: datetime | None,
    yes: bool,
    allow_admin: bool,
    timeout: float,
) -> None:
    r"""Rebuild the lost ledger of CAMPAIGN from what the services know.

    Rules are found by their comments, jobs by their metadata; MENUS are the menus in force. Afterwards `run`
    continues with the next cycle: it injects nothing twice, and observes and ends what was found. What cannot be
    recovered is listed, also in the ledger's notes. The path of the new ledger is printed.

    With --backup the ledger has all that the backup has, and only what came after it is asked of the services.
    With --adopt it begins with the ledger itself, if there is one: that gets what another injector has made.

    First end the injector; if it died, wait some minutes until its last calls are over.

    \b
    Example: dc-inject ledger rebuild dc27-rehearsal /etc/dc_inject/menus
    Example: dc-inject ledger rebuild dc27 /etc/dc_inject/menus --backup /backup/dc27-14.sqlite
    """
    log_output.talk(quiet=True)
    drafts = files.read_menus(menus)
    if (named := menu.one_campaign(drafts)) != campaign:
        raise UsageError(
            f"these menus are of campaign {named}, not of {campaign}", "use the menus of that campaign"
        )
    if adopt and backup:
        raise UsageError(
            "--adopt begins with the ledger that exists, and --backup with another", "use one of them"
        )
    path = paths.shard_path(ledger_files.file_of(ledger_path, campaign), shard_name(shard))
    if adopt and path.exists():
        backup = path
    when = "" if backup is None else " since then" if backup == path else " since the backup"
    with new_ledger.prepare(path, backup, account.who()) as new:
        trusted = trusting.trust().ask((), menu.endpoint_of(drafts))
        backends = common.connect(drafts, timeout)
        rebuilt = new_ledger.fill(
            new.file,
            menus,
            drafts,
            backends,
            since=since,
            when=when,
            shard=shard,
            trusted=trusted,
            who=account.who(),
            allow_admin=allow_admin,
            patience=timedelta(seconds=3 * timeout),
        )
        _show(rebuilt, when)
        if not (yes or trusting.agreed(f"Write {path}?")):
            raise UsageError("nothing was written", "answer y, or use --yes in a script")
        new.take_place()
    click.echo(str(path))


def _show(rebuilt: Rebuilt, when: str) -> None:
    """Print what was found, and what is unknown, ever or since a backup."""
    click.echo(
        f"{units.counted(rebuilt.injections, 'injections')} found ({units.format_size(rebuilt.bytes)}), "
        f"{rebuilt.complete} of them complete",
        err=True,
    )
    for flow in rebuilt.strangers:
        click.echo(
            f"no menu has {flow} any more: its rules and jobs are observed to their end, and nothing is added",
            err=True,
        )
    click.echo(f"what cannot be recovered{when}:", err=True)
    for line in new_ledger.UNKNOWN:
        click.echo(f"- {line}", err=True)
