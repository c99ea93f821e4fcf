"""How even traffic is: `python -m tests.apps.twin.even [--free] [--policy act] [--days 1] GRID MENU...`.

The menus are simulated, and each link's ledger is held against what it was due: at the start of a cycle it is off
by the debt c that it carries in (less what is forgiven then); at the moment t of the cycle it was due D(t) since,
the integral of its rate with steps and shapes, and overhead, and had been given G(t):

    stray = max |c + D(t) - G(t)| / L          over all instants, just before and just after each release
    beyond = max (|c + D(t) - G(t)| - c) / L   for c > 0: what is not the debt of an earlier cycle

with L the link's largest dataset. Peak to mean is that of bins worth ten of L. Held cycles stand apart: a hold
other than `too-coarse` (the next dataset is larger than what is left) leads in them, or a limit cut their budget.

Time in the twin goes in steps (30 s for cycles of 15 min), and what is released within one goes out at its end. So
a release counts at its own moment if it went out by the end of its step, and when it went out if that was later.

With --free nothing is short: transfers are fast, and WANs, FTS, Rucio, spaces and the menus' limits set no bound.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from dc_inject.apps.twin import simulation
from dc_inject.apps.twin.grid.world import choose_step_length
from dc_inject.apps.twin.several_seeds import compute_peaks_to_means
from dc_inject.ledger import Ledger, Row
from dc_inject.ledger.database import flow_of, moment
from dc_inject.menu import campaign
from dc_inject.model import Cycle, Flow, FlowKey, Hold, rates, units
from dc_inject.system import files

SHOWN = 5  # of the worst
ENOUGH = 20  # of a link's largest datasets are two bins
NO_LIMITS = "limits: {total: 1000 Tb/s, per_site: 1000 Tb/s, rules_per_hour: 1000000, files_in_flight: 1000000000}"
FAST = {
    "defaults": {"link": {"file_speed": "50 MB/s"}},
    "fts": {"actives": "2000..10000", "per_storage": 1_000_000, "operations": 100_000},
    "rucio": {"requests": 100_000},
}
Release = tuple[datetime, int]
Course = Callable[[datetime], float]


@dataclass(frozen=True, slots=True)
class Stray:
    """How far a link was from what it was due in a cycle, at most; in its largest datasets."""

    stray: float
    beyond: float  # the debt that it carried in
    carried: float
    due: float
    items: int
    moments: int  # of release
    hold: Hold | None
    cut: bool  # by a limit, by however little
    cycle: Cycle
    key: FlowKey

    @property
    def held(self) -> bool:
        """Whether anything kept bytes back."""
        return self.cut or self.hold not in {None, Hold.TOO_COARSE}

    def __str__(self) -> str:
        """Say which cycle of which link it is."""
        return (
            f"{self.stray:.2f} (beyond the debt carried in {self.beyond:.2f}): {self.key} in {self.cycle}: due "
            f"{self.due:.1f}, carried in {self.carried:.2f}, given {units.counted(self.items, 'datasets')} at "
            f"{units.counted(self.moments, 'moments')}{f', {self.hold}' if self.hold else ''}"
        )


def strays(ledger: Ledger, flows: Iterable[Flow]) -> list[Stray]:
    """Return how far each link was from its due, in each cycle in which it was due anything and was planned."""
    releases: dict[tuple[FlowKey, Cycle], list[Release]] = defaultdict(list)
    largest: dict[FlowKey, int] = defaultdict(int)
    for entry in ledger.entries():
        injection = entry.injection
        if entry.accepted_at is not None and entry.called_at is not None:
            step = timedelta(seconds=choose_step_length(injection.cycle.length.total_seconds()))
            at = max(injection.release, entry.called_at - step)
            releases[injection.flow, injection.cycle].append((at, injection.item.bytes - entry.present))
            largest[injection.flow] = max(largest[injection.flow], injection.item.bytes)
    by_key: dict[FlowKey, list[Flow]] = defaultdict(list)
    for flow in flows:
        by_key[flow.key].append(flow)
    extras = _extras(ledger.path)
    found = []
    for row in ledger.rows():
        if row.due and row.lifetime is not None and largest[row.key]:
            due = row.due + extras[row.cycle.start, row.key]
            given = sorted(releases[row.key, row.cycle])
            found.append(_stray(row, due, given, largest[row.key], _course(by_key[row.key], row.cycle)))
    return found


def _stray(row: Row, due: int, given: Sequence[Release], largest: int, course: Course) -> Stray:
    carried = row.want - due - row.forgiven
    debts = []
    total = 0
    for at, size in [*given, (row.cycle.end, 0)]:
        ought = carried + due * course(at)
        debts += [ought - total, ought - total - size]
        total += size
    most = max(map(abs, debts))
    return Stray(
        most / largest,
        (most - max(carried, 0)) / largest,
        carried / largest,
        due / largest,
        len(given),
        len({at for at, _ in given}),
        row.held.hold if row.held is not None else None,
        row.budget < row.want - row.forgiven,
        row.cycle,
        row.key,
    )


def _course(flows: Sequence[Flow], cycle: Cycle) -> Course:
    """Return which part of a cycle's due is due by a moment."""
    whole = sum(rates.area(flow, cycle.start, cycle.end) for flow in flows)
    steady = all(flow.shape is None and flow.start <= cycle.start < cycle.end <= flow.end for flow in flows)
    if steady or not whole:
        return lambda at: (at - cycle.start) / cycle.length
    return lambda at: float(sum(rates.area(flow, cycle.start, at) for flow in flows) / whole)


def _extras(path: Path) -> Mapping[tuple[datetime, FlowKey], int]:
    """Return what overhead, and what was lost, add to each row: nobody else needs to read it."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute(
            "SELECT cycle, scenario, source, destination, through, cycle_row.extra "
            "FROM cycle_row JOIN account ON account.id = account"
        )
        return {(moment(cycle), flow_of(*flow)): extra for cycle, *flow, extra in rows}


# --------------------------------------------------------------------------- a grid that carries everything


@contextmanager
def nothing_short(grid: Path, menus: Sequence[Path]) -> Iterator[tuple[Path, list[Path]]]:
    """Give copies of a grid and of menus, with the files beside them, in which nothing is short."""
    written = yaml.safe_load(grid.read_text("utf-8"))
    for site in written["sites"].values():
        storages = site["storages"]
        site.clear()
        site["storages"] = {
            name: {key: value for key, value in traits.items() if key == "host"}
            for name, traits in storages.items()
        }
    kept = {name: written[name] for name in ("grid", "name", "sites", "datasets") if name in written}
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as name:
        folder = Path(name)
        free_grid = folder / "grid.yaml"
        free_grid.write_text(yaml.safe_dump(kept | FAST), "utf-8")
        for place in {menu.resolve().parent for menu in menus}:
            shutil.copytree(place, folder / place.name)
            for file in (folder / place.name).glob("*.yaml"):
                file.write_text(re.sub(r"(?m)^limits:.*$", NO_LIMITS, file.read_text("utf-8")), "utf-8")
        copied = [folder / menu.resolve().parent.name / menu.name for menu in menus]
        yield free_grid, copied


# --------------------------------------------------------------------------- what is printed


def report(found: Sequence[Stray], peaks: Mapping[FlowKey, float]) -> Iterator[str]:
    """Say in lines how even traffic was."""
    free, held = [one for one in found if not one.held], [one for one in found if one.held]
    links, held_links = {one.key for one in found}, {one.key for one in held}
    yield f"{units.counted(len(links), 'links')}, {len(found)} of their cycles"
    holds = Counter("cut by a limit" if one.hold in {None, Hold.TOO_COARSE} else str(one.hold) for one in held)
    of_holds = ", ".join(f"{hold} in {count}" for hold, count in holds.most_common()) or "none"
    yield f"held: {of_holds}, on {len(held_links)} links"
    for words, some in (("cycles that were not held", free), ("held cycles", held)):
        if some:
            yield f"{words}: stray {_spread([one.stray for one in some], 1.0)}"
            yield f"{words}: beyond the debt carried in {_spread([one.beyond for one in some], 1.0)}"
    for one in sorted(free, key=lambda one: -one.beyond)[:SHOWN]:
        yield f"  {one}"
    volume: dict[FlowKey, float] = defaultdict(float)
    for one in found:
        volume[one.key] += one.due
    for words, keys in (("links that were never held", links - held_links), ("links that were held", held_links)):
        ratios = {key: peaks[key] for key in keys if volume[key] >= ENOUGH}
        if ratios:
            yield f"{words}: peak/mean {_spread(list(ratios.values()), 1.2)}"
            for key in sorted(ratios, key=lambda key: -ratios[key])[:SHOWN]:
                yield f"  {ratios[key]:.2f}: {key}"


def _spread(values: Sequence[float], aim: float) -> str:
    ordered = sorted(values)
    middle, most = ordered[len(ordered) // 2], ordered[int(0.95 * (len(ordered) - 1))]
    above = sum(value > aim for value in ordered)
    of = f"above {aim:g}: {above} of {len(ordered)}"
    return f"median {middle:.2f}, 95 % {most:.2f}, at most {ordered[-1]:.2f}; {of}"


def main(words: Sequence[str]) -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.apps.twin.even")
    parser.add_argument("grid", type=Path)
    parser.add_argument("menus", type=Path, nargs="+")
    parser.add_argument("--free", action="store_true", help="nothing is short")
    parser.add_argument(
        "--policy", choices=[policy for policy in simulation.POLICIES if policy != simulation.FIXED]
    )
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", type=Path, help="keep the ledger")
    given = parser.parse_args(words)
    logging.getLogger("dc_inject").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="dc_inject-") as folder, ExitStack() as stack:
        grid, menus = given.grid, given.menus
        if given.free:
            grid, menus = stack.enter_context(nothing_short(grid, menus))
        request = simulation.Request(menus, grid, given.days, policy=given.policy)
        path = given.ledger or Path(folder) / "even.sqlite"
        with Ledger.open(path, synchronous="OFF") as ledger:
            made = simulation.run(request, ledger, given.seed)
            flows = campaign([draft.resolve({}) for draft in files.read_menus(menus)]).flows
            for line in report(strays(ledger, flows), compute_peaks_to_means(ledger, made.start, made.end)):
                print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
