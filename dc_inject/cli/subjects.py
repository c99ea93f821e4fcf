"""Subjects: the scenario, link or whole campaign that a command is about, named in the same words everywhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import click

from dc_inject import ledger
from dc_inject.cli import common
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.reading import Reader
from dc_inject.menu import addresses, values
from dc_inject.model import overrides, units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.overrides import EVERYTHING

METAVAR = "[CAMPAIGN] SCENARIO|SRC DST|'*'"
PART = click.argument("part", nargs=-1, metavar="[SCENARIO|SRC DST|'*']")
WORDS = click.argument("words", nargs=-1, required=True, metavar=METAVAR)


def found(names: Sequence[str], path: Path | None) -> tuple[Path, str]:
    """Return the ledger, and the subject in it, that these words name: `[CAMPAIGN] SCENARIO|LINK|*`.

    The first word is a campaign when it has a ledger, or is the file of one; with nothing after it, it is all of
    that campaign.
    """
    words = _split(names)
    first, rest = "".join(words[:1]), words[1:]
    if path is not None:
        place = common.existing_ledger("", path)
        if not _is_of(place, first, alone=not rest):
            rest = words
    elif _is_campaign(first):
        place = common.existing_ledger(first)
    else:
        place, rest = _only(), words
    return place, _subject(rest) if rest or not words else EVERYTHING


def whole(campaign: str, path: Path | None) -> Path:
    """Return the ledger of a campaign that is named as a whole; raises LedgerError where the file is another's."""
    place = common.existing_ledger(campaign, path)
    with Ledger.open(place) as own:
        common.own_ledger(own, campaign, place)
    return place


def part(names: Sequence[str]) -> str:
    """Return the subject that these words name inside a campaign; without any, all of it. Raises UsageError."""
    words = _split(names)
    return _subject(words) if words or names else EVERYTHING


def known(view: Reader, subject: str) -> None:
    """Raise UsageError for a scenario or link that this campaign never had; before its first cycle all pass."""
    flows = view.accounts()
    if not flows or any(overrides.covers(subject, flow) for flow in flows):
        return
    kind = "link" if ":" in subject else "scenario"
    names = {str(flow.link) if kind == "link" else flow.scenario for flow in flows}
    raise UsageError(
        f"campaign {view.campaign or view.path.stem} has had no {kind} {subject!r} so far",
        units.did_you_mean(subject, names),
    )


def _split(names: Sequence[str]) -> list[str]:
    """Return the words of names, those around an arrow apart."""
    return [word.strip() for name in names for word in name.split(addresses.ARROW) if word.strip()]


def _subject(words: Sequence[str]) -> str:
    try:
        match words:
            case [source, destination]:
                return f"{addresses.end_name(source)}:{addresses.end_name(destination)}"
            case [one]:
                return addresses.link(one) if ":" in one else one
    except ValueError as error:
        message, hint = values.explain(error)
        raise UsageError(message, hint) from None
    raise UsageError(
        f"{' '.join(words) or 'an empty word'} names neither a scenario nor a link",
        "name a scenario, a link as SOURCE DESTINATION, or '*' (quoted, for the shell)",
    )


def _only() -> Path:
    """Return the ledger of the only campaign that has an injector, or else of the only one there is."""
    places = [ledger.default_path(name, os.environ) for name in common.campaigns()]
    running = [place for place in places if _runs(place)]
    candidates = running or places
    if len(candidates) != 1:
        names = ", ".join(place.stem for place in candidates) or "none"
        which = "with an injector" if running else "with a ledger"
        raise UsageError("the campaign is not clear", f"name it first; {which}: {names}")
    return candidates[0]


def _is_campaign(word: str) -> bool:
    return common.ledger_named(word) is not None or word in common.campaigns()


def _is_of(place: Path, word: str, *, alone: bool) -> bool:
    """Tell whether a word names the campaign of this ledger; raises LedgerError when it is that of another one."""
    with Ledger.open(place) as own:
        if word == own.campaign:
            return True
        if not alone and _is_campaign(word):
            common.own_ledger(own, word, place)
            return True
    return False


def _runs(place: Path) -> bool:
    with contextlib.suppress(LedgerError), LedgerView.open(place) as view:
        return view.holder() is not None
    return False
