"""Subjects: the scenario, link or whole campaign that a command is about, named in the same words everywhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from dc_inject import ledger
from dc_inject.cli.shared import completion
from dc_inject.ledger import Ledger, LedgerView, Reader, ledger_files
from dc_inject.menu import addresses, values
from dc_inject.model import FlowKey, overrides, units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.overrides import EVERYTHING

METAVAR = "[CAMPAIGN] SCENARIO|SRC DST|'*'"
PART = click.argument("part", nargs=-1, metavar="[SCENARIO|SRC DST|'*']", shell_complete=completion.subjects)
words = partial(click.argument, "words", nargs=-1, required=True, shell_complete=completion.subjects)
WORDS = words(metavar=METAVAR)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a command is about; `name` is how ledgers keep it: `*`, a scenario, or a link as `SRC:DST`."""

    name: str

    def __str__(self) -> str:
        return overrides.shown(self.name)

    def covers(self, flow: FlowKey) -> bool:
        """Return whether a flow is of it."""
        return overrides.covers(self.name, flow)


CAMPAIGN = Subject(EVERYTHING)


def resolve(names: Sequence[str], path: Path | None) -> tuple[Path, Subject]:
    """Return the ledger, and the subject in it, that these words name: `[CAMPAIGN] SCENARIO|LINK|*`.

    The first word is a campaign when it has a ledger, or is the file of one; with nothing after it, it is all of
    that campaign.
    """
    words = _split(names)
    campaign, rest = "".join(words[:1]), words[1:]
    if path is not None:
        file = ledger_files.existing("", path)
        if not _is_of(file, campaign, alone=not rest):
            rest = words
    elif _is_campaign(campaign):
        file = ledger_files.existing(campaign)
    else:
        file, rest = only(), words
    return file, _subject(rest) if rest or not words else CAMPAIGN


def campaign_ledger(campaign: str, path: Path | None) -> Path:
    """Return the ledger of a campaign that is named as a whole; raises LedgerError where the file is another's."""
    file = ledger_files.existing(campaign, path)
    with LedgerView.open(file) as view:
        ledger_files.campaign_in(view, campaign, file)
    return file


@contextlib.contextmanager
def opened(file: Path, *, may_be_simulated: bool = False) -> Iterator[tuple[Sequence[Ledger], LedgerView]]:
    """Open the ledger of a campaign, or those of all its shards, to write; and all of it to read as one.

    Raises LedgerError for that of a simulation, unless it may be one.
    """
    with contextlib.ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(one)) for one in ledger.files(file)]
        view = stack.enter_context(LedgerView.open(file))
        if not may_be_simulated:
            ledger_files.require_real(view)
        yield ledgers, view


def inside(names: Sequence[str]) -> Subject:
    """Return the subject that these words name inside a campaign; without any, all of it. Raises UsageError."""
    words = _split(names)
    return _subject(words) if words or names else CAMPAIGN


def require_known(view: Reader, subject: Subject) -> None:
    """Raise UsageError for a scenario or link that this campaign never had; before its first cycle all pass."""
    flows = view.accounts()
    if not flows or any(subject.covers(flow) for flow in flows):
        return
    kind = "link" if ":" in subject.name else "scenario"  # whose names have none
    names = {str(flow.link) if kind == "link" else flow.scenario for flow in flows}
    hint = units.did_you_mean(subject.name, names)
    if own := sorted({str(flow.link) for flow in flows if subject.name in flow.link.ends}):
        hint = f"it is an end of links; name each of them: {units.some(own)}"
    raise UsageError(f"campaign {view.campaign or view.path.stem} has had no {kind} {subject.name!r} so far", hint)


def _split(names: Sequence[str]) -> list[str]:
    """Return the words of names, those around an arrow apart."""
    return [word.strip() for name in names for word in name.split(addresses.ARROW) if word.strip()]


def _subject(words: Sequence[str]) -> Subject:
    try:
        match words:
            case [source, destination]:
                return Subject(f"{addresses.end_name(source)}:{addresses.end_name(destination)}")
            case [word] if word == EVERYTHING:
                return CAMPAIGN
            case [word] if ":" in word:
                return Subject(addresses.link(word))
            case [word]:
                return Subject(word)
    except ValueError as error:
        message, hint = values.explain(error)
        raise UsageError(message, hint) from None
    raise UsageError(
        f"{' '.join(words) or 'an empty word'} names neither a scenario nor a link",
        "name a scenario, a link as SOURCE DESTINATION, or '*' (quoted, for the shell)",
    )


def only() -> Path:
    """Return the ledger of the only campaign that has an injector, or else of the only one there is.

    Raises LedgerError where there is none, and UsageError where there are several.
    """
    places = [ledger.default_path(name, os.environ) for name in ledger_files.campaigns()]
    if not places:
        folder = ledger.default_folder(os.environ)
        raise LedgerError(f"no campaign has a ledger in {folder}", "`dc-inject run MENUS` makes one")
    running = [file for file in places if _runs(file)]
    candidates = running or places
    if len(candidates) != 1:
        names = ", ".join(file.stem for file in candidates)
        which = "with an injector" if running else "with a ledger"
        raise UsageError("the campaign is not clear", f"name it first; {which}: {names}")
    return candidates[0]


def _is_campaign(word: str) -> bool:
    return ledger_files.named(word) is not None or word in ledger_files.campaigns()


def _is_of(file: Path, word: str, *, alone: bool) -> bool:
    """Return whether a word names the campaign of this ledger. Raises LedgerError for that of another ledger."""
    with LedgerView.open(file) as own:
        if word == own.campaign:
            return True
        if not alone and _is_campaign(word):
            ledger_files.campaign_in(own, word, file)
            return True
    return False


def _runs(file: Path) -> bool:
    with contextlib.suppress(LedgerError), LedgerView.open(file) as view:
        return view.holder() is not None
    return False
