"""`dc-inject health`: whether an injector does its work, for health checks of containers and service managers."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject import ledger
from dc_inject.cli.shared import common, completion, subjects
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model.shards import Shard
from dc_inject.summary import injector_health
from dc_inject.system.clock import SystemClock


@click.command()
@click.argument("campaign", required=False, default="", shell_complete=completion.campaigns)
@common.SHARD
@common.LEDGER
def health(campaign: str, shard: Shard | None, ledger_path: Path | None) -> None:
    r"""Check that an injector does its work: exit code 0 if it does, 3 if not, 4 if nothing arrives anywhere.

    It must hold its ledger and have begun a cycle in the last two cycle lengths; the clock of its machine must not
    have leapt away from the services' clocks; its ledger must be writable, with 100 MB free on its disk. If that
    is so, and nothing has arrived on any link for an hour although something was due, that is reported, with exit
    code 4. You may leave out CAMPAIGN if only one campaign has a running injector, or a ledger.

    \b
    Example, in a container: HEALTHCHECK CMD ["dc-inject", "health"]
    Example: dc-inject health dc27-rehearsal
    """
    path = ledger_files.existing(campaign, ledger_path) if campaign or ledger_path else subjects.only()
    files = ledger.files(path) if shard is None else [ledger.shard_path(path, str(shard))]
    for file in files:
        with LedgerView.open(file) as view:
            ledger_files.require_real(view)
            name = ledger_files.campaign_in(view, campaign, path) if campaign else view.campaign or path.stem
    for answer in injector_health.check_all(files, name, SystemClock().now()):
        click.echo(answer)
