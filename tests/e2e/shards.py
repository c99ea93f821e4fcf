"""`python -m tests.e2e.shards` (`make shards`): four injectors on the sandbox against one, with an accident.

Two campaigns run at the same time, with the same rates to as many destinations: one has one injector, the other
four shards. In the middle of a cycle a shard is killed (SIGKILL), and started again after a while. Then the sums
of what was due, injected and moved are the same, nothing went to a destination twice, and no minute was given more
than 1.2 times its target.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dc_inject.ledger import files
from dc_inject.model import Cycle
from dc_inject.planning import shards
from dc_inject.sandbox import Dataset, Rse, Sandbox, ensure_environment, read_grid
from tests.e2e.tool import GB, Tool, given
from tests.engine.world import flow

COUNT, LINKS, CYCLES = 4, 8, 2
CYCLE = timedelta(minutes=3)
EACH = 8  # datasets of a link in a cycle
RATE = f"{EACH * 8 / CYCLE.total_seconds():.12f} Gb/s"
KILLED_AFTER, DOWN = 70.0, 20.0  # seconds after the begin, and until the successor starts
MOST = 1.2  # times its target that a minute may be given
SOURCE = "T2_SHARDS_From"


def main() -> int:
    """Run it; the first thing that is wrong ends it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no sandbox is left running
    environment = Path(os.environ["DC_INJECT_SANDBOX_ENV"])
    ensure_environment(environment, print)
    with tempfile.TemporaryDirectory(prefix="dc_inject-shards-") as folder:
        grid = Sandbox(Path(folder) / "sandbox")
        grid.up(grid=read_grid(), env=environment)
        tool = Tool(Path(folder), grid.config)
        try:
            _compare(tool, grid)
        finally:
            tool.kill()
            grid.down()
    return 0


def _compare(tool: Tool, grid: Sandbox) -> None:
    names = _even(2 * LINKS)
    destinations = {"four": names[::2], "one": names[1::2]}
    stock = tuple(Dataset("cms", f"/SHARDS/v1/RAW#{n:03}", (GB // 2, GB // 2)) for n in range(6 * EACH))
    grid.add([Rse(SOURCE, 10**16), *(Rse(name, 10**15) for name in names)], {SOURCE: stock})
    start = Cycle.at(datetime.now(UTC) + timedelta(seconds=30), CYCLE).next.start
    menus = {
        campaign: tool.menu(
            campaign,
            {(SOURCE, name): RATE for name in ends},
            start=start,
            cycles=CYCLES,
            cycle=int(CYCLE.total_seconds()),
        )
        for campaign, ends in destinations.items()
    }
    one = tool.start("run", menus["one"])
    four = [tool.start("run", menus["four"], "--shard", f"{index}/{COUNT}") for index in range(COUNT)]
    time.sleep((start - datetime.now(UTC)).total_seconds() + KILLED_AFTER)
    four[1].send(signal.SIGKILL)
    four[1].process.wait()
    print(f"shard 1 killed: {tool.status('four')['injector']['who']}")
    time.sleep(DOWN)
    four[1] = tool.start("run", menus["four"], "--shard", f"1/{COUNT}")
    for injector in (one, *four):
        injector.ends(0, 1800)
    _judge(tool)


def _judge(tool: Tool) -> None:
    totals = {name: tool.status(name, "--summary")["total"] for name in ("one", "four")}
    for name, total in totals.items():
        print(f"{name}: " + ", ".join(f"{key} {total[key] / GB:.3f} GB" for key in ("due", "injected", "moved")))
    for key in ("due", "injected", "moved"):
        assert totals["one"][key] == totals["four"][key] > 0, key
    assert len(files(tool.ledger("four"))) == COUNT
    entries = tool.entries("four")
    assert len(given(entries)) == len(set(given(entries))), "nothing goes to a destination twice"
    exported = map(json.loads, tool.run("export", "four").out.splitlines())
    assert sum(record["injected_bytes"] for record in exported) == totals["four"]["injected"]
    reported = tool.run("report", "four", "--format", "json").json["totals"]
    assert reported["moved"] == totals["four"]["moved"]
    target = LINKS * EACH * GB / (CYCLE / timedelta(minutes=1))
    for name in ("one", "four"):
        minutes = Counter[datetime]()
        for entry in tool.entries(name):
            if entry.accepted_at:
                minutes[entry.accepted_at.replace(second=0, microsecond=0)] += entry.injection.item.bytes
        print(f"{name}: of its target each minute got", *(f"{minutes[m] / target:.2f}" for m in sorted(minutes)))
        assert name == "one" or max(minutes.values()) <= MOST * target
    assert tool.run("ledger", "check", "four").code == 0


def _even(count: int) -> list[str]:
    """Return names of destinations that are evenly in all shards, each shard with every other pair of them."""
    candidates = [f"T2_SHARDS_To{n}" for n in range(20 * count)]
    assigned = shards.assigned([flow(SOURCE, name, 1.0) for name in candidates], COUNT)
    of_shard = [[name for name in candidates if assigned[name] == index] for index in range(COUNT)]
    return [of_shard[index][n] for n in range(0, count // COUNT, 2) for index in range(COUNT) for n in (n, n + 1)]


if __name__ == "__main__":
    sys.exit(main())
