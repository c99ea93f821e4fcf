"""Killed or stopped at a boundary and started again in the same cycle: as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model import State
from dc_inject.sandbox import Link
from tests.e2e.tool import add_stock, asked, given, rules, this_cycle

pytestmark = pytest.mark.sandbox

CYCLE = 60  # seconds
SPEED = 3  # of the clock: a cycle is over in 20 s
TIMEOUT = 5  # of a call
GRACE = timedelta(seconds=3 * TIMEOUT + 1)  # when a call that Rucio does not know of counts as never made
BOUNDARIES = {
    "intent": "Intended:1:SIGKILL",
    "call": "Calling:2:SIGKILL",
    "answer": "Called:2:SIGKILL",
    "outcome": "Answered:2:SIGKILL",
    "end": "EndRequested:1:SIGKILL",
    "end-answer": "EndCalled:1:SIGKILL",
    "interrupt-planned": "Intended:1:SIGINT",
    "interrupt-calling": "Calling:2:SIGINT",
    "terminate": "Answered:2:SIGTERM",
}


@dataclass
class World:
    """A source and two destinations like those of every other world, but for their names."""

    name: str
    label: str

    @property
    def campaign(self) -> str:
        return f"accident-{self.name}-{self.label}"

    @property
    def source(self) -> str:
        return f"T2_{self.label}_{self.name}_From".replace("-", "_")

    @property
    def destinations(self) -> list[str]:
        return [self.source.replace("_From", "_To1"), self.source.replace("_From", "_To2")]

    def anonymous(self, triples):
        """What is in the triples but the names by which worlds differ."""
        return [(item.replace(self.source, "S"), to.replace(self.source[:-5], ""), from_ == self.source)
                for item, to, from_ in triples]  # fmt: skip


def _menu(tool, world, cycle):
    one, two = world.destinations
    rates = {(world.source, one): "1.4 Gb/s", (world.source, two): "1 Gb/s"}
    with Ledger.open(tool.ledger(world.campaign)) as ledger:
        ledger.begin(cycle.start)  # so that what is due does not hang on how fast a process starts
    return tool.menu(world.campaign, rates, start=cycle.start, cycle=CYCLE)


def test_killed_or_stopped_at_a_boundary_the_next_once_of_the_cycle_completes_it(tool, sandbox, label):
    """Same datasets, destinations and sources as in a calm run; every rule once in the ledger, and the reverse."""
    calm = World("calm", label)
    wild = {name: World(name, label) for name in BOUNDARIES}
    worlds = [calm, *wild.values()]
    add_stock(sandbox, [w.source for w in worlds], [name for w in worlds for name in w.destinations])
    slow = [w for w in worlds if not w.name.startswith("end")]  # their rules are still there at the end
    sandbox.set_links({(w.source, to): Link(rate=1e12, latency=3600) for w in slow for to in w.destinations})
    cycle = this_cycle(CYCLE)
    menus = {w.name: _menu(tool, w, cycle) for w in worlds}

    def start(world, first="", **more):
        # The end of a rule must come inside the cycle, however long Rucio takes to move its bytes.
        speed = 1 if first.startswith("end") else SPEED
        return tool.start("run", "--once", menus[world.name], "--timeout", TIMEOUT, speed=speed, **more)

    undisturbed = start(calm, now=cycle.start)
    first = {
        name: start(wild[name], name, now=cycle.start, accident=accident, told=tool.state / f"{name}.told")
        for name, accident in BOUNDARIES.items()
    }
    second = {}
    for name, process in first.items():
        done = process.ends(-9 if "SIGKILL" in BOUNDARIES[name] else 0)
        assert done.err.count("stopping; rules stay live") == ("SIGKILL" not in BOUNDARIES[name])
        died = datetime.fromisoformat((tool.state / f"{name}.told").read_text())
        second[name] = start(wild[name], now=died + GRACE if name == "call" else died)
    undisturbed.ends()
    expected = calm.anonymous(given(tool.entries(calm.campaign)))
    assert len({to for _, to, _ in expected}) == 2
    for name, process in second.items():
        process.ends()
        entries = tool.entries(wild[name].campaign)
        there = rules(sandbox.config, wild[name].campaign)
        assert wild[name].anonymous(given(entries)) == expected, name
        known = {e.external_id for e in entries if e.state in {State.LIVE, State.COMPLETE}}
        ended = {e.external_id for e in entries if e.end_asked_at}
        assert {rule["id"] for rule in there} - ended == known - ended, name
        assert len(asked(there)) == len(set(asked(there))), name
        assert bool(ended) == name.startswith("end")
        assert len({e.injection.item.name for e in entries}) == len({item for item, _, _ in expected}), name
