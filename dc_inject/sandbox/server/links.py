"""A transfertool without bytes: files arrive after a link's latency and their share of its speed, or fail.

The network is read from a file, again whenever it changes:
`{"seed": 1, "default": {"rate": B/s, "latency": s, "failures": 0..1, "streams": n}, "links": {"A:B": {}}}`.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from rucio.db.sqla.constants import RequestState
from rucio.transfertool.mock import MockTransferStatusReport, MockTransfertool


@dataclass(slots=True)
class Flight:
    """One file on its way over a link."""

    name: str
    attempt: int
    remaining: float  # bytes
    starts: float  # seconds, when the latency is over


@dataclass(slots=True)
class Link:
    """What is on its way from one RSE to another, in the order of submission."""

    updated: float
    flights: dict[str, Flight] = field(default_factory=dict)

    def advance(self, now: float, rate: float, streams: int) -> list[tuple[str, Flight]]:
        """Move bytes until `now`; returns what has arrived.

        The first `streams` files share `rate` (bytes per second) evenly; what a finished file leaves over
        goes to the others.
        """
        since, self.updated = self.updated, now
        active = [flight for flight in self.flights.values() if flight.starts < now]
        budget = rate * max(0.0, now - since)
        while active and budget > 0:
            batch = sorted(active[:streams], key=lambda flight: flight.remaining)
            step = min(batch[0].remaining, budget / len(batch))
            for flight in batch:
                flight.remaining -= step
            budget -= step * len(batch)
            active = [flight for flight in active if flight.remaining > 0.5]
            if step == 0:
                break
        arrived = [(key, flight) for key, flight in self.flights.items() if flight.remaining <= 0.5]
        for key, _ in arrived:
            del self.flights[key]
        return arrived


class Network:
    """All links of the sandbox; lives in the daemons' process."""

    def __init__(self, file: Path) -> None:
        """Read the links from `file`, now and whenever it changes."""
        self._file = file
        self._stamp: tuple[int, int] = (0, 0)
        self._settings: dict[str, Any] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._done: dict[str, bool] = {}  # request id -> arrived well; kept until it was told

    def add(self, request_id: str, source: str, destination: str, name: str, size: float, attempt: int) -> None:
        """Put one file on its way."""
        now = time.monotonic()
        link = self._links.setdefault((source, destination), Link(now))
        latency = self._of(source, destination)["latency"]
        link.flights[request_id] = Flight(name, attempt, max(size, 1.0), now + latency)

    def advance(self) -> None:
        """Move everything on every link to the present time."""
        self._reload()
        now = time.monotonic()
        for (source, destination), link in self._links.items():
            settings = self._of(source, destination)
            for key, flight in link.advance(now, settings["rate"], settings["streams"]):
                dice = random.Random(f"{self._settings['seed']} {flight.name} {destination} {flight.attempt}")  # noqa: S311
                self._done[key] = dice.random() >= settings["failures"]

    def outcome(self, request_id: str) -> bool | None:
        """Tell once how it ended: True arrived, False failed; None while it is on its way."""
        return self._done.pop(request_id, None)

    def knows(self, request_id: str, source: str, destination: str) -> bool:
        """Tell whether this file is on its way here (not after a restart of the daemons)."""
        link = self._links.get((source, destination))
        return request_id in self._done or (link is not None and request_id in link.flights)

    def forget(self, request_id: str) -> None:
        """Drop a cancelled file."""
        self._done.pop(request_id, None)
        for link in self._links.values():
            link.flights.pop(request_id, None)

    def _of(self, source: str, destination: str) -> dict[str, Any]:
        self._reload()
        return {**self._settings["default"], **self._settings["links"].get(f"{source}:{destination}", {})}

    def _reload(self) -> None:
        status = self._file.stat()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._settings = json.loads(self._file.read_text())
            self._stamp = stamp


class LinkTransfertool(MockTransfertool):  # type: ignore[misc]  # Rucio is not installed where mypy runs
    """Rucio's mock transfertool, with a network below it."""

    network: Network
    _jobs: dict[str, list[str]] = {}  # noqa: RUF012 (all instances are one service)

    def group_into_submit_jobs(self, transfers: Iterable[list[Any]]) -> list[dict[str, Any]]:
        """One job per link."""
        jobs: dict[tuple[str, str], list[Any]] = {}
        for hop in chain.from_iterable(transfers):
            jobs.setdefault((hop.src.rse.name, hop.dst.rse.name), []).append(hop)
        return [{"transfers": hops, "job_params": {}} for hops in jobs.values()]

    def submit(self, transfers: Iterable[Any], job_params: dict[str, str], timeout: int | None = None) -> str:  # noqa: ARG002
        """Take a job; returns its id."""
        job = str(uuid.uuid4())
        self._jobs[job] = []
        for hop in transfers:
            request = hop.rws
            self.network.add(
                request.request_id,
                hop.src.rse.name,
                hop.dst.rse.name,
                request.name,
                request.byte_count,
                request.retry_count,
            )
            self._jobs[job].append(request.request_id)
        return job

    def bulk_query(
        self,
        requests_by_eid: Mapping[str, Mapping[str, Any]],
        timeout: int | None = None,  # noqa: ARG002 (the signature is Rucio's)
    ) -> dict[str, dict[str, MockTransferStatusReport]]:
        """Tell of the transfers that have ended; one unknown here starts (the daemons were restarted)."""
        self.network.advance()
        answer: dict[str, dict[str, MockTransferStatusReport]] = {}
        for job, requests in requests_by_eid.items():
            for request_id, request in requests.items():
                source, destination = request["src_rse"].name, request["dst_rse"].name
                if not self.network.knows(request_id, source, destination):
                    attempt = request["retry_count"] or 0
                    self.network.add(request_id, source, destination, request["name"], request["bytes"], attempt)
                arrived = self.network.outcome(request_id)
                if arrived is not None:
                    report = MockTransferStatusReport(request_id, job)
                    report.state = RequestState.DONE if arrived else RequestState.FAILED
                    answer.setdefault(job, {})[request_id] = report
        return answer

    def cancel(self, transfer_ids: Iterable[str], timeout: int | None = None) -> bool:  # noqa: ARG002
        """Take cancelled transfers off their links."""
        for job in transfer_ids:
            for request_id in self._jobs.pop(job, []):
                self.network.forget(request_id)
        return True
