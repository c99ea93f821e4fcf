"""`dc-inject set`: change a rate while a campaign runs, from any terminal."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from dc_inject.cli.shared import common, completion, operator_actions, subjects
from dc_inject.cli.shared.operator_actions import OperatorAction
from dc_inject.model import units
from dc_inject.model.errors import UsageError

VERBS = ("rate", "scale")
EXAMPLE = "such as: dc-inject set t0-export rate 40Gb/s"


@click.command("set")
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar=f"{subjects.METAVAR} rate|scale VALUE",
    shell_complete=completion.subjects,
)
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
    operator_actions.carry_out(action, *subjects.resolve(names, ledger_path), why)


def parse_words(words: Sequence[str]) -> tuple[tuple[str, ...], OperatorAction]:
    """Read the words of a command: names, a verb, and its value; raises UsageError."""
    place = max((number for number, word in enumerate(words) if word in VERBS), default=None)
    if place is None:
        if words[1:] and words[-1] in {"pause", "resume"}:
            command = shlex.join([words[-1], *words[:-1]])
            raise UsageError(f"`set` cannot {words[-1]}", f"dc-inject {command}")
        raise UsageError(f"say what to set: {' or '.join(VERBS)}", EXAMPLE)
    names, verb, value = tuple(words[:place]), words[place], " ".join(words[place + 1 :])
    if not names:
        raise UsageError(f"say whose {verb} to set", f"name a scenario or a link, or '*'; {EXAMPLE}")
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
