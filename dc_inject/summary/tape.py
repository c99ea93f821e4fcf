"""Links from and to tape: how many files are staged, how long that takes, and what is archived."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from statistics import median
from typing import Any

from dc_inject.ledger import Reader
from dc_inject.model import units


def rows(view: Reader) -> list[dict[str, Any]]:
    """Return a row for each link from or to tape: files, bytes moved, and how long files waited, in seconds."""
    accounts = view.accounts()
    return [
        {
            **key.names(),
            "staging": files.staging,
            "staged": len(files.waits),
            "wait_median": round(median(files.waits)) if files.waits else None,
            "wait_longest": max(files.waits, default=None),
            "moved": accounts[key].moved,
            "archiving": files.archiving,
            "archived": files.archived,
        }
        for key, files in view.tape_files().items()
    ]


def line(row: Mapping[str, Any]) -> str:
    """Return a row in words."""
    parts = [f"{units.counted(row['staging'], 'files')} staging"] if row["staging"] or row["staged"] else []
    if row["staged"]:
        times = [units.format_duration(timedelta(seconds=row[name])) for name in ("wait_median", "wait_longest")]
        parts.append(
            f"{units.counted(row['staged'], 'files')} staged in {times[0]} (median) to {times[1]} (longest)"
        )
    if row["archiving"] or row["archived"]:
        parts.append(f"{units.counted(row['archived'], 'files')} archived, {row['archiving']:,} not yet")
    moved = f"{units.format_size(row['moved'])} moved"
    return f"tape: {row['source']} -> {row['destination']}: {', '.join([*parts, moved])}"
