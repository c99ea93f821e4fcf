"""`dc-inject stop`: the brake that a person pulls, from any terminal."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common, operator_actions, subjects


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
    operator_actions.carry_out(
        operator_actions.PAUSE, *subjects.optional(campaign, scenario, link, ledger_path), why
    )
