"""`dc-inject simulate`: menus in a twin of the grid, with the engine as it runs for real."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dc_inject.cli import common, forecast, log_output, menu_files, params
from dc_inject.cli.plan import simulated_engine
from dc_inject.cli.simulate_fixed import FixedRates
from dc_inject.engine import admission
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.model import Campaign, Cycle, urls
from dc_inject.model.errors import LedgerError, MenuError, Problem, UsageError
from dc_inject.model.goals import Mode
from dc_inject.model.ports import Backend
from dc_inject.system import files

if TYPE_CHECKING:
    from dc_inject.twin.world import World

LARGEST = 20_000_000  # bytes of a grid file
INSTALL = "install it with `pip install '.[twin]'` in the clone"
CALIBRATE = "such as `dc-inject simulate --calibrate dc27-rehearsal -o grid.yaml`"
FIXED = "fixed"
POLICIES = (FIXED, Mode.ADVISE.value, Mode.ACT.value)
Passed = Callable[[float], None]  # is told which part is done


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be simulated; without a policy, control is as the menus say."""

    menus: Sequence[Path]
    grid: Path
    days: float | None = None
    links: Sequence[str] = ()
    scale: float = 1.0
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation was: its campaign, the time that it covers, its world as it ended."""

    campaign: str
    start: datetime
    end: datetime
    world: World


@click.command()
@common.INCLUDE_FROM
@click.argument("menus", nargs=-1, type=click.Path(path_type=Path))
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
    type=params.FiniteRange(min=0, max=400, min_open=True),
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
    type=click.Choice(POLICIES),
    help="Inject at a fixed rate that learns nothing, or set `control` of all links [default: as the menus say].",
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
    and networks are simulated as the grid file says. Nothing real is asked. Needs numpy.

    With --calibrate a grid file is made from the ledger of a past campaign, with the error of what it predicts.

    \b
    Example: dc-inject simulate menus/cms --grid cms-grid.yaml --days 2
    Example: dc-inject simulate menus/cms --grid cms-grid.yaml --policy act --seeds 5
    Example: dc-inject simulate --calibrate dc27-rehearsal -o cms-grid.yaml
    """
    log_output.talk(quiet=True)
    if campaign is not None:
        if menus or grid_file or output is None:
            raise UsageError("--calibrate takes a past campaign and --output, and no menus", CALIBRATE)
        from dc_inject.cli import simulate_calibrate

        with _progress("fitted") as passed:
            made = simulate_calibrate.calibrate(campaign, output, passed, force=force)
        simulate_calibrate.show(fmt, made)
        return
    if not menus or grid_file is None:
        raise click.UsageError("Missing argument 'MENUS...'." if not menus else "Missing option '--grid'.")
    logging.getLogger("dc_inject").setLevel(logging.ERROR)  # what the engine warns of is what is simulated
    if ledger_path is not None and ledger_path.exists():
        raise UsageError(f"{ledger_path} exists already", "name a new file for the ledger of the simulation")
    if ledger_path is not None and seeds > 1:
        raise UsageError("there is one ledger for each seed", "run one seed, or leave out --ledger")
    request = Request(menus, grid_file, days, links, scale, policy)
    if seeds > 1:
        from dc_inject.cli import simulate_seeds

        with _progress(f"{seeds} seeds") as passed:
            runs = simulate_seeds.simulate_seeds(request, range(seed, seed + seeds), passed)
        simulate_seeds.show(fmt, runs, policy)
        return
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as folder:
        path = Path(folder) / "simulation.sqlite"
        with Ledger.open(path, synchronous="OFF") as ledger:
            with _progress("simulated") as passed:
                report = run(request, ledger, seed, passed)
            forecast.show(fmt, report.campaign, ledger, report.world, report.start, report.end, seed, policy)
        if ledger_path is not None:  # at the end: what was refused or interrupted leaves nothing behind
            _keep(path, ledger_path)


def _keep(path: Path, goal: Path) -> None:
    try:
        shutil.move(path, goal)
    except OSError as error:
        raise LedgerError(f"{goal} cannot be written: {error.strerror or error}", "name another file") from None


def run(request: Request, ledger: Ledger, seed: int = 1, passed: Passed = lambda _: None) -> Simulated:
    """Simulate menus with a new ledger; `passed` is told how far it is.

    Raises UsageError without numpy, MenuError for what is wrong in a menu or the grid.
    """
    if find_spec("numpy") is None:
        raise UsageError("simulating needs numpy, which is not installed", INSTALL)
    # ruff: noqa: PLC0415  these need numpy
    from dc_inject.backends.twin import TwinBackend, TwinClock
    from dc_inject.backends.twin_fts import TwinFts
    from dc_inject.twin import grid_file as grids
    from dc_inject.twin.world import World, step_for

    drafts = files.read_menus(request.menus)
    campaign = common.one_campaign(drafts)
    through = {service for draft in drafts for service in draft.services}
    if request.policy == FIXED and through != {TwinBackend.name}:
        raise UsageError(
            "a fixed rate takes datasets, and links through FTS take files", "simulate them with --policy act"
        )
    step = step_for(drafts[0].preview.cycle.total_seconds())
    world = World(grids.read(_bytes(request.grid), str(request.grid)), seed, step)
    start = min(draft.preview.start for draft in drafts)
    end = max(draft.preview.end for draft in drafts)
    if request.days is not None:  # of whole cycles, since what is due in a part of one would count as not called
        last = Cycle.at(start + timedelta(days=request.days), drafts[0].preview.cycle)
        end = min(end, last.next.start)
    clock = TwinClock(start, world, lambda now: passed(min((now - start) / (end - start), 1.0)))
    rucio = TwinBackend(world, clock, seed)
    made: Mapping[str, Backend] = {TwinBackend.name: rucio, TwinFts.name: TwinFts(world, clock, seed)}
    backends = {service: made[service] for service in sorted(through)}
    identities = admission.identities(backends, allow_admin=False)
    source = Menus(
        request.menus, ledger=ledger, backends=backends, clock=clock, links=request.links, scale=request.scale
    )
    ledger.bind(campaign, drafts[0].preview.cycle, tuple(identities.values()), start)
    in_force = source()  # for good: nobody edits a file in simulated time, and reading all of them takes its time
    _check_ends(in_force, world)
    if request.policy == FIXED:
        FixedRates(in_force, ledger, world, rucio, clock).run(end)
        return Simulated(campaign, start, end, world)
    if request.policy is not None:
        in_force = _controlled(in_force, Mode(request.policy))
    poll = drafts[0].preview.cycle  # nobody pauses anything meanwhile
    simulated_engine(lambda: in_force, ledger, backends, identities, clock, poll=poll).run(until=end)
    return Simulated(campaign, start, end, world)


def _check_ends(campaign: Campaign, world: World) -> None:
    """Raise MenuError for URLs at a host that no storage of the grid has; names were looked up before."""
    problems = {
        end: Problem(
            flow.menu, flow.line, f"no storage of the grid has the host of {end}", f"give one `host: {host}`"
        )
        for flow in campaign.flows
        for end in (flow.link.source, flow.link.destination)
        if world.grid.storage_at(end) is None and (host := urls.host_of(end)) != end
    }
    if problems:
        raise MenuError(list(problems.values()))


def _controlled(campaign: Campaign, mode: Mode) -> Campaign:
    """Return a campaign in which all links are controlled in one mode, whatever its menus say."""
    menus = (
        replace(menu, flows=tuple(replace(f, control=replace(f.control, mode=mode)) for f in menu.flows))
        for menu in campaign.menus
    )
    return replace(campaign, menus=tuple(menus))


def _bytes(path: Path) -> bytes:
    try:
        return files.load(str(path), LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", "check path and rights") from None


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Passed]:
    """Show how far it is: a bar on a terminal, elsewhere a line for each tenth."""
    if not sys.stderr.isatty():
        tenths_shown = 0

        def say(part: float) -> None:
            nonlocal tenths_shown
            tenths = int(10 * part)
            if tenths > tenths_shown:
                tenths_shown = tenths
                click.echo(f"{what}: {10 * tenths} %", err=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda part: progress.update(task, completed=part)
