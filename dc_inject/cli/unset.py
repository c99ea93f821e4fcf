"""`dc-inject unset`: delete what `set` has set, so that the menus apply again."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from dc_inject.cli.shared import common, completion, subjects
from dc_inject.cli.shared.operator_actions import say_stopped, when_applied
from dc_inject.model import overrides
from dc_inject.model.errors import UsageError
from dc_inject.model.overrides import Kind
from dc_inject.system.clock import SystemClock


@click.command()
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar=f"{subjects.METAVAR} [rate|scale]",
    shell_complete=completion.subjects,
)
@common.WHY
@common.LEDGER
def unset(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Delete the rate or the scale that was set for a scenario, a link or a whole campaign, or both.

    The menus apply again from the next cycle on. Name a scenario or a link as for `pause`.

    \b
    Example: dc-inject unset T2_CH_CERN T1_US_FNAL_Disk
    Example: dc-inject unset dc27-rehearsal us-mesh scale --why "the tests are over"
    """
    *names, last = words
    if names and last == "pause":
        raise UsageError("`unset` cannot lift a pause", f"dc-inject {shlex.join(['resume', *names])}")
    kind = Kind(last) if names and last in tuple(Kind) else None
    path, subject = subjects.resolve(names if kind else words, ledger_path)
    now = SystemClock().now()
    with subjects.opened(path) as (ledgers, view):
        subjects.require_known(view, subject)
        who = common.who()
        deleted = {override: None for own in ledgers for override in own.unset(subject.name, kind, who, why, now)}
        name, still_set, pauses = view.campaign or path.stem, view.overrides(), view.pauses()
    done = f"no {kind or 'rate or scale'} was set"
    if deleted:
        done = f"deleted {', '.join(override.words for override in deleted)}; {when_applied(path)}"
    click.echo(f"{name}: {subject}: {done}", err=True)
    for override in still_set:
        still = f"{overrides.shown(override.subject)}: {override.words}"
        click.echo(f"still set: {still}, since {override.since:%Y-%m-%d %H:%M:%SZ} by {override.who}", err=True)
    say_stopped(pauses)
