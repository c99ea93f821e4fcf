"""Small grids for the tests of the twin."""

from __future__ import annotations

from itertools import count

from dc_inject.apps.twin.grid.description import Grid, LinkTraits, Site, Storage
from dc_inject.apps.twin.grid.rucio import Rule
from dc_inject.apps.twin.grid.transfers import Queue
from dc_inject.apps.twin.grid.world import World

GB, HOUR, DAY = 1e9, 3600.0, 86400.0
_numbers = count()


def grid(*storages: Storage, links: dict[str, LinkTraits] | None = None, **more) -> Grid:
    """A grid whose storages each have a site of their own, without limits of FTS that matter."""
    sites = {one.site: Site(one.site) for one in storages}
    return Grid("test", sites, {one.name: one for one in storages}, links or {}, **more)


def storage(name: str, **how) -> Storage:
    return Storage(name, f"site of {name}", **{"fts_in": 10_000, "fts_out": 10_000} | how)


def rule(
    world: World,
    source: str,
    destination: str,
    files: int,
    size: float = 1 * GB,
    lifetime: float = 10 * DAY,
    **how,
) -> Rule:
    """Make a rule of so many files of one size."""
    number = next(_numbers)
    queue = Queue(source, destination, how.get("activity", "test"), how.get("priority", 3))
    made = Rule(
        f"rule {number}", f"set {number}", queue, files, int(files * size), world.now, world.now + lifetime
    )
    world.rucio.add(made)
    return made


def arrived(world: World) -> float:
    """Bytes that are on storages."""
    return float(world.storages.used.sum())
