"""`dc-inject pause`: what `set ... pause` does, in fewer words."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common, operator_actions, subjects


@click.command()
@subjects.WORDS
@common.WHY
@common.LEDGER
def pause(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Stop injecting for a scenario or link, or for all of a campaign, until `resume`.

    The same as `set ... pause`, and as `stop`, with names written as for `set`: a link is two words, SRC:DST or
    'SRC->DST'; '*' is the whole campaign, and so is its name alone.

    \b
    Example: dc-inject pause us-mesh --why "the LHCOPN is needed"
    Example: dc-inject pause dc27-rehearsal T2_CH_CERN T1_US_FNAL_Disk
    """
    operator_actions.carry_out(operator_actions.PAUSE, *subjects.found(words, ledger_path), why)
