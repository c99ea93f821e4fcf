"""The end of a mini-challenge: end what it leaves; after an interruption show what is left, and how to end it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import click

from dc_inject.cli.end import EndOptions, end_campaign
from dc_inject.cli.shared import exits, hangup, summary_output
from dc_inject.ledger import ledger_files
from dc_inject.model.errors import ServiceError
from dc_inject.summary.left import EndState


def end_rules(
    campaign: str, ledger_path: Path, cancel_rate: float, timeout: float, patience: timedelta
) -> EndState:
    """End the rules or jobs that are left, and return how far that got.

    Print an error where something cannot be ended: everything ends with its lifetime.
    """
    try:
        options = EndOptions(
            cancel=True, cancel_rate=cancel_rate, yes=True, ledger_path=ledger_path, timeout=timeout
        )
        complete = end_campaign(campaign, options, patience=patience)
    except ServiceError as error:
        click.echo(f"not everything has ended: {error.message}", err=True)
        return EndState.FAILED
    except KeyboardInterrupt:
        return EndState.INTERRUPTED
    return EndState.COMPLETE if complete else EndState.INTERRUPTED


@contextlib.contextmanager
def interruptible(campaign: str, so_far: str) -> Iterator[None]:
    """If a signal interrupts the block, print `so_far`, what is left and how to end it."""
    try:
        yield
    except KeyboardInterrupt:
        for number in hangup.signals():  # pressing Ctrl-C again must not cut these messages short
            signal.signal(number, signal.SIG_IGN)
        path = ledger_files.file_of(None, campaign)
        if path.exists():
            exits.report_interruption(so_far)
            summary_output.show_left(campaign, path, EndState.INTERRUPTED)
        else:
            exits.report_interruption("nothing was injected")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None
