"""`dc-inject pause`: stop injecting for a part of a campaign, or for all of it, from any terminal."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli.shared import common, operator_actions, subjects


@click.command()
@subjects.WORDS
@common.WHY
@common.LEDGER
def pause(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Stop injecting for a scenario, a link or a whole campaign, until `resume`.

    Write a link as two words, SRC:DST or 'SRC->DST'; '*' is the whole campaign, and so is its name alone. You may
    leave out CAMPAIGN (or the file of a ledger) if only one campaign has a running injector, or a ledger.

    \b
    Example: dc-inject pause us-mesh --why "the LHCOPN is needed"
    Example: dc-inject pause dc27-rehearsal T2_CH_CERN T1_US_FNAL_Disk
    """
    operator_actions.carry_out(operator_actions.PAUSE, *subjects.resolve(words, ledger_path), why)
