"""What is shown to whoever is on call: about each hold (`holds.py`), and about what is no hold (`summary`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Whom to call, and whether a person has to act.

    `call` may name `{operators}`, `{source}` and `{destination}`.
    """

    call: str
    needs_action: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCall:
    """The texts of one entry, each of one line or a few sentences; places to look at are optional."""

    see: str  # what you see
    means: str
    do: str
    call: str  # as in `Call`, and the next one
    needs_action: bool = True
    with_message: Call | None = None  # replaces these two where the hold has a message
    rucio: str = ""  # what to look at in Rucio, and so on
    fts: str = ""
    network: str = ""
    deletions: str = ""
    here: str = ""
    alerts: Sequence[str] = ()  # these and the `signals` point to the entry
    signals: Sequence[str] = ()
