"""The ledger: one SQLite file per campaign, and the only memory that the injector trusts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dc_inject.ledger.ledger import Ledger
from dc_inject.ledger.reading import Change, Known, Pause, Quarantined, Row, Signal, Totals
from dc_inject.ledger.view import LedgerView, Line

__all__ = [
    "Change",
    "Known",
    "Ledger",
    "LedgerView",
    "Line",
    "Pause",
    "Quarantined",
    "Row",
    "Signal",
    "Totals",
    "default_folder",
    "default_path",
]


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return where ledgers are kept unless told otherwise: $XDG_STATE_HOME/dc_inject."""
    state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".local" / "state")
    return Path(state) / "dc_inject"


def default_path(campaign: str, environ: Mapping[str, str]) -> Path:
    """Return a campaign's ledger unless told otherwise."""
    return default_folder(environ) / f"{campaign}.sqlite"
