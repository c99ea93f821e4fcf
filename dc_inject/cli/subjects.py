"""Subjects: what `set` and `unset` are about, a campaign or a part of one, in as few words as will do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from dc_inject import ledger
from dc_inject.cli import common
from dc_inject.errors import LedgerError, UsageError
from dc_inject.ledger import LedgerView
from dc_inject.ledger.reading import Reader
from dc_inject.menu import addresses, values
from dc_inject.overrides import EVERYTHING

ARROW = "->"


def found(names: Sequence[str], path: Path | None) -> tuple[Path, str]:
    """Return the ledger, and the subject in it, that these words name: `[CAMPAIGN] SCENARIO|LINK|*`.

    The first word is a campaign when it has a ledger, or is the file of one, and others follow.
    """
    words = [part.strip() for name in names for part in name.split(ARROW) if part.strip()]
    if len(words) > 1 and (common.ledger_named(words[0]) or words[0] in common.campaigns()):
        return common.existing_ledger(words[0], path), _subject(words[1:])
    return common.existing_ledger("", path) if path else _only(), _subject(words)


def known(view: Reader, subject: str) -> None:
    """Raise UsageError for a scenario or link that this campaign never had, with the nearest that it had."""
    if subject != EVERYTHING:
        link = ":" in subject
        common.known_names(view, None if link else subject, subject if link else None)


def shown(subject: str) -> str:
    """Return a subject for people."""
    return "all of it" if subject == EVERYTHING else subject


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


def _runs(place: Path) -> bool:
    with contextlib.suppress(LedgerError), LedgerView.open(place) as view:
        return view.holder() is not None
    return False
