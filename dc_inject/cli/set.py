"""`dc-inject set`: change a rate, or stop, while it runs, from any terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from dc_inject import overrides, units
from dc_inject.cli import common, subjects
from dc_inject.clock import SystemClock
from dc_inject.errors import UsageError
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.nouns import Pause
from dc_inject.ledger.reading import Reader
from dc_inject.overrides import Kind

VERBS = ("rate", "scale", "pause", "resume")
MORE = "a higher rate counts from the next cycle on"
EXAMPLE = "such as: dc-inject set t0-export rate 40Gb/s"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be set: a verb with its value, if it has one, for what the names before it name."""

    names: tuple[str, ...]
    verb: str
    value: float = 0.0

    @property
    def said(self) -> str:
        """What is to be set, in words."""
        return self.verb if self.verb in {"pause", "resume"} else overrides.said(Kind(self.verb), self.value)


@click.command("set")
@click.argument("words", nargs=-1, required=True, metavar="[CAMPAIGN] SCENARIO|SRC DST|'*' WHAT")
@common.WHY
@common.LEDGER
def set_(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Change what a scenario or link is given, while it runs or not, until `unset`.

    WHAT is `rate 40Gb/s`, `scale 0.5`, `pause` or `resume`. A rate is what the scenario or link is to have in all,
    shared as the menu shares it; a scale multiplies the menu's rates and goals. A link is written as two words, as
    SRC:DST or as 'SRC->DST'; '*' is the whole campaign. CAMPAIGN (or a ledger's file) may be left out when only
    one has an injector, or only one has a ledger.

    The injector hears of it within seconds. What is due in the cycle that is open stays due; of a lower rate, what
    was not released yet is dropped and not made up. The next cycle is given the new rate. Limits hold as before.

    \b
    Example: dc-inject set T2_CH_CERN T1_US_FNAL_Disk rate 40Gb/s --why "FNAL asks for more"
    Example: dc-inject set dc27-rehearsal us-mesh scale 0.5
    """
    wish = spoken(words)
    path, subject = subjects.found(wish.names, ledger_path)
    who, now = common.who(), SystemClock().now()
    with Ledger.open(path) as ledger:
        subjects.known(ledger, subject)
        now_due = due_now(ledger, subject)
        if wish.verb == "pause":
            done = ledger.pause(subject, who, why, now)
        elif wish.verb == "resume":
            done = ledger.resume(subject, who, why, now)
        else:
            done = ledger.override(subject, Kind(wish.verb), wish.value, who, why, now)
        name, pauses = ledger.campaign or path.stem, ledger.pauses()
    what = f"{name}: {subjects.shown(subject)}: {wish.said}{now_due if wish.value else ''}"
    more = "nothing more of it is released then" if wish.verb == "pause" else MORE
    click.echo(f"{what}; {heard(path, more)}" if done else f"{what}: it is so already", err=True)
    if wish.verb != "pause":
        say_stopped(pauses)


def due_now(view: Reader, subject: str) -> str:
    """Return in words what a subject is due in the last cycle, so that a slip of the hand is seen."""
    cycle = view.last_cycle()
    if cycle is None:
        return ""
    due = sum(row.due for row in view.rows(cycle=cycle) if overrides.covers(subject, row.key))
    return f" (the last cycle: {units.format_rate(due / cycle.length.total_seconds())})"


def say_stopped(pauses: Iterable[Pause]) -> None:
    """Say what is stopped still, as no rate does anything there."""
    for one in pauses:
        since = f"{one.since:%Y-%m-%d %H:%M:%SZ} by {one.who}"
        click.echo(f"still stopped: {subjects.shown(one.subject)}, since {since}", err=True)


def heard(path: Path, more: str = MORE) -> str:
    """Return who will hear of a change, when, and what it does then."""
    with LedgerView.open(path) as view:
        holder, cycle = view.holder(), view.last_cycle()
    if holder is None:
        return "nobody injects now; the next start heeds it"
    when = f", at {cycle.end:%H:%M:%SZ}" if cycle is not None and more == MORE else ""
    return f"{holder} will hear of it within seconds; {more}{when}"


def spoken(words: Sequence[str]) -> Wish:
    """Read the words of a command: names, a verb, and its value; raises UsageError."""
    place = max((number for number, word in enumerate(words) if word in VERBS), default=None)
    if place is None:
        raise UsageError(f"nothing says what to set: {', '.join(VERBS)}", EXAMPLE)
    names, verb, value = tuple(words[:place]), words[place], " ".join(words[place + 1 :])
    if not names:
        raise UsageError("nothing says for what it is set", f"name a scenario or a link, or '*'; {EXAMPLE}")
    if verb in {"pause", "resume"}:
        if value:
            raise UsageError(f"`{verb}` stands alone, and {value!r} follows", "give the reason with --why")
        return Wish(names, verb)
    return Wish(names, verb, _rate(value) if verb == "rate" else _scale(value))


def _rate(text: str) -> float:
    try:
        rate = units.parse_rate(text)
    except ValueError as error:
        raise UsageError(str(error), "such as 40Gb/s") from None
    if rate <= 0:
        raise UsageError("a rate is above 0", "`pause` stops it")
    return rate


def _scale(text: str) -> float:
    scale, number = 0.0, text.removesuffix("%")
    with contextlib.suppress(ValueError):
        scale = float(number) / (100 if number != text else 1)
    if not 0 < scale < 1e9:
        raise UsageError(f"{text!r} is no scale", "a number above 0, such as 0.5, or 50%; `pause` stops it")
    return scale
