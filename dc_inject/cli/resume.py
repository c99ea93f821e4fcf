"""`dc-inject resume`: inject again after `stop` or `pause`."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli.shared import common, operator_actions, subjects


@click.command()
@subjects.WORDS
@common.WHY
@common.LEDGER
def resume(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Inject again for a campaign, a scenario or a link that was stopped or paused.

    What was not injected meanwhile is not made up. A pause of the whole campaign and pauses of its scenarios and
    links are lifted separately. Name them as for `pause`.

    \b
    Example: dc-inject resume dc27-rehearsal
    Example: dc-inject resume us-mesh --why "the tests are over"
    """
    operator_actions.carry_out(operator_actions.RESUME, *subjects.resolve(words, ledger_path), why)
