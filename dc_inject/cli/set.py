"""`dc-inject set`: change a rate, or stop, while it runs, from any terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import click

from dc_inject.cli import common, operator_actions, subjects
from dc_inject.cli.operator_actions import PAUSE, RESUME, OperatorAction
from dc_inject.model import units
from dc_inject.model.errors import UsageError

VERBS = ("rate", "scale", "pause", "resume")
EXAMPLE = "such as: dc-inject set t0-export rate 40Gb/s"


@click.command("set")
@click.argument("words", nargs=-1, required=True, metavar=f"{subjects.METAVAR} WHAT")
@common.WHY
@common.LEDGER
def set_(words: tuple[str, ...], why: str, ledger_path: Path | None) -> None:
    r"""Change what a scenario or link is given, while it runs or not, until `unset`.

    WHAT is `rate 40Gb/s`, `scale 0.5`, `pause` or `resume`. A rate is what the scenario or link is to have in all,
    shared as the menu shares it; a scale multiplies the menu's rates and goals. A link is written as two words, as
    SRC:DST or as 'SRC->DST'; '*' is the whole campaign, and so is its name alone. CAMPAIGN (or a ledger's file)
    may be left out when only one has an injector, or only one has a ledger.

    The injector hears of it within seconds. What is due in the cycle that is open stays due; of a lower rate, what
    was not released yet is dropped and not made up. The next cycle is given the new rate. Limits hold as before.

    \b
    Example: dc-inject set T2_CH_CERN T1_US_FNAL_Disk rate 40Gb/s --why "FNAL asks for more"
    Example: dc-inject set dc27-rehearsal us-mesh scale 0.5
    """
    names, action = spoken(words)
    operator_actions.carry_out(action, *subjects.found(names, ledger_path), why)


def spoken(words: Sequence[str]) -> tuple[tuple[str, ...], OperatorAction]:
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
        return names, PAUSE if verb == "pause" else RESUME
    return names, OperatorAction(verb, _rate(value) if verb == "rate" else factor(value))


def _rate(text: str) -> float:
    try:
        rate = units.parse_rate(text)
    except ValueError as error:
        raise UsageError(str(error), "such as 40Gb/s") from None
    if rate <= 0:
        raise UsageError("a rate is above 0", "`pause` stops it")
    return rate


def factor(text: str) -> float:
    """Read by how much rates are multiplied, `0.5` or `50%`; raises UsageError."""
    scale, number = 0.0, text.removesuffix("%")
    with contextlib.suppress(ValueError):
        scale = float(number) / (100 if number != text else 1)
    if not 0 < scale < 1e9:
        raise UsageError(f"{text!r} is no scale", "a number above 0, such as 0.5, or 50%; `pause` stops it")
    return scale
