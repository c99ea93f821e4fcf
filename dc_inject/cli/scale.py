"""`dc-inject scale`: what `set ... scale` does, in fewer words."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common, operator_actions, subjects
from dc_inject.cli.set import factor
from dc_inject.model.errors import UsageError


@click.command()
@click.argument("words", nargs=-1, required=True, metavar=f"{subjects.METAVAR} FACTOR")
@common.WHY
@common.LEDGER
def scale(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Multiply the menus' rates of a scenario or link, or of all of a campaign, until `unset`.

    The same as `set ... scale`, with names written so too. FACTOR is such as 0.5, or 50%, of what the menus say:
    a second `scale` replaces the first.

    \b
    Example: dc-inject scale us-mesh 0.5 --why "half the mesh is down"
    Example: dc-inject scale dc27-rehearsal '*' 80%
    """
    *names, number = words
    if not names:
        raise UsageError("a scale needs a name and a factor", "such as: dc-inject scale us-mesh 0.5")
    operator_actions.carry_out(
        operator_actions.OperatorAction("scale", factor(number)), *subjects.found(names, ledger_path), why
    )
