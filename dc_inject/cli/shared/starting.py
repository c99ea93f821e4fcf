"""What a start of `run` has: its random id, the command that adopts what others made, and patience."""

from __future__ import annotations

import logging
import os
import shlex
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from dc_inject.cli.shared import common
from dc_inject.model import Hold
from dc_inject.model.errors import NeedsOperator, Temporary
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Clock
from dc_inject.planning.reconcile import backoff

log = logging.getLogger(__name__)
T = TypeVar("T")

ONCE_MORE = timedelta(seconds=5)  # how long at least credentials are tried again that were refused once


def origin(shard: str) -> Origin:
    """Draw the id of this start, and name who starts it."""
    return Origin(uuid.uuid4().hex, f"{common.who()}, process {os.getpid()}", shard)


def how_to_adopt(campaign: str, menus: Sequence[Path], ledger: Path | None, shard: str) -> str:
    """Return as a hint what a person can do about rules or jobs that another ledger has made."""
    words = ["dc-inject", "ledger", "rebuild", campaign, *map(str, menus), "--adopt"]
    words += ["--ledger", str(ledger)] if ledger else []
    words += ["--shard", shard] if shard else []
    return f"end that injector where it runs; once none runs, adopt them: `{shlex.join(words)}`"


def patiently(ask: Callable[[], T], clock: Clock, patience: timedelta) -> T:
    """Ask until there is an answer, or until `patience` is over: one 504 must not cost cron a whole cycle.

    Errors that a person has to repair are raised at once; credentials count as refused when they are refused
    twice.
    """
    deadline, tries, refused = clock.now() + patience, 0, 0
    while True:
        try:
            return ask()
        except (Temporary, NeedsOperator) as error:
            if error.hold == Hold.CREDENTIALS:
                refused += 1
                deadline = max(deadline, clock.now() + ONCE_MORE)
            elif isinstance(error, NeedsOperator) and not error.passing:
                raise
            if refused > 1 or clock.now() >= deadline:
                raise
            tries += 1
            log.warning("%s; trying again until %s", error.message, f"{deadline:%H:%M:%SZ}")
            time.sleep(backoff(tries, error.message, longest=timedelta(seconds=10)).total_seconds())
