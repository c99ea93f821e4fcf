"""Links without bytes: files arrive after a link's latency and their share of its speed, or fail.

The links are read from a file, again whenever it changes:
`{"seed": 1, "default": {"rate": B/s, "latency": s, "failures": 0..1, "streams": n}, "links": {"A:B": {}}}`.
Times are seconds on any one clock, given as arguments.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Flight:
    """One file on its way over a link."""

    job: str
    name: str
    attempt: int
    remaining: float  # bytes
    starts: float  # when the latency is over


@dataclass(slots=True)
class Link:
    """What is on its way from one RSE to another, by request id, in the order of submission."""

    updated: float
    flights: dict[str, Flight] = field(default_factory=dict)

    def advance(self, now: float, rate: float, streams: int) -> dict[str, Flight]:
        """Move bytes until `now`; returns what has arrived, which is then no longer on its way.

        The first `streams` files share `rate` (bytes per second) evenly; what a finished file leaves over
        goes to the others. A file whose latency ends meanwhile waits for the next step.
        """
        since, self.updated = self.updated, now
        active = [flight for flight in self.flights.values() if flight.starts <= since]
        budget = rate * (now - since)
        while active and budget > 0:
            served = active[:streams]
            step = min(budget / len(served), *(flight.remaining for flight in served))
            for flight in served:
                flight.remaining -= step
            budget -= step * len(served)
            active = [flight for flight in active if flight.remaining > 0]
        arrived = {key: flight for key, flight in self.flights.items() if flight.remaining <= 0}
        for key in arrived:
            del self.flights[key]
        return arrived


class Network:
    """All links of the sandbox."""

    def __init__(self, file: Path) -> None:
        """Read the links from `file`, now and whenever it changes."""
        self._file = file
        self._stamp: tuple[int, int] = (0, 0)
        self._settings: dict[str, Any] = {}
        self._links: dict[tuple[str, str], Link] = {}

    def add(self, request_id: str, pair: tuple[str, str], flight: Flight, now: float) -> None:
        """Put one file on its way from pair[0] to pair[1]; its latency begins now."""
        link = self._links.setdefault(pair, Link(now))
        flight.starts = now + self._of(pair)["latency"]
        link.flights[request_id] = flight

    def advance(self, now: float) -> dict[str, bool]:
        """Move everything to the present; returns what has ended, by request id: True arrived, False failed."""
        ended: dict[str, bool] = {}
        self._links = {pair: link for pair, link in self._links.items() if link.flights}
        for pair, link in self._links.items():
            settings = self._of(pair)
            for key, flight in link.advance(now, settings["rate"], settings["streams"]).items():
                dice = random.Random(f"{self._settings['seed']} {flight.name} {pair[1]} {flight.attempt}")  # noqa: S311 (no secret)
                ended[key] = dice.random() >= settings["failures"]
        return ended

    def known(self) -> set[str]:
        """Return the request ids of all that is on its way here (of nothing after a restart of the daemons)."""
        return {request_id for link in self._links.values() for request_id in link.flights}

    def cancel(self, job: str) -> None:
        """Take the files of a job off their links."""
        for link in self._links.values():
            for key in [key for key, flight in link.flights.items() if flight.job == job]:
                del link.flights[key]

    def _of(self, pair: tuple[str, str]) -> dict[str, Any]:
        status = self._file.stat()
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._settings = json.loads(self._file.read_text())
            self._stamp = stamp
        return {**self._settings["default"], **self._settings["links"].get(":".join(pair), {})}
