"""`dc-inject demo`: the main job on a grid on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.apps.sandbox import demo as demonstration
from dc_inject.cli.shared import hangup
from dc_inject.sandbox import default_folder


@click.command()
@click.option("--cycles", default=7, show_default=True, type=click.IntRange(1, 1000), help="The number of cycles.")
@click.option(
    "--cycle", "seconds", default=12, show_default=True, type=click.IntRange(5, 3600), help="Seconds in a cycle."
)
@click.option("--folder", type=click.Path(path_type=Path), help="A folder for the grid and the ledger.")
@click.option(
    "--env",
    envvar="DC_INJECT_SANDBOX_ENV",
    type=click.Path(path_type=Path),
    help="Where to install the Rucio server, the first time.",
)
@click.option(
    "--xrootd",
    envvar="DC_INJECT_SANDBOX_XROOTD",
    type=click.Path(path_type=Path),
    help="Where to unpack XRootD the first time, if the system has none.",
)
@click.option("--keep", is_flag=True, help="Keep the grid and the ledger, so that you can look at them.")
def demo(
    cycles: int, seconds: int, folder: Path | None, env: Path | None, xrootd: Path | None, keep: bool
) -> None:
    r"""Start a test grid, inject menus of 17 links, wait until all is moved and deleted, check it, and report.

    12 links exist in Rucio's catalogue only. Over 5 links real files move between storages: through rules that
    Rucio passes to FTS, and through FTS jobs. Without XRootD or FTS's client these 5 are left out.

    Exit code 0 if each link's injected bytes are within one dataset (or job) of what it was due, at least 95 % of
    them moved, and no rule, replica, file or process is left; 5 if not. The report stays by the grid's folder.

    \b
    Example: dc-inject demo
    """
    hangup.interrupt()
    demonstration.run(
        folder or default_folder().parent / "demo",
        env,
        xrootd,
        cycles=cycles,
        seconds=seconds,
        keep=keep,
        step=lambda line: click.echo(f"==> {line}", err=True),
    )
