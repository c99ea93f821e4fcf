"""`dc-inject health`: whether an injector does its work, for health checks of containers and service managers.

An injector is healthy if it holds its ledger, has turned to a new cycle in the last two cycle lengths, the clock
of its machine did not leap, and its ledger can be written. It turns at the beginning of each cycle, also between
windows, when nothing is due, and when its menus are refused; the ledger keeps when it last did.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from dc_inject import ledger
from dc_inject.cli.shared import common, completion, subjects
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model import units
from dc_inject.model.errors import LedgerError
from dc_inject.model.shards import Shard
from dc_inject.planning import clocks
from dc_inject.system.clock import SystemClock

CYCLES = 2  # cycle lengths within which a cycle must have begun
LEAST_FREE = 100_000_000  # bytes on the ledger's disk


@click.command()
@click.argument("campaign", required=False, default="", shell_complete=completion.campaigns)
@common.SHARD
@common.LEDGER
def health(campaign: str, shard: Shard | None, ledger_path: Path | None) -> None:
    r"""Check that an injector does its work: exit code 0 if it does, 3 if not, with the reason.

    It must hold its ledger and have begun a cycle in the last two cycle lengths; the clock of its machine must not
    have leapt away from the services' clocks; its ledger must be writable, with 100 MB free on its disk. You may
    leave out CAMPAIGN if only one campaign has a running injector, or a ledger.

    \b
    Example, in a container: HEALTHCHECK CMD ["dc-inject", "health"]
    Example: dc-inject health dc27-rehearsal
    """
    path = ledger_files.existing(campaign, ledger_path) if campaign or ledger_path else subjects.only()
    files = ledger.files(path) if shard is None else [ledger.place(path, str(shard))]
    for file in files:
        with LedgerView.open(file) as view:
            ledger_files.require_real(view)
            name = ledger_files.campaign_in(view, campaign, path) if campaign else view.campaign or path.stem
        answer = _healthy(file, name)
        _require_writable(file)
        click.echo(answer)


def _healthy(path: Path, name: str) -> str:
    """Say since when the injector of a ledger is at work on its cycle; raises LedgerError if it is not."""
    now = SystemClock().now()
    with LedgerView.open(path) as view, view.snapshot():
        holder, began, length = view.holder(), view.last_turn(), view.cycle_length
        leapt = next((signal.why for signal in view.signals("clock") if signal.value is None), "")
    if holder is None:
        raise LedgerError(f"{name}: no injector is running", f"start it: `dc-inject run MENUS` writes {path}")
    if leapt:
        raise LedgerError(f"{name}: {leapt}", clocks.HINT)
    if began is None or length is None:
        words = "no cycle has begun yet"
    elif now - began <= CYCLES * length:
        words = f"a cycle began at {began:%Y-%m-%d %H:%M:%SZ}"
    else:
        age = units.format_duration(now - began)
        message = f"{name}: no cycle has begun for {age}, although {holder} holds the ledger"
        raise LedgerError(
            message, f"a cycle lasts {units.format_duration(length)}; look at its log, or restart it"
        )
    return f"{name}: {words}; {holder}"


def _require_writable(path: Path) -> None:
    """Raise LedgerError if the ledger cannot be written."""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise LedgerError(f"{path} cannot be written", "check its owner and rights, and those of its folder")
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_FREE:
        raise LedgerError(f"only {units.format_size(free)} are free for {path}", "make room on that disk")
