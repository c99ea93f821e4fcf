"""One simulation: menus in a twin of the grid, with the engine as it runs for real, and a new ledger.

The menus are read and admitted as `run` does it, but the services are those of the grid file, and the clock is
the twin's: it begins with the first menu, and goes as fast as it can. What comes out is the ledger, and the world
as it ended. What a menu needs and the grid file lacks is reported at the start: it would be lacking all the time.
`simulate` runs one, and `simulate --seeds` several at a time, each in a process of its own.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from dc_inject import menu
from dc_inject.apps.twin.simulated_ledger import SimulatedLedger
from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine import admission
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger
from dc_inject.model import (
    Campaign,
    Control,
    Cycle,
    DatasetFilter,
    FileFilter,
    Flow,
    FlowKey,
    Held,
    Hold,
    Injection,
    Item,
    units,
    urls,
)
from dc_inject.model.control import Mode
from dc_inject.model.errors import MenuError, NumberTooLarge, Problem, UsageError
from dc_inject.model.faults import hint_of
from dc_inject.model.plan import FlowDecision, Plan
from dc_inject.model.ports import Backend
from dc_inject.model.services import SERVICES, titles
from dc_inject.planning.plan import intent
from dc_inject.planning.situation import Demand, Situation
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
    """What is to be simulated; the default of `policy` is the control of the menus, of `start` their start."""

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

    `control` is how many links it has in each mode, by the menus or the policy; empty at a fixed rate. A link
    whose mode differs from menu to menu counts for each of them.
    """

    campaign: str
    start: datetime
    end: datetime
    world: World
    control: Mapping[str, int]


@contextlib.contextmanager
def new_ledger(path: Path) -> Iterator[Ledger]:
    """Make the ledger of a simulation: it is read only after its end, and never continued.

    Raises UsageError for rates that are too large for it, without its path, which is a temporary one.
    """
    try:
        with SimulatedLedger.make(path) as ledger:
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
    """Simulate menus with a new ledger; `passed` gets the fraction that is done, `warn` what the grid lacks.

    Raises UsageError without numpy, MenuError for what is wrong in a menu or the grid.
    """
    if find_spec("numpy") is None:
        raise UsageError("simulating needs numpy, which is not installed", INSTALL)
    # ruff: noqa: PLC0415  these need numpy
    from dc_inject.apps.twin.backend import TwinBackend, TwinClock
    from dc_inject.apps.twin.fts_backend import TwinFts
    from dc_inject.apps.twin.grid import grid_file as grids
    from dc_inject.apps.twin.grid.world import World, choose_step_length

    drafts = files.read_menus(request.menus)
    campaign = menu.one_campaign(drafts)
    through = {service for draft in drafts for service in draft.services}
    if request.policy == FIXED and through != {TwinBackend.name}:
        raise UsageError(
            "a fixed rate takes datasets, and links through FTS take files", "simulate them with --policy act"
        )
    if unknown := [SERVICES[name] for name in sorted(through - {TwinBackend.name, TwinFts.name})]:
        raise UsageError(f"`simulate` does not support {titles(unknown)}", "simulate menus without them")
    step = choose_step_length(drafts[0].preview.cycle.total_seconds())
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
    in_force = source()  # read once: files do not change in simulated time
    for problem in (*grid.find_missing_datasets(in_force, backends), *grid.too_late(end - start)):
        warn(problem)
    if request.policy == FIXED:
        in_force = remove_control(in_force)
        ledger.signal(POLICY, "campaign", FIXED, start)
    elif request.policy is not None:
        in_force = _controlled(in_force, Mode(request.policy))
    engine = Engine(
        menus=lambda: in_force,
        ledger=ledger,
        backends=backends,
        identities=identities,
        clock=clock,
        executor=InlineExecutor(clock),
        settings=Settings(poll=drafts[0].preview.cycle),  # nothing is paused meanwhile
        planner=FixedRate() if request.policy == FIXED else None,
    )
    with ledger.together():  # a commit costs as much as the plan of a link, and only the end of it is read
        engine.run(until=end)
    control = {} if request.policy == FIXED else _control(in_force, start, end)
    return Simulated(campaign, start, end, world, control)


@dataclass(frozen=True, slots=True)
class Asked:
    """A grid and its file, checked for what menus need."""

    grid: Grid
    path: Path

    def has_ends(self, campaign: Campaign) -> None:
        """Raise MenuError for ends of links that no storage of the grid is."""
        unknown: dict[str, list[Problem]] = {}
        for flow in campaign.flows:
            for end in flow.link.ends:
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

    def find_missing_datasets(self, campaign: Campaign, backends: Mapping[str, Backend]) -> list[Problem]:
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
    """Return a campaign in which all links are controlled in one mode, instead of those of its menus."""
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


MOST = 1.2  # times what is due
WORK = timedelta(seconds=0.3)  # to make a rule
DELAY = timedelta(hours=1)  # after the end of a rule


def remove_control(campaign: Campaign) -> Campaign:
    """Return a campaign as a fixed rate has it: without control, and no rule is ended before its lifetime is over.

    Raises MenuError for a campaign with goals, which a fixed rate does not know.
    """
    goals = [flow for flow in campaign.flows if flow.goal is not None]
    if goals:
        message = f"{goals[0].key} has a goal, and a fixed rate knows none"
        raise MenuError([Problem(goals[0].menu, goals[0].line, message, "simulate it with --policy act")])
    menus = (
        replace(
            menu, flows=tuple(replace(flow, control=Control(), dwell=flow.lifetime_max) for flow in menu.flows)
        )
        for menu in campaign.menus
    )
    return replace(campaign, menus=tuple(menus))


class FixedRate:
    """The links of a campaign, and when each dataset is fresh again on each of them."""

    def __init__(self) -> None:
        """Begin with datasets that are all fresh."""
        self._fresh_at: dict[tuple[str, FlowKey], dict[str, datetime]] = defaultdict(dict)  # by menu and link

    def plan(self, situation: Situation) -> Plan:
        """Return what goes out in a cycle, one rule of a link after the other; these datasets are used then."""
        pools = {pool: sorted(items, key=attrgetter("name")) for pool, items in situation.pools.items()}
        decisions = [self._decide(one, pools.get(one.flow.pool, ()), situation.now) for one in situation.demands]
        injections = tuple(
            intent(situation, demand.flow, item, situation.now + number * WORK, decision.lifetime)
            for demand, decision in zip(situation.demands, decisions, strict=True)
            for number, item in enumerate(decision.items, 1)
        )
        return Plan(situation.cycle, tuple(decisions), injections)

    def refill(
        self, situation: Situation, room: Mapping[FlowKey, int], standing: Sequence[Injection] = ()
    ) -> tuple[Injection, ...]:
        """Return nothing: what cannot be used is not replaced."""
        del situation, room, standing
        return ()

    def _decide(self, demand: Demand, pool: Sequence[Item], now: datetime) -> FlowDecision:
        flow, due = demand.flow, demand.due
        fresh_at = self._fresh_at[flow.menu, flow.key]
        fresh = [item for item in pool if fresh_at.get(item.name, now) <= now]
        chosen: list[Item] = []
        total = 0
        for item in () if demand.held else fresh:
            if total >= due:
                break
            if total + item.bytes <= MOST * due:
                chosen.append(item)
                total += item.bytes
        fresh_at |= dict.fromkeys((item.name for item in chosen), now + flow.lifetime_max + DELAY)
        return FlowDecision(
            key=flow.key,
            due=due,
            want=due,
            cap=due,
            budget=total,
            forgiven=0,
            held=demand.held or _lack(due - total, pool, fresh, chosen),
            lifetime=flow.lifetime_max,
            items=tuple(chosen),
            pool_items=len(fresh),
            pool_bytes=sum(item.bytes for item in fresh),
        )


def _lack(missing: int, pool: Sequence[Item], fresh: Sequence[Item], chosen: Sequence[Item]) -> Held | None:
    """Return why a link takes too little: all its datasets are used, or those left are too large."""
    if missing <= 0:
        return None
    left = [item.bytes for item in fresh if item not in chosen]
    if left:
        return Held(Hold.TOO_COARSE, {"left": missing, "smallest": min(left)})
    size = sum(item.bytes for item in fresh)
    resident = sum(item.bytes for item in pool) - size
    return Held(Hold.POOL_DRY, {"pool_items": len(fresh), "pool_bytes": size, "resident": resident})
