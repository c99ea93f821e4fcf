"""Rules a second at many links on a real Rucio: `python -m tests.bench.bench_links [LINKS [TURNS]]`, 600 and 3.

Every link is due five datasets of one or two files in a cycle of a minute, which is more than the server can take:
what counts is how many rules are made. With OLD=FOLDER in the environment another checkout takes turns of two
cycles with this one, on the same sandbox and from the same sources, each to destinations and with a ledger of its
own. The last line is a proportion.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().relative_to(FOLDER)  # each checkout runs its own
LINKS, TURNS = 600, 3
SOURCES, DATASETS = 10, 400  # of each source
LENGTH = timedelta(seconds=int(os.environ.get("SECONDS_A_CYCLE", "60")))
CYCLES = 2  # of a turn


class Silent:
    """An observer that hears nothing."""

    def event(self, event: Any) -> None:
        """Let it pass."""


def bring_up(folder: Path, links: int) -> Any:
    """Bring up a sandbox with datasets at their sources, and destinations for both."""
    from dc_inject.sandbox import Rse, Sandbox, default_environment, make_datasets  # noqa: PLC0415

    grid = Sandbox(folder)
    grid.up(env=Path(os.environ.get("DC_INJECT_SANDBOX_ENV") or default_environment()))
    sources = [f"T1_XX_S{n:02}" for n in range(SOURCES)]
    destinations = [f"T2_XX_{who}{n:02}" for who in ("this", "old") for n in range(-(-links // SOURCES))]
    try:
        grid.add([Rse(name, 10**16) for name in (*sources, *destinations)])
        for name in sources:  # one by one: all 4,000 datasets take longer than the sandbox waits for its daemons
            grid.add(datasets={name: make_datasets(name, DATASETS, seed=name, files=(1, 2))})
            print(f"{DATASETS} datasets at {name}", file=sys.stderr, flush=True)
    except BaseException:
        grid.down()
        raise
    return grid


def turn(ledgers: Path, who: str, links: int) -> dict[str, Any]:
    """Inject for some cycles in this process; return what was planned and made, and with how many calls."""
    from dc_inject.backends.rucio import RucioBackend  # noqa: PLC0415  of the checkout that this process is for
    from dc_inject.engine.context import Settings  # noqa: PLC0415
    from dc_inject.engine.engine import Engine  # noqa: PLC0415
    from dc_inject.ledger import Ledger  # noqa: PLC0415
    from dc_inject.model import Campaign, Cycle, DatasetFilter, Flow, Limits, Link, Menu  # noqa: PLC0415
    from dc_inject.system.clock import SystemClock  # noqa: PLC0415
    from dc_inject.system.executor import ThreadExecutor  # noqa: PLC0415

    clock = SystemClock()
    backend = RucioBackend(campaign=who, clock=clock, observer=Silent(), timeout=30)
    identity = backend.check()
    anything = DatasetFilter(("*:*",), files=(1, 10), mean_file=(1, 10**15))
    items = list(backend.inventory("T1_XX_S00", anything))
    rate = 5 * sum(item.bytes for item in items) / len(items) / LENGTH.total_seconds()
    first = Cycle.at(clock.now(), LENGTH).end
    window = first, first + timedelta(days=1)
    ends = [Link(f"T1_XX_S{n % SOURCES:02}", f"T2_XX_{who}{n // SOURCES:02}") for n in range(links)]
    flows = tuple(Flow("bench", link, rate, *window, anything) for link in ends)
    limits = Limits(total=1e15, per_site=1e15, rules_per_hour=10**9, files_in_flight=10**9)
    menu = Menu("bench", who, "nobody", *window, flows, limits=limits, cycle=LENGTH)
    executor = ThreadExecutor(clock, 8)
    with Ledger.open(ledgers / f"{who}.sqlite") as ledger:
        ledger.bind(who, LENGTH, [identity], clock.now())
        before = {entry.injection.key for entry in ledger.entries()}
        requests = backend.connection.requests
        engine = Engine(
            menus=lambda: Campaign(who, "nobody", LENGTH, (menu,)),
            ledger=ledger,
            backends={"rucio": backend},
            identities={"rucio": identity},
            clock=clock,
            executor=executor,
            observer=Silent(),
            settings=Settings(drain=False),
        )
        engine.run(until=first + CYCLES * LENGTH)
        entries = [entry for entry in ledger.entries() if entry.injection.key not in before]
    executor.close()
    rules = sum(entry.accepted_at is not None for entry in entries)
    return {"rules": rules, "planned": len(entries), "calls": backend.connection.requests - requests}


def apart(checkout: Path, config: Path, *arguments: str) -> dict[str, Any]:
    """Let a checkout have its turn, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "RUCIO_CONFIG": str(config)}
    told = subprocess.run(
        [sys.executable, str(checkout / HERE), "--turn", *arguments],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=20 * LENGTH.total_seconds(),
    )
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def main() -> None:
    """Print each turn, and what the rules come to."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    given = sys.argv[1:]
    if given[:1] == ["--turn"]:
        print(json.dumps(turn(Path(given[1]), given[2], int(given[3]))))
        return
    links = int(given[0]) if given else LINKS
    checkouts = {"this": FOLDER}
    if old := os.environ.get("OLD"):
        checkouts["old"] = Path(old)
    made, seconds = dict.fromkeys(checkouts, 0), CYCLES * LENGTH.total_seconds()
    with tempfile.TemporaryDirectory(prefix="dc_inject-bench-") as folder:
        grid = bring_up(Path(folder) / "sandbox", links)
        try:
            for number in range(int(given[1]) if len(given) > 1 else TURNS):
                for who, checkout in checkouts.items():
                    told = apart(checkout, grid.config, folder, who, str(links))
                    made[who] += told["rules"]
                    each = told["calls"] / max(told["rules"], 1)
                    print(
                        f"turn {number + 1}, {who:>4}: {told['rules']} rules made of {told['planned']} planned, "
                        f"{told['rules'] / seconds:.1f} a second, {each:.1f} calls a rule",
                        flush=True,
                    )
        finally:
            grid.down()
    if "old" in made:
        print(f"{links} links: {made['this']} rules against {made['old']}: {made['this'] / made['old']:.2f} times")


if __name__ == "__main__":
    main()
