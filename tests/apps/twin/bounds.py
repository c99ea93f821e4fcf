"""What a perfect injector could move in a grid, and what the best constant rates move: `make bounds`.

A linear program over what each link moves in each step of time:

    maximize  sum of what each link has moved at the end
    moved until a step's end    <= due until then; what is due while Rucio is down is due after that
    bytes x attempts            <= rate of the link, its paths, WANs and storages, less production
    seconds of transfers        <= FTS's slots of the link and its storages, connections, less production
    arrived - deleted           <= 0.98 of a space; also datasets of a source, each of which is at a place once
    deleted until a step's end  <= arrived a lifetime and a lag before; in each step, what deletions are able to do

A file is as large as the largest of its source, and takes as many attempts as it has on average. Left out are
datasets as wholes, FTS's optimizer, the daemons of Rucio, the menu's own limits, and queues: without them more can
move, so that the result stays a bound. Production gets what it asks for, or an equal part of what is short.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from scipy.optimize import linprog
from scipy.sparse import coo_array

from dc_inject.apps.twin import forecast, simulation
from dc_inject.apps.twin.grid import description as g
from dc_inject.apps.twin.grid import grid_file
from dc_inject.apps.twin.grid.arrays import Floats
from dc_inject.engine.situation import booked
from dc_inject.model import Campaign, Flow
from dc_inject.system import files
from tests.apps.twin import scenarios
from tests.apps.twin.bounds_stored import STORED, stored_bounds

FULL = 0.98  # of a space: more is no success
FACTORS = (1.0, 0.75, 0.5, 1.25, 0.9, 1.1, 1.5, 0.4)  # of all rates
ALONE = (0.2, 0.4, 0.7)  # of one rate, where a menu has several
WORTH, ALL = 0.01, 0.999  # parts of what is due: below and above them nothing binds
NEAR = 0.003  # of the bound: nothing better is searched for

RATE, TARGET = r"rate: ([\d.]+) Gb/s", r"(?m)^target: .*\n"
HEAD = """# What a perfect injector could move, and the best constant rates, in % of what is due, by `make bounds`.
# `factors` are those of the menu's rates, in their order. Without `constant` none was searched; null: none keeps
# all disks below 98 %.
"""

Link = tuple[str, str]
Row = tuple[str, list[tuple[int, float]], float]  # what is short, columns with factors, and the most


class Bound(NamedTuple):
    """The part of what is due that can be moved, and what binds, the scarcest first."""

    moved: float
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of links that stay: at most `room`, for `time` seconds each; then they go.

    `rate` is what can go in each step, in bytes per second; None: all at once.
    """

    name: str
    links: tuple[Link, ...]
    room: float
    time: float
    rate: tuple[float, ...] | None = None


@dataclass(slots=True)
class Program:
    """A grid in steps of so many seconds: bytes due in each, and the resources that links use for each byte.

    `shares` are by resource: what one byte on a link needs of it; `rooms` what there is of it in each step.
    """

    step: float
    due: dict[Link, list[float]]
    rooms: dict[str, Floats] = field(default_factory=dict)
    shares: dict[str, dict[Link, float]] = field(default_factory=lambda: defaultdict(dict))
    held: list[Held] = field(default_factory=list)

    def solve(self) -> Bound:
        """Return the most that can be moved of what is due; raises ValueError if HiGHS finds no answer."""
        steps = len(next(iter(self.due.values())))
        moved = {link: n * steps for n, link in enumerate(self.due)}  # until the end of each step
        deleted = {held.name: (len(moved) + n) * steps for n, held in enumerate(self.held)}
        rows = [*_growing([*moved.values(), *deleted.values()], steps), *self._shared(moved, steps)]
        rows += self._staying(moved, deleted, steps)
        entries = [(n, column, factor) for n, (_, row, _) in enumerate(rows) for column, factor in row]
        at, columns, factors = zip(*entries, strict=True)
        size = steps * (len(moved) + len(self.held))
        worth = np.zeros(size)
        worth[[first + steps - 1 for first in moved.values()]] = -1.0
        until = [amount for link in self.due for amount in np.cumsum(self.due[link])]
        result = linprog(
            worth,
            A_ub=coo_array((factors, (at, columns)), shape=(len(rows), size)).tocsr(),
            b_ub=[room for _, _, room in rows],
            bounds=[(0.0, amount) for amount in until] + [(0.0, None)] * (size - len(until)),
            method="highs",
        )
        if result.status:
            raise ValueError(result.message)
        due, binds = sum(map(sum, self.due.values())), Counter[str]()
        for (name, _, room), price in zip(rows, result.ineqlin.marginals, strict=True):
            binds[name] -= price * room / due
        moved_of_due = float(-result.fun / due)
        why = tuple(name for name, part in binds.most_common(3) if part > WORTH)
        return Bound(moved_of_due, why if moved_of_due < ALL else ())

    def _shared(self, moved: Mapping[Link, int], steps: int) -> Iterator[Row]:
        """Yield what links may use of each resource in each step."""
        for name, uses in self.shares.items():
            for k in range(steps):
                row = [(moved[link] + k, use) for link, use in uses.items()]
                row += [(moved[link] + k - 1, -use) for link, use in uses.items() if k]
                yield name, row, float(self.rooms[name][k])

    def _staying(self, moved: Mapping[Link, int], deleted: Mapping[str, int], steps: int) -> Iterator[Row]:
        """Yield what may be where bytes stay, and what may be deleted there until each step's end."""
        for held in self.held:
            gone = deleted[held.name]
            back, part = int(held.time // self.step), held.time % self.step / self.step
            for k in range(steps):
                here = [(moved[link] + k, 1.0) for link in held.links]
                yield held.name, [*here, (gone + k, -1.0)], held.room
                old = [
                    (moved[link] + k - n, -weight)
                    for link in held.links
                    for n, weight in ((back, 1 - part), (back + 1, part))
                    if n <= k
                ]
                yield held.name, [(gone + k, 1.0), *old], 0.0
                if held.rate is not None:
                    before = [(gone + k - 1, -1.0)] if k else []
                    yield f"deletions for the {held.name}", [(gone + k, 1.0), *before], held.rate[k] * self.step


def _growing(firsts: Sequence[int], steps: int) -> Iterator[Row]:
    """Yield that sums of bytes never fall."""
    for first in firsts:
        for k in range(1, steps):
            yield "", [(first + k - 1, 1.0), (first + k, -1.0)], 0.0


# --------------------------------------------------------------------------- from a grid and its menus


def program(grid: g.Grid, campaign: Campaign, end: timedelta, step: float) -> Program:
    """Return the program of menus in a grid, for so long from their start and a cycle more."""
    starts = np.arange(0, (end + campaign.cycle).total_seconds(), step)
    made = Program(step, _due(grid, campaign, end, starts, step))
    when = _Timeline(grid, starts, step)
    flows = {(flow.link.source, flow.link.destination): flow for flow in campaign.flows}
    for link in made.due:
        _use(made, grid, link, when)
    _take(made, grid)
    _hold(made, grid, flows, when)
    return made


class _Timeline:
    """What is left of each subject in each step, in the mean."""

    def __init__(self, grid: g.Grid, starts: Floats, step: float) -> None:
        self._grid, self._starts, self._step = grid, starts, step

    def left(self, fault: g.Fault, subjects: Sequence[str], part: Callable[[float], float]) -> Floats:
        """Return the mean factor in each step, which is `part` of the trouble's while one lasts."""
        factors = np.ones(len(self._starts))
        for trouble in self._grid.troubles:
            if trouble.fault is fault and trouble.subject in subjects:
                inside = np.clip(
                    np.minimum(self._starts + self._step, trouble.at + trouble.lasting)
                    - np.maximum(self._starts, trouble.at),
                    0,
                    None,
                )
                factors *= 1 - inside / self._step * (1 - part(trouble.part))
        return factors


def _due(grid: g.Grid, campaign: Campaign, end: timedelta, starts: Floats, step: float) -> dict[Link, list[float]]:
    """Return what each link is due in each step; what is due while Rucio is down waits until it is back."""
    due: dict[Link, list[float]] = defaultdict(lambda: [0.0] * len(starts))
    for k, start in enumerate(starts):
        begin = campaign.start + timedelta(seconds=float(start))
        until = min(begin + timedelta(seconds=step), campaign.start + end)
        down = [t for t in grid.troubles if t.fault is g.Fault.RUCIO_DOWN and t.at <= start < t.at + t.lasting]
        place = min(int((down[0].at + down[0].lasting) // step), len(starts) - 1) if down else k
        if until > begin:
            for key, part in booked(campaign, begin, until).items():
                due[key.link.source, key.link.destination][place] += part.bytes
    return {link: amounts for link, amounts in due.items() if any(amounts)}


def _use(made: Program, grid: g.Grid, link: Link, when: _Timeline) -> None:
    """Add what a byte on a link needs of each resource."""
    traits, (source, destination) = grid.traits(*link), link
    attempts = 1 / (1 - traits.failures)
    size = _file_size(grid, source)
    seconds = attempts * (traits.overhead + size / traits.file_speed) / size
    down = when.left(g.Fault.STORAGE_DOWN, link, lambda _: 0.0) * when.left(g.Fault.FTS_DOWN, ("",), lambda _: 0.0)
    for name, rate, subject in _bandwidths(grid, link):
        _add(made, name, link, attempts, rate * when.left(g.Fault.CAPACITY, (subject,), lambda part: part))
    for name, slots in _slots(grid, link):
        _add(made, name, link, seconds, np.full(len(down), float(slots)))
    if (down < 1).any():
        _add(made, f"outage of {source}:{destination}", link, 1.0, down * sum(made.due[link]))


def _add(made: Program, name: str, link: Link, share: float, room: Floats) -> None:
    made.shares[name][link] = share
    made.rooms[name] = room * made.step


def _file_size(grid: g.Grid, source: str) -> float:
    """Return the size of the largest files of a source: who sends only these moves most in a transfer's time."""
    return max(stock.file_size[1] for stock in grid.stocks if {source, "*"} & {*stock.sources})


def _bandwidths(grid: g.Grid, link: Link) -> Iterator[tuple[str, float, str]]:
    """Yield what limits the bytes of a link: its name, rate, and the subject of troubles."""
    source, destination = (grid.storages[end] for end in link)
    name = ":".join(link)
    limits = [
        (f"link {name}", grid.traits(*link).rate, name),
        (f"reading at {source.name}", source.read, source.name),
        (f"writing at {destination.name}", destination.write, destination.name),
    ]
    if source.site != destination.site:
        limits += [
            (f"WAN out of {source.site}", grid.sites[source.site].wan_out, source.site),
            (f"WAN into {destination.site}", grid.sites[destination.site].wan_in, destination.site),
        ]
    limits += [
        (f"path {path.name}", path.rate, path.name)
        for path in grid.paths
        if any(g.names_link(pattern, *link) for pattern in path.links)
    ]
    return ((name, rate, subject) for name, rate, subject in limits if rate is not None)


def _slots(grid: g.Grid, link: Link) -> Iterator[tuple[str, int]]:
    """Yield what limits the transfers of a link."""
    source, destination = (grid.storages[end] for end in link)
    most = grid.fts.per_storage
    yield f"transfers of {':'.join(link)}", (grid.traits(*link).actives or grid.fts.actives)[1]
    yield f"transfers out of {source.name}", most if source.fts_out is None else source.fts_out
    yield f"transfers into {destination.name}", most if destination.fts_in is None else destination.fts_in
    for storage in (source, destination):
        if storage.connections is not None:
            yield f"connections of {storage.name}", storage.connections


def _take(made: Program, grid: g.Grid) -> None:
    """Take what production needs from what it shares with links: each stream at most as much as an equal part."""
    needs = defaultdict[str, list[float]](list)
    for traffic in grid.production:
        link = traffic.source, traffic.destination
        traits = grid.traits(*link)
        attempts = traffic.rate * made.step / (1 - traits.failures)
        seconds = attempts * (traits.overhead + traffic.file_size / traits.file_speed) / traffic.file_size
        for name, _, _ in _bandwidths(grid, link):
            needs[name].append(attempts)
        for name, _ in _slots(grid, link):
            needs[name].append(seconds)
    for name in needs.keys() & made.rooms.keys():
        room, streams = made.rooms[name], needs[name]
        part = room / (len(streams) + len(made.shares[name]))
        made.rooms[name] = room - sum(np.minimum(need, part) for need in streams)


def _hold(made: Program, grid: g.Grid, flows: Mapping[Link, Flow], when: _Timeline) -> None:
    """Add the spaces that what is due can fill, and the datasets of sources that it can use up."""
    to = defaultdict[str, list[Link]](list)
    for link in made.due:
        to[link[1]].append(link)
    for name, links in to.items():
        storage, due = grid.storages[name], sum(sum(made.due[link]) for link in links)
        stays = min(_stays(grid, flows[link], storage) for link in links)
        size = _file_size(grid, links[0][0])
        if storage.space is not None and due > FULL * storage.space:
            rate = storage.deleting / storage.delete_seconds * size
            slower = when.left(g.Fault.DELETION, (name,), lambda times: 1 / times)
            held = Held(f"space of {name}", tuple(links), FULL * storage.space, stays, tuple(rate * slower))
            made.held.append(held)
        for link in links:
            stocks = [stock for stock in grid.stocks if {link[0], "*"} & {*stock.sources}]
            pool = sum(s.count * sum(s.files) / 2 * sum(s.file_size) / 2 for s in stocks)
            if sum(made.due[link]) > pool:
                stays = _stays(grid, flows[link], storage)
                made.held.append(Held(f"datasets at {link[0]} for {name}", (link,), pool, stays))


def _stays(grid: g.Grid, flow: Flow, storage: g.Storage) -> float:
    """Return for how long at least what has arrived stays, in seconds: a lifetime, less its time on the way."""
    source = flow.link.source
    traits = grid.traits(source, storage.name)
    way = traits.overhead + _file_size(grid, source) / traits.file_speed
    stays = flow.dwell.total_seconds() if grid.rucio.may_end else flow.lifetime_min.total_seconds() - way
    return max(stays, 0.0) + storage.delete_lag


# --------------------------------------------------------------------------- constant rates, and what is stored


def campaign_of(name: str) -> tuple[Campaign, timedelta]:
    """Return the campaign of a scenario, and for how long it is simulated."""
    drafts = files.read_menus(scenarios.menus(name))
    campaign = Campaign(name, "", drafts[0].preview.cycle, tuple(draft.preview for draft in drafts))
    days = scenarios.LARGE[name][1] if name in scenarios.LARGE else None
    return campaign, campaign.end - campaign.start if days is None else timedelta(days=days)


def asked(name: str) -> dict[Link, int]:
    """Return what each link of a scenario is due, in bytes."""
    campaign, lasts = campaign_of(name)
    due = Counter[Link]()
    for key, part in booked(campaign, campaign.start, campaign.start + lasts).items():
        due[key.link.source, key.link.destination] += part.bytes
    return due


def bound(name: str) -> Bound:
    """Return the bound of a scenario."""
    grid = grid_file.read((scenarios.FOLDER / name / "grid.yaml").read_bytes(), name)
    step = 3600.0 if name in scenarios.LARGE else 300.0
    return program(grid, *campaign_of(name), step).solve()


class Constant(NamedTuple):
    """What constant rates move of what is due, and the factors of the menu's rates, in their order."""

    moved: float
    factors: tuple[float, ...]


def best_constant(name: str, most: float, pool: ProcessPoolExecutor) -> Constant | None:
    """Return the best constant rates that keep all disks below 98 %; None if none does. `most` is the bound."""
    text = (scenarios.FOLDER / name / "menu.yaml").read_text()
    rates = [float(rate) for rate in re.findall(RATE, text)]
    tries = [(factor,) * len(rates) for factor in FACTORS]
    if len(rates) > 1:
        tries += [tuple(f if n == m else 1.0 for n in range(len(rates))) for m in range(len(rates)) for f in ALONE]
    asks = {
        each: sum(min(f, 1) * rate for f, rate in zip(each, rates, strict=True)) / sum(rates) for each in tries
    }
    best = Constant(0.0, ())
    while tries and best.moved < most - NEAR:
        now, tries = tries[:2], tries[2:]
        best = max(best, *pool.map(constant, [name] * len(now), now))
        tries = [each for each in tries if asks[each] > best.moved]  # others cannot move more
    return best if best.factors else None


def constant(name: str, factors: tuple[float, ...]) -> Constant:
    """Return what a scenario moves without control at constant parts of its rates, with seed 1.

    What a link moves beyond what the menu as it stands makes due does not count. A disk above 98 % makes it 0.
    """
    with tempfile.TemporaryDirectory() as place:
        menu, remaining = Path(place) / "menu.yaml", iter(factors)
        text = (scenarios.FOLDER / name / "menu.yaml").read_text()
        text = re.sub(TARGET, "", text)  # which the rates would not sum to
        menu.write_text(re.sub(RATE, lambda rate: f"rate: {float(rate[1]) * next(remaining):.6g} Gb/s", text))
        request = simulation.Request([menu], scenarios.FOLDER / name / "grid.yaml", policy="off")
        with simulation.new_ledger(Path(place) / "ledger.sqlite") as ledger:
            made = simulation.run(request, ledger)
            moved = forecast.sum_moved_in_time(ledger, made.end)
            full = made.world.storages.hours_nearly_full.max() > 0
    due, by_link = asked(name), Counter[Link]()
    for key, amount in moved.items():
        by_link[key.link.source, key.link.destination] += amount
    part = sum(min(by_link[link], amount) for link, amount in due.items()) / sum(due.values())
    return Constant(0.0, ()) if full else Constant(part, factors)


def main(names: list[str]) -> None:
    """Compute the rows of scenarios, and store them; the others stay."""
    logging.getLogger("dc_inject").setLevel(logging.CRITICAL)
    stored = stored_bounds()
    every = sorted(path.parent.name for path in scenarios.FOLDER.glob("*/grid.yaml"))
    with ProcessPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for name in names or every:
            most = bound(name)
            row: dict[str, object] = {"bound": _percent(most.moved), "why": list(most.why)}
            best = None if name in scenarios.LARGE else best_constant(name, most.moved, pool)
            if best is not None:
                row |= {"constant": _percent(best.moved), "factors": list(best.factors)}
            elif name not in scenarios.LARGE:
                row["constant"] = None
            print(f"{name}: {row}", flush=True)
            stored[name] = row
            STORED.write_text(HEAD + yaml.safe_dump(dict(sorted(stored.items())), sort_keys=False, width=110))


def _percent(part: float) -> float:
    return round(100 * part, 1)


if __name__ == "__main__":
    main(sys.argv[1:])
