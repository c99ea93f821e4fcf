"""A service that is only read: what would be written goes to a simulated one instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dc_inject.backends.sim import SimBackend
from dc_inject.model import DatasetFilter, Entry, FileFilter, Injection, Item, Link
from dc_inject.model.ports import (
    Backend,
    Candidate,
    Clock,
    Endpoint,
    Identity,
    LinkQueue,
    Missing,
    Note,
    Observation,
    Outcome,
    Removal,
    ReplicaStatus,
    RseFacts,
)


class DryBackend:
    """Reads from the real service; rules exist only in a simulation, where they complete at once."""

    def __init__(self, real: Backend, clock: Clock) -> None:
        """Take the service to read, and the clock that simulated rules live on."""
        self._real = real
        self._sim = SimBackend(clock, items={}, name=real.name)
        self.name = real.name

    def check(self) -> Identity:
        """Ask the real service who we are."""
        return self._real.check()

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Ask the real service what an expression means."""
        return self._real.resolve(expression)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: Note | None = None
    ) -> Iterator[Item]:
        """Stream the real inventory."""
        return self._real.inventory(source, datasets, note)

    def check_replicas(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, ReplicaStatus]:
        """Ask the real service; what has landed in the simulation is there."""
        simulated = self._sim.check_replicas(candidates)
        landed = {candidate: status for candidate, status in simulated.items() if status.item}
        real = self._real.check_replicas(candidates)
        self._sim.files |= {candidate.item: status.files for candidate, status in real.items() if status.files}
        real = {
            candidate: replace(status, destination_busy=status.destination_busy or self._sim.is_busy(candidate))
            for candidate, status in real.items()
        }
        return {**real, **landed}

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Accept in the simulation; the real service hears nothing."""
        return self._sim.submit(injections)

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        """Return the state of the simulated rules."""
        return self._sim.observe(entries, exact=exact)

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """End simulated rules."""
        return self._sim.end(entries)

    def remove(self, entries: Sequence[Entry]) -> list[Removal]:
        """Let go of what was only simulated."""
        return self._sim.remove(entries)

    def sites(self, rses: Iterable[str]) -> Mapping[str, RseFacts]:
        """Ask the real service."""
        return self._real.sites(rses)

    def endpoints(self, rse: str) -> list[Endpoint]:
        """Ask the real service."""
        return self._real.endpoints(rse)

    def queues(self, links: Sequence[Link]) -> Mapping[Link, LinkQueue | Missing]:
        """Ask the real service."""
        return self._real.queues(links)
