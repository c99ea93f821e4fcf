"""`dc-inject link`: a mini-challenge of one link, in one line."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from dc_inject.apps.link import challenges, checks, ending, hints, mini_challenge, others, verdict_output, verdicts
from dc_inject.apps.link.challenges import LinkOptions
from dc_inject.apps.link.climbing import Climbing
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.cli.run import RunOptions, inject
from dc_inject.cli.shared import (
    common,
    completion,
    end_files,
    hangup,
    log_output,
    params,
    summary_output,
    trusting,
)
from dc_inject.cli.shared.exits import INTERRUPTED
from dc_inject.ledger import Ledger, LedgerView, default_folder, ledger_files
from dc_inject.ledger.paths import make_folder
from dc_inject.model import Campaign, Limits, units
from dc_inject.model.errors import DcInjectError, LedgerError, UsageError
from dc_inject.model.holds import format_numbers
from dc_inject.model.ports import Clock
from dc_inject.planning.progress import Progress
from dc_inject.storage.reachability import Reachability
from dc_inject.summary import left, standing
from dc_inject.summary.left import EndState
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

log = logging.getLogger(__name__)

# A step is judged by at least one cycle: who stops for longer than two of these can cost it what it may lack.
LOOKS = 10  # in a cycle, whether storages accept connections
OFTEN = timedelta(seconds=1)  # between two of them, at least
WHEN_STOPPED = timedelta(seconds=15)  # somebody waits: for how long files that resist deletion are asked for again


@click.command()
@click.argument("source", required=False, type=params.LINK_END, metavar="SRC", shell_complete=completion.ends)
@click.argument("destination", required=False, type=params.LINK_END, metavar="DST", shell_complete=completion.ends)
@click.option("--rate", type=params.RATE, help="The rate of the first step, such as 5Gb/s.")
@click.option(
    "--for",
    "lasting",
    type=params.DURATION,
    help="The total duration, such as 2h; with --until-saturated, the longest.",
)
@click.option(
    "--step",
    type=params.RATE,
    help="The increase from one step to the next, such as 1Gb/s; with --until-saturated, the first one.",
)
@click.option(
    "--every",
    type=params.DURATION,
    help="The duration of a step; with --until-saturated, five times that of a trial [default: 30m].",
)
@click.option(
    "--until-saturated",
    "saturate",
    is_flag=True,
    help="Search for the rate at which throughput stops following, and repeat that; needs --max.",
)
@click.option("--max", "highest", type=params.RATE, help="The highest rate to try [default: ask above 10Gb/s].")
@click.option(
    "--space", type=params.SIZE, help="The most space to use at DST at a time [default: half of the free space]."
)
@click.option(
    "--rules-per-hour",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"The most rules or jobs in any hour [default: {Limits().rules_per_hour}].",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of a high rate.")
@click.option("--campaign", type=params.NAME, help="The campaign's name [default: made from DST and the time].")
@click.option(
    "--contact",
    type=params.LINE,
    help="The contact that rules name [default: your account here].",
)
@click.option(
    "--did", "datasets", type=params.DID, multiple=True, metavar="PATTERN",
    help="Datasets to inject, scope:name with wildcards (may be repeated) [default: *:*].",
)  # fmt: skip
@click.option(
    "--mean-file", default="0.1..20 GB", show_default=True, help="Bounds on the mean file size of a dataset."
)
@click.option("--folder", type=params.FOLDER, help="Through FTS: files of this folder below SRC [default: .].")
@click.option("--fts", "endpoint", type=params.ENDPOINT, help="The address of FTS.")
@click.option(
    "--accept", multiple=True, metavar="CODE", help="Accept a finding of `check` with this code (may be repeated)."
)
@click.option(
    "--cycle",
    type=params.DURATION,
    help="The length of a cycle [default: a sixth of a step, or a third of a trial; 5s to 15m].",
)
@click.option(
    "--cancel-rate", type=params.PER_HOUR, default="600/h", show_default=True,
    help="The most unfinished rules or jobs to end per hour or minute, afterwards.",
)  # fmt: skip
@click.option("--resume", type=params.NAME, metavar="NAME", help="Continue a test that was stopped.")
@click.option("--verdict", "judged", type=params.NAME, metavar="NAME", help="Print the verdict of a test again.")
@common.ALLOW_ADMIN
@common.TIMEOUT
@common.FORMAT
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
    inconclusive because of an outage; 2: inconclusive because of datasets, space or limits.

    \b
    Example: dc-inject link T1_UK_RAL_Disk T2_UK_London_IC --rate 5Gb/s --for 2h
    Example: dc-inject link RAL IC --rate 5Gb/s --for 2h --step 5Gb/s --max 20Gb/s
    Example: dc-inject link RAL IC --rate 20Gb/s --until-saturated --max 100Gb/s
    Example: dc-inject link --resume link-IC-20270208T100000
    """
    live = log_output.talk(quiet=quiet, plain=plain, fmt=log_format, file=log_file)
    clock, options = SystemClock(), LinkOptions(**given)
    challenges.refuse_ignored()
    if options.judged:
        _tell(options.judged, options.fmt)
        return
    with hints.translated():
        _test(source, destination, options, clock, live=live)


def _test(source: str | None, destination: str | None, options: LinkOptions, clock: Clock, *, live: bool) -> None:
    """Begin or continue a test, end what it leaves, and print its verdict."""
    if options.resume:
        path = ledger_files.existing(options.resume)
        with Ledger.open(path) as ledger:
            challenges.refuse_running(ledger, options.resume)
            challenge, progress = challenges.resume_challenge(ledger, path, options.lasting, clock.now())
    else:
        challenge = challenges.challenge(source, destination, options, clock.now())
        progress = Progress(challenge.ladder, challenge.until)
        _refuse_known(challenge.campaign, clock.now())
    trusting.name(
        challenge.link.source, challenge.link.destination, challenge.endpoint
    )  # by whoever called, here or before
    hangup.interrupt()
    with ending.interruptible(challenge.campaign):
        challenge, storages = checks.ready(challenge, clock, options.timeout)
        for warning in others.warnings(challenge.campaign, challenge.link, clock.now()):
            click.echo(f"warning: {warning}", err=True)
        menu = _written(challenge, force=bool(options.resume))
        click.echo(_expected(challenge), err=True)
        try:
            end_state = _carry_out(challenge, progress, menu, storages, options, live=live)
        except BaseException as error:
            path = ledger_files.file_of(None, challenge.campaign)
            if not path.exists():
                menu.unlink(missing_ok=True)  # refused at its start: nothing is left behind
            elif isinstance(error, DcInjectError | OSError) and not left.hint_suffices(error):
                goes_on = partial(ending.continued, challenge.campaign, path, clock.now())
                summary_output.explain_stop(challenge.campaign, path, error, goes_on)
            raise
        _tell(challenge.campaign, options.fmt, end_state)


def _carry_out(
    challenge: MiniChallenge,
    progress: Progress,
    menu: Path,
    storages: Reachability,
    options: LinkOptions,
    *,
    live: bool,
) -> EndState:
    """Inject, judge the step that was cut short, and end what is left; return how far that got."""
    ledger_path = ledger_files.file_of(None, challenge.campaign)
    climbs: list[Climbing] = []
    named = [*challenge.link[:2], challenge.endpoint] if challenge.link.service.ends_are_urls else []

    def wrap_menus(menus: Callable[[], Campaign], ledger: Ledger, clock: Clock) -> Callable[[], Campaign]:
        ledger.keep_challenge("asked", challenge.for_ledger(), clock.now())
        ledger.trust(trusting.hosts(named), common.who(), clock.now())  # for `end`, if it has to be called for it
        climbs.append(
            Climbing(
                menus,
                ledger=ledger,
                clock=clock,
                progress=progress,
                who=f"dc-inject link of {common.who()}",
                on_cycle=lambda: _show(ledger, challenge),
                patience=mini_challenge.PATIENCE,
                classify=_classify,
                down=storages.down,
            )
        )
        return climbs[0]

    with storages.watched(max(challenge.cycle / LOOKS, OFTEN)):
        finished = inject(
            [menu],
            RunOptions(no_drain=True, allow_admin=options.allow_admin, timeout=options.timeout),
            wrap_menus=wrap_menus,
            ends_afterwards=True,
            live=live,
        )
    with Ledger.open(ledger_path) as ledger:
        climbs[0].finish(ledger, challenge.key)
    patience = end_files.PATIENCE if finished else WHEN_STOPPED
    return ending.end_rules(challenge.campaign, ledger_path, options, patience)


def _classify(reason: str) -> str:
    """Return the class of what Rucio says of files that failed: it quotes FTS."""
    from dc_inject.backends.fts import failed_files  # noqa: PLC0415  only when something has failed

    where = re.search(r"\b(?:SOURCE|DESTINATION|TRANSFER)\b", reason[:1000])
    return failed_files.classify("FAILED", reason[where.start() : 1000] if where else reason[:1000])


def _tell(campaign: str, fmt: str, end_state: EndState | None = None) -> None:
    """Print the verdict of a mini-challenge from its ledger, and leave with what it means.

    `end_state` tells how far it got to end what was left, where that has just been tried.
    """
    path = ledger_files.existing(campaign)
    with LedgerView.open(path) as view, view.snapshot():
        challenge, progress = challenges.load_challenge(view, path)
        holder = view.holder()
        if holder is None and progress.step is not None and progress.step.readings and progress.over is None:
            progress.stopped(progress.step.readings[-1])  # of one that was killed
        menu = _menu_file(challenge.campaign)
        report = verdicts.verdict_json(challenge, progress, view, menu, running=holder is not None)
        error = verdicts.left_with(report, challenge, view)
        if report["state"] == verdicts.RUNNING:
            so_far = "; ".join(filter(None, (f"{holder} is still running it", verdicts.under_way(progress))))
            click.echo(f"preliminary: {so_far}", err=True)
        elif holder is not None:
            click.echo(f"{holder} is still ending its {challenge.link.service.injections}", err=True)
    verdict_output.emit(fmt, report)
    if end_state is not None:
        summary_output.show_left(campaign, path, end_state)
    if end_state is EndState.INTERRUPTED:
        raise click.exceptions.Exit(INTERRUPTED)
    if error is not None:
        raise error


# --------------------------------------------------------------------------- before


def _menu_file(campaign: str) -> Path:
    return default_folder(os.environ) / "links" / f"{campaign}.yaml"


def _refuse_known(campaign: str, now: datetime) -> None:
    """Raise UsageError for a campaign that there is already."""
    if campaign in ledger_files.campaigns():
        goes_on = ""
        with contextlib.suppress(LedgerError):  # it cannot be read: there is none to continue
            goes_on = ending.continued(campaign, ledger_files.existing(campaign), now)
        hint = "; ".join(filter(None, [goes_on, "for a new test, choose another --campaign"]))
        raise UsageError(f"campaign {campaign} exists already", hint)


def _written(challenge: MiniChallenge, *, force: bool) -> Path:
    """Write the menu into the state folder."""
    path = _menu_file(challenge.campaign)
    try:
        make_folder(path.parent)
    except OSError as error:
        raise LedgerError(
            f"{path.parent} cannot be created: {error.strerror or error}", "check XDG_STATE_HOME"
        ) from None
    # One without a ledger is left from a start that failed.
    files.write_whole(path, challenge.text(), force=force or path.exists())
    click.echo(f"menu: {path}", err=True)
    return path


def _expected(challenge: MiniChallenge) -> str:
    """Say when the verdict is expected, and why that is later than --for."""
    return (
        f"verdict expected {challenge.expected}: the test ends with a cycle of "
        f"{units.format_duration(challenge.cycle)}, waits up to {mini_challenge.PATIENCE} more for what is on its "
        f"way, and then ends its {challenge.link.service.injections}"
    )


# --------------------------------------------------------------------------- meanwhile, and after


def _show(ledger: Ledger, challenge: MiniChallenge) -> None:
    """Log what the line about a cycle does not say: the numbers of a hold, and how much of ours is there."""
    if rows := standing.rows(ledger):
        cycle = ledger.last_cycle()
        if cycle is not None and (since := standing.joined(ledger, cycle)):
            log.info("%s", standing.late_start(f"{since:%Y-%m-%dT%H:%M:%SZ}"))
        for row in rows:
            if row["numbers"]:
                log.info("held by %s: %s", row["held"], format_numbers(row["numbers"]))
        ours = verdicts.resident(ledger)
        here, most = units.format_size(ours), units.format_size(challenge.space)
        values = {"destination": challenge.link.destination, "bytes": ours, "most": challenge.space}
        log.info(
            "our data at or on the way to %s: %s of %s",
            challenge.link.destination, here, most,
            extra={"event": "resident", "fields": values},
        )  # fmt: skip
