"""What `end` needs of a whole campaign: its ledger, its shards, and its services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from dc_inject.cli.shared import common, subjects
from dc_inject.cli.shared.subjects import Subject
from dc_inject.ledger import Ledger, LedgerView, ledger_files, paths
from dc_inject.ledger.lock import ENDS, InUse
from dc_inject.model.errors import LedgerError, Permanent
from dc_inject.model.ports import Backend, Clock
from dc_inject.model.services import DEFAULT, FTS


def of_shards(campaign: str, path: Path | None, subject: Subject) -> list[Path]:
    """Return the ledgers of those shards of a campaign that have a subject; none where it is not in shards.

    Raises LedgerError while any shard has an injector, and UsageError for a subject that none of them ever had.
    """
    place = ledger_files.file_of(path or ledger_files.named(campaign), campaign)
    files = paths.files(place)
    if files in ([], [place]):
        return []
    with LedgerView.open(place) as view:
        subjects.require_known(view, subject)
        if holder := view.holder():
            raise LedgerError(f"{place.stem} has an injector: {holder}", "end all of them first (Ctrl-C, SIGTERM)")
    return [file for file in files if _has(file, subject)] or files


def _has(file: Path, subject: Subject) -> bool:
    with LedgerView.open(file) as view:
        return any(subject.covers(flow) for flow in view.accounts())


def lacks_ledger(campaign: str, path: Path | None) -> bool:
    """Return whether a campaign has no ledger in its default place, and none was named instead."""
    return not (path or ledger_files.named(campaign) or paths.files(ledger_files.file_of(None, campaign)))


def opened(stack: contextlib.ExitStack, campaign: str, path: Path | None) -> tuple[Ledger, str]:
    """Return the ledger, held, with the campaign's name; raises LedgerError with a way out if there is none."""
    try:
        file = ledger_files.existing(campaign, path)
    except LedgerError as error:
        name = "CAMPAIGN" if ledger_files.named(campaign) else campaign
        error.hint = f"if it is lost, `dc-inject ledger rebuild {name} MENUS` makes a new one; {error.hint}"
        raise
    ledger = stack.enter_context(Ledger.open(file))
    ledger_files.require_real(ledger)
    name = ledger_files.campaign_in(ledger, campaign, file)
    try:
        stack.enter_context(ledger.hold(common.who(), does=ENDS))
    except InUse as error:
        if error.injects:
            error.hint = (
                "an injector ends complete rules itself; to use `end`, end the injector first (Ctrl-C, SIGTERM)"
            )
        raise
    return ledger, name


def services(ledger: Ledger, *, sweeping: bool) -> set[str]:
    """Return the services to speak to."""
    names = {flow.link.through for flow in ledger.accounts()}
    if sweeping:
        names.add(FTS.name)
    return names or {DEFAULT.name}


def admit(backends: Iterable[Backend], ledger: Ledger | None, clock: Clock) -> None:
    """Refuse another account than the ledger's, and one that may not end rules."""
    for backend in backends:
        identity = backend.check()
        if ledger is not None:
            ledger.identify(identity, clock.now())
        if identity.may_end is False:
            raise Permanent(
                f"{identity.account} may not end rules at {identity.service} ({identity.address})",
                "its rules end with their lifetime; an administrator of the service can end them earlier",
            )
