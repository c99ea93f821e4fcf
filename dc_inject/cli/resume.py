"""`dc-inject resume`: lift a stop."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common, operator_actions, subjects
from dc_inject.model.errors import UsageError


@click.command()
@subjects.WORDS
@common.SCENARIO
@common.LINK
@common.WHY
@common.LEDGER
def resume(
    words: tuple[str, ...], scenario: str | None, link: str | None, why: str, ledger_path: Path | None
) -> None:
    r"""Lift a stop or a pause of a campaign, or of one scenario or link of it.

    What was not injected meanwhile is not made up. A stop of the campaign and stops of its parts are lifted each
    by itself. Names are written as for `set`, or with options as for `stop`.

    \b
    Example: dc-inject resume dc27-rehearsal
    Example: dc-inject resume us-mesh
    Example: dc-inject resume dc27-rehearsal --scenario t0-export --why "the tests are over"
    """
    if not (scenario or link):
        operator_actions.carry_out(operator_actions.RESUME, *subjects.found(words, ledger_path), why)
        return
    if len(words) > 1:
        raise UsageError("it is named by words and by an option", "name it once")
    operator_actions.carry_out(
        operator_actions.RESUME, *subjects.optional(words[0], scenario, link, ledger_path), why
    )
