"""`dc-inject end`: end rules and jobs by hand: what is complete or overdue, the rest with --cancel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from dc_inject.assembly import ending
from dc_inject.assembly.ending import Ending
from dc_inject.assembly.starting import ServiceAccess
from dc_inject.cli import end_files
from dc_inject.cli.shared import common, exits, hangup, log_output, params, subjects, trusting
from dc_inject.cli.shared.subjects import Subject
from dc_inject.ledger import Ledger, ledger_files
from dc_inject.model import Entry, naming, units
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.model.ports import Clock, Outcome
from dc_inject.summary.left import describe_lifetimes, find
from dc_inject.system import account
from dc_inject.system.clock import SystemClock

SETTLE_WITHIN = timedelta(seconds=30)  # how long it takes at most to leave, once it was interrupted


@dataclass(frozen=True, kw_only=True)
class EndOptions:
    """The options of `end`."""

    cancel: bool = common.option(
        "--cancel", is_flag=True, help="Also end unfinished rules, which cancels their transfers."
    )
    cancel_rate: float = common.option(
        "--cancel-rate",
        type=params.PER_HOUR,
        default="600/h",
        show_default=True,
        help="The most unfinished rules or jobs to end per hour or minute.",
    )
    sweep: str | None = common.option(
        "--sweep",
        type=params.PREFIX,
        metavar="PREFIX",
        help="Also find and delete our files below a destination's URL that are not in the ledger.",
    )
    include_recent: bool = common.option(
        "--include-recent",
        is_flag=True,
        help="With --sweep: also delete files of cycles that began less than a day ago.",
    )
    yes: bool = common.option("--yes", is_flag=True, help="Do not ask.")
    why: str = common.given(common.WHY)
    ledger_path: Path | None = common.given(common.LEDGER)
    timeout: float = common.given(common.TIMEOUT)


@click.command()
@common.CAMPAIGN
@subjects.PART
@common.options_of(EndOptions)
@common.WORKERS
@click.pass_context
def end(ctx: click.Context, /, campaign: str, part: tuple[str, ...], **given: Any) -> None:
    r"""End rules and jobs of a campaign, or of a scenario or link of it, before their lifetime is over.

    Complete rules end at once, unless unfinished second hops read from them. Unfinished rules are left to their
    lifetime, because ending them cancels their transfers, which has jammed FTS before; with --cancel they end too,
    at a limited pace. Jobs past their lifetime always end. You see what will happen, and are asked to confirm. No
    injector may run on the ledger meanwhile. You can stop with Ctrl-C and run it again.

    Rucio deletes the replicas of ended rules. FTS deletes nothing, so this command deletes the files of ended jobs
    at their destinations until they are known to be gone. It deletes only files whose whole path and mark show
    that they are ours. --sweep leaves files of active jobs, and, without --include-recent, files of the last
    day's cycles.

    \b
    Example: dc-inject end dc27-rehearsal
    Example: dc-inject end dc27-rehearsal us-mesh --cancel --cancel-rate 300/h
    Example: dc-inject end dc27-rehearsal --sweep davs://se.example.org/dc
    """
    log_output.talk(quiet=True)
    hangup.interrupt()
    options = EndOptions(**given)
    if options.sweep and ledger_files.lacks(campaign, options.ledger_path):
        if not naming.NAME.fullmatch(campaign):
            raise UsageError(f"{campaign!r} is not a valid campaign name")
        click.echo(f"campaign {campaign} has no ledger here: looking for files only", err=True)
        search = ending.sweep_without_ledger(campaign, options.sweep, _access(options))
        end_files.sweep(search, include_recent=options.include_recent, yes=options.yes)
        return
    subject = subjects.inside(part)
    known = partial(subjects.require_known, subject=subject)
    shards = ending.find_shards_to_end(campaign, options.ledger_path, subject.covers, known)
    for number, shard in enumerate(shards, 1):
        click.echo(f"{shard}:", err=True)
        sweep = options.sweep if number == len(shards) else None
        if not end_campaign(str(shard), replace(options, ledger_path=None, sweep=sweep), subject):
            break
    else:
        if shards or end_campaign(campaign, options, subject):
            return
    click.echo("run it again to continue", err=True)  # `link`, which ends rules too, prints how it goes on
    ctx.exit(exits.INTERRUPTED)


def end_campaign(
    campaign: str,
    options: EndOptions,
    subject: Subject = subjects.CAMPAIGN,
    patience: timedelta = end_files.PATIENCE,
) -> bool:
    """Do what `end` does for one ledger; `patience` is with files that resist deletion.

    Return False if Ctrl-C interrupted it, else True. Raises ServiceError if something could
    not be ended or deleted.
    """

    def accept(ledger: Ledger) -> None:
        subjects.require_known(ledger, subject)
        if options.sweep:
            with ledger_files.of_all_shards(ledger) as all_shards:
                end_files.warn(options.sweep, all_shards)

    with contextlib.ExitStack() as stack:
        ready = ending.assemble(
            stack,
            campaign,
            options.ledger_path,
            _access(options),
            sweep=options.sweep,
            covers=subject.covers,
            accept=accept,
        )
        if not (_end(ready, options, patience) and end_files.remove(ready, patience)):
            return False
        for destination, error in ready.tidy():
            click.echo(f"empty folders are left at {destination}: {error.message}", err=True)
        end_files.report_active_jobs(ready)
        if options.sweep:
            with ready.sweep(options.sweep) as search:
                end_files.sweep(search, include_recent=options.include_recent, yes=options.yes)
    return True


def _access(options: EndOptions) -> ServiceAccess:
    return ServiceAccess(SystemClock(), common.backends, trusting.trust(), options.timeout)


def _end(ready: Ending, options: EndOptions, patience: timedelta) -> bool:
    """Show what there is, ask, and end it; return False if Ctrl-C interrupted it."""
    drain, noun = ready.drain, ready.noun
    plan = drain.plan(partial(_report_unknown_rules, noun, ready.clock), cancel=options.cancel)
    files = find(drain.ours).files
    for line in ready.describe(plan, files, cancel=options.cancel, rate=options.cancel_rate):
        click.echo(line, err=True)
    if (plan.work or files) and not options.yes and not trusting.agreed("End them?"):
        raise UsageError("nothing was ended", "answer y, or use --yes in a script")
    if not plan.work:
        if plan.ending:
            _look_again(ready, patience)
        return True
    action = f"end {units.counted(len(plan.complete), noun)}"
    action += f", cancel {len(plan.doomed)}" if plan.doomed else ""
    ready.ledger.change(account.who(), action, options.why, ready.clock.now())
    try:
        outcomes = drain.carry_out(plan, options.cancel_rate)
        if not _carry_out(outcomes, len(plan.work), noun, ready.clock):
            _settle(ready)
            _report_known_state(plan.work, ready)
            return False
    except ServiceError:
        if not _settle(ready):
            return False
        raise
    _look_again(ready, patience)
    return True


def _look_again(ready: Ending, patience: timedelta) -> None:
    """Write down what is gone by now; the rest is seen by the next start of `run`, or of this."""
    try:
        going = ready.drain.look_again(patience)
    except ServiceError as error:
        _report_unknown_result(error)
        return
    if going:
        rules, service = units.counted(len(going), "rules"), going[0].injection.link.service.title
        left = f"{rules} not gone from {service} yet: the next `run` or `end` records when they are"
        click.echo(left, err=True)


def _settle(ready: Ending) -> bool:
    """Write down, before it leaves early, what is gone by now; return False if Ctrl-C interrupts that, too."""
    try:
        ready.drain.settle(SETTLE_WITHIN)
    except ServiceError as error:
        _report_unknown_result(error)
    except KeyboardInterrupt:
        return False
    return True


# --------------------------------------------------------------------------- what is shown and done


def _report_unknown_rules(noun: str, clock: Clock, entries: Sequence[Entry], again_at: datetime) -> None:
    """Show that a service does not know what it had accepted, and what is waited for."""
    services = ", ".join(sorted({entry.injection.link.through for entry in entries}))
    time = units.format_duration(again_at - clock.now())
    message = f"{services} does not know {len(entries)} of the {noun} (any more)"
    click.echo(f"{message}: looking again in {time}, then they count as ended", err=True)


def _carry_out(outcomes: Iterator[Outcome], count: int, noun: str, clock: Clock) -> bool:
    """End them one after the other, and show how far it got; return False if Ctrl-C interrupted it.

    Raises ServiceError when some could not be ended.
    """
    ended, failed = set[str](), None
    try:
        for outcome in end_files.show_progress(outcomes, clock, lambda: f"{len(ended)} of {count} ended"):
            if outcome.error is None:
                ended.add(outcome.key)
            failed = outcome.error or failed
    except KeyboardInterrupt:
        exits.report_interruption("looking at what has ended; press again to exit at once")
        return False
    if failed is not None:
        all_of_them = units.counted(count, noun)
        message = f"{len(ended)} of {all_of_them} ended, {count - len(ended)} not: {failed.message}"
        raise ServiceError(message, failed.hint or "run it again to continue")
    click.echo(f"{units.counted(len(ended), noun)} ended", err=True)
    return True


def _report_known_state(work: Sequence[Entry], ready: Ending) -> None:
    """Show what is gone after an interrupted end: a service accepts an end before it carries it out."""
    keys, left = {entry.injection.key for entry in work}, find(ready.drain.ours)
    asked = sum(entry.injection.key in keys for entry in left.asked)
    live = [entry for entry in left.live if entry.injection.key in keys]
    parts = [f"{units.grouped(len(keys) - asked - len(live))} ended"]
    if asked:
        parts.append(f"{units.grouped(asked)} asked to end, and not known to have ended")
    parts.append(f"{units.grouped(len(live))} {describe_lifetimes(live)}" if live else "none left")
    exits.report_interruption(", ".join(parts))


def _report_unknown_result(error: ServiceError) -> None:
    click.echo(f"the result is not known yet: {error.message}", err=True)
