"""What is shown to whoever is on call: about each hold (`holds.py`), and about what is no hold (`summary`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHANGE_THE_MENU = "no one, change the menu"  # where the menu is at fault


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCall:
    """The texts of one entry, each of one line or a few sentences; places to look at are optional."""

    see: str  # what you see
    means: str
    do: str
    call: str  # may name `{operators}`, `{source}` and `{destination}`
    needs_action: bool = True  # by a person
    rucio: str = ""  # what to look at in Rucio, and so on
    fts: str = ""
    network: str = ""
    deletions: str = ""
    here: str = ""
    alerts: Sequence[str] = ()  # these and the `signals` point to the entry
    signals: Sequence[str] = ()
