"""Other campaigns on the link of a mini-challenge, as far as their ledgers on this machine tell.

Those of another machine or account are not found: Rucio can look for rules by their comments only by reading all
rules of an account, which takes it long, and FTS shows jobs only to those who submitted them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.model import Entry, Link, State, units
from dc_inject.model.errors import LedgerError

SHARED = "it takes part of what this link carries"


def warnings(campaign: str, link: Link, now: datetime) -> Iterator[str]:
    """Give a sentence for each other campaign that injects on a link now, or has rules or jobs there."""
    for name in ledger_files.campaigns():
        if name == campaign:
            continue
        try:
            with LedgerView.open(ledger_files.file_of(None, name)) as view, view.snapshot():
                said = _of(view, name, link, now)
        except LedgerError as error:
            said = f"whether campaign {name} uses this link is not known: {error.message}"
        if said:
            yield said


def _of(view: Reader, name: str, link: Link, now: datetime) -> str:
    """Say what a campaign does on a link; empty if that is nothing, or nothing real."""
    if view.simulated_in is not None or not any(flow.link == link for flow in view.accounts()):
        return ""
    there = sum(e.injection.link == link and _lives(e, now) for e in view.entries(State.CALLED, State.LIVE))
    unfinished = f"{units.counted(there, f'unfinished {link.service.injections}')} on this link, as last seen"
    cycle, holder = view.last_cycle(), view.holder()
    if holder is not None and cycle is not None and any(row.key.link == link for row in view.rows(cycle=cycle)):
        rules = f", and has {unfinished}" if there else ""
        return f"campaign {name} runs now with this link, too ({holder}){rules}: {SHARED}"
    return f"campaign {name} has {unfinished}: {SHARED}, until `dc-inject end {name} --cancel`" if there else ""


def _lives(entry: Entry, now: datetime) -> bool:
    """Whether a rule or job may still be there; one whose answer was lost has no end of its own."""
    begun = entry.called_at or entry.injection.release
    return (entry.expires_at or begun + entry.injection.lifetime) > now
