"""CPU of whole cycles at the scale of the HL-LHC: `python -m tests.bench.bench_cycle [CYCLES]`, 4 unless told.

The menu is menus/hllhc/full.yaml: 1,200 links at 9.6 Tb/s; MENU=FILE in the environment is another. Every source
has 2,000 datasets; service and clock are simulated, the ledger is not synchronised to disk. Seconds are those of
one core. With OLD=FOLDER in the environment another checkout runs the same, and the last line is a proportion; a
digest of the plans tells whether they are alike.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().relative_to(FOLDER)  # each checkout runs its own
DATASETS, CYCLES, SEED = 2000, 4, 9
TRANSFER = timedelta(minutes=10)  # how long the service takes for a rule


class Quick:
    """A service that takes everything and moves it in ten minutes, for nothing; it notes each cycle's time."""

    name, cleans_up = "rucio", True  # the latter for an older checkout

    def __init__(self, clock: Any, stock: Mapping[str, Sequence[Any]]) -> None:
        from dc_inject.model import ports  # noqa: PLC0415  of the checkout that this process is for

        self.ports = ports
        self.clock, self.stock = clock, stock
        self.items = {item.name: item for items in stock.values() for item in items}
        self.over: set[str] = set()  # keys of rules that were ended
        self.cycles: list[dict[str, Any]] = []
        self._began = time.process_time()
        self._digest = hashlib.sha256()
        self._rules = 0

    def check(self) -> Any:
        """Tell who we are."""
        return self.ports.Identity("rucio", "sim://", "1", "def", "sim", admin=False, may_end=True)

    def inventory(self, source: str, _datasets: object, _note: object = None) -> list[Any]:
        """Tell what a source has."""
        return list(self.stock[source])

    def check_replicas(self, candidates: Sequence[Any]) -> dict[Any, Any]:
        """Tell that all is well."""
        return {
            one: self.ports.ReplicaStatus(
                item=self.items[one.item],
                closed=True,
                source_complete=True,
                source_locked=True,
                source_until=None,
                destination_bytes=0,
                destination_locked=False,
            )
            for one in candidates
        }

    def submit(self, injections: Sequence[Any]) -> list[Any]:
        """Accept them all."""
        return [self.ports.Outcome(one.key, f"sim-{one.key}") for one in injections]

    def observe(self, entries: Sequence[Any], *, exact: bool = False) -> list[Any]:
        """Tell that what is ten minutes old is complete, and what was ended is gone."""
        del exact
        now, told = self.clock.now(), []
        for entry in entries:
            key, item = entry.injection.key, entry.injection.item
            part = min((now - (entry.accepted_at or now)) / TRANSFER, 1.0)
            status = self.ports.Status.COMPLETE if part == 1.0 else self.ports.Status.MOVING
            status = self.ports.Status.ABSENT if key in self.over else status
            done = int(item.files * part)
            moved = item.bytes if part == 1.0 else item.bytes * done // item.files
            told.append(
                self.ports.Observation(key, status, f"sim-{key}", files_done=done, moved=moved, exact=part == 1.0)
            )
        return told

    def end(self, entries: Sequence[Any]) -> list[Any]:
        """End them."""
        self.over |= {entry.injection.key for entry in entries}
        return [self.ports.Outcome(entry.injection.key, entry.external_id) for entry in entries]

    def remove(self, entries: Sequence[Any]) -> list[Any]:
        """Tell that all is gone."""
        return [self.ports.Removal(entry.injection.key, gone=True) for entry in entries]

    def sites(self, rses: Iterable[str]) -> dict[str, Any]:
        """Tell that there is room."""
        return {name: self.ports.RseFacts(name, readable=True, writable=True) for name in rses}

    def event(self, event: Any) -> None:
        """Close the account of a cycle with its plan and its end."""
        name = type(event).__name__
        if name == "Intended":
            self._digest.update("\n".join(sorted(event.keys)).encode())
        if name == "Answered":
            self._rules += sum(outcome.error is None for outcome in event.outcomes)
        if name == "CycleClosed":
            now = time.process_time()
            digest = self._digest.hexdigest()[:16]
            self.cycles.append({"seconds": now - self._began, "rules": self._rules, "digest": digest})
            self._began, self._rules = time.process_time(), 0


def run(cycles: int) -> list[dict[str, Any]]:
    """Run the campaign in this process; return what each cycle cost and gave."""
    from dc_inject import menu, model  # noqa: PLC0415  of the checkout that this process is for
    from dc_inject.backends.sim import InlineExecutor, SimClock  # noqa: PLC0415
    from dc_inject.engine.context import Settings  # noqa: PLC0415
    from dc_inject.engine.engine import Engine  # noqa: PLC0415
    from dc_inject.ledger import Ledger  # noqa: PLC0415
    from dc_inject.system import files  # noqa: PLC0415  of the checkout that this process is for

    dataset = getattr(model, "Dataset", None) or model.Item  # an older checkout has one type of items
    drafts = files.read_menus([Path(os.environ.get("MENU") or FOLDER / "menus" / "hllhc" / "full.yaml")])
    made = menu.campaign([draft.preview for draft in drafts])
    draw = random.Random(SEED)
    sources = sorted({flow.link.source for flow in made.flows})
    stock = {
        source: [
            dataset(f"cms:/{source}/Era-v1/RAW#{n}", size, max(1, size // 5_000_000_000))
            for n in range(DATASETS)
            for size in [int(5e10 * 80 ** draw.random())]
        ]
        for source in sources
    }
    start = min(flow.start for flow in made.flows)
    clock = SimClock(start)
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as folder:
        ledger = Ledger.open(Path(folder) / "bench.sqlite", synchronous="OFF")
        backend = Quick(clock, stock)
        ledger.bind(made.name, made.cycle, (backend.check(),), clock.now())
        engine = Engine(
            menus=lambda: made,
            ledger=ledger,
            backends={"rucio": backend},
            identities={"rucio": backend.check()},
            clock=clock,
            executor=InlineExecutor(clock),
            observer=backend,
            settings=Settings(drain=False, poll=timedelta(seconds=30)),
        )
        engine.run(until=start + cycles * made.cycle)
        ledger.close()
        size = (Path(folder) / "bench.sqlite").stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return [cycle | {"peak": peak, "ledger": size} for cycle in backend.cycles]


def apart(checkout: Path, cycles: int) -> list[dict[str, Any]]:
    """Run a checkout in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    told = subprocess.run(
        [sys.executable, str(checkout / HERE), "--one", str(cycles)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=900,
    )
    found: list[dict[str, Any]] = json.loads(told.stdout)
    return found


def main() -> None:
    """Print what each cycle cost; with OLD, side by side."""
    given = sys.argv[1:]
    if given[:1] == ["--one"]:
        logging.disable(logging.CRITICAL)
        print(json.dumps(run(int(given[1]))))
        return
    cycles = int(given[0]) if given else CYCLES
    made = {"this": apart(FOLDER, cycles)}
    if old := os.environ.get("OLD"):
        made["old"] = apart(Path(old), cycles)
    for name, found in made.items():
        each = "; ".join(f"{one['seconds']:.1f} s for {one['rules']} rules ({one['digest']})" for one in found)
        print(f"{name:>5}: {each}; peak {found[0]['peak']:.0f} MB, ledger {found[0].get('ledger', 0):.1f} MB")
    if "old" in made:
        new, before = (sum(one["seconds"] for one in made[name]) for name in ("this", "old"))
        print(f"this takes {new / before:.2f} of the time of the old one")


if __name__ == "__main__":
    main()
