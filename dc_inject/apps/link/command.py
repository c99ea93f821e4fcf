"""`dc-inject link`: a mini-challenge of one link, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from dc_inject.apps.link import (
    challenges,
    checks,
    ending,
    hints,
    mini_challenge,
    running,
    verdicts,
)
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.apps.link.options import LinkOptions, refuse_ignored
from dc_inject.assembly.starting import AppParts, RunOptions
from dc_inject.cli import end_files
from dc_inject.cli.run import inject
from dc_inject.cli.shared import (
    common,
    completion,
    hangup,
    log_output,
    params,
    summary_output,
    tables,
    trusting,
)
from dc_inject.cli.shared.exits import INTERRUPTED
from dc_inject.ledger import ledger_files
from dc_inject.model import units
from dc_inject.model.errors import DcInjectError
from dc_inject.model.events import Silent
from dc_inject.model.ports import Backend, Clock
from dc_inject.summary import left
from dc_inject.summary.left import EndState
from dc_inject.system.clock import SystemClock

# For how long, as the user waits, files that resist deletion are asked for again.
WHEN_STOPPED = timedelta(seconds=15)


@click.command(cls=common.GroupedHelp)
@click.argument("source", required=False, type=params.LINK_END, metavar="SRC", shell_complete=completion.ends)
@click.argument("destination", required=False, type=params.LINK_END, metavar="DST", shell_complete=completion.ends)
@common.options_of(LinkOptions)
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors, and nothing of each cycle.")
@log_output.OPTIONS
def link(
    source: str | None,
    destination: str | None,
    *,
    quiet: bool,
    plain: bool,
    log_format: str,
    log_file: Path | None,
    **given: Any,
) -> None:
    r"""Test one link: inject at a constant or rising rate, and report how much moved.

    Checks that the test is possible, writes a menu, runs it, shows each cycle, ends the rules, and prints a
    verdict for each step: reached, not reached, or inconclusive with the reason. SRC and DST are RSEs, or two URL
    prefixes (then FTS moves files of SRC). An ordinary account is enough.

    With --until-saturated, the rate rises in short trials until less than 90 % of it moves or more than 5 % fails,
    then the search keeps the link overloaded until repeated trials agree on its capacity: the slope of the line
    through what had moved at each cycle of these trials, with a 95 % interval. A trial lasts as long as a rule
    takes to complete, and a fifth of --every. A step that an outage disturbed is repeated. Ctrl-C ends the test:
    rules are ended, and the verdict so far is printed.

    Above 10 Gb/s you are asked to confirm, unless --max is given. Exit code 5: the link did not reach the rate; 4:
    inconclusive because of an outage; 2: inconclusive because of datasets, space or limits, or ended early.

    \b
    Example: dc-inject link T1_UK_RAL_Disk T2_UK_London_IC --rate 5Gb/s --for 2h
    Example: dc-inject link RAL IC --rate 5Gb/s --for 2h --step 5Gb/s --max 20Gb/s
    Example: dc-inject link RAL IC --rate 20Gb/s --until-saturated --max 100Gb/s
    Example: dc-inject link --resume link-IC-20270208T100000
    """
    live = log_output.talk(quiet=quiet, plain=plain, fmt=log_format, file=log_file)
    chosen = LinkOptions(**given)
    refuse_ignored()
    if chosen.judged:
        _print_verdict(chosen.judged, chosen.fmt)
        return
    with hints.translated():
        _test(source, destination, chosen, SystemClock(), live=live)


def _test(source: str | None, destination: str | None, options: LinkOptions, clock: Clock, *, live: bool) -> None:
    """Begin or continue a test, end what it leaves, and print its verdict."""
    challenge, progress = challenges.begin(source, destination, options, clock.now(), trusting.agreed)
    trusting.trust().name(*challenge.link.ends, challenge.options.endpoint or "")  # by who called, here or before
    hangup.interrupt()
    so_far = f"`dc-inject link --verdict {challenge.campaign}` prints the verdict so far"
    with ending.interruptible(challenge.campaign, so_far):
        connect = partial(_connect, clock=clock, timeout=options.timeout)
        challenge, storages = checks.ready(challenge, connect, partial(click.echo, err=True))
        for warning in checks.warnings(challenge.campaign, challenge.link, clock.now()):
            click.echo(f"warning: {warning}", err=True)
        menu = running.write_menu(challenge, force=bool(options.resume))
        click.echo(f"menu: {menu}", err=True)
        click.echo(_expected(challenge), err=True)
        path = ledger_files.file_of(None, challenge.campaign)
        try:
            started = RunOptions(no_drain=True, allow_admin=options.allow_admin, timeout=options.timeout)
            finished = running.carry_out(
                challenge,
                progress,
                storages,
                lambda wrap: inject([menu], started, AppParts(wrap_menus=wrap, ends_afterwards=True), live=live),
            )
            patience = end_files.PATIENCE if finished else WHEN_STOPPED
            rate, timeout = options.cancel_rate, options.timeout
            end_state = ending.end_rules(challenge.campaign, path, rate, timeout, patience)
        except BaseException as error:
            if not path.exists():
                menu.unlink(missing_ok=True)  # refused at its start: nothing is left behind
            elif isinstance(error, DcInjectError | OSError) and not left.hint_suffices(error):
                goes_on = partial(challenges.continued, challenge.campaign, path, clock.now())
                summary_output.explain_stop(challenge.campaign, path, error, goes_on)
            raise
        _print_verdict(challenge.campaign, options.fmt, end_state)


def _connect(challenge: MiniChallenge, *, clock: Clock, timeout: float) -> Mapping[str, Backend]:
    """Return the back end of its service."""
    return common.backends(
        {challenge.link.through},
        campaign=challenge.campaign,
        clock=clock,
        observer=Silent(),
        timeout=timeout,
        endpoint=challenge.options.endpoint or "",
    )


def _print_verdict(campaign: str, fmt: str, end_state: EndState | None = None) -> None:
    """Print the verdict of a mini-challenge from its ledger, and leave with its exit code.

    `end_state` is how far ending what was left got, where that has just been tried.
    """
    judged = verdicts.judge(campaign)
    for note in judged.notes:
        click.echo(note, err=True)
    emit(fmt, judged.report)
    if judged.report["state"] == verdicts.ENDED:
        summary_output.show_left(campaign, ledger_files.existing(campaign), end_state or EndState.FAILED)
    if end_state is EndState.INTERRUPTED:
        raise click.exceptions.Exit(INTERRUPTED)
    if judged.error is not None:
        raise judged.error


def _expected(challenge: MiniChallenge) -> str:
    """Return when the verdict is expected, and why that is later than --for."""
    return (
        f"verdict expected {challenge.expected}: the test ends with a cycle of "
        f"{units.format_duration(challenge.cycle)}, waits up to {mini_challenge.PATIENCE} more for what is on its "
        f"way, and then ends its {challenge.link.service.injections}"
    )


def _time_of_day(moment: str) -> str:
    return moment[11:19]


STEPS = (
    tables.Column("step", "step", right=True),
    tables.Column("rate", "asked", units.format_rate, right=True),
    tables.Column("moved_rate", "moved", units.format_rate, right=True),
    tables.Column("ratio", "of asked", units.percent, right=True),
    tables.Column("failed", "failed", units.percent, right=True),
    tables.Column("start", "from (UTC)", _time_of_day, whole=True, spare=1),
    tables.Column("measured", "measured", _time_of_day, whole=True),
    tables.Column("end", "to", _time_of_day, whole=True),
    tables.Column("asked", "asked", units.format_size, quiet=True),
    tables.Column("moved", "moved", units.format_size, quiet=True),
    tables.Column("grain", "grain", units.format_rate, quiet=True),
    tables.Column("injected", "injected", units.format_size, quiet=True),
    tables.Column("held", "held", quiet=True),
    tables.Column("outcome", "outcome", whole=True),
    tables.Column("cause", "because", whole=True, spare=2),  # the sentence below has it
    tables.Column("reason", "reason", quiet=True),
    tables.Column("next", "then", whole=True, spare=3),
)


def emit(fmt: str, report: Mapping[str, Any]) -> None:
    """Print the verdict: the steps, what is left, and the result in a sentence."""
    if fmt == "json":
        tables.emit_json(report)
        return
    if report["steps"] or fmt != "table":
        tables.emit(fmt, STEPS, report["steps"])
    for line in verdicts.lines(report):
        click.echo(line, err=True)
    click.echo(verdicts.sentence(report), err=fmt != "table")
