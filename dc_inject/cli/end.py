"""`dc-inject end`: end rules and jobs by hand: what is complete or overdue, the rest with --cancel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import click

from dc_inject.assembly import ending
from dc_inject.cli import end_files
from dc_inject.cli.shared import common, exits, hangup, log_output, params, subjects, trusting
from dc_inject.cli.shared.subjects import Subject
from dc_inject.engine.ending import THREADS, Drain, ToEnd, files_left, tidy
from dc_inject.ledger import Ledger, ledger_files
from dc_inject.model import Entry, naming, units
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.ports import Clock, Outcome
from dc_inject.model.services import FTS, injections
from dc_inject.summary.left import describe_lifetimes, find
from dc_inject.system import account
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor

SETTLE_WITHIN = timedelta(seconds=30)  # how long it takes at most to leave, once it was interrupted


@click.command()
@common.CAMPAIGN
@subjects.PART
@click.option("--cancel", is_flag=True, help="Also end unfinished rules, which cancels their transfers.")
@click.option(
    "--cancel-rate",
    type=params.PER_HOUR,
    default="600/h",
    show_default=True,
    help="The most unfinished rules or jobs to end per hour or minute.",
)
@click.option(
    "--sweep",
    type=params.PREFIX,
    metavar="PREFIX",
    help="Also find and delete our files below a destination's URL that are not in the ledger.",
)
@click.option(
    "--include-recent",
    is_flag=True,
    help="With --sweep: also delete files of cycles that began less than a day ago.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@common.WHY
@common.LEDGER
@common.TIMEOUT
@common.WORKERS
@click.pass_context
def end(
    ctx: click.Context,
    campaign: str,
    part: tuple[str, ...],
    cancel: bool,
    cancel_rate: float,
    sweep: str | None,
    include_recent: bool,
    yes: bool,
    why: str,
    ledger_path: Path | None,
    timeout: float,
) -> None:
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
    if sweep and ledger_files.lacks(campaign, ledger_path):
        if not naming.NAME.fullmatch(campaign):
            raise UsageError(f"{campaign!r} is not a valid campaign name")
        click.echo(f"campaign {campaign} has no ledger here: looking for files only", err=True)
        _sweep_without_ledger(campaign, sweep, include_recent=include_recent, yes=yes, timeout=timeout)
        return
    subject = subjects.inside(part)
    known = partial(subjects.require_known, subject=subject)
    shards = ending.find_shards_to_end(campaign, ledger_path, subject.covers, known)
    ledgers: list[tuple[str, Path | None]] = [(str(shard), None) for shard in shards] or [(campaign, ledger_path)]
    for number, (ledger, path) in enumerate(ledgers, 1):
        if shards:
            click.echo(f"{ledger}:", err=True)
        finished = end_campaign(
            ledger,
            subject,
            cancel=cancel,
            cancel_rate=cancel_rate,
            sweep=sweep if number == len(ledgers) else None,
            include_recent=include_recent,
            yes=yes,
            why=why,
            ledger_path=path,
            timeout=timeout,
        )
        if not finished:  # `link`, which ends rules too, prints how it goes on
            click.echo("run it again to continue", err=True)
            ctx.exit(exits.INTERRUPTED)


def end_campaign(
    campaign: str,
    subject: Subject = subjects.CAMPAIGN,
    *,
    cancel: bool,
    cancel_rate: float,
    sweep: str | None = None,
    include_recent: bool = False,
    yes: bool = False,
    why: str = "",
    ledger_path: Path | None = None,
    timeout: float,
    patience: timedelta = end_files.PATIENCE,
) -> bool:
    """Do what `end` does; the arguments are its options, and `patience` with files that resist deletion.

    Return False if Ctrl-C interrupted it, else True. Raises ServiceError if something could
    not be ended or deleted.
    """
    clock, trust = SystemClock(), trusting.trust()
    trust.name(sweep or "")
    with contextlib.ExitStack() as stack:

        def accept(ledger: Ledger) -> None:
            subjects.require_known(ledger, subject)
            if sweep:
                with ledger_files.of_all_shards(ledger) as all_shards:
                    end_files.warn(sweep, all_shards)

        name, ledger, backends = ending.prepare_end(
            stack,
            campaign,
            ledger_path,
            clock=clock,
            connect=common.backends,
            trust=trust,
            timeout=timeout,
            sweeping=bool(sweep),
            accept=accept,
        )
        executor = ThreadExecutor(clock, THREADS)
        stack.callback(executor.close)
        drain = Drain(
            ledger=ledger,
            backends=backends,
            clock=clock,
            executor=executor,
            covers=subject.covers,
            patience=timedelta(seconds=3 * timeout),
        )
        work = _Work(name, injections(backends), ledger, drain, clock)
        if not work.end(patience, cancel=cancel, cancel_rate=cancel_rate, yes=yes, why=why):
            return False
        if not end_files.remove(drain, clock, patience):
            return False
        for destination, error in tidy(ledger, name, backends):
            click.echo(f"empty folders are left at {destination}: {error.message}", err=True)
        end_files.report_active_jobs(drain, work.noun, clock)
        if sweep:
            with ledger_files.of_all_shards(ledger) as all_shards:
                end_files.sweep(
                    backends[FTS.name], sweep, name, all_shards, clock, include_recent=include_recent, yes=yes
                )
    return True


def _sweep_without_ledger(campaign: str, prefix: str, *, include_recent: bool, yes: bool, timeout: float) -> None:
    """Sweep up the files of a campaign whose ledger is lost. There may be no Rucio, so only FTS is asked."""
    clock = SystemClock()
    trusting.trust().name(prefix)
    backends = common.backends({FTS.name}, campaign=campaign, clock=clock, observer=Silent(), timeout=timeout)
    ending.admit_to_end(backends.values(), None, clock)
    end_files.sweep(backends[FTS.name], prefix, campaign, None, clock, include_recent=include_recent, yes=yes)


@dataclass(frozen=True, slots=True)
class _Work:
    """The rules or jobs of a campaign, and what ends them."""

    campaign: str
    noun: str  # what its services call them
    ledger: Ledger
    drain: Drain
    clock: Clock

    def end(self, patience: timedelta, *, cancel: bool, cancel_rate: float, yes: bool, why: str) -> bool:
        """Show what there is, ask, and end it; return False if Ctrl-C interrupted it."""
        plan = self.drain.plan(partial(_report_unknown_rules, self.noun, self.clock), cancel=cancel)
        files = find(self.drain.ours).files
        _show_plan(plan, self.noun, files, campaign=self.campaign, cancel=cancel, rate=cancel_rate)
        if (plan.work or files) and not yes and not trusting.agreed("End them?"):
            raise UsageError("nothing was ended", "answer y, or use --yes in a script")
        if not plan.work:
            if plan.ending:
                self._look_again(patience)
            return True
        action = f"end {units.counted(len(plan.complete), self.noun)}"
        action += f", cancel {len(plan.doomed)}" if plan.doomed else ""
        self.ledger.change(account.who(), action, why, self.clock.now())
        try:
            outcomes = self.drain.carry_out(plan, cancel_rate)
            if not _carry_out(outcomes, len(plan.work), self.noun, self.clock):
                self._settle()
                _report_known_state(plan.work, self.drain)
                return False
        except ServiceError:
            if not self._settle():
                return False
            raise
        self._look_again(patience)
        return True

    def _look_again(self, patience: timedelta) -> None:
        """Write down what is gone by now; the rest is seen by the next start of `run`, or of this."""
        try:
            going = self.drain.look_again(patience)
        except ServiceError as error:
            _report_unknown_result(error)
            return
        if going:
            rules, service = units.counted(len(going), "rules"), going[0].injection.link.service.title
            left = f"{rules} not gone from {service} yet: the next `run` or `end` records when they are"
            click.echo(left, err=True)

    def _settle(self) -> bool:
        """Write down, before it leaves early, what is gone by now; return False if Ctrl-C interrupts that, too."""
        try:
            self.drain.settle(SETTLE_WITHIN)
        except ServiceError as error:
            _report_unknown_result(error)
        except KeyboardInterrupt:
            return False
        return True


# --------------------------------------------------------------------------- what is shown and done


def _show_plan(plan: ToEnd, noun: str, file_count: int, *, campaign: str, cancel: bool, rate: float) -> None:
    """Show what is there, and what would be done, before anything is done."""
    lines = []
    if plan.complete:
        lines.append(f"{units.counted(len(plan.complete), f'complete {noun}')}: will be ended at once")
    if plan.spared:
        what = units.counted(plan.spared, f"complete {noun}")
        lines.append(f"{what}: kept, because unfinished second hops read from them")
    if file_count:
        lines.append(f"{units.counted(file_count, 'files')} of ended jobs: will be deleted at their destinations")
    if plan.overdue:
        overdue = units.counted(len(plan.overdue), noun)
        lines.append(f"{overdue} past the lifetime: {_cancelled(plan.overdue, rate)}")
    unfinished = units.counted(len(plan.unfinished), f"unfinished {noun}")
    if plan.unfinished and cancel:
        lines.append(f"{unfinished}: {_cancelled(plan.unfinished, rate)}")
    elif plan.unfinished:
        files = units.counted(files_left(plan.unfinished), "files")
        lines.append(f"{unfinished} with {files} under way: {describe_lifetimes(plan.unfinished)}")
    for number, words in (
        (plan.ending, "already ending"),
        (plan.gone, "already gone"),
        (plan.in_doubt, f"in doubt: run `dc-inject end {campaign}` again in some minutes"),
    ):
        if number:
            lines.append(f"{units.counted(number, noun)} {words}")
    for line in lines or [f"no {noun} of {campaign} to end"]:
        click.echo(line, err=True)


def _cancelled(entries: Sequence[Entry], rate: float) -> str:
    time = units.format_duration(timedelta(hours=(len(entries) - 1) / rate))
    return f"will be ended in {time}; cancels {units.counted(files_left(entries), 'files')} under way"


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


def _report_known_state(work: Sequence[Entry], drain: Drain) -> None:
    """Show what is gone after an interrupted end: a service accepts an end before it carries it out."""
    keys, left = {entry.injection.key for entry in work}, find(drain.ours)
    asked = sum(entry.injection.key in keys for entry in left.asked)
    live = [entry for entry in left.live if entry.injection.key in keys]
    parts = [f"{units.grouped(len(keys) - asked - len(live))} ended"]
    if asked:
        parts.append(f"{units.grouped(asked)} asked to end, and not known to have ended")
    parts.append(f"{units.grouped(len(live))} {describe_lifetimes(live)}" if live else "none left")
    exits.report_interruption(", ".join(parts))


def _report_unknown_result(error: ServiceError) -> None:
    click.echo(f"the result is not known yet: {error.message}", err=True)
