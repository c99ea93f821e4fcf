"""One simulation: menus in a twin of the grid, with the engine as it runs for real, and a new ledger.

The menus are read and admitted as `run` does it, but the services are those of the grid file, and the clock is
the twin's: it begins with the first menu, and goes as fast as it can. What comes out is the ledger, and the world
as it ended. What a menu needs and the grid file lacks is told at the start: it would be lacking all the time.
`simulate` runs one, and `simulate --seeds` several at a time, each in a process of its own.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dc_inject import menu
from dc_inject.apps.twin.fixed_rate import FixedRate, without_control
from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine import admission
from dc_inject.engine.assembly import simulated_engine
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.model import Campaign, Cycle, DatasetFilter, FileFilter, Flow, units, urls
from dc_inject.model.errors import MenuError, NumberTooLarge, Problem, UsageError
from dc_inject.model.faults import hint_of
from dc_inject.model.goals import Mode
from dc_inject.model.ports import Backend
from dc_inject.summary.figures import POLICY
from dc_inject.system import files

if TYPE_CHECKING:
    from dc_inject.apps.twin.grid.description import Grid
    from dc_inject.apps.twin.grid.world import World

LARGEST = 20_000_000  # bytes of a grid file
INSTALL = "install it with `pip install '.[twin]'` in the clone"
FIXED = "fixed"
POLICIES = (FIXED, *(mode.value for mode in Mode))
Passed = Callable[[float], None]  # is called with the fraction that is done
Warn = Callable[[Problem], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be simulated; without a policy, control is as menus say; without a start, it is theirs."""

    menus: Sequence[Path]
    grid: Path
    days: float | None = None
    links: Sequence[str] = ()
    scale: float = 1.0
    policy: str | None = None
    start: datetime | None = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation was: its campaign, the time that it covers, its world as it ended.

    `control` is how many links it has in each mode, as the menus or the policy say; empty at a fixed rate. A link
    whose mode differs from menu to menu counts for each of them.
    """

    campaign: str
    start: datetime
    end: datetime
    world: World
    control: Mapping[str, int]


@contextlib.contextmanager
def new_ledger(path: Path) -> Iterator[Ledger]:
    """Make the ledger of a simulation, which nobody reads before its end, and which none goes on with.

    Raises UsageError for rates that are too large for it: its path is a temporary one, which says nothing.
    """
    try:
        with Ledger.open(path, synchronous="OFF") as ledger:
            yield ledger
    except NumberTooLarge:
        raise UsageError(
            "the rates are too large: a ledger counts at most 9.2 EB", "lower --scale, or the rates of the menus"
        ) from None


def run(
    request: Request,
    ledger: Ledger,
    seed: int = 1,
    passed: Passed = lambda _: None,
    warn: Warn = lambda _: None,
) -> Simulated:
    """Simulate menus with a new ledger; `passed` is told how far it is, `warn` what the grid lacks.

    Raises UsageError without numpy, MenuError for what is wrong in a menu or the grid.
    """
    if find_spec("numpy") is None:
        raise UsageError("simulating needs numpy, which is not installed", INSTALL)
    # ruff: noqa: PLC0415  these need numpy
    from dc_inject.apps.twin.backend import TwinBackend, TwinClock
    from dc_inject.apps.twin.fts_backend import TwinFts
    from dc_inject.apps.twin.grid import grid_file as grids
    from dc_inject.apps.twin.grid.world import World, step_for

    drafts = files.read_menus(request.menus)
    campaign = menu.one_campaign(drafts)
    through = {service for draft in drafts for service in draft.services}
    if request.policy == FIXED and through != {TwinBackend.name}:
        raise UsageError(
            "a fixed rate takes datasets, and links through FTS take files", "simulate them with --policy act"
        )
    step = step_for(drafts[0].preview.cycle.total_seconds())
    world = World(grids.read(_bytes(request.grid), str(request.grid)), seed, step)
    start = request.start or min(draft.preview.start for draft in drafts)
    end = max(draft.preview.end for draft in drafts)
    if request.days is not None:  # of whole cycles, since what is due in a part of one would count as not called
        asked = max(timedelta(days=request.days), timedelta.resolution)
        last = Cycle.at(start + asked - timedelta.resolution, drafts[0].preview.cycle)
        end = min(end, last.next.start)
    clock = TwinClock(start, world, lambda now: passed(min((now - start) / (end - start), 1.0)))
    made: Sequence[Backend] = (TwinFts(world, clock, seed), TwinBackend(world, clock, seed))
    backends = {backend.name: backend for backend in made if backend.name in through}
    identities = admission.identities(backends, allow_admin=False)
    grid = Asked(world.grid, request.grid)
    source = Menus(
        request.menus,
        ledger=ledger,
        backends=backends,
        clock=clock,
        links=request.links,
        scale=request.scale,
        admits=grid.has_ends,
    )
    ledger.bind(campaign, drafts[0].preview.cycle, tuple(identities.values()), start)
    in_force = source()  # for good: nobody edits a file in simulated time, and reading all of them takes its time
    for problem in (*grid.lacks_datasets(in_force, backends), *grid.too_late(end - start)):
        warn(problem)
    if request.policy == FIXED:
        in_force = without_control(in_force)
        ledger.signal(POLICY, "campaign", FIXED, start)
    elif request.policy is not None:
        in_force = _controlled(in_force, Mode(request.policy))
    engine = simulated_engine(
        lambda: in_force,
        ledger,
        backends,
        identities,
        clock,
        InlineExecutor(clock),
        poll=drafts[0].preview.cycle,  # nobody pauses anything meanwhile
        planner=FixedRate() if request.policy == FIXED else None,
    )
    with ledger.together():  # a commit costs as much as the plan of a link, and nobody reads it before the end
        engine.run(until=end)
    control = {} if request.policy == FIXED else _control(in_force, start, end)
    return Simulated(campaign, start, end, world, control)


@dataclass(frozen=True, slots=True)
class Asked:
    """A grid that is asked whether it has what menus need, and the file that says it."""

    grid: Grid
    path: Path

    def has_ends(self, campaign: Campaign) -> None:
        """Raise MenuError for ends of links that no storage of the grid is."""
        unknown: dict[str, list[Problem]] = {}
        for flow in campaign.flows:
            for end in (flow.link.source, flow.link.destination):
                if self.grid.storage_at(end) is None:
                    unknown.setdefault(end, []).append(self._unknown(flow, end))
        if unknown:
            raise MenuError([admission.once(problems) for problems in unknown.values()])

    def _unknown(self, flow: Flow, end: str) -> Problem:
        if urls.is_url(end):
            message = f"{self.path} has no storage with the host of {end}"
            return Problem(flow.menu, flow.line, message, f"give one `host: {urls.host_of(end)}`")
        hint = units.did_you_mean(end, self.grid.storages)
        return Problem(flow.menu, flow.line, f"{self.path} has no storage {end}", hint)

    def too_late(self, lasts: timedelta) -> list[Problem]:
        """Return the troubles that begin when a simulation of that length is over."""
        ends, hint = units.format_duration(lasts), "`at` counts from the start of the first menu"
        return [
            Problem(
                str(self.path),
                0,
                f"{trouble.fault.value} begins when the simulation has ended, after {ends}",
                hint,
            )
            for trouble in self.grid.troubles
            if trouble.at >= lasts.total_seconds()
        ]

    def lacks_datasets(self, campaign: Campaign, backends: Mapping[str, Backend]) -> list[Problem]:
        """Return the sources at which the grid has nothing that a menu wants; raises MenuError if all are such."""
        wanted: dict[tuple[str, str, DatasetFilter | FileFilter], list[Flow]] = {}
        for flow in campaign.flows:
            in_a_list = isinstance(flow.datasets, FileFilter) and flow.datasets.listing is not None
            if not flow.datasets.landed and not in_a_list:
                wanted.setdefault((flow.link.through, flow.link.source, flow.datasets), []).append(flow)
        lacking = [
            admission.once(self._empty(flow) for flow in flows)
            for (service, source, datasets), flows in wanted.items()
            if next(iter(backends[service].inventory(source, datasets)), None) is None
        ]
        if lacking and len(lacking) == len(wanted):
            raise MenuError(lacking)
        return lacking

    def _empty(self, flow: Flow) -> Problem:
        source = flow.link.source
        storage = self.grid.storage_at(source)
        if any({storage, "*"} & {*block.sources} for block in self.grid.stocks):
            message = f"none of the datasets that {self.path} has at {source} fits `datasets` of this link"
            return Problem(
                flow.menu, flow.line, message, "compare `files` and `file_size` with what the menu wants"
            )
        message, hint = f"{self.path} has no datasets at {source}", "add some to its `datasets`"
        return Problem(flow.menu, flow.line, message, hint)


def _controlled(campaign: Campaign, mode: Mode) -> Campaign:
    """Return a campaign in which all links are controlled in one mode, whatever its menus say."""
    menus = (
        replace(menu, flows=tuple(replace(f, control=replace(f.control, mode=mode)) for f in menu.flows))
        for menu in campaign.menus
    )
    return replace(campaign, menus=tuple(menus))


def _control(campaign: Campaign, start: datetime, end: datetime) -> dict[str, int]:
    """Return how many of the links that have a part in a time are controlled in which mode."""
    modes = {(flow.control.mode, flow.key) for flow in campaign.flows if flow.start < end and flow.end > start}
    counts = Counter(mode for mode, _ in modes)
    return {mode.value: counts[mode] for mode in Mode if counts[mode]}


def _bytes(path: Path) -> bytes:
    try:
        return files.load(str(path), LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint_of(error)) from None
