"""Menus that change while they are in force: what is taken up, and what is asked of whom for it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.engine import admission
from dc_inject.engine.menus import Menus
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model.errors import MenuError, Problem
from dc_inject.model.ports import Identity, RseFacts
from tests.engine.world import CYCLE, START, opened
from tests.sim import SimBackend

FTS = "https://fts.example.org:8446"
TEXT = """
menu: 1
campaign: test
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-09 10:00
limits: {{total: 1 Tb/s, per_site: 1 Tb/s}}
{fts}
defaults: {{through: fts, files: {{folder: data}}}}
scenarios:
  one: {{from: "davs://a.example.org/dc", to: "davs://b.example.org/dc", rate: {rate} Gb/s}}
  two: {{through: rucio, from: A, to: B, rate: 1 Gb/s, datasets: {{did: "cms:*"}}}}
"""


class Asked(SimBackend):
    """A service that keeps what it was asked of the ends of links."""

    def __init__(self, clock: SimClock, name: str) -> None:
        super().__init__(clock, {}, name=name)
        self.ends: list[str] = []
        self.means: dict[str, tuple[str, ...]] = {}

    def check(self) -> Identity:
        return Identity(self.name, FTS, "1", "def", "me", admin=False, may_end=True)

    def sites(self, rses: Iterable[str]) -> Mapping[str, RseFacts]:
        self.ends += rses
        facts = super().sites(self.ends)
        return {name: replace(fact, means=self.means.get(name)) for name, fact in facts.items()}


@dataclass
class World:
    """A menu on disk, and the reader of it."""

    path: Path
    menus: Menus
    services: dict[str, Asked]

    def write(self, endpoint: str, rate: int = 8) -> None:
        fts = f'fts: {{endpoint: "{endpoint}"}}' if endpoint else ""
        self.path.write_text(TEXT.format(fts=fts, rate=rate))


@pytest.fixture
def world(tmp_path: Path) -> World:
    clock, path, ledger = SimClock(START), tmp_path / "m.yaml", opened(tmp_path)
    services = {name: Asked(clock, name) for name in ("fts", "rucio")}
    ledger.bind("test", CYCLE, [service.check() for service in services.values()], START)
    menus = Menus([path], ledger=ledger, backends=services, clock=clock, admits=admission.storages)
    return World(path, menus, services)


@pytest.mark.parametrize(("name", "means"), [("B", ("B", "C")), ("B", ()), ("A", ("A", "X")), ("A", ("B",))])
def test_a_name_that_is_another_expression_is_refused_at_the_start_and_later(
    world: World, name: str, means: tuple[str, ...]
) -> None:
    world.write(FTS)
    world.services["rucio"].means = {"A": ("A",), "B": ("B",), name: means}
    for _ in range(2):
        with pytest.raises(MenuError) as refused:
            world.menus()
        (problem,) = refused.value.problems
        assert (problem.file, problem.line) == (str(world.path), _line_of_the_rucio_link())
        assert all(meant in problem.message for meant in means)
    world.services["rucio"].means[name] = (name,)
    world.menus()
    world.services["rucio"].means[name] = means
    world.write(FTS, rate=9)
    with pytest.raises(MenuError):
        world.menus()


def _line_of_the_rucio_link() -> int:
    return next(number for number, line in enumerate(TEXT.splitlines(), 1) if "through: rucio" in line)


@pytest.mark.parametrize(
    ("before", "after"),
    [(FTS, "https://other.example.org:8446"), (FTS, FTS[:-1] + "7"), (FTS, ""), ("", FTS + "/x")],
)
def test_another_fts_needs_another_start(world: World, before: str, after: str, wording) -> None:
    """The jobs that are there are known to the FTS of the start only; the change is not taken for done."""
    world.write(before)
    world.menus()
    world.write(after)
    with pytest.raises(MenuError) as refused:
        world.menus()
    wording(refused.value)
    world.write(before, rate=9)
    assert {flow.rate for flow in world.menus().flows} == {9e9 / 8, 1e9 / 8}


def test_an_edited_menu_is_told_in_one_line_and_kept_as_a_change(world: World, caplog, wording) -> None:
    """With what differs, and only when something does."""
    caplog.set_level("INFO", "dc_inject")
    world.write(FTS)
    world.menus()
    world.menus()
    assert "changed menus" not in caplog.text
    world.write(FTS, rate=40)
    world.menus()
    (line,) = [record.message for record in caplog.records if "changed menus" in record.message]
    what = "one davs://a.example.org/dc -> davs://b.example.org/dc 8 Gb/s -> 40 Gb/s; in total 9 Gb/s -> 41 Gb/s"
    wording(line)
    with LedgerView.open(next(world.path.parent.glob("*.sqlite"))) as view:
        assert [change.what for change in view.changes()] == [f"menus edited: {what}"]


def test_a_scale_of_all_rates_is_kept_in_the_ledger_until_a_run_has_another(tmp_path: Path) -> None:
    """Also where the first start is tried in a ledger that is thrown away."""
    (path := tmp_path / "m.yaml").write_text(TEXT.format(fts="", rate=8))
    clock, ledger = SimClock(START), opened(tmp_path)
    services = {name: Asked(clock, name) for name in ("fts", "rucio")}
    for scale in (1.0, 0.3, 0.3, 1.0):
        Menus([path], ledger=ledger, backends=services, clock=clock, scale=scale)()
        clock.advance(clock.now() + CYCLE)
    assert ledger.scales() == ((START + CYCLE, 0.3), (START + 3 * CYCLE, 1.0))
    assert [change.what for change in ledger.changes()] == ["run --scale 1", "run --scale 0.3"]
    menus = Menus([path], ledger=ledger, backends=services, clock=clock, scale=2.0)
    menus()
    with Ledger.open(tmp_path / "kept.sqlite", synchronous="OFF") as kept:
        menus.move_to(kept)
        assert [scale for _, scale in kept.scales()] == [2.0]


def test_to_name_the_fts_that_is_in_use_changes_nothing(world: World) -> None:
    """What the environment said may be written down."""
    world.write("")
    world.menus()
    world.write(FTS)
    assert {menu.endpoint for menu in world.menus().menus} == {FTS}


ROOT = """
menu: 1
campaign: test
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-09 10:00
scenarios:
  one: {{through: fts, from: "{source}", to: "{destination}", rate: 1 Gb/s, files: {{{files}}}}}
"""
AT_A, AT_B, LISTED = "root://a.example.org//dc", "root://b.example.org//dc", "davs://c.example.org/dc"


@pytest.mark.parametrize(
    ("source", "destination", "files", "refused"),
    [
        (LISTED, AT_B, "list: sized.csv", [AT_B]),
        (AT_A, LISTED, "folder: data", [AT_A]),
        (AT_A, AT_B, "list: unsized.txt", [AT_A, AT_B]),
        (AT_A, LISTED, "list: sized.csv", []),  # FTS copies, and nobody else has to speak to the source
        (LISTED, f"{LISTED}2", "folder: data", []),
    ],
)
def test_without_its_library_root_is_refused_before_anything_is_copied(
    world: World, monkeypatch: pytest.MonkeyPatch, source: str, destination: str, files: str, refused: list[str]
) -> None:
    """What was copied there could never be deleted by us."""
    (world.path.parent / "sized.csv").write_text("path,size\nx,5 MB\n")
    (world.path.parent / "unsized.txt").write_text("x\ny\n")
    monkeypatch.setitem(sys.modules, "XRootD", None)
    world.path.write_text(
        ROOT.format(source=source, destination=destination, files=files) + "accept: [unsized-files]\n"
    )
    problems = refusal(world)
    assert [problem.message.partition(": ")[0] for problem in problems] == refused
    assert all("pip install 'dc-inject[xrootd]'" in problem.hint and problem.line == 9 for problem in problems)
    for name in ("XRootD", "XRootD.client", "XRootD.client.flags"):
        monkeypatch.setitem(sys.modules, name, library := ModuleType(name))
        library.EnvPutInt = lambda *_: None  # type: ignore[attr-defined]
    assert refusal(world) == ()


def refusal(world: World) -> tuple[Problem, ...]:
    """Return why the menu is not taken up."""
    try:
        world.menus()
    except MenuError as error:
        return error.problems
    return ()


def test_storages_are_not_asked_when_a_menu_is_taken_up(world: World) -> None:
    """One that hangs would keep the engine; whether a storage exists, or is tape, none of them tells anyway."""
    world.write(FTS)
    world.menus()
    assert world.services["fts"].ends == []
    assert world.services["rucio"].ends == ["A", "B"]
