"""A ledger that nobody writes any more: it needs no write-ahead log, which SQLite makes for readers, too."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from dc_inject.ledger.errors import translated


def without_log(path: Path) -> None:
    """Let a closed ledger do without its log, so that readers leave no files beside it; a writer makes it anew."""
    with translated(path), contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
