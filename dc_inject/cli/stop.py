"""`dc-inject stop`: the brake that a person pulls, from any terminal."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common
from dc_inject.clock import SystemClock
from dc_inject.ledger import Ledger, LedgerView


@click.command()
@common.CAMPAIGN
@common.SCENARIO
@common.LINK
@common.WHY
@common.LEDGER
def stop(campaign: str, scenario: str | None, link: str | None, why: str, ledger_path: Path | None) -> None:
    r"""Stop injecting for a campaign, or for one scenario or link of it, until `resume`.

    Works while an injector runs, which hears of it within seconds, and when none runs or no service can be
    reached. Rules that exist stay live and end with their lifetime; `dc-inject end` ends them. While it is
    stopped nothing is due, so there is no burst after it.

    \b
    Example: dc-inject stop dc27-rehearsal --why "the LHCOPN is needed"
    Example: dc-inject stop dc27-rehearsal --link T2_CH_CERN:T1_US_FNAL_Disk
    """
    path = common.existing_ledger(campaign, ledger_path)
    with Ledger.open(path) as ledger:
        name = common.own_ledger(ledger, campaign, path)
        what = common.subject(ledger, scenario, link)
        done = ledger.pause(what, common.who(), why, SystemClock().now())
        pause = next(pause for pause in ledger.pauses() if pause.subject == what)
    words = f"{name}: " + ("injecting" if what == "*" else f"injecting for {what}")
    if not done:
        since = f"{pause.since:%Y-%m-%d %H:%M:%SZ} by {pause.who}" + (f" ({pause.why})" if pause.why else "")
        click.echo(f"{words} is stopped already, since {since}", err=True)
        return
    with LedgerView.open(path) as view:
        holder = view.holder()
    heard = f"{holder} will hear of it within seconds" if holder else "nobody injects now; the next start heeds it"
    click.echo(f"{words} is stopped; {heard}", err=True)
