"""A governor on a ledger of its own: links of 100 files of a GB a cycle, in datasets of ten files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dc_inject.control import Windows
from dc_inject.control.law import ROUNDS, LinkState, StorageState
from dc_inject.control.windows import NAME, kinds, subject_of
from dc_inject.ledger import Ledger
from dc_inject.model import Control, Cycle, Dataset, FlowKey, Held, Injection, Limits, Link, Mode, naming
from dc_inject.model.plan import Plan
from dc_inject.model.ports import Identity, Observation, Outcome, Status
from dc_inject.planning.situation import Demand, Situation
from tests.core.builders import NO_LIMITS, demand, flow, situation

GB = 10**9
FILES = 10  # of a dataset
DUE = 100  # files a cycle
LENGTH = timedelta(minutes=15)
ROUND = LENGTH / ROUNDS
MOMENT = timedelta(seconds=1)
START = datetime.fromisoformat("2027-02-08T10:00:00+00:00")
ME = Identity("rucio", "https://rucio.example.org:443", "41.5.1", "def", "dcops", admin=False, may_end=True)


class Small:
    """A governor, its ledger, and the time."""

    def __init__(self, folder: Path, links: Iterable[Link], mode: Mode = Mode.ACT, **more: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.ledger = Ledger.open(folder / "small.sqlite", synchronous="OFF")
        self.keys = [FlowKey("test", link) for link in links]
        self.flows = [
            flow(link.source, link.destination, through=link.through, control=Control(mode), **more)
            for _, link in self.keys
        ]
        self.now, self.made = START, 0
        self.progress: dict[str, int] = {}  # files that have arrived, by key
        self.ledger.bind("dc27", LENGTH, (ME,), START)
        self.governor = Windows(self.ledger)
        self._open()

    def _open(self) -> None:
        self.ledger.open_cycle(self.cycle, dict.fromkeys(self.keys, (DUE * GB, None)), self.now)

    @property
    def cycle(self) -> Cycle:
        return Cycle.at(self.now, LENGTH)

    def restart(self) -> None:
        """Let another process go on."""
        self.governor = Windows(self.ledger)

    def plan(self, limits: Limits = NO_LIMITS) -> dict[FlowKey, Demand]:
        """Plan a cycle, and return what is wanted of each link then."""
        self._open()
        governed = self.governor.govern(self.situation(limits))
        self.ledger.record_plan(Plan(self.cycle, (), ()), self.now)
        return {one.flow.key: one for one in governed.demands}

    def situation(self, limits: Limits) -> Situation:
        demands = [demand(one, DUE * GB) for one in self.flows]
        made = situation(demands, [], limits=limits, now=self.now)
        return Situation(**{one.name: getattr(made, one.name) for one in fields(made)} | {"cycle": self.cycle})

    def intents(self, key: FlowKey, count: int, files: int = FILES) -> list[Injection]:
        """Write intents of the present cycle."""
        made = []
        self._open()
        for _ in range(count):
            self.made += 1
            name = f"cms:/{key.link.source}#{self.made}"
            own = naming.key("dc27", key.scenario, self.cycle.start, key.link, name)
            item, life = Dataset(name, files * GB, files), timedelta(hours=48)
            made.append(
                Injection(
                    own, "dc27", self.cycle, "test", key.link, item, self.now, life, "DC", 3, "me@example.org"
                )
            )
        self.ledger.add_injections(made, self.now)
        return made

    def ask(self, key: FlowKey, count: int = 1, files: int = FILES) -> list[Held | None]:
        """Let intents go out, each at its own moment, until one has to wait; return why, None for the others."""
        answers: list[Held | None] = []
        for one in self.intents(key, count, files):
            self.governor.turn(self.now)
            entry = self.ledger.entry(one.key)
            answers.append(self.governor.withheld(entry, self.now))
            if answers[-1] is not None:
                break
            self.ledger.call([one.key], self.now)
            self.governor.released([entry], self.now)
            self.ledger.answer([Outcome(one.key, one.key[:8])], self.now, {})
            self.progress[one.key] = 0
        return answers

    def look(
        self, arrived: Mapping[FlowKey, int] | None = None, after: timedelta = ROUND, *, restarts: bool = False
    ) -> None:
        """Look at all that is on its way, after so many files have arrived, the oldest first."""
        self.now += after
        left = dict(arrived or {})
        before, seen = {}, []
        for key, known in list(self.progress.items()):
            entry = self.ledger.entry(key)
            item, of = entry.injection.item, entry.injection.flow
            more = min(left.get(of, 0), item.files - known)
            left[of] = left.get(of, 0) - more
            done = self.progress[key] = known + more
            status = Status.COMPLETE if done == item.files else Status.MOVING
            before[key] = entry
            seen.append(Observation(key, status, files_done=done, moved=done * GB, exact=True))
            if status is Status.COMPLETE:
                del self.progress[key]
        self.ledger.observe(seen, self.now)
        self.governor.observed(before, seen, self.now)
        if restarts:
            self.restart()
        self.governor.turn(self.now)
        self.now += MOMENT  # what is asked for next was not seen

    def _kept(self, subject: str) -> Any:
        (value,) = (one.value for one in self.ledger.signals(NAME) if one.subject == subject)
        return kinds()[subject.partition(" ")[0]].validate_json(str(value))

    def link(self, key: FlowKey) -> LinkState:
        """Return what the ledger keeps of a link."""
        state: LinkState = self._kept(subject_of(key))
        return state

    def storage(self, name: str) -> StorageState:
        state: StorageState = self._kept(name)
        return state


AB, AC, DB = (FlowKey("test", Link(*ends)) for ends in ("AB", "AC", "DB"))
Make = Callable[..., Small]


def went_out(answers: list[Held | None]) -> int:
    return answers.count(None)


def settled(one: Small, *keys: FlowKey, rounds: int = 4 * ROUNDS) -> None:
    """Let links carry what they are due for a while, each file within two rounds."""
    for number in range(rounds):
        for key in keys or (AB,):
            one.ask(key, DUE // ROUNDS // FILES)
        one.look(dict.fromkeys(keys or (AB,), DUE // ROUNDS))
        if number % ROUNDS == ROUNDS - 1:
            one.plan()
