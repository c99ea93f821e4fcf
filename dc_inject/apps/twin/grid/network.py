"""The network and storages as resources that links share, each with what it can carry now.

A link passes its source for reading, its destination for writing, the WANs of both sites (unless it stays within
one), its own bound, and the paths that name it. A storage that has more connections than it can
serve slows each file, or fails the excess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dc_inject.apps.twin.grid.arrays import Flags, Floats, Ints, none, summed
from dc_inject.apps.twin.grid.description import Grid, Overload, names_link

UNLIMITED = 0  # the resource without limit


class Network:
    """Numbers storages, links and resources, and has what each carries.

    `source`, `target`, `speed`, `overhead` and `failures` are arrays over the links that have been used.
    """

    def __init__(self, grid: Grid) -> None:
        """Take sites, storages and paths; links are added as they are used."""
        self._grid = grid
        self.storages = {name: number for number, name in enumerate(grid.storages)}
        self.source, self.target = none(), none()
        self.speed, self.overhead, self.failures = np.zeros(0), np.zeros(0), np.zeros(0)
        self._links: dict[tuple[str, str], int] = {}
        self._members: list[list[int]] = []
        self._full, self._names, self._numbers = [np.inf], [""], dict[str, int]()
        self._capacity: Floats | None = None  # made again when something changes
        self._part: dict[str, float] = {}  # subject -> what is left of it, also of links that are not used yet
        for site in grid.sites.values():
            self._resource(f"in {site.name}", site.wan_in)
            self._resource(f"out {site.name}", site.wan_out)
        for storage in grid.storages.values():
            self._resource(f"write {storage.name}", storage.write)
            self._resource(f"read {storage.name}", storage.read)
        for path in grid.paths:
            self._resource(f"path {path.name}", path.rate)
        specs = list(grid.storages.values())
        self._knee = np.array([spec.connections or np.inf for spec in specs])
        self._fails = np.array([spec.overload is Overload.FAILS for spec in specs], dtype=bool)

    @property
    def links(self) -> Mapping[tuple[str, str], int]:
        """The links that have been used, by source and destination, with their numbers."""
        return self._links

    @property
    def resources(self) -> int:
        """How many there are."""
        return len(self._full)

    def members(self, links: Ints) -> Ints:
        """Return which resources each of these links passes."""
        width = max(1, *map(len, self._members))
        padded = [resources + [UNLIMITED] * (width - len(resources)) for resources in self._members]
        return np.array(padded, dtype=np.int64)[links]

    def add(self, source: str, destination: str) -> int:
        """Add a link that has not been used yet, and return its number."""
        grid, link = self._grid, f"{source}:{destination}"
        ends = grid.storages[source].site, grid.storages[destination].site
        passed = [f"read {source}", f"write {destination}"]
        if ends[0] != ends[1]:
            passed += [f"out {ends[0]}", f"in {ends[1]}"]
        traits = grid.traits(source, destination)
        passed.append(f"link {link}")
        self._resource(f"link {link}", traits.rate)
        shared = (
            path for path in grid.paths if any(names_link(entry, source, destination) for entry in path.links)
        )
        passed += [f"path {path.name}" for path in shared]
        self._members.append([self._numbers[name] for name in passed if name in self._numbers])
        self.source = np.append(self.source, self.storages[source])
        self.target = np.append(self.target, self.storages[destination])
        self.speed = np.append(self.speed, traits.file_speed)
        self.overhead = np.append(self.overhead, traits.overhead)
        self.failures = np.append(self.failures, traits.failures)
        self._links[source, destination] = len(self._links)
        return self._links[source, destination]

    def passed(self, link: int) -> Iterator[tuple[int, str]]:
        """Yield the resources that a link passes, with what people call them."""
        words = {
            "read": "reading at {}",
            "write": "writing at {}",
            "in": "the WAN into {}",
            "out": "the WAN out of {}",
            "link": "the link itself",
            "path": "{}",
        }
        for number in self._members[link]:
            kind, _, name = self._names[number].partition(" ")
            yield number, words[kind].format(name)

    def sum_at_ends(self, amounts: Floats) -> tuple[Floats, Floats]:
        """Return what amounts of links are at each storage: going out, and coming in."""
        storages = len(self.storages)
        return summed(self.source, amounts, storages), summed(self.target, amounts, storages)

    def scale(self, subject: str, part: float) -> None:
        """Let a site, storage, path or link carry only a part of its rate; 1 is all."""
        self._part[subject] = part
        self._capacity = None

    def capacity(self) -> Floats:
        """Return what each resource carries now, to read."""
        if self._capacity is None:
            full = self._capacity = np.asarray(self._full)
            for subject, part in self._part.items():
                for kind in ("in", "out", "write", "read", "path", "link"):
                    number = self._numbers.get(f"{kind} {subject}")
                    if number is not None:
                        full[number] *= part
        return self._capacity

    def speed_now(self, connections: Floats) -> Floats:
        """Return the speed of a file on each link, with so many connections at each storage."""
        slowing = np.where(self._fails, 1.0, self._served(connections) ** 2)
        return self.speed * np.minimum(slowing[self.source], slowing[self.target])

    def failing_now(self, connections: Floats) -> Floats:
        """Return what part of the transfers of each link fails, with so many connections at each storage."""
        fine = np.where(self._fails, self._served(connections), 1.0)
        return 1 - (1 - self.failures) * fine[self.source] * fine[self.target]

    def overloaded(self, connections: Floats) -> Flags:
        """Return which storages have more connections than they can serve."""
        return np.asarray(connections > self._knee)

    def _served(self, connections: Floats) -> Floats:
        """Return what part of its connections each storage can serve."""
        over = connections > self._knee
        if not np.count_nonzero(over):
            return np.ones(len(over))
        return np.where(over, self._knee / np.maximum(connections, 1), 1.0)

    def _resource(self, name: str, rate: float | None) -> None:
        """Add a resource, unless it is without limit."""
        if rate is not None:
            self._numbers[name] = len(self._full)
            self._names.append(name)
            self._full.append(rate)
            self._capacity = None
