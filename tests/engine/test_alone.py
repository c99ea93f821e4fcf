"""Another injector of the same campaign, with another ledger: the second one refuses, and adopts on request."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.engine.another_injector import Alone, AnotherInjector
from dc_inject.engine.context import Settings
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.ledger.check import check
from dc_inject.ledger.in_place import missing_log
from dc_inject.model import Injection, naming
from dc_inject.model.errors import LedgerError, Temporary
from dc_inject.model.events import Answered, Called, Planned
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Made, Outcome
from dc_inject.model.shards import Shard
from dc_inject.planning import shards
from tests.apps.rebuild.test_rebuilding import ours, rebuilding
from tests.engine.world import CYCLE, GB, LEFT_OPEN, START, World, campaign, flow, items
from tests.sim import SimBackend

FLOWS = [flow("A", "B", 1), flow("A", "C", 1, lifetime_min=timedelta(hours=9), lifetime_max=timedelta(hours=9))]
SIZE = 25 * GB
DUE = 2 * 112_500_000_000  # of a cycle, of both links


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


@dataclass
class Told(SimBackend):
    """A service that knows who made each rule, and lists them."""

    origin: Origin | None = None
    origins: dict[str, Origin | None] = field(default_factory=dict)

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        outcomes = super().submit(injections)
        for outcome in outcomes:
            if outcome.error is None:
                self.origins.setdefault(outcome.key, self.origin)
        return [replace(one, origin=self.origins[one.key]) if one.adopted else one for one in outcomes]

    def made(self, campaign: str, *, since: datetime) -> Iterator[Made]:
        self._call("made", campaign)
        for key, rule in self.rules.items():
            if rule.injection.campaign == campaign and rule.created >= since and rule.ended is None:
                yield Made(key, self.origins[key], rule.created)


class Silent(Told):
    """One whose listing cannot be had."""

    def made(self, campaign: str, *, since: datetime) -> Iterator[Made]:
        raise Temporary("no listing now")


@dataclass
class Scene:
    """One service and clock, which any number of injectors use."""

    path: Path
    made: Callable[[], object] = lambda: campaign(FLOWS)

    def __post_init__(self) -> None:
        self.clock = SimClock(START)
        self.service = Told(self.clock, {"A": items("A", 60, SIZE)})

    def injector(
        self, file: str, shard: Shard | None = None, *, start: str = "", kind: type[Told] = Told
    ) -> World:
        """Start an injector with this ledger, as `run` does; raises AnotherInjector."""
        name = "" if shard is None else str(shard)
        whole = campaign(FLOWS)
        mine = whole if shard is None else shards.part(whole, shard)
        origin = Origin(start or uuid.uuid4().hex, f"ops@{file}, process 1", name)
        values = {one: getattr(self.service, one) for one in ("rules", "origins", "_there", "fault")}
        backend = kind(self.clock, self.service.items, origin=origin, **values)
        ledger = LEFT_OPEN.enter_context(Ledger.open(self.path / f"{file}.sqlite", synchronous="OFF"))
        ledger.bind("test", CYCLE, (backend.check(),), self.clock.now(), name)
        settings = Settings(drain=False, poll=CYCLE / 5)
        alone = Alone("test", origin, "a hint")
        world = World(self.path, lambda: mine, self.clock, backend, ledger, settings=settings, alone=alone)
        try:
            alone.refuse_others(ledger, {"rucio": backend}, mine.start, self.clock.now())
        except BaseException:
            ledger.close()
            raise
        return world

    def total(self) -> int:
        """What the service was really given."""
        return sum(rule.injection.item.bytes for rule in self.service.rules.values())

    def due(self) -> int:
        return int((self.clock.now() - START) / CYCLE * DUE)

    def fits(self) -> bool:
        """Whether that is what is due, to within a dataset for each link."""
        return abs(self.total() - self.due()) <= SIZE * len(FLOWS)


def copied(one: World, to: str) -> None:
    with LedgerView.open(one.ledger.path) as view:
        view.copy_to(one.path / f"{to}.sqlite")


def goes_on(scene: Scene, file: str, cycles: int = 2) -> None:
    """It starts, and gives what is due from then on: nothing of it twice, and no burst."""
    one = scene.injector(file)
    before, began = scene.total(), scene.clock.now()
    until = began + cycles * CYCLE
    one.run(cycles)
    assert scene.clock.now() >= until
    assert abs(scene.total() - before - cycles * DUE) <= SIZE * len(FLOWS) + DUE
    assert [found for found in check(one.ledger.path) if not found.note] == []
    one.ledger.close()


def adopted(scene: Scene, file: str) -> None:
    """What `ledger rebuild` does with a ledger, a new or an old one, in a file of its own."""
    backend = Told(scene.clock, scene.service.items, rules=scene.service.rules, origins=scene.service.origins)
    ledger = LEFT_OPEN.enter_context(Ledger.open(scene.path / f"{file}.sqlite", synchronous="OFF"))
    ledger.bind("test", CYCLE, (backend.check(),), scene.clock.now())
    one = World(scene.path, lambda: campaign(FLOWS), scene.clock, backend, ledger)
    found = [replace(rule, origin=backend.origins[rule.key]) for rule in ours(one)]
    rebuilding(one).rebuild(ledger, found)
    ledger.close()


def test_one_alone_is_never_refused_from_start_to_start(tmp_path):
    scene = Scene(tmp_path)
    for _ in range(4):
        one = scene.injector("one")
        one.run(1)
        one.ledger.close()
    assert scene.fits()


def test_a_start_asks_once_and_the_engine_a_cycle_later_and_once_an_hour(tmp_path):
    """Rucio has no index for it."""
    one = Scene(tmp_path).injector("one")
    one.run(9)
    assert one.backend.calls["made"] == 3  # at 10:00, 10:15, and 11:15


def test_the_second_home_is_refused_and_leaves_nothing_injected(tmp_path):
    scene = Scene(tmp_path)
    scene.injector("one").run(2)
    with pytest.raises(AnotherInjector, match="ops@one, process 1") as refused:
        scene.injector("two")
    assert refused.value.exit_code == 3
    assert refused.value.hint == "a hint"
    assert scene.fits()


def test_the_second_home_adopts_on_request(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(2)
    one.ledger.close()
    adopted(scene, "two")
    goes_on(scene, "two")
    with pytest.raises(AnotherInjector, match="ops@two"):
        scene.injector("one")


def test_a_copy_is_refused_once_the_other_has_gone_on_and_adopts_on_request(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(2)
    copied(one, "two")
    one.run(1)
    for _ in range(2):
        with pytest.raises(AnotherInjector):
            scene.injector("two")
    assert scene.fits()
    one.ledger.close()
    adopted(scene, "two")
    goes_on(scene, "two")


def test_two_copies_that_start_at_once_find_each_other_in_the_next_cycle(tmp_path):
    scene = Scene(tmp_path)
    first = scene.injector("one")
    first.run(2)
    copied(first, "two")
    first.ledger.close()
    one, two = scene.injector("one"), scene.injector("two")
    one.run(1)
    with pytest.raises(AnotherInjector):
        two.run(1)
    assert scene.fits()


def test_what_another_start_made_is_not_adopted_even_under_our_key(tmp_path):
    """Both plan alike, and the listing is missing: the duplicate tells."""
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(1)
    two = scene.injector("two", kind=Silent)
    two.clock = SimClock(START)
    two.backend.clock = two.clock
    with pytest.raises(AnotherInjector, match="1 rule"):
        two.run(1)
    assert len(scene.service.rules) == len(one.backend.rules)


def test_an_old_backup_in_place_is_refused_and_adopts_on_request(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(1)
    copied(one, "backup")
    one.run(3)
    one.ledger.close()
    with pytest.raises(AnotherInjector):
        scene.injector("backup")
    adopted(scene, "backup")
    goes_on(scene, "backup")


@pytest.mark.parametrize("step", [Called, Planned])
def test_who_died_between_call_and_answer_adopts_its_own(tmp_path, step):
    scene = Scene(tmp_path)
    one = scene.injector("one")

    def die() -> None:
        if len(scene.service.rules) > 3:
            raise Killed

    one.heard.at[step] = die
    with pytest.raises(Killed):
        one.run(2)
    one.ledger.close()
    again = scene.injector("one")
    again.run(2)
    assert {entry.injection.key for entry in again.ledger.entries() if entry.accepted_at} == set(
        scene.service.rules
    )


def test_a_call_that_was_lost_and_is_made_again_adopts_its_own(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")

    def lose(method: str, _subject: object) -> None:
        one.backend.answer = lambda *_: None
        raise Temporary("lost", lost=False)  # it was carried out all the same

    one.backend.answer = lose
    one.run(1)
    assert scene.fits()


def test_what_an_older_version_made_is_judged_by_its_key(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(2)
    scene.service.origins.update(dict.fromkeys(scene.service.origins))
    one.ledger.close()
    one = scene.injector("one")
    one.run(1)
    scene.service.origins.update(dict.fromkeys(scene.service.origins))
    with pytest.raises(AnotherInjector):
        scene.injector("two")


def test_a_ledger_of_version_1_goes_on_with_rules_that_have_no_start(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(1)
    scene.service.origins.update(dict.fromkeys(scene.service.origins))
    for table in ("start", "menu_part"):  # which version 2 brought
        one.ledger._db.run(f"DROP TABLE {table}")
    one.ledger._db.run("PRAGMA user_version = 1")
    path = one.ledger.path
    one.ledger.close()
    with LedgerView.open(path) as view:
        assert view.starts() == frozenset()
    assert [found for found in check(path) if not found.note] == []
    one = scene.injector("one")
    one.run(1)
    assert scene.fits()
    assert one.ledger.starts() == {one.alone.origin.start}


def test_shards_leave_each_other_alone_and_nobody_else(tmp_path):
    scene = Scene(tmp_path)
    parts = [scene.injector(f"part-{index}", Shard(index, 2)) for index in range(2)]
    assert {len(part.menus().flows) for part in parts} == {1}
    for _ in range(2):
        until = scene.clock.now() + CYCLE
        for part in parts:
            part.engine().run(until=until)
    for index in range(2):
        parts[index].ledger.close()
        scene.injector(f"part-{index}", Shard(index, 2)).ledger.close()
    for number, other in enumerate((None, Shard(0, 3), Shard(0, 2))):
        with pytest.raises(AnotherInjector):
            scene.injector(f"other-{number}", other)


def test_a_listing_that_cannot_be_had_is_asked_for_again_in_the_next_cycle(tmp_path, caplog):
    scene = Scene(tmp_path)
    scene.injector("one").run(1)
    two = scene.injector("two", kind=Silent)
    assert "no listing now" in caplog.text
    two.backend.__class__ = Told
    with pytest.raises(AnotherInjector):
        two.run(1)
    assert scene.fits()


def test_a_name_from_outside_is_cleaned_and_bounded():
    assert naming.read_origin({"start": "x", "by": "ops"}) is None
    assert naming.read_origin({}) is None
    read = naming.read_origin({"start": "0" * 32, "by": "\x1b[2Jops\n" + "x" * 999, "shard": "1/2; rm"})
    assert read is not None
    assert len(read.who) <= 100
    assert read.who.isprintable()
    assert read.shard == ""
    long = Origin("0" * 32, "\N{SNOWMAN}" * 500, "1/2")
    assert naming.read_origin(long.metadata()) == Origin("0" * 32, "?" * 100, "1/2")


# --------------------------------------------------------------------------- the file


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    path.with_name("new").write_bytes(path.read_bytes())
    path.with_name("new").replace(path)


def linked(path: Path) -> None:
    os.link(path, path.with_name("other.sqlite"))


def without_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def with_half_a_log(path: Path) -> None:
    log = path.with_name(path.name + "-wal")
    os.truncate(log, log.stat().st_size // 2)


@pytest.mark.parametrize("happens", [Path.unlink, moved, replaced, linked, without_log, with_half_a_log])
def test_a_ledger_that_is_not_in_its_place_any_more_ends_the_run(tmp_path, happens):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(1)

    def happen() -> None:
        one.heard.at.clear()
        happens(one.ledger.path)

    one.heard.at[Answered] = happen
    with pytest.raises(LedgerError, match=r"one\.sqlite") as refused:
        one.run(1)
    assert not isinstance(refused.value, AnotherInjector)
    assert scene.total() <= scene.due() + DUE


def test_a_ledger_with_two_names_is_refused_at_the_start_and_found_by_check(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    linked(one.ledger.path)
    with pytest.raises(LedgerError, match="2 names"), one.ledger.hold("ops"):
        pass
    assert [found.code for found in check(one.ledger.path) if not found.note] == ["names"]


def test_a_log_that_was_truncated_is_found_before_the_ledger_is_opened(tmp_path):
    scene = Scene(tmp_path)
    one = scene.injector("one")
    one.run(1)
    for end in ("", "-wal", "-shm"):  # as the process leaves it that dies now
        left = tmp_path / f"left.sqlite{end}"
        left.write_bytes(one.ledger.path.with_name(f"one.sqlite{end}").read_bytes())
        left.chmod(0o600)
    left = tmp_path / "left.sqlite"
    assert missing_log(left) == 0
    with_half_a_log(left)
    assert missing_log(left) > 0
    assert "log-truncated" in {found.code for found in check(left)}
    assert missing_log(left) == 0, "SQLite has opened it since"
    without_log(left)
