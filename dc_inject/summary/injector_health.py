"""Whether an injector does its work.

An injector is healthy if it holds its ledger, has turned to a new cycle in the last two cycle lengths, the clock
of its machine did not leap, its ledger can be written, and something has arrived somewhere in the last hour, if
anything was due. It turns at the beginning of each cycle, also between
windows, when nothing is due, and when its menus are refused; the ledger keeps when it last did.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from dc_inject.ledger import LedgerView
from dc_inject.model import units
from dc_inject.model.errors import LedgerError, ServiceError
from dc_inject.planning import clocks
from dc_inject.summary import short_links
from dc_inject.summary.criteria import CURRENT, LEAST_FREE, SILENT


def check_all(paths: Sequence[Path], name: str, now: datetime) -> list[str]:
    """Check a campaign's ledger, or those of its shards; raises LedgerError if one injector does not do its work.

    Raises ServiceError if nothing arrives through any of them.
    """
    answers, silent = [], []
    for path in paths:
        try:
            answers.append(check(path, name, now))
        except ServiceError as error:
            answers.append(error.message)
            silent.append(error)
    if silent and len(silent) == len(paths):
        raise silent[0]
    return answers


def check(path: Path, name: str, now: datetime) -> str:
    """Return since when the injector of a campaign is at work on its cycle; raises LedgerError if it is not.

    Raises ServiceError if it is, and nothing arrives: to start it again changes nothing.
    `path` is its ledger, or that of one of its shards; it must be writable.
    """
    with LedgerView.open(path) as view, view.snapshot():
        holder, began, length = view.holder(), view.last_turn(), view.cycle_length
        silent = view.silent_since()
        groups = short_links.grouped(short_links.judge_links(view, now)) if silent else []
        leapt = next((signal.why for signal in view.signals("clock") if signal.value is None), "")
    _require_writable(path)  # first: a full disk ends the injector, and no other can begin
    if holder is None:
        raise LedgerError(f"{name}: no injector is running", f"start it: `dc-inject run MENUS` writes {path}")
    if leapt:
        raise LedgerError(f"{name}: {leapt}", clocks.HINT)
    words = f"a cycle began at {began:%Y-%m-%d %H:%M:%SZ}" if began else "no cycle has begun yet"
    if began is not None and length is not None and now - began > CURRENT * length:
        age, lasts = units.format_duration(now - began), units.format_duration(length)
        message = f"{name}: no cycle has begun for {age}, although {holder} holds the ledger"
        raise LedgerError(message, f"a cycle lasts {lasts}; look at its log, or restart it")
    if silent is not None and now - silent >= SILENT:
        worst = "".join(f"; {group.line}" for group in groups[:1])
        words = f"nothing has arrived anywhere since {silent:%m-%d %H:%MZ}{worst}"
        raise ServiceError(f"{name}: {words}", f"`dc-inject explain {name}` shows what to do")
    return f"{name}: {words}; {holder}"


def _require_writable(path: Path) -> None:
    """Raise LedgerError if the ledger cannot be written."""
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)):
        raise LedgerError(f"{path} cannot be written", "check its owner and rights, and those of its folder")
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_FREE:
        raise LedgerError(f"only {units.format_size(free)} are free for {path}", "make room on that disk")
