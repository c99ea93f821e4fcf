"""A service that is only read: what would be written goes to a simulated one instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dc_inject.backends.sim import SimBackend
from dc_inject.model import DatasetFilter, FileFilter, Item, Link, ports


class DryBackend(SimBackend):
    """Reads from the real service; rules exist only in a simulation, where they complete at once."""

    def __init__(self, real: ports.Backend, clock: ports.Clock) -> None:
        """Take the service to read, and the clock that simulated rules live on."""
        super().__init__(clock, items={}, name=real.name)
        self._real = real

    def check(self) -> ports.Identity:
        """Ask the real service who we are."""
        return self._real.check()

    def resolve(self, expression: str) -> tuple[str, ...]:
        """Ask the real service what an expression means."""
        return self._real.resolve(expression)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: ports.Note | None = None
    ) -> Iterator[Item]:
        """Stream the real inventory."""
        return self._real.inventory(source, datasets, note)

    def check_replicas(
        self, candidates: Sequence[ports.Candidate]
    ) -> Mapping[ports.Candidate, ports.ReplicaStatus]:
        """Ask the real service; what has landed in the simulation is there."""
        simulated = super().check_replicas(candidates)
        landed = {candidate: status for candidate, status in simulated.items() if status.item}
        real = self._real.check_replicas(candidates)
        self.files |= {candidate.item: status.files for candidate, status in real.items() if status.files}
        real = {
            candidate: replace(status, destination_busy=status.destination_busy or self.is_busy(candidate))
            for candidate, status in real.items()
        }
        return {**real, **landed}

    def sites(self, rses: Iterable[str]) -> Mapping[str, ports.RseFacts]:
        """Ask the real service."""
        return self._real.sites(rses)

    def endpoints(self, rse: str) -> list[ports.Endpoint]:
        """Ask the real service."""
        return self._real.endpoints(rse)

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue | ports.Missing]:
        """Ask the real service."""
        return self._real.queues(links)
