"""Jobs per second through the back end against bare submits of FTS's client: `python -m tests.bench.bench_jobs`.

The same jobs are given to the same service by the same threads, in pairs that take turns, while it copies nothing.
Bare is what the client's own examples do: new_transfer for each file, new_job, submit, on a context that is kept.
Without --folder a sandbox is brought up.
"""

from __future__ import annotations

import argparse
import json
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
from datetime import timedelta
from pathlib import Path

import fts3.rest.client.easy as fts3

from dc_inject.backends.fts import FtsBackend
from dc_inject.credentials import Credentials
from dc_inject.model import Bundle, Cycle, Entry, File, Injection, JobOptions, Link, State, naming
from dc_inject.model.events import Silent
from dc_inject.sandbox import Sandbox, default_environment, default_xrootd
from dc_inject.system.clock import SystemClock

from ..backends.support import injection

PAIRS = 5
SIZES = (10, 200)  # files of a job: a small one, and the default
CYCLE = Cycle.at(SystemClock().now(), timedelta(minutes=15))
_mine = threading.local()


def main() -> None:
    """Print rates and ratios."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="folder of a sandbox with storages that is up")
    environment = Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment())
    xrootd = Path(os.environ.get("DC_INJECT_SANDBOX_XROOTD") or default_xrootd())
    parser.add_argument("--env", type=Path, default=environment, help="environment of the sandbox's server")
    parser.add_argument("--xrootd", type=Path, default=xrootd, help="where XRootD is unpacked")
    parser.add_argument("--jobs", type=int, default=40, help="jobs of one measurement")
    parser.add_argument("--threads", type=int, default=4)
    asked = parser.parse_args()
    with grid(asked.folder, asked.env, asked.xrootd) as sandbox, copying_nothing(sandbox):
        clock = SystemClock()
        backend = FtsBackend(
            sandbox.fts_url, campaign="bench", clock=clock, observer=Silent(), credentials=Credentials({}, clock)
        )
        with ThreadPoolExecutor(asked.threads) as threads:
            for files in SIZES:
                compare(backend, sandbox, threads, asked.jobs, files)


def compare(backend: FtsBackend, sandbox: Sandbox, threads: ThreadPoolExecutor, jobs: int, files: int) -> None:
    """Print what both do with jobs of so many files."""

    def ours(one: Injection) -> None:
        (outcome,) = backend.submit([one])
        assert outcome.external_id, outcome.error

    def plain(one: Injection) -> None:
        context = _mine.__dict__.setdefault("context", None) or fts3.Context(sandbox.fts_url)
        _mine.context = context
        submit_bare(context, one)

    ratios, rates = [], []
    for _ in range(PAIRS + 1):
        mine, bare = fresh(jobs, files, sandbox), fresh(jobs, files, sandbox)
        turns = list(threads.map(_pair(ours, plain), mine, bare, range(jobs)))
        one, other = (sum(some) for some in zip(*turns, strict=True))
        ratios.append(other / one)
        rates.append(jobs * len(_threads(threads)) / one)
        cancel(backend, [*mine, *bare])
    del ratios[0], rates[0]  # the first one warms both up
    ratio, rate = statistics.median(ratios), statistics.median(rates)
    print(
        f"jobs of {files} files: {ratio:.2f} of bare submits (median of {PAIRS} pairs, {min(ratios):.2f} to "
        f"{max(ratios):.2f}); {rate:.0f} jobs/s, {rate * files:.0f} files/s"
    )


def _pair(
    ours: Callable[[Injection], None], plain: Callable[[Injection], None]
) -> Callable[[Injection, Injection, int], tuple[float, float]]:
    """Return what times one job of each, in turns, so that whatever else happens on the machine hits both."""

    def both(mine: Injection, bare: Injection, number: int) -> tuple[float, float]:
        if number % 2:
            return timed(ours, mine), timed(plain, bare)
        second = timed(plain, bare)
        return timed(ours, mine), second

    return both


def _threads(pool: ThreadPoolExecutor) -> range:
    return range(pool._max_workers)


def timed(make: Callable[[Injection], None], one: Injection) -> float:
    """Return the seconds that it takes to make a job."""
    start = time.perf_counter()
    make(one)
    return time.perf_counter() - start


def submit_bare(context: fts3.Context, one: Injection) -> None:
    """Submit a job as the client's examples do."""
    transfers = [
        fts3.new_transfer(member.name, copy, checksum=member.checksum, filesize=member.bytes)
        for member, copy in zip(one.item.members, naming.copies(one), strict=True)
    ]
    job = fts3.new_job(transfers, verify_checksum="both", metadata=naming.metadata(one), retry=3)
    fts3.submit(context, job)


def fresh(jobs: int, files: int, sandbox: Sandbox) -> list[Injection]:
    """Jobs that nobody has had yet."""
    source, destination = list(sandbox.storages.values())[:2]
    link = Link(f"{source}/src", f"{destination}/bench", "fts")
    made = []
    for _ in range(jobs):
        name = uuid.uuid4().hex
        members = tuple(File(f"{link.source}/{name}/{n:03}", 10**9, f"adler32:{n:08x}") for n in range(files))
        item = Bundle(name, files * 10**9, files, members=members)
        made.append(injection(item, link, campaign="bench", cycle=CYCLE, job=JobOptions(files=files)))
    return made


def cancel(backend: FtsBackend, made: Sequence[Injection]) -> None:
    """Take the jobs away, so that the service does not fill up; those of the bare client end with the sandbox."""
    outcomes = backend.end([Entry(one, State.LIVE) for one in made])
    assert not [outcome.error for outcome in outcomes if outcome.error]


@contextmanager
def copying_nothing(sandbox: Sandbox) -> Iterator[None]:
    """Let the service take jobs and leave them waiting."""
    settings = sandbox.folder / "fts" / "settings.json"
    before = settings.read_text() if settings.exists() else "{}"
    new = settings.with_name("settings.json.new")
    new.write_text(json.dumps(json.loads(before) | {"max_active": 0}))
    new.replace(settings)
    try:
        yield
    finally:
        new.write_text(before)
        new.replace(settings)


@contextmanager
def grid(folder: Path | None, env: Path, xrootd: Path) -> Iterator[Sandbox]:
    """Give the sandbox in a folder, or one that goes away afterwards."""
    if folder is not None:
        yield Sandbox(folder)
        return
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as place:
        sandbox = Sandbox(Path(place) / "sandbox")
        sandbox.up(env=env, storage="xrootd", xrootd=xrootd, time_scale=1 / 60)
        try:
            yield sandbox
        finally:
            sandbox.down()


if __name__ == "__main__":
    main()
