"""Ten small grids in the twin and in SimGrid: `python -m tests.apps.twin.simgrid_check` (`make simgrid`).

SimGrid is a simulator of distributed systems, made by others and on another principle: each file is a flow of its
own, and time goes from event to event. For each job of each grid the times until its last file has arrived are
compared; they have to agree to 1 %. It is looked for in the interpreter that SIMGRID_PYTHON names.

What FTS does beside giving a link so many slots is not compared, nor a file's overhead where files share a
bottleneck: there files that begin together pause together in SimGrid, and the twin spreads the pauses evenly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

from dc_inject.apps.twin.grid.description import (
    Fault,
    Fts,
    Grid,
    LinkTraits,
    Path,
    Rucio,
    Site,
    Storage,
    Trouble,
    names_link,
)
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World

MOST = 0.01  # the difference of times, relatively
STEP = 10.0  # seconds; a job takes hours
GB, HOUR = 1e9, 3600.0
PYTHON = os.environ.get("SIMGRID_PYTHON", "/usr/bin/python3")
INSTALL = "SimGrid is not installed for {}: on Debian, `apt-get install python3-simgrid`"


@dataclass(frozen=True)
class Job:
    """Files of one size that are queued on a link at a moment."""

    ends: tuple[str, str]
    files: int
    size: float = 2 * GB
    at: float = 0.0


@dataclass(frozen=True)
class Case:
    """A grid and what moves in it."""

    what: str
    grid: Grid
    jobs: tuple[Job, ...] = field(default=())


def grid(*storages: Storage, slots: int | dict[str, int] = 20, speed: float = 0.02 * GB, **more) -> Grid:
    """Each storage has a site of its own, unless it names one that `sites` has; FTS limits slots of links only."""
    sites = more.pop("sites", {})
    sites = {one.site: sites.get(one.site, Site(one.site)) for one in storages}
    base = LinkTraits(file_speed=speed, overhead=more.pop("overhead", 0.0))
    traits = more.pop("links", {})
    if isinstance(slots, dict):
        links = {name: replace(traits.get(name, base), actives=(n, n)) for name, n in slots.items()}
    else:
        base = replace(base, actives=(slots, slots))
        links = {name: replace(one, actives=(slots, slots)) for name, one in traits.items()}
    fts = Fts(per_storage=10_000, operations=1e6)
    named = {one.name: one for one in storages}
    return Grid("check", sites, named, links, base, fts=fts, rucio=Rucio(requests=1e6), **more)


def at(name: str, site: str = "", **how) -> Storage:
    """A storage at a site, or at one of its own."""
    return Storage(name, site or f"site {name}", **how)


def mesh(*names: str) -> list[tuple[str, str]]:
    """All pairs."""
    return [(a, b) for a in names for b in names if a != b]


A, B, C, D = at("A"), at("B"), at("C"), at("D")
CASES = (
    Case("one link, by its own rate", grid(A, B, links={"A:B": LinkTraits(0.3 * GB, 0.02 * GB, 0.0)}),
         (Job(("A", "B"), 2000),)),
    Case("one link, by its slots", grid(A, B), (Job(("A", "B"), 1600),)),
    Case("one link, by its slots and overhead", grid(A, B, overhead=20.0), (Job(("A", "B"), 1600),)),
    Case("two flows at one bottleneck", grid(A, B, at("C", write=0.4 * GB)),
         (Job(("A", "C"), 1500), Job(("B", "C"), 1500))),
    Case("two flows, one with three times the slots",
         grid(A, B, at("C", write=0.4 * GB), slots={"A:C": 10, "B:C": 30}),
         (Job(("A", "C"), 1000), Job(("B", "C"), 2000))),
    Case("three flows on two resources", grid(at("A", read=0.3 * GB), B, at("C", write=0.2 * GB)),
         (Job(("A", "C"), 700), Job(("A", "B"), 1500), Job(("B", "C"), 1000))),
    Case("a WAN with two storages behind it, and a cable",
         grid(A, at("B", "S"), at("C", "S"), D, sites={"S": Site("S", wan_in=0.5 * GB)},
              paths=(Path("cable", 0.2 * GB, ("A:*",)),)),
         (Job(("A", "B"), 800), Job(("A", "D"), 900), Job(("D", "C"), 2000))),
    Case("a capacity that falls to a third, and comes back",
         grid(A, at("B", write=0.3 * GB), troubles=(Trouble(Fault.CAPACITY, 1 * HOUR, 1 * HOUR, "B", 1 / 3),)),
         (Job(("A", "B"), 1800),)),
    Case("a queue that another joins later", grid(A, B, at("C", write=0.3 * GB)),
         (Job(("A", "C"), 1500), Job(("B", "C"), 1000, at=1.5 * HOUR),
          Job(("B", "C"), 500, 4 * GB, at=1.5 * HOUR))),
    Case("a mesh of four with narrow WANs and files of several sizes",
         grid(A, B, C, D, slots=10, sites={"site A": Site("site A", 0.3 * GB, 0.2 * GB),
                                           "site C": Site("site C", 0.15 * GB, 0.4 * GB)}),
         tuple(Job(ends, 400 + 50 * n, (1 + n % 4) * GB) for n, ends in enumerate(mesh("A", "B", "C", "D")))),
)  # fmt: skip


def in_twin(case: Case) -> list[float]:
    """Return when each job was done, in the twin."""
    world = World(case.grid, 1, STEP)
    numbers: list[int | None] = [None] * len(case.jobs)
    done: list[float | None] = [None] * len(case.jobs)
    while None in done:
        for n, job in enumerate(case.jobs):
            if numbers[n] is None and job.at <= world.now:
                numbers[n] = made = world.transfers.open_job(Queue(*job.ends, "check", 3), job.size)
                world.transfers.submit(made, job.files)
        world.advance(world.now + STEP)
        for n, made in enumerate(numbers):
            if made is not None and done[n] is None and not world.transfers.left[made]:
                done[n] = world.now
    return [moment for moment in done if moment is not None]


def in_simgrid(case: Case) -> list[float]:
    """Return when each job was done, in SimGrid."""
    resources, links = _resources(case.grid), []
    for ends in dict.fromkeys(job.ends for job in case.jobs):
        traits, jobs = case.grid.traits(*ends), [job for job in case.jobs if job.ends == ends]
        assert traits.actives is not None
        links.append(
            {
                "ends": ends,
                "slots": traits.actives[0],
                "speed": traits.file_speed,
                "overhead": traits.overhead,
                "passes": [name for name in _passed(case.grid, *ends) if name in resources],
                "jobs": [{"files": job.files, "size": job.size, "at": job.at} for job in jobs],
            }
        )
    changes = []
    for one in case.grid.troubles:
        name = f"write {one.subject}"
        changes += [(one.at, name, one.part * resources[name]), (one.at + one.lasting, name, resources[name])]
    wanted = {"storages": [*case.grid.storages], "resources": resources, "links": links, "changes": changes}
    script = FilePath(__file__).with_name("in_simgrid.py")
    run = subprocess.run([PYTHON, script], input=json.dumps(wanted), text=True, capture_output=True, check=False)
    if run.returncode:
        raise SystemExit(f"{case.what}: SimGrid failed\n{run.stderr}")
    found = json.loads(run.stdout)
    return [
        found[f"{n} {order}"]
        for job in case.jobs
        for n, link in enumerate(links)
        for order, some in enumerate(link["jobs"])
        if link["ends"] == job.ends and (some["files"], some["size"]) == (job.files, job.size)
    ]


def _resources(grid: Grid) -> dict[str, float]:
    """Return what carries only so much, by a name."""
    found = {}
    for site in grid.sites.values():
        found |= {f"in {site.name}": site.wan_in, f"out {site.name}": site.wan_out}
    for storage in grid.storages.values():
        found |= {f"read {storage.name}": storage.read, f"write {storage.name}": storage.write}
    found |= {f"path {path.name}": path.rate for path in grid.paths}
    found |= {f"link {name}": traits.rate for name, traits in grid.links.items()}
    return {name: rate for name, rate in found.items() if rate is not None}


def _passed(grid: Grid, source: str, destination: str) -> list[str]:
    """Return what a link passes."""
    ends = grid.storages[source], grid.storages[destination]
    passed = [f"read {source}", f"write {destination}", f"link {source}:{destination}"]
    if ends[0].site != ends[1].site:
        passed += [f"out {ends[0].site}", f"in {ends[1].site}"]
    paths = (path for path in grid.paths if any(names_link(one, source, destination) for one in path.links))
    return passed + [f"path {path.name}" for path in paths]


def main() -> int:
    """Compare all; returns how many disagree."""
    if subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True, check=False).returncode:
        print(INSTALL.format(PYTHON), file=sys.stderr)
        return 1
    wrong = 0
    for case in CASES:
        ours, theirs = in_twin(case), in_simgrid(case)
        worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
        wrong += worst > MOST
        times = ", ".join(f"{a:.0f} ({b:.0f})" for a, b in zip(ours[:3], theirs, strict=False))
        print(f"{100 * worst:5.2f} %  {case.what}: {times}{' ...' if len(ours) > 3 else ''} s", flush=True)
    print("all within 1 %" if not wrong else f"{wrong} of {len(CASES)} differ by more than 1 %")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
