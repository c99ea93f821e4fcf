"""`dc-inject sandbox`: a grid on this machine, to try things and to test."""

from __future__ import annotations

import dataclasses
import json
import shlex
import signal
from pathlib import Path

import click

from dc_inject.sandbox import Sandbox

_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Its folder  [default: $XDG_STATE_HOME/dc_inject/sandbox]",
)


@click.group()
def sandbox() -> None:
    r"""Bring up a grid on this machine: a real Rucio with daemons, RSEs, links and datasets.

    \b
    Example:
      dc-inject sandbox up
      dc-inject sandbox down
    """


@sandbox.command()
@_folder
@click.option(
    "--env",
    envvar="DC_INJECT_SANDBOX_ENV",
    type=click.Path(path_type=Path),
    help="Where the Rucio server is installed, at the first time  [default: below $XDG_CACHE_HOME/dc_inject]",
)
@click.option(
    "--grid",
    type=click.Path(path_type=Path),
    help="A file that describes RSEs, links and datasets  [default: the built-in one, after DC24]",
)
@click.option(
    "--policy",
    type=click.Choice(["owners", "generic"]),
    default="owners",
    show_default=True,
    help="Who may end a rule: its owner, as in experiments, or only administrators (Rucio's generic policy)",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.01, 60),
    default=0.2,
    show_default=True,
    help="Seconds between two passes of Rucio's daemons",
)
@click.option(
    "--db",
    type=click.Choice(["sqlite", "postgres"]),
    default="sqlite",
    show_default=True,
    help="Where Rucio keeps its catalogue; with PostgreSQL it is slower, and has the lock errors of experiments",
)
@click.option(
    "--storage",
    type=click.Choice(["xrootd"]),
    help="Real storages too, each also an RSE, and an FTS service that copies between them  [default: none]",
)
@click.option(
    "--storages",
    type=click.IntRange(1, 200),
    default=3,
    show_default=True,
    help="How many storages",
)
@click.option(
    "--xrootd",
    envvar="DC_INJECT_SANDBOX_XROOTD",
    type=click.Path(path_type=Path),
    help="Where XRootD is unpacked when the system has none  [default: below $XDG_CACHE_HOME/dc_inject]",
)
def up(
    folder: Path | None,
    env: Path | None,
    grid: Path | None,
    policy: str,
    interval: float,
    db: str,
    storage: str | None,
    storages: int,
    xrootd: Path | None,
) -> None:
    r"""Bring the sandbox up, and say how to use it; does nothing when it is up.

    \b
    Example:
      dc-inject sandbox up --folder /tmp/grid
      dc-inject sandbox up --storage xrootd
      dc-inject sandbox up --db postgres
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # asked to end, it cleans up as for Ctrl-C
    grid_here = Sandbox(folder, say=lambda line: click.echo(line, err=True))
    grid_here.up(
        grid=grid,
        policy=policy,
        env=env,
        interval=interval,
        db=db,
        storage=storage,
        storages=storages,
        xrootd=xrootd,
    )
    click.echo(f"export RUCIO_CONFIG={shlex.quote(str(grid_here.config))}")
    found = grid_here.status()
    if found.fts:
        click.echo(f"export DC_INJECT_FTS_ENDPOINT={found.fts}")
    for name, prefix in found.storages.items():
        click.echo(f"{name}: {prefix}", err=True)


@sandbox.command()
@_folder
@click.option("--keep", is_flag=True, help="End its processes, but leave its folder to look at")
def down(folder: Path | None, *, keep: bool) -> None:
    r"""Take the sandbox down: its processes end and its folder is removed.

    \b
    Example:
      dc-inject sandbox down
    """
    grid_here = Sandbox(folder, say=lambda line: click.echo(line, err=True))
    there = grid_here.down(keep=keep)
    click.echo(f"{'taken down' if there else 'nothing there'}: {grid_here.folder}", err=True)


@sandbox.command()
@_folder
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print what was read.",
)
@click.pass_context
def status(ctx: click.Context, folder: Path | None, form: str) -> None:
    r"""Tell whether the sandbox is up; exit code 0 when it is, 4 when not.

    \b
    Example:
      dc-inject sandbox status --format json
    """
    found = Sandbox(folder).status()
    told = dataclasses.asdict(found)
    if form == "json":
        click.echo(json.dumps(told))
    else:
        storages = told.pop("storages")
        for key, value in (told | storages).items():
            click.echo(f"{key:8} {'-' if value is None else value}")
    ctx.exit(0 if found.up else 4)
