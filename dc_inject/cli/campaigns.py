"""What `end` needs of a whole campaign: its ledger, its shards, and its services."""

from __future__ import annotations

from pathlib import Path

from dc_inject.cli.shared import subjects
from dc_inject.cli.shared.subjects import Subject
from dc_inject.ledger import LedgerView, ledger_files, paths
from dc_inject.model.errors import LedgerError


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
