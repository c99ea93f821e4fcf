"""A link that Rucio refuses waits alone: the others get what they would get without it, in every cycle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.rucio.errors import RucioCallRecord
from dc_inject.backends.sim import InlineExecutor, SimClock
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.ledger import Row
from dc_inject.model import Flow, Hold
from dc_inject.model.events import BreakerSwitched, CycleOpened

from ..engine.world import CYCLE, START, Heard, campaign, flow, opened
from .fake import GB, FakeClient, FakeRse, FakeRucio
from .fake import Row as RucioRow

CYCLES = 3
GOOD, BAD = ("B", "C", "D"), "X"
SOURCES = "A", "S"  # of all links, and of the fourth where that is what is wrong
Injected = dict[tuple[str, datetime], set[str]]
EMPTY = rucio.InvalidRSEExpression("RSE Expression resulted in an empty set.")


@dataclass
class Partly(FakeRucio):
    """A Rucio that makes no rules for some destinations, and where names of RSEs mean others, too."""

    refused: dict[str, Exception] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def client(self, record: RucioCallRecord, timeout: float) -> FakeClient:
        return Aliasing(self, record)

    def make_rules(self, dids: list[RucioRow], **asked: Any) -> list[str]:
        if error := self.refused.get(asked["rse_expression"]):
            raise error
        return super().make_rules(dids, **asked)


class Aliasing(FakeClient):
    """A client of it."""

    def list_rses(self, expression: str | None = None) -> Iterator[RucioRow]:
        yield from super().list_rses(expression)
        assert isinstance(self.server, Partly)
        for name in (expression or "").split("|"):
            if name in self.server.aliases:
                yield {"rse": self.server.aliases[name]}


def refuses(error: Exception) -> Callable[[Partly], None]:
    """Let Rucio refuse every rule for the fourth link."""

    def set_up(server: Partly) -> None:
        server.refused[BAD] = error

    return set_up


def closes(**values: Any) -> Callable[[Partly], None]:
    """Change something of the fourth link's destination."""

    def set_up(server: Partly) -> None:
        for name, value in values.items():
            setattr(server.rses[BAD], name, value)

    return set_up


REASONS: dict[str, tuple[Callable[[Partly], None], Hold, str]] = {
    "an activity that the server does not know": (
        refuses(rucio.InvalidObject("Problem validating rule: 'Nope' is not one of ['Debug']")),
        Hold.QUARANTINED,
        "'Nope'",
    ),
    "an account limit that matches nothing": (refuses(EMPTY), Hold.QUARANTINED, "empty set"),
    "policy": (refuses(rucio.AccessDenied("Account dcops can not add rules there")), Hold.QUARANTINED, "dcops"),
    "approval": (refuses(rucio.ManualRuleApprovalBlocked()), Hold.QUARANTINED, "ManualRuleApprovalBlocked"),
    "staging": (refuses(rucio.StagingAreaRuleRequiresLifetime()), Hold.QUARANTINED, "StagingArea"),
    "targets": (refuses(rucio.InsufficientTargetRSEs("RSE set size 0")), Hold.DESTINATION_UNAVAILABLE, "size 0"),
    "over quota": (refuses(rucio.RSEOverQuota("RSE X is over quota")), Hold.DESTINATION_FULL, "over quota"),
    "closed after the look": (
        refuses(rucio.RSEWriteBlocked("not available for writing")),
        Hold.DESTINATION_UNAVAILABLE,
        "writing",
    ),
    "the account's limit": (closes(quota=GB), Hold.QUOTA, ""),
    "an RSE that is gone": (lambda server: server.rses.pop(BAD) and None, Hold.DESTINATION_UNAVAILABLE, BAD),
    "a name that means another RSE, too": (
        lambda server: server.aliases.update({BAD: "B"}),
        Hold.DESTINATION_UNAVAILABLE,
        "B, X",
    ),
    "a source that is gone": (lambda server: server.rses.pop("S") and None, Hold.SOURCE_UNAVAILABLE, "S"),
}


class Refusing:
    """A campaign of an hour on a Rucio in memory."""

    def __init__(self, path: Path, flows: list[Flow], spoil: Callable[[Partly], None] | None = None) -> None:
        clock = SimClock(START)
        self.server = Partly(clock=clock, rses={name: FakeRse() for name in (*SOURCES, *GOOD, BAD)})  # type: ignore[arg-type]
        for number in range(80):
            for source in SOURCES:
                self.server.add(f"cms:/{source}/RAW#{number:03}", source, files=2, size=2 * GB)
        self.heard = Heard(at={CycleOpened: self._pass_time})
        self._spoil = spoil
        backend = RucioBackend(
            campaign="test",
            clock=clock,
            observer=self.heard,
            make=self.server.client,
            sleep=lambda _seconds: None,
        )
        path.mkdir()
        self.ledger = opened(path)
        made = campaign(flows)
        self.ledger.bind("test", CYCLE, (backend.check(),), START)
        Engine(
            menus=lambda: made,
            ledger=self.ledger,
            backends={"rucio": backend},
            identities={"rucio": backend.check()},
            clock=clock,
            executor=InlineExecutor(clock),
            observer=self.heard,
            settings=Settings(drain=False),
        ).run(until=START + CYCLES * CYCLE)

    def _pass_time(self) -> None:
        """Let what was asked for arrive in each cycle; the trouble begins with the first one."""
        self.server.complete()
        self.server.clean()
        if self._spoil is not None and self.server.clock.now() >= START:
            self._spoil(self.server)
            self._spoil = None

    def injected(self) -> Injected:
        """The datasets of the good links by destination and cycle."""
        found = defaultdict(set)
        for entry in self.ledger.entries():
            if entry.accepted_at is not None and entry.injection.link.destination in GOOD:
                found[entry.injection.link.destination, entry.injection.cycle.start].add(entry.injection.item.name)
        return dict(found)

    def rows(self, *destinations: str) -> list[Row]:
        return [row for row in self.ledger.rows() if row.key.link.destination in destinations]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Injected:
    """What goes out without the fourth link."""
    return Refusing(tmp_path_factory.mktemp("three") / "x", [flow("A", name, 0.25) for name in GOOD]).injected()


@pytest.mark.parametrize("reason", REASONS)
def test_the_other_links_get_the_same_datasets_in_each_cycle(tmp_path: Path, three: Injected, reason: str) -> None:
    spoil, hold, words = REASONS[reason]
    fourth = flow(SOURCES[hold is Hold.SOURCE_UNAVAILABLE], BAD, 0.25)
    four = Refusing(tmp_path / "x", [*(flow("A", name, 0.25) for name in GOOD), fourth], spoil)
    assert four.injected() == three
    assert len(three) == CYCLES * len(GOOD)
    assert not [row.held for row in four.rows(*GOOD) if row.held and not row.held.hold.harmless]
    rows = four.rows(BAD)
    assert [(row.injected, row.held and row.held.hold) for row in rows] == [(0, hold)] * CYCLES
    assert all(words in str(row.held and row.held.numbers) for row in rows)
    assert not four.heard.of(BreakerSwitched)
    tries = [call for call in four.server.calls if call[0] == "add_replication_rule"]
    assert sum(call[2]["rse_expression"] == BAD for call in tries) <= 9 * CYCLES
