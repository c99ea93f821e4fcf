"""Rules per second through the back end against bare calls of Rucio's client: `python -m tests.bench.bench_rules`.

The same rules are made on the same server by the same threads, in pairs that take turns, until Rucio has them
REPLICATING (which, for synchronous calls, is when the call returns; that is checked). Aims: the median of the
pairs' ratios is at least 0.95 one by one and 1.25 with batches of five. Batches save what a call costs the server,
which is little here: the sandbox's commits do not wait, and schemas are not checked again at each call. Without
--config a sandbox is brought up.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from rucio.client import Client

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.dids import Did
from dc_inject.backends.rucio.rules import _call
from dc_inject.model import Cycle, DatasetFilter, Entry, Injection, Item, Link, State
from dc_inject.model.events import Silent
from dc_inject.model.ports import Candidate, Status
from dc_inject.sandbox import Rse, Sandbox, default_environment, make_datasets
from dc_inject.system.clock import SystemClock

from ..backends.support import injection
from ..conftest import rucio_config

PAIRS, FILES = 5, (10, 10)
AIMS = {1: 0.95, 5: 1.25}


@dataclass
class Bench:
    """A source with datasets, destinations that are used one after the other, and the threads."""

    backend: RucioBackend
    threads: ThreadPoolExecutor
    items: Sequence[Item]
    source: str
    destinations: Iterator[str]
    width: int

    def fresh(self) -> list[Injection]:
        """One injection of every dataset to a destination that none of them has been to."""
        cycle = Cycle.at(SystemClock().now(), timedelta(minutes=15))
        link = Link(self.source, next(self.destinations))
        return [injection(item, link, campaign="bench", cycle=cycle) for item in self.items]

    def pair(self, size: int) -> tuple[float, float]:
        """Return rules per second of the tool in batches of `size`, and of bare single calls.

        The two take turns, slice by slice, so that whatever else happens on the machine hits both.
        """
        ours, plain = self.fresh(), self.fresh()

        def slice_of_both(start: int) -> tuple[float, float]:
            mine, bare_ones = ours[start : start + size], plain[start : start + size]
            if start // size % 2:
                return timed(self.backend.submit, mine), timed(single, bare_ones)
            second = timed(single, bare_ones)
            return timed(self.backend.submit, mine), second

        seconds = list(self.threads.map(slice_of_both, range(0, len(ours), size)))
        for made in (ours, plain):
            self.check(made)
        width = self.width * len(ours)
        return width / sum(one for one, _ in seconds), width / sum(other for _, other in seconds)

    def check(self, made: Sequence[Injection]) -> None:
        """Make sure that Rucio has a rule for each, and has them REPLICATING."""
        found = [rule for rule in self.backend.ours("bench") if rule.link == made[0].link]
        assert len(found) == len(made), "not all rules were made"
        assert {rule.status for rule in found} == {Status.MOVING}, "not all of them are REPLICATING"


def timed(make: Callable[[Sequence[Injection]], object], injections: Sequence[Injection]) -> float:
    """Return the seconds that it takes to make these."""
    start = time.perf_counter()
    make(injections)
    return time.perf_counter() - start


def single(injections: Sequence[Injection]) -> None:
    """Make each rule by a call of the plain client."""
    for one in injections:
        bare().add_replication_rule([Did.of_item(one.item.id).row()], copies=1, **_call(one, None))


def main() -> None:
    """Print rates, ratios and calls per rule."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--config", type=Path, help="rucio.cfg of a sandbox that is up (its folder is the sandbox)"
    )
    environment = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
    parser.add_argument("--env", type=Path, default=environment, help="environment of the sandbox's server")
    parser.add_argument("--rules", type=int, default=50, help="rules of one measurement")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    with grid(asked.config, asked.env) as sandbox, rucio_config(sandbox.config):
        bench = prepare(sandbox, asked.rules, asked.threads)
        calls(bench)
        sandbox.settle()
        sandbox.pause_daemons()
        try:
            for size, aim in AIMS.items():
                compare(bench, size, aim)
        finally:
            sandbox.resume_daemons()
            bench.threads.shutdown()
            for rule in bench.backend.ours("bench"):
                bare().update_replication_rule(rule.external_id, {"lifetime": 0})


@contextmanager
def grid(config: Path | None, env: Path) -> Iterator[Sandbox]:
    """Give the sandbox that the configuration belongs to, or one that goes away afterwards."""
    if config is not None:
        yield Sandbox(config.parent)
        return
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as folder:
        sandbox = Sandbox(Path(folder) / "sandbox")
        sandbox.up(env=env)
        try:
            yield sandbox
        finally:
            sandbox.down()


def prepare(sandbox: Sandbox, rules: int, threads: int) -> Bench:
    """Make a source, its datasets, and a destination for every measurement; let every thread log in."""
    label = uuid.uuid4().hex[:8].upper()
    source = f"T2_XX_{label}_From"
    destinations = [f"T2_XX_{label}_To{number}" for number in range(2 * PAIRS * len(AIMS) + 1)]
    datasets = make_datasets(source, rules, seed=label, files=FILES)
    sandbox.add([Rse(source, 10**16), *(Rse(name, 10**15) for name in destinations)], {source: datasets})
    backend = RucioBackend(campaign="bench", clock=SystemClock(), observer=Silent())
    pool, all_there = ThreadPoolExecutor(threads), threading.Barrier(threads)

    def log_in(_: int) -> None:
        backend.connection.client()
        bare()
        all_there.wait(60)

    list(pool.map(log_in, range(threads)))
    anything = DatasetFilter(("cms:*",), mean_file=(1, 10**12))
    items = sorted(backend.inventory(source, anything), key=str)
    return Bench(backend, pool, items, source, iter(destinations), threads)


_local = threading.local()


def bare() -> Client:
    """Return this thread's plain client."""
    if not hasattr(_local, "client"):
        _local.client = Client()
    return _local.client


def compare(bench: Bench, size: int, aim: float) -> None:
    """Measure pairs of the tool with batches of `size` and single bare calls."""
    before = bench.backend.connection.requests
    pairs = [bench.pair(size) for _ in range(PAIRS)]
    made = len(bench.items) * PAIRS
    requests = bench.backend.connection.requests - before - 2 * PAIRS  # without those of the checks
    ratio = statistics.median(tool / plain for tool, plain in pairs)
    tool, plain = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    print(
        f"batches of {size}: {tool:.1f} rules/s against {plain:.1f} by bare single calls; "
        f"ratio {ratio:.2f} (aim {aim}); {requests / made:.2f} REST calls per rule"
    )


def calls(bench: Bench) -> None:
    """Count the REST calls of whole lives: look, make, observe to the end, end."""
    backend, injections = bench.backend, bench.fresh()
    counted = {"look": 0, "make": 0, "observe once": 0, "end": 0}
    at = backend.connection.requests

    def count(name: str) -> None:
        nonlocal at
        counted[name] += backend.connection.requests - at
        at = backend.connection.requests

    backend.check_replicas([Candidate(one.item.id, one.link) for one in injections])
    count("look")
    outcomes = backend.submit(injections)
    count("make")
    entries = [Entry(i, State.LIVE, o.external_id) for i, o in zip(injections, outcomes, strict=True)]
    deadline = time.monotonic() + 120
    while True:
        at = backend.connection.requests
        seen = backend.observe(entries)
        if {o.status for o in seen} == {Status.COMPLETE}:
            break
        entries = [replace(e, files_done=o.files_done) for e, o in zip(entries, seen, strict=True)]
        assert time.monotonic() < deadline, "the rules do not complete"
        time.sleep(1)
    count("observe once")
    backend.end(entries)
    count("end")
    told = ", ".join(f"{name} {number / len(entries):.2f}" for name, number in counted.items())
    print(f"REST calls per rule, {len(entries)} at a time, all complete: {told}")


if __name__ == "__main__":
    main()
