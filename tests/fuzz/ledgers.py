"""One ledger to try on: what a service answers has to be fit to be written down, whatever it is."""

from __future__ import annotations

import atexit
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from dc_inject.ledger import Ledger
from dc_inject.model import Entry, Injection
from dc_inject.model.ports import Outcome
from tests.backends.support import CYCLE


class _Undo(Exception):
    """Takes a transaction back."""


@contextlib.contextmanager
def tried(ledger: Ledger) -> Iterator[Ledger]:
    """Write to a ledger for the time of a block only."""
    with contextlib.suppress(_Undo), ledger._db.write():
        yield ledger
        raise _Undo


@contextlib.contextmanager
def ledger_of(injections: Sequence[Injection]) -> Iterator[Ledger]:
    """Give a ledger in which these were asked for, and nothing answered yet."""
    with (
        tempfile.TemporaryDirectory(prefix="dc_inject-fuzz-") as folder,
        Ledger.open(Path(folder) / "fuzz.sqlite", synchronous="OFF") as ledger,
    ):
        ledger.open_cycle(CYCLE, {injection.flow: (10**12, None) for injection in injections}, CYCLE.start)
        ledger.add_injections(injections, CYCLE.start)
        ledger.call([injection.key for injection in injections], CYCLE.start)
        yield ledger


def kept_open(injections: Sequence[Injection]) -> Ledger:
    """Return such a ledger, which is there until this process ends."""
    until_the_end = contextlib.ExitStack()
    ledger = until_the_end.enter_context(ledger_of(injections))
    atexit.register(until_the_end.close)  # after its folder has registered itself, so that it goes first
    return ledger


def accepted(ledger: Ledger, entries: Sequence[Entry]) -> None:
    """Write that these were accepted."""
    outcomes = [Outcome(entry.injection.key, entry.external_id) for entry in entries]
    ledger.answer(outcomes, CYCLE.start, {})
