"""What an operator does to a campaign, running or not: pause, resume, or set a rate; written into its ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from dc_inject.cli.shared import subjects
from dc_inject.cli.shared.subjects import Subject
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.reading import Reader
from dc_inject.ledger.types import Pause
from dc_inject.model import overrides, units
from dc_inject.model.overrides import Kind
from dc_inject.summary import active_overrides
from dc_inject.system import account
from dc_inject.system.clock import SystemClock

HIGHER = "a higher rate applies from the next cycle on"
STOPPED = "it then releases nothing more"


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """A verb, `pause`, `resume`, `rate` or `scale`, and the value of the last two."""

    verb: str
    value: float = 0.0


PAUSE, RESUME = OperatorAction("pause"), OperatorAction("resume")


def carry_out(action: OperatorAction, path: Path, subject: Subject, why: str) -> None:
    """Write an action on a subject into a ledger, or those of all shards, and say what follows from it.

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
            sentence = f"{change}; {when_applied(path)}" if any(done) else f"{change}: already set"
            limits = tuple(active_overrides.held_by(view, subject.name, kind, now))
    click.echo(f"{name}: {sentence}", err=True)
    for limit in limits:
        click.echo(f"warning: {limit}", err=True)
    if action != PAUSE:
        say_stopped(pauses)


def _write(action: OperatorAction, own: Ledger, subject: Subject, who: str, why: str, now: datetime) -> bool:
    """Write an action into a ledger; returns False if it was so already."""
    if action == PAUSE:
        return own.pause(subject.name, who, why, now)
    if action == RESUME:
        return own.resume(subject.name, who, why, now)
    return own.override(subject.name, Kind(action.verb), action.value, who, why, now)


def when_applied(path: Path, more: str = HIGHER) -> str:
    """Return who applies a change, when, and what it does then."""
    with LedgerView.open(path) as view:
        holder, cycle = view.holder(), view.last_cycle()
    if holder is None:
        return "no injector runs now; the next one applies it"
    when = f", at {cycle.end:%H:%M:%SZ}" if cycle is not None and more == HIGHER else ""
    return f"the injector ({holder}) applies it within seconds; {more}{when}"


def say_stopped(pauses: Iterable[Pause]) -> None:
    """Say what is still stopped: rates have no effect there."""
    for pause in pauses:
        click.echo(f"still stopped: {overrides.shown(pause.subject)}, {_since(pause)}", err=True)


def _paused(subject: Subject, path: Path, pauses: Iterable[Pause], *, done: bool) -> str:
    if done:
        return f"{_injection(subject)} is stopped; {when_applied(path, STOPPED)}"
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
