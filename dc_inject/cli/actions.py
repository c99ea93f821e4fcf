"""What changes a campaign from any terminal: `stop`, `pause`, `resume`, `set`, `unset` and `note`.

A note of an operator is a change (`Change`) that changes nothing: it has a time, an author and a text like the
others, and stands among them wherever changes are shown. The ledger's table `note` is for the program's own
traces: it has no author, keeps one text once, and drops the oldest, so a bug that repeats would push out what
people wrote.

The text is one line, bounded and cleaned of secrets. It is about a time that is over: its own, or an earlier one.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from dc_inject.cli.shared import common, params, subjects
from dc_inject.cli.shared.subjects import Subject
from dc_inject.ledger import Ledger, LedgerView, Reader
from dc_inject.ledger.records import NOTE
from dc_inject.ledger.types import Pause
from dc_inject.model import overrides, units
from dc_inject.model.errors import UsageError
from dc_inject.model.overrides import Kind
from dc_inject.model.redaction import LONGEST, scrub
from dc_inject.summary import active_overrides
from dc_inject.system import account
from dc_inject.system.clock import SystemClock

VERBS = ("rate", "scale")
EXAMPLE = "such as: dc-inject set t0-export rate 40Gb/s"


@click.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@common.CAMPAIGN
@common.WHY
@common.LEDGER
@click.pass_context
def stop(ctx: click.Context, campaign: str, why: str, ledger_path: Path | None) -> None:
    r"""Stop injecting for a whole campaign until `resume`; `pause` does it for a scenario or a link.

    A running injector stops within seconds. You can also stop a campaign when no injector runs, or when no service
    can be reached. Existing rules stay and end with their lifetime; `dc-inject end CAMPAIGN` ends them earlier.
    Readers end at once. Nothing is due while a campaign is stopped, so it does not resume with a burst.

    \b
    Example: dc-inject stop dc27-rehearsal --why "the LHCOPN is needed"
    """
    if ctx.args:
        raise UsageError(
            f"`stop` takes a campaign and nothing else, not {' '.join(ctx.args)!r}",
            "to stop a scenario or a link: dc-inject pause [CAMPAIGN] SCENARIO, or SRC DST",
        )
    path = subjects.campaign_ledger(campaign, ledger_path)
    carry_out(PAUSE, path, subjects.CAMPAIGN, why)


@click.command()
@subjects.WORDS
@common.WHY
@common.LEDGER
def pause(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Stop injecting for a scenario, a link or a whole campaign, until `resume`.

    Write a link as two words, SRC:DST or 'SRC->DST'; '*' is the whole campaign, and so is its name alone. You may
    leave out CAMPAIGN (or the file of a ledger) if only one campaign has a running injector, or a ledger.

    \b
    Example: dc-inject pause us-mesh --why "the LHCOPN is needed"
    Example: dc-inject pause dc27-rehearsal T2_CH_CERN T1_US_FNAL_Disk
    """
    carry_out(PAUSE, *subjects.resolve(words, ledger_path), why)


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
    carry_out(RESUME, *subjects.resolve(words, ledger_path), why)


@click.command("set")
@subjects.words(metavar=f"{subjects.METAVAR} rate|scale VALUE")
@common.WHY
@common.LEDGER
def set_(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Change the rate of a scenario, a link or a whole campaign until `unset`, also while it runs.

    `rate 40Gb/s` is the total rate of the scenario or link, shared as the menu shares it; `scale 0.5` (or 50%)
    multiplies the menu's rates and goals. A second rate or scale replaces the first. Name a scenario or a link as
    for `pause`.

    A running injector sees the change within seconds. What is due in the open cycle stays due; if the rate is
    lower, what is not released yet is dropped and not made up. The new rate applies from the next cycle on. Limits
    still apply.

    \b
    Example: dc-inject set T2_CH_CERN T1_US_FNAL_Disk rate 40Gb/s --why "FNAL asks for more"
    Example: dc-inject set dc27-rehearsal us-mesh scale 0.5
    """
    names, action = parse_words(words)
    carry_out(action, *subjects.resolve(names, ledger_path), why)


def parse_words(words: Sequence[str]) -> tuple[tuple[str, ...], OperatorAction]:
    """Read the words of a command: names, a verb, and its value; raises UsageError."""
    at = max((number for number, word in enumerate(words) if word in VERBS), default=None)
    if at is None:
        if words[1:] and words[-1] in {"pause", "resume"}:
            command = shlex.join([words[-1], *words[:-1]])
            raise UsageError(f"`set` cannot {words[-1]}", f"dc-inject {command}")
        raise UsageError(f"name what to set: {' or '.join(VERBS)}", EXAMPLE)
    names, verb, value = tuple(words[:at]), words[at], " ".join(words[at + 1 :])
    if not names:
        raise UsageError(f"name the subject whose {verb} to set", f"name a scenario or a link, or '*'; {EXAMPLE}")
    return names, OperatorAction(verb, _rate(value) if verb == "rate" else _factor(value))


def _rate(text: str) -> float:
    try:
        rate = units.parse_rate(text)
    except ValueError as error:
        raise UsageError(str(error), "such as 40Gb/s") from None
    if rate <= 0:
        raise UsageError("a rate must be above 0", "to stop injecting: dc-inject pause")
    return rate


def _factor(text: str) -> float:
    """Read the factor of rates, `0.5` or `50%`; raises UsageError."""
    scale, number = 0.0, text.removesuffix("%")
    with contextlib.suppress(ValueError):
        scale = float(number) / (100 if number != text else 1)
    if not 0 < scale < 1e9:
        raise UsageError(
            f"{text!r} is not a scale",
            "write a number above 0, such as 0.5 or 50%; to stop injecting: dc-inject pause",
        )
    return scale


@click.command()
@subjects.words(metavar=f"{subjects.METAVAR} [rate|scale]")
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
        who = account.who()
        deleted = {override: None for own in ledgers for override in own.unset(subject.name, kind, who, why, now)}
        name, still_set, pauses = view.campaign or path.stem, view.overrides(), view.pauses()
    done = f"no {kind or 'rate or scale'} was set"
    if deleted:
        done = f"deleted {', '.join(override.words for override in deleted)}; {describe_effect(path)}"
    click.echo(f"{name}: {subject}: {done}", err=True)
    for override in still_set:
        still = f"{overrides.shown(override.subject)}: {override.words}"
        click.echo(f"still set: {still}, since {override.since:%Y-%m-%d %H:%M:%SZ} by {override.who}", err=True)
    show_stopped(pauses)


@click.command()
@common.CAMPAIGN
@click.argument("text")
@click.option("--at", type=params.TIME, metavar="TIME", help="The time that it is about [default: now].")
@common.LEDGER
def note(campaign: str, text: str, at: datetime | None, ledger_path: Path | None) -> None:
    r"""Write a note on a campaign, such as an incident; `status` shows it among the changes, and `report` too.

    It is kept for good, with your name; anything that looks like a password or token is left out.

    \b
    Example: dc-inject note dc27-rehearsal "tokens of KIT refused, ticket 4711"
    Example: dc-inject note dc27-rehearsal "LHCOPN cut" --at 2027-02-08T14:00Z
    """
    path = subjects.campaign_ledger(campaign, ledger_path)
    now = SystemClock().now()
    about = at or now
    if about > now:
        raise UsageError(f"{units.format_minute(about)} is not over yet", "name a time in the past")
    if len(" ".join(text.split())) > LONGEST:
        raise UsageError(f"a note has at most {LONGEST} characters", "write several notes")
    words = scrub(text)
    if not words:
        raise UsageError("the note is empty", 'write what happened: dc-inject note CAMPAIGN "text"')
    with subjects.opened(path, may_be_simulated=True) as (ledgers, view):
        name = view.campaign or path.stem
        for own in ledgers:
            own.change(account.who(), NOTE, words, about)
    click.echo(f"{name}: noted at {about:%Y-%m-%d %H:%M:%SZ}: {words}", err=True)


HIGHER = "a higher rate applies from the next cycle on"
STOPPED = "it then releases nothing more"


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A verb, `pause`, `resume`, `rate` or `scale`, and the value of the last two."""

    verb: str
    value: float = 0.0


PAUSE, RESUME = OperatorAction("pause"), OperatorAction("resume")


def carry_out(action: OperatorAction, path: Path, subject: Subject, why: str) -> None:
    """Write an action on a subject into a ledger, or those of all shards, and show what follows from it.

    Raises UsageError for a subject that the campaign never had, and LedgerError.
    """
    who, now = account.who(), SystemClock().now()
    limits: tuple[str, ...] = ()
    with subjects.opened(path) as (ledgers, view):
        subjects.require_known(view, subject)
        name, due = view.campaign or path.stem, _due_now(view, subject)
        done = [_write(action, own, subject, who, why, now) for own in ledgers]
        pauses = view.pauses()
        if action == PAUSE:
            sentence = _paused(subject, path, pauses, done=any(done))
        elif action == RESUME:
            sentence = f"{_injection(subject)} {'resumes with the next cycle' if any(done) else 'was not stopped'}"
        else:
            kind = Kind(action.verb)
            change = f"{subject}: {overrides.describe(kind, action.value)}{due}"
            sentence = f"{change}; {describe_effect(path)}" if any(done) else f"{change}: already set"
            limits = tuple(active_overrides.list_exceeded_settings(view, subject.name, kind, now))
    click.echo(f"{name}: {sentence}", err=True)
    for limit in limits:
        click.echo(f"warning: {limit}", err=True)
    if action != PAUSE:
        show_stopped(pauses)


def _write(action: OperatorAction, own: Ledger, subject: Subject, who: str, why: str, now: datetime) -> bool:
    """Write an action into a ledger; returns False if it was so already."""
    if action == PAUSE:
        return own.pause(subject.name, who, why, now)
    if action == RESUME:
        return own.resume(subject.name, who, why, now)
    return own.override(subject.name, Kind(action.verb), action.value, who, why, now)


def describe_effect(path: Path, more: str = HIGHER) -> str:
    """Return who applies a change, when, and what it does then."""
    with LedgerView.open(path) as view:
        holder, cycle = view.holder(), view.last_cycle()
    if holder is None:
        return "no injector runs now; the next one applies it"
    when = f", at {cycle.end:%H:%M:%SZ}" if cycle is not None and more == HIGHER else ""
    return f"the injector ({holder}) applies it within seconds; {more}{when}"


def show_stopped(pauses: Iterable[Pause]) -> None:
    """Show what is still stopped: rates have no effect there."""
    for pause in pauses:
        click.echo(f"still stopped: {overrides.shown(pause.subject)}, {_since(pause)}", err=True)


def _paused(subject: Subject, path: Path, pauses: Iterable[Pause], *, done: bool) -> str:
    if done:
        return f"{_injection(subject)} is stopped; {describe_effect(path, STOPPED)}"
    pause = next(pause for pause in pauses if pause.subject == subject.name)
    return f"{_injection(subject)} is already stopped, {_since(pause)}" + (f" ({pause.why})" if pause.why else "")


def _injection(subject: Subject) -> str:
    return "injection" if subject == subjects.CAMPAIGN else f"injection for {subject}"


def _since(pause: Pause) -> str:
    return f"since {pause.since:%Y-%m-%d %H:%M:%SZ} by {pause.who}"


def _due_now(view: Reader, subject: Subject) -> str:
    """Return in words what a subject was due in the last cycle, so that a typing error is seen."""
    cycle = view.last_cycle()
    if cycle is None:
        return ""
    due = sum(row.due for row in view.rows(cycle=cycle) if subject.covers(row.key))
    return f" (last cycle: {units.format_rate(due / cycle.length.total_seconds())})"
