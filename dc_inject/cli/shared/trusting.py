"""What the person at this terminal agrees to, and whom they trust: one `Trust` for each command that is called."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from dc_inject.credentials.trust import ANSWERED, Trust
from dc_inject.ledger import LedgerView, files, ledger_files
from dc_inject.model.errors import LedgerError

TRUST = "dc_inject.trust"  # in the meta of click's context
OPTION = "--trust-host"
CONFIG = "configuration file"

log = logging.getLogger(__name__)


def trust() -> Trust:
    """Return the hosts that were named for this command; one that has just begun without a context of click."""
    begun, context = Trust(os.environ, _own_sandbox, _agreed), click.get_current_context(silent=True)
    if context is None:
        return begun
    of_command: Trust = context.meta.setdefault(TRUST, begun)
    return of_command


def _own_sandbox() -> frozenset[str]:
    """Return the addresses that this user's sandboxes serve: the usual one, and those whose files are in use."""
    from dc_inject.sandbox import default_folder, own_addresses  # noqa: PLC0415  few menus name this machine

    used = [Path(os.environ.get(name, "")).absolute() for name in ("RUCIO_CONFIG", "BEARER_TOKEN_FILE")]
    folders = {default_folder(), *(parent for path in used for parent in path.parents[:2])}
    return frozenset().union(*map(own_addresses, folders))


def recall_from(path: Path, campaign: str) -> None:
    """Trust hosts that were answered for a campaign, where it has a ledger; one of another campaign has none."""
    if not files(path):
        return
    try:
        with LedgerView.open(path) as view:
            if view.campaign == campaign:
                trust().name(*view.trusted(), by=ANSWERED)
    except LedgerError as error:
        log.warning("cannot read where credentials may go: %s", error.message)


def recall(*campaigns: str) -> Trust:
    """Return the hosts that are trusted, with those that campaigns' ledgers in their default places have."""
    for campaign in campaigns:
        recall_from(ledger_files.file_of(None, campaign), campaign)
    return trust()


def _agreed(question: str) -> bool:
    return _terminal() and agreed(question)


def agreed(question: str) -> bool:
    """Ask, and take silence, as without a user to ask, for a no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False


def _terminal() -> bool:
    """Whether a user can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()
