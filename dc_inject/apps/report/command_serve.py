"""`dc-inject serve`: the page of a report, live, on this machine only; `run --serve` has it, too."""

from __future__ import annotations

import signal
import threading
from datetime import timedelta

import click

from dc_inject.apps.report import serving
from dc_inject.cli.shared import hangup, log_output, params
from dc_inject.ledger import ledger_files
from dc_inject.model.errors import UsageError


@click.command()
@click.argument("campaigns", metavar="CAMPAIGN|LEDGER...", nargs=-1)
@click.option(
    "--port", type=params.PORT, default=params.PAGE_PORT, show_default=True, help="The port; 0 takes a free one."
)
@click.option(
    "--every",
    type=params.DURATION,
    default=serving.EVERY,
    show_default="10 s",
    help="How often a page in a browser is renewed.",
)
def serve(campaigns: tuple[str, ...], port: int, every: timedelta) -> None:
    r"""Serve the reports of campaigns as live pages, to browsers on this machine only, until Ctrl-C.

    A page is renewed without reload, also while the campaign runs. It can only be read. From another machine, use
    an SSH tunnel: `ssh -L 9466:localhost:9466 HOST`.

    \b
    Example: dc-inject serve dc27-rehearsal
    """
    if not campaigns:
        raise UsageError("the campaign is missing: `dc-inject serve CAMPAIGN`", ledger_files.known())
    ledgers = serving.find_ledgers(campaigns)
    log_output.talk()
    stop = threading.Event()
    for number in hangup.signals():
        signal.signal(number, lambda *_: stop.set())
    with serving.serve_pages(ledgers, port, every=every):
        stop.wait()
