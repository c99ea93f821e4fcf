"""`dc-inject resume`: lift a stop."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common
from dc_inject.clock import SystemClock
from dc_inject.ledger import Ledger


@click.command()
@common.CAMPAIGN
@common.SCENARIO
@common.LINK
@common.WHY
@common.LEDGER
def resume(campaign: str, scenario: str | None, link: str | None, why: str, ledger_path: Path | None) -> None:
    r"""Lift a stop of a campaign, or of one scenario or link of it.

    What was not injected meanwhile is not made up. A stop of the campaign and stops of its parts are lifted each
    by itself.

    \b
    Example: dc-inject resume dc27-rehearsal
    Example: dc-inject resume dc27-rehearsal --scenario t0-export --why "the tests are over"
    """
    path = common.existing_ledger(campaign, ledger_path)
    with Ledger.open(path) as ledger:
        name = common.own_ledger(ledger, campaign, path)
        what = common.subject(ledger, scenario, link)
        done = ledger.resume(what, common.who(), why, SystemClock().now())
        left = ledger.pauses()
    words = f"{name}: " + ("injecting" if what == "*" else f"injecting for {what}")
    click.echo(f"{words} {'goes on, with the next cycle' if done else 'was not stopped'}", err=True)
    for pause in left:
        part = "all of it" if pause.subject == "*" else pause.subject
        click.echo(f"still stopped: {part}, since {pause.since:%Y-%m-%d %H:%M:%SZ} by {pause.who}", err=True)
