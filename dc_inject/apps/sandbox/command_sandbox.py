"""`dc-inject sandbox`: a grid on this machine, to try things and to test."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dc_inject.cli.shared import hangup
from dc_inject.model import units
from dc_inject.sandbox import RELEASES, Sandbox

_folder = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="The sandbox's folder  [default: $XDG_STATE_HOME/dc_inject/sandbox]",
)


_parts = click.argument("parts", nargs=-1, required=True)


@click.group()
def sandbox() -> None:
    r"""Run a test grid on this machine: a real Rucio with daemons, RSEs, links and datasets.

    \b
    Example: dc-inject sandbox up
    Example: dc-inject sandbox down
    """


@sandbox.command()
@_folder
@click.option(
    "--env",
    envvar="DC_INJECT_SANDBOX_ENV",
    type=click.Path(path_type=Path),
    help="Where to install the Rucio server, the first time  [default: below $XDG_CACHE_HOME/dc_inject]",
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
    help="The database of Rucio's catalogue; PostgreSQL is slower, and has the lock errors that experiments see",
)
@click.option(
    "--rucio",
    envvar="DC_INJECT_SANDBOX_RUCIO",
    type=click.Choice(RELEASES),
    help=f"The release of the Rucio server  [default: {RELEASES[0]}]",
)
@click.option(
    "--storage",
    type=click.Choice(["xrootd"]),
    help="Add real storages, each also an RSE, and an FTS service that copies between them  [default: none]",
)
@click.option(
    "--storages",
    type=click.IntRange(1, 200),
    default=3,
    show_default=True,
    help="The number of storages",
)
@click.option(
    "--xrootd",
    envvar="DC_INJECT_SANDBOX_XROOTD",
    type=click.Path(path_type=Path),
    help="Where to unpack XRootD if the system has none  [default: below $XDG_CACHE_HOME/dc_inject]",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(0.001, 1),
    default=1.0,
    show_default=True,
    help="Multiply all times of the FTS service with this; with 0.1 it retries after 12 s instead of 2 min",
)
def up(folder: Path | None, **wanted: Any) -> None:
    r"""Start the sandbox, and print how to use it; does nothing if it is running.

    \b
    Example: dc-inject sandbox up --folder /tmp/grid
    Example: dc-inject sandbox up --storage xrootd
    Example: dc-inject sandbox up --db postgres
    Example: dc-inject sandbox up --rucio 38
    """
    hangup.interrupt()  # asked to end, it cleans up as for Ctrl-C
    grid_here = _talking(folder)
    grid_here.up(**wanted)  # the options are named as there
    state = grid_here.status()
    _export({"RUCIO_CONFIG": state.config, "DC_INJECT_FTS_ENDPOINT": state.fts})
    for name, prefix in state.storages.items():
        click.echo(f"{name}: {prefix}", err=True)


@sandbox.command()
@_folder
@click.option("--keep", is_flag=True, help="End its processes, but keep its folder, so that you can look at it")
def down(folder: Path | None, *, keep: bool) -> None:
    r"""Stop the sandbox: end its processes and remove its folder.

    \b
    Example: dc-inject sandbox down
    """
    grid_here = _talking(folder)
    was_there = grid_here.down(keep=keep)
    click.echo(f"{'stopped' if was_there else 'no sandbox'}: {grid_here.folder}", err=True)


@sandbox.command()
@_folder
@_parts
def stop(folder: Path | None, parts: tuple[str, ...]) -> None:
    r"""Stop PARTS of the sandbox: rucio, daemons, database, fts, or a storage such as XRD1.

    They keep their contents and addresses. `dc-inject sandbox start PARTS` starts them again.

    \b
    Example: dc-inject sandbox stop XRD2
    Example: dc-inject sandbox stop fts
    """
    grid_here = _talking(folder)
    for part in parts:
        grid_here.stop(part)


@sandbox.command()
@_folder
@_parts
def start(folder: Path | None, parts: tuple[str, ...]) -> None:
    r"""Start stopped PARTS of the sandbox, and wait until they answer.

    \b
    Example: dc-inject sandbox start XRD2 fts
    """
    grid_here = _talking(folder)
    for part in parts:
        grid_here.start(part)


@sandbox.command()
@_folder
@click.argument("storage")
@click.argument("path")
@click.argument("size")
@click.option("--count", type=click.IntRange(1, 100_000), help="Write so many files, PATH-0001 and so on")
def put(folder: Path | None, storage: str, path: str, size: str, count: int | None) -> None:
    r"""Write a file of SIZE at PATH of a STORAGE, and print it as a source list for a menu.

    \b
    Example: dc-inject sandbox put XRD1 data/one 10MB
    Example: dc-inject sandbox put XRD1 data/file 1MB --count 25 > sources.csv
    """
    grid_here = _talking(folder)
    try:
        size_ = units.parse_size(size)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="SIZE") from None
    paths = [path] if count is None else [f"{path}-{number:04}" for number in range(1, count + 1)]
    click.echo("url,size,checksum")
    for source in paths:
        written = grid_here.put(storage, source, size_, seed=source)
        click.echo(f"{grid_here.storages[storage]}{written.path},{written.size},adler32:{written.adler32}")


@sandbox.command()
@_folder
@click.argument("storage")
@click.option("--drives", type=click.IntRange(1, 100), default=4, show_default=True, help="The number of drives")
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 3600),
    default=10.0,
    show_default=True,
    help="How long a drive takes for a file",
)
def tape(folder: Path | None, storage: str, drives: int, seconds: float) -> None:
    r"""Start a tape system in front of a STORAGE, and print its URL.

    By this URL, all files of the storage are on tape until they are staged.

    \b
    Example: dc-inject sandbox tape XRD1 --drives 4 --seconds 30
    """
    click.echo(_talking(folder).start_tape(storage, drives, seconds))


@sandbox.command()
@_folder
@click.argument("name")
@click.option(
    "--token", is_flag=True, help="Print a bearer token for plain http instead of a certificate for https"
)
def user(folder: Path | None, name: str, token: bool) -> None:
    r"""Create a user NAME whom the FTS service knows, and print settings to act as that user.

    \b
    Example: eval "$(dc-inject sandbox user alice)"
    Example: eval "$(dc-inject sandbox user bob --token)"
    """
    grid_here = _talking(folder)
    if token:
        _export({"DC_INJECT_FTS_ENDPOINT": grid_here.fts_url, "BEARER_TOKEN_FILE": grid_here.issue_token(name)})
        return
    certificate, key = grid_here.issue_certificate(name)
    _export(
        {
            "DC_INJECT_FTS_ENDPOINT": grid_here.fts_tls_url,
            "X509_USER_CERT": certificate,
            "X509_USER_KEY": key,
            "X509_CERT_DIR": grid_here.authority.directory,
        }
    )


@sandbox.command()
@_folder
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="The format of the output.",
)
@click.pass_context
def status(ctx: click.Context, folder: Path | None, form: str) -> None:
    r"""Show whether the sandbox is running; exit code 0 if it is, 4 if not.

    \b
    Example: dc-inject sandbox status --format json
    """
    state = Sandbox(folder).status()
    values = dataclasses.asdict(state)
    if form == "json":
        click.echo(json.dumps(values))
    else:
        storages, stopped = values.pop("storages"), {*values.pop("stopped")}
        stopped |= {part for part in ("server", "daemons") if values[part] is False}
        for key, value in (values | storages).items():
            click.echo(f"{key:8} {'-' if value is None else value}{'  (stopped)' if key in stopped else ''}")
    ctx.exit(0 if state.up else 4)


def _talking(folder: Path | None) -> Sandbox:
    return Sandbox(folder, report=lambda line: click.echo(line, err=True))


def _export(values: Mapping[str, object]) -> None:
    """Print settings for a shell; those that there are not are left out."""
    for name, value in values.items():
        if value is not None:
            click.echo(f"export {name}={shlex.quote(str(value))}")
