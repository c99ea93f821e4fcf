"""Subjects: what a person wants changed, a campaign or a part of one, in as few words as will do."""

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
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.planning.overrides import EVERYTHING

METAVAR = "[CAMPAIGN] SCENARIO|SRC DST|'*'"
WORDS = click.argument("words", nargs=-1, required=True, metavar=METAVAR)


def found(names: Sequence[str], path: Path | None) -> tuple[Path, str]:
    """Return the ledger, and the subject in it, that these words name: `[CAMPAIGN] SCENARIO|LINK|*`.

    The first word is a campaign when it has a ledger, or is the file of one; with nothing after it, it is all of
    that campaign.
    """
    words = [part.strip() for name in names for part in name.split(addresses.ARROW) if part.strip()]
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


def optional(campaign: str, scenario: str | None, link: str | None, path: Path | None) -> tuple[Path, str]:
    """Return the ledger of a campaign, and the subject in it that options name; without any, all of it."""
    if scenario and link:
        raise UsageError("a stop is for a scenario or for a link, not for both", "give two commands")
    place = common.existing_ledger(campaign, path)
    with Ledger.open(place) as own:
        common.own_ledger(own, campaign, place)
    return place, scenario or link or EVERYTHING


def known(view: Reader, subject: str) -> None:
    """Raise UsageError for a scenario or link that this campaign never had, with the nearest that it had."""
    if subject != EVERYTHING:
        link = ":" in subject
        common.known_names(view, None if link else subject, subject if link else None)


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
        f"these are {len(words)} names: {' '.join(words)}",
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
        raise UsageError("nothing says which campaign it is about", f"name it first; {which}: {names}")
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
