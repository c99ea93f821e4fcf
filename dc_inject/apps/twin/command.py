"""`dc-inject simulate`: menus in a twin of the grid, with the engine as it runs for real."""

from __future__ import annotations

import contextlib
import logging
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dc_inject.apps.twin import calibrating, printing, several_seeds, simulation
from dc_inject.cli.shared import common, exits, hangup, log_output, menu_files, params
from dc_inject.ledger import ledger_files
from dc_inject.model.errors import Problem, UsageError
from dc_inject.system import files

CALIBRATE = "such as `dc-inject simulate --calibrate dc27-rehearsal -o grid.yaml`"
GRIDS = "begin with one of menus/twin, such as `--grid menus/twin/one-link/grid.yaml`, or fit one with --calibrate"
# Parameters that count then.
CALIBRATING = frozenset({"campaign", "output", "force", "include_from", "fmt", "wide"})


@click.command()
@common.INCLUDE_FROM
@click.argument("menus", nargs=-1, type=params.MenuFile())
@click.option(
    "--grid",
    "grid_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The grid: a YAML file of sites, storages, links, and what goes wrong.",
)
@click.option(
    "--calibrate",
    "campaign",
    metavar="CAMPAIGN|LEDGER",
    help="Simulate nothing: fit a grid to a past campaign, and write its file to --output.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The grid file that --calibrate writes.",
)
@menu_files.FORCE
@click.option(
    "--days",
    type=params.FiniteRange("0.25 for six hours", min=0, max=400, min_open=True),
    help="Stop injecting after so many days, at the end of a cycle [default: when the menus end].",
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0, 2**31), help="The same seed gives the same run."
)
@click.option(
    "--seeds",
    default=1,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Run so many seeds, from --seed on, on all processors; print medians and ranges.",
)
@click.option(
    "--policy",
    type=click.Choice(simulation.POLICIES),
    help="Inject at a fixed rate that learns nothing, or set `control` of all links to this "
    "[default: as in the menus].",
)
@click.option(
    "--ledger",
    "ledger_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the ledger of the simulation in this new file.",
)
@common.LINKS
@common.SCALE
@common.FORMAT
def simulate(
    menus: tuple[Path, ...],
    grid_file: Path | None,
    campaign: str | None,
    output: Path | None,
    force: bool,
    days: float | None,
    seed: int,
    seeds: int,
    policy: str | None,
    ledger_path: Path | None,
    links: tuple[str, ...],
    scale: float,
    fmt: str,
) -> None:
    r"""Run MENUS in a simulated grid, and show what would be moved, what would be short, and why.

    The engine plans, submits and observes as `run` does, from the start of the first menu on. Rucio, FTS, storages
    and networks are simulated as described in the grid file. No real service is asked. Needs numpy.

    With --calibrate a grid file is made from the ledger of a past campaign, with the errors of the fit and of a
    forecast of the campaign's own menus.

    \b
    Example: dc-inject simulate menus/cms/day-09.yaml --grid menus/twin/cms-days-9-to-12/grid.yaml --days 0.25
    Example: dc-inject simulate --calibrate dc27-rehearsal -o grid.yaml
    Example: dc-inject simulate monday.yaml --grid grid.yaml --policy act --seeds 5
    """
    log_output.talk(quiet=True)
    check = hangup.interrupt_once()  # a ledger of a million rules is not left in the folder for temporary files
    if campaign is not None:
        common.refuse_ignored("campaign", CALIBRATING, f"it takes all it needs from a ledger, {CALIBRATE}")
        if output is None:
            raise UsageError("--calibrate needs --output", CALIBRATE)
        with _progress("fitted", check) as passed:
            made = calibrating.calibrate(campaign, output, passed, force=force)
        for note in made.notes:
            click.echo(note, err=True)
        printing.show_calibration(fmt, made)
        return
    if output is not None or force:
        given = "--force" if output is None else "--output"
        hint = "`> FILE` keeps what is printed, and --ledger FILE the ledger"
        raise UsageError(f"{given} is for --calibrate only", hint)
    if not menus:
        raise click.UsageError("Missing argument 'MENUS...'.")
    if grid_file is None:
        raise UsageError("simulate needs --grid: the file of the grid in which the menus run", GRIDS)
    logging.getLogger("dc_inject").setLevel(logging.ERROR)  # what the engine warns of is what is simulated
    if ledger_path is not None and files.exists(ledger_path):
        raise UsageError(f"{ledger_path} exists already", "name a new file for the ledger of the simulation")
    if ledger_path is not None and seeds > 1:
        raise UsageError("there is one ledger for each seed", "run one seed, or leave out --ledger")
    if ledger_path is not None:
        files.need_folder(ledger_path)
    request = simulation.Request(menus, grid_file, days, links, scale, policy)
    if seeds > 1:
        with _progress(f"{seeds} seeds", check) as passed:
            runs = several_seeds.simulate_seeds(request, range(seed, seed + seeds), passed, _warn)
        printing.show_seeds(fmt, runs, policy)
        return
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as folder, contextlib.ExitStack() as afterwards:
        path = Path(folder) / "simulation.sqlite"
        with simulation.new_ledger(path) as ledger:
            with _progress("simulated", check) as passed, _interruptible(ledger_path):
                report = simulation.run(request, ledger, seed, passed, _warn)
            if ledger_path is not None:  # once it is closed, and even if the output cannot be written
                afterwards.callback(_keep, path, ledger_path)
            printing.show(fmt, ledger, report, seed, policy)


def _warn(problem: Problem) -> None:
    click.echo(f"warning: {problem}", err=True)


@contextlib.contextmanager
def _interruptible(ledger_path: Path | None) -> Iterator[None]:
    """Print that the ledger is not written if Ctrl-C ends a simulation."""
    try:
        yield
    except KeyboardInterrupt:
        if ledger_path is None:
            raise
        exits.report_interruption(f"the simulation is not complete, so {ledger_path} is not written")
        raise click.exceptions.Exit(exits.INTERRUPTED) from None


def _keep(ledger: Path, goal: Path) -> None:
    """Copy a ledger to where it was asked for: as a whole, or not at all."""
    ledger_files.remove_log(ledger)
    rights = stat.S_IMODE(ledger.stat().st_mode)  # of us alone
    with ledger.open("rb") as source, files.whole(goal, force=False, mode=rights) as copy:
        shutil.copyfileobj(source, copy)


@contextlib.contextmanager
def _progress(what: str, check: Callable[[], None]) -> Iterator[simulation.Passed]:
    """Show the progress: a bar on a terminal, elsewhere a line for each tenth."""
    if not sys.stderr.isatty():
        tenths_shown = 0

        def print_tenth(part: float) -> None:
            nonlocal tenths_shown
            check()
            tenths = int(10 * part)
            if tenths > tenths_shown:
                tenths_shown = tenths
                click.echo(f"{what}: {10 * tenths} %", err=True)

        yield print_tenth
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)

        def show(part: float) -> None:
            check()
            progress.update(task, completed=part)

        yield show
