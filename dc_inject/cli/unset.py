"""`dc-inject unset`: take back what `set` has changed."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli import common, subjects
from dc_inject.cli.operator_actions import heard, say_stopped
from dc_inject.ledger import Ledger
from dc_inject.planning import overrides
from dc_inject.planning.overrides import Kind
from dc_inject.system.clock import SystemClock

WHATS = ("rate", "scale", "pause")


@click.command()
@click.argument("words", nargs=-1, required=True, metavar=f"{subjects.METAVAR} [rate|scale|pause]")
@common.WHY
@common.LEDGER
def unset(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Take back what is set for a scenario or link: its rate, its scale, its pause, or all of it.

    The menus hold again, from the next cycle on. Names are written as with `set`.

    \b
    Example: dc-inject unset T2_CH_CERN T1_US_FNAL_Disk
    Example: dc-inject unset dc27-rehearsal us-mesh scale --why "the tests are over"
    """
    what = words[-1] if words[-1] in WHATS and len(words) > 1 else None
    path, subject = subjects.found(words[:-1] if what else words, ledger_path)
    who, now = common.who(), SystemClock().now()
    done: list[str] = []
    with Ledger.open(path) as ledger, ledger.together():
        subjects.known(ledger, subject)
        if what != "pause":
            kind = Kind(what) if what else None
            done += [overrides.said(one.kind, one.value) for one in ledger.unset(subject, kind, who, why, now)]
        if what in {None, "pause"} and ledger.resume(subject, who, why, now):
            done.append("pause")
        name, left, pauses = ledger.campaign or path.stem, ledger.overrides(), ledger.pauses()
    told = f"{name}: {overrides.shown(subject)}: "
    if done:
        click.echo(f"{told}no more {', '.join(done)}; {heard(path)}", err=True)
    else:
        click.echo(f"{told}no {what} was set" if what else f"{told}nothing was set", err=True)
    for one in left:
        still = f"{overrides.shown(one.subject)}: {overrides.said(one.kind, one.value)}"
        click.echo(f"still set: {still}, since {one.since:%Y-%m-%d %H:%M:%SZ} by {one.who}", err=True)
    say_stopped(pauses)
