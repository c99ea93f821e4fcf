"""`dc-inject serve`: the page of a report, live, on this machine only; `run --serve` has it, too.

Each page is made by a process of its own, `dc-inject report`, with a time in which it has to end. So a large
campaign takes neither time nor memory from whoever serves it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import click

from dc_inject.apps.report import pictures
from dc_inject.apps.report.serving import Pages
from dc_inject.cli.shared import hangup, log_output, params
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.metrics import page as server
from dc_inject.model.errors import ServiceError, UsageError
from dc_inject.system import disk

LONGEST = 300.0  # seconds that a page may take to be made
EVERY = timedelta(seconds=10)


@click.command()
@click.argument("campaigns", metavar="CAMPAIGN|LEDGER...", nargs=-1)
@click.option(
    "--port", type=params.PORT, default=params.PAGE_PORT, show_default=True, help="The port; 0 takes a free one."
)
@click.option(
    "--every",
    type=params.DURATION,
    default=EVERY,
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
    ledgers = _ledgers(campaigns)
    log_output.talk()
    stop = threading.Event()
    for number in hangup.signals():
        signal.signal(number, lambda *_: stop.set())
    with serving(ledgers, port, every=every):
        stop.wait()


def _ledgers(campaigns: Iterable[str]) -> dict[str, Path]:
    """Return the ledgers by their campaigns; raises UsageError for two of one campaign, which has one page."""
    ledgers: dict[str, Path] = {}
    for campaign in campaigns:
        path = ledger_files.existing(campaign)
        with LedgerView.open(path) as view:
            name = ledger_files.campaign_in(view, campaign, path)
        other = ledgers.setdefault(name, path)
        if disk.real(path) != disk.real(other):
            raise UsageError(f"{other} and {path} are both of campaign {name}", "serve one of them, or each alone")
    return ledgers


@contextlib.contextmanager
def serving(
    ledgers: Mapping[str, Path],
    port: int,
    *,
    every: timedelta = EVERY,
    metrics: Callable[..., Iterable[bytes]] | None = None,
) -> Iterator[str]:
    """Serve pages of campaigns as long as the context lasts; gives their address, `127.0.0.1:PORT`."""
    pictures.library()  # whether it is there, before anybody asks
    seconds = every.total_seconds()
    with _Maker(seconds) as maker:
        app = Pages(ledgers, maker.make, seconds, metrics)
        with server.serve(app, f"127.0.0.1:{port}", "the report, live, at http://{}/") as place:
            yield place


class _Maker:
    """Makes pages by processes of their own, which end with it."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def __enter__(self) -> _Maker:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.kill()

    def make(self, path: Path) -> bytes:
        """Return the page of a ledger, which renews itself; raises ServiceError where there is none."""
        command = [sys.executable, "-m", "dc_inject", "report", "--format", "html", "-o", "-"]
        with self._lock:
            if self._is_over:
                raise ServiceError("the page is no longer served")
            process = subprocess.Popen(
                [*command, "--renewed-every", f"{self._every:g}", str(disk.real(path))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is for whoever serves
            )
            self._processes.add(process)
        try:
            content, errors = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"the page was not made in {LONGEST:.0f} s") from None
        finally:
            process.kill()
            process.communicate()
            with self._lock:
                self._processes.discard(process)
        if not content:  # a threshold that was missed is another exit code, with its page
            raise ServiceError(errors.decode(errors="replace").partition("\n")[0] or "the page could not be made")
        return content
