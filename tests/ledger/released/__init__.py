"""Ledgers of released versions: each later version has to open them, and go on with what they have.

For each version there is `VERSION.sql`, a ledger as text, and `VERSION.json`, what `dc-inject status --summary`
of that version said of it, and when. Both are written once, before the version is tagged (`make released-ledger`),
and never changed after that. `tests/ledger/test_upgrade.py` opens each of them with the present code.

The campaign is a small one, simulated, with a bit of everything: plain links, a volume with its second hop,
slices, jobs of FTS, a link that is dry, one that is slow, control, a pause, a scale that is set, and notes.
It dies in the middle of a cycle, with a call whose answer is lost.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from dc_inject.backends.sim import SimClock
from dc_inject.model import Dataset, DatasetFilter, Entry, Item, Link
from dc_inject.model.control import Control, Mode
from dc_inject.model.goals import SecondHop, Volume
from dc_inject.model.items import Slicing
from dc_inject.model.overrides import Kind
from dc_inject.model.types import Flow
from tests.engine.world import GB, START, TB, World, campaign, file_flow, flow, items, source_files, world
from tests.sim import SimBackend

FOLDER = Path(__file__).parent
NAME = "test.sqlite"  # what `tests.engine.world` calls it
SLOW = Link("A", "C")
CALLS = 75  # of submits to Rucio; the answer of the last one is lost


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


def flows() -> list[Flow]:
    """All links of the campaign."""
    landed = DatasetFilter((), landed="landing")
    longer = {"lifetime_max": timedelta(hours=6)}
    return [
        flow("A", "B", 2, scenario="export", control=Control(Mode.ACT)),
        flow("A", "C", 1, scenario="export", overhead=0.1),
        flow("A", "D", 1.5, scenario="landing", goal=Volume(TB), **longer),
        flow("D", "T", 1, scenario="landing", datasets=landed, goal=SecondHop()),
        flow("E", "B", 1, scenario="coarse", slices=Slicing("user.dcops")),
        flow("F", "B", 0.5, scenario="dry"),
        file_flow("G", "H", 0.1, scenario="files"),
    ]


def stock() -> dict[str, list[Item]]:
    """What is at the sources."""
    coarse: list[Item] = [Dataset("cms:/E/data#0", 5 * TB, 1000)]
    return {"A": items("A", 40, 50 * GB), "E": coarse, "F": items("F", 1, 50 * GB)}


def resumed(folder: Path, start: Any = START) -> World:
    """The world of the campaign at a time, with the ledger of a folder; its services know what that one knows."""
    one = world(folder, campaign(flows()), stock(), clock=SimClock(start), speed=speed)
    one.join(SimBackend(one.clock, source_files("G", 100), name="fts"))
    for entry in one.ledger.entries():
        if entry.state.in_service:
            for backend in one.backends:
                if backend.name == entry.injection.link.through:
                    _known(backend, entry)
    return one


def speed(link: Link) -> float:
    """How fast a link is: one carries less than it is due."""
    return 0.05e9 if link == SLOW else 1e9


def _known(backend: SimBackend, entry: Entry) -> None:
    """Let a service have the rule of an entry, as far as the ledger saw it come."""
    backend.submit([entry.injection])
    rule = backend.rules[entry.injection.key]
    rule.created = entry.accepted_at or entry.called_at or rule.created
    rule.expires = entry.expires_at or rule.created + entry.injection.lifetime
    rule.moved, rule.completed = entry.moved, entry.completed_at


def made(folder: Path) -> World:
    """Run the campaign until it dies; returns its world, with the ledger closed."""
    one = resumed(folder)
    by = ("somebody@vobox", "a test")
    one.ledger.put_in_force([("day.yaml", "0", "menu: 1\n")], START)
    one.ledger.note("the trace of an error that nobody foresaw", START)
    one.run(cycles=3)
    now = one.clock.now()
    one.ledger.pause("dry", *by, now)
    one.ledger.override("A:B", Kind.SCALE, 0.5, *by, now)
    one.ledger.change(by[0], "note", "an operator's note", now)
    one.ledger.quarantine("cms:/A/data#0039", "B", "it is refused", now)

    def lost(method: str, _subject: object) -> None:
        if method == "submit" and one.backend.calls["submit"] >= CALLS:
            raise Killed

    one.backend.answer = lost
    with contextlib.suppress(Killed):
        one.run(cycles=6)
    one.ledger.close()
    return one


def dumped(path: Path) -> Iterator[str]:
    """Yield the statements that make a ledger once more, with the numbers by which it is known."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for pragma in ("application_id", "user_version"):
            yield f"PRAGMA {pragma} = {connection.execute(f'PRAGMA {pragma}').fetchone()[0]};"
        yield from connection.iterdump()


def restored(version: str, folder: Path) -> Path:
    """Make the ledger of a version in a folder."""
    path = folder / NAME
    path.touch(0o600)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((FOLDER / f"{version}.sql").read_text("utf-8"))
    return path


def versions() -> list[str]:
    """Name the versions of which there is a ledger, the oldest first."""
    return sorted((path.stem for path in FOLDER.glob("*.sql")), key=lambda name: [*map(int, name.split("."))])


def recorded(version: str) -> Any:
    """Return what a version said of its ledger."""
    return json.loads((FOLDER / f"{version}.json").read_text("utf-8"))
