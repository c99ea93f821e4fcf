"""`dc-inject run`: the main job."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from dc_inject import registry
from dc_inject.assembly import running
from dc_inject.assembly.starting import AppParts, RunOptions, ServiceAccess, Start
from dc_inject.cli.shared import common, hangup, log_output, params, summary_output, trusting
from dc_inject.ledger import Ledger, ledger_files
from dc_inject.model.errors import LedgerBroken, MenuError
from dc_inject.model.ports import Clock
from dc_inject.summary import aborting
from dc_inject.system.clock import SystemClock

OPTIONS = common.options(
    click.option("--once", is_flag=True, help="Inject only the current cycle, and exit at its end; for cron."),
    click.option("--until", type=params.TIME, help="Stop injecting at this time, such as 2027-02-08T10:00Z."),
    click.option("--dry-run", is_flag=True, help="Run in real time without changing anything; `plan` is quicker."),
    common.LEDGER,
    common.LINKS,
    common.SHARD,
    common.SCALE,
    click.option(
        "--no-drain", is_flag=True, help="Exit when the menus end, without waiting for rules and jobs to end."
    ),
    click.option(
        "--end-on-stop",
        is_flag=True,
        help="When stopped, end complete rules and jobs at once, and delete their files for up to half a minute.",
    ),
    click.option(
        "--metrics-address",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics at this address [host: 127.0.0.1].",
    ),
    click.option(
        "--serve",
        "serve_port",
        type=params.PORT,
        is_flag=False,
        flag_value=params.PAGE_PORT,
        metavar="[PORT]",
        help=f"Serve the report, live, at 127.0.0.1 [port: {params.PAGE_PORT}], with metrics at its /metrics.",
    ),
    click.option(
        "--abort-on",
        type=params.Parsed("threshold", aborting.parse_condition),
        multiple=True,
        metavar="CONDITION",
        help="Stop, and exit with 5, once this holds, such as 'ratio < 0.5 over 1h' (may be repeated).",
    ),
    click.option(
        "--textfile",
        type=click.Path(path_type=Path, dir_okay=False),
        help="With --once: write the metrics to this file at the end, for node_exporter (*.prom, mode 0644).",
    ),
    click.option(
        "--pushgateway", metavar="URL", help="With --once: send the metrics to a Pushgateway at the end."
    ),
    common.ALLOW_ADMIN,
    click.option(
        "--accept-clock",
        is_flag=True,
        help="Inject even if this machine's clock is more than a cycle away from the services' clocks.",
    ),
    click.option(
        "--threads",
        default=8,
        show_default=True,
        type=click.IntRange(1, 64),
        help="The number of simultaneous calls to a service.",
    ),
    common.TIMEOUT,
)


@click.command(cls=common.GroupedHelp)
@common.MENUS
@OPTIONS
@common.WORKERS
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors, and print no table; for cron.")
@log_output.OPTIONS
def run(
    menus: tuple[Path, ...],
    *,
    verbose: bool,
    quiet: bool,
    plain: bool,
    log_format: str,
    log_file: Path | None,
    **options: Any,
) -> None:
    r"""Inject MENUS cycle after cycle until they end, then wait until none of their rules and jobs is live.

    SIGTERM, Ctrl-C or a closed terminal stops the injection; rules and jobs stay live, and the next `run`
    continues. Press Ctrl-C twice to exit at once.

    On a terminal it shows below its log how the campaign stands; --plain leaves that out. The command
    `dc-inject watch CAMPAIGN` shows more, from any other terminal.

    At its end `run` prints the same table as `dc-inject status CAMPAIGN --summary`, except with --once, and exits
    with 5 if a threshold of its menus was missed.

    \b
    Example: dc-inject run menus/cms-t0-export.yaml
    Example, for cron: dc-inject run --once --quiet /etc/dc_inject/menus
    """
    live = log_output.talk(verbose=verbose, quiet=quiet, plain=plain, fmt=log_format, file=log_file)
    closing = None if quiet or options["once"] else summary_output.show_totals
    inject(menus, RunOptions(**options), closing=closing, live=live)


def inject(
    menus: Sequence[Path],
    options: RunOptions,
    parts: AppParts = AppParts(),
    *,
    closing: Callable[[str, Ledger], None] | None = None,
    live: bool = False,
) -> bool:
    """Do what `run` does. Return False if it was stopped, else True.

    `closing` shows the totals at the end, and `live` shows the state of the campaign on the terminal all the time.
    """
    hangup.interrupt()  # before there is anything to stop
    clock = SystemClock()
    with contextlib.ExitStack() as after, contextlib.ExitStack() as stack:
        access = ServiceAccess(clock, common.backends, trusting.trust(), options.timeout)
        ready = running.assemble(stack, menus, options, parts, access)
        start, engine = ready.start, ready.engine
        is_last = not (parts.ends_afterwards or options.dry_run)
        with (
            hangup.stopping(engine.stop, ready.fate),
            _shown(start.path, start.campaign, clock, live=live),
            _showing_what_is_left(start) if is_last else contextlib.nullcontext(),
        ):
            ready.carry_out()
        after.callback(ready.publish)
        if closing is not None:
            closing(start.campaign, start.ledger)
        ready.judge()
        if options.once and engine.menus_refused:
            raise click.exceptions.Exit(MenuError.exit_code)
    return not engine.stopping


@contextlib.contextmanager
def _showing_what_is_left(start: Start) -> Iterator[None]:
    """Where the ledger fails, as on a full disk: show what is live, and let the hint name the ways to go on."""
    try:
        yield
    except LedgerBroken as error:
        in_place = start.path == ledger_files.file_of(None, start.campaign)
        name = start.campaign if in_place else shlex.quote(str(start.path.absolute()))
        summary_output.explain_stop(name, start.path, error)
        raise


def _shown(path: Path, campaign: str, clock: Clock, *, live: bool) -> contextlib.AbstractContextManager[None]:
    """Show the state of the campaign on the terminal if `live`."""
    if not live:
        return contextlib.nullcontext()
    shown: contextlib.AbstractContextManager[None] = registry.load(registry.LIVE_VIEW)(path, campaign, clock)
    return shown
