"""`end` through FTS: jobs end, their files are deleted until they are known to be gone, and nothing else is."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject import naming
from dc_inject.backends.sim import InlineExecutor, SimBackend, SimClock
from dc_inject.errors import Permanent, ServiceError, Temporary, UsageError
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Cycle, Entry, FlowKey, Injection, Item, JobOptions, Link, State
from dc_inject.plan import Plan
from dc_inject.ports import Identity, Observation, Outcome, Removal, Status, Stray
from tests.cli.ledgers import CYCLE, GB, START, run

command = importlib.import_module("dc_inject.cli.end")
LINK = Link("davs://a.example.org/dc", "davs://b.example.org/dc", "fts")
FLOW = FlowKey("export", LINK)
OLD = Cycle(START - timedelta(days=3), CYCLE.length)
ME = Identity("fts", "sim://", "1", "def", "sim", admin=False, may_end=True)


@dataclass
class Service(SimBackend):
    """A simulated FTS, with files at a destination that can be swept up."""

    name: str = "fts"
    cleans_up: bool = False
    strays: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    modified: datetime | None = None
    tidied: list[tuple[str, str]] = field(default_factory=list)
    untidy: ServiceError | None = None

    def tidy(self, prefix: str, campaign: str) -> ServiceError | None:
        self.tidied.append((prefix, campaign))
        return self.untidy

    def sweep(self, prefix: str, campaign: str) -> Iterator[Stray]:
        for url in self.strays:
            copy = naming.read_copy(prefix, url)
            if copy is not None and copy.campaign == campaign:
                yield Stray(url, copy, GB, self.modified)

    def delete(self, urls: Sequence[str]) -> list[tuple[str, ServiceError | None]]:
        self.deleted += urls
        return [(url, None) for url in urls]


@dataclass
class World:
    """A ledger with three jobs that are complete and two that are not, behind the command."""

    path: Path
    clock: SimClock
    service: Service

    def end(self, *options: str, text: str | None = None) -> Any:
        return run("end", "dc27", "--ledger", self.path, *options, text=text)

    def entries(self) -> list[Entry]:
        with LedgerView.open(self.path) as view:
            return view.entries()

    def states(self) -> dict[State, int]:
        with LedgerView.open(self.path) as view:
            return {state: count for state, (count, _) in view.state_counts().items()}


def _injection(number: int, cycle: Cycle = CYCLE) -> Injection:
    """A job of ten files; what is to be swept up is of an earlier cycle, since young files are left."""
    members = tuple(Item(f"{LINK.source}/{number}/{n}", GB, 1) for n in range(10))
    item = Item(naming.bundle(members, START, number), 10 * GB, 10, members=members)
    key = naming.key("dc27", "export", cycle.start, LINK, item.name)
    return Injection(
        key, "dc27", cycle, "export", LINK, item, START, timedelta(hours=2), "DC", 3, "me@x.org", JobOptions()
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    path, clock = tmp_path / "dc27.sqlite", SimClock(START)
    service = Service(clock, {}, speed=lambda _link: 0.0)
    jobs = [_injection(number) for number in range(5)]
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", CYCLE.length, [ME], START)
        ledger.open_cycle(CYCLE, {FLOW: (50 * GB, None)}, START)
        ledger.record_plan(Plan(CYCLE, (), tuple(jobs)), START)
        ledger.call([job.key for job in jobs], START)
        ledger.answer([Outcome(job.key, f"sim-{job.key}") for job in jobs], START, {})
    service.submit(jobs)
    for number, rule in enumerate(service.rules.values()):
        done = number < 3
        rule.moved = (10 if done else 4) * GB
        rule.completed = START if done else None
    monkeypatch.setattr(command, "SystemClock", lambda: clock)
    monkeypatch.setattr(command.common, "backends", lambda services, **_: {"fts": service})

    class Inline(InlineExecutor):
        def __init__(self, clock: SimClock, _threads: int) -> None:
            super().__init__(clock)

        def close(self) -> None:
            pass

    monkeypatch.setattr(command, "ThreadExecutor", Inline)
    return World(path, clock, service)


def test_complete_jobs_end_and_their_files_are_deleted(world: World) -> None:
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    assert "3 complete jobs: will be ended at once" in done.stderr
    assert "2 unfinished jobs with 12 files under way: left to their lifetime" in done.stderr
    assert "30 files are known to be gone from their destinations" in done.stderr
    assert world.states() == {State.GONE: 3, State.LIVE: 2}
    assert sum(rule.deleted is not None for rule in world.service.rules.values()) == 3


def test_cancelled_jobs_are_ended_and_cleaned_up_too_with_what_they_moved_known(world: World) -> None:
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0, done.exception
    assert world.states() == {State.GONE: 5}
    with LedgerView.open(world.path) as view:
        assert view.accounts()[FLOW].moved == 38 * GB
    again = world.end("--yes", "--cancel")
    assert again.exit_code == 0
    assert "no jobs to end" in again.stderr


def test_after_a_crash_between_end_and_deletion_it_goes_on_from_the_ledger(world: World) -> None:
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        keys = [entry.injection.key for entry in ledger.entries()[:3]]
        ledger.end_asked(keys, START)
        ledger.ended(keys, START)
    for key in keys:
        world.service.rules[key].ended = START
    done = world.end("--yes")
    assert "30 files of ended jobs: will be deleted at their destinations" in done.stderr
    assert {state for key in keys for state in [_state(world, key)]} == {State.GONE}


def _state(world: World, key: str) -> State:
    return next(entry.state for entry in world.entries() if entry.injection.key == key)


def test_what_was_never_submitted_is_not_in_doubt_for_ever(world: World) -> None:
    lost = _injection(7)
    with Ledger.open(world.path, synchronous="OFF") as ledger:
        ledger.add_injections([lost], START)
        ledger.call([lost.key], START)
    world.clock.advance(START + timedelta(minutes=10))
    assert world.end("--yes").exit_code == 0
    assert _state(world, lost.key) is State.WITHDRAWN


def test_files_that_cannot_be_deleted_stay_in_the_ledger_and_are_told(world: World) -> None:
    def refuse(entries: Sequence[Entry]) -> list[Removal]:
        return [Removal(e.injection.key, gone=False, error=Permanent("403 for DELETE")) for e in entries]

    real, world.service.remove = world.service.remove, refuse
    done = world.end("--yes")
    assert isinstance(done.exception, ServiceError)
    assert "files of 3 jobs are still at their destinations; of 3: 403 for DELETE" in str(done.exception)
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}
    world.service.remove = real
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_a_storage_that_does_not_answer_is_named_once_and_has_its_line_in_the_account(world: World) -> None:
    """Nobody sits before a silent terminal, and who reads the end knows where how much is left."""

    def mute(entries: Sequence[Entry]) -> list[Removal]:
        world.clock.advance(world.clock.now() + timedelta(minutes=1))
        return [Removal(e.injection.key, gone=False, error=Temporary("no answer in time")) for e in entries]

    world.service.remove = mute
    done = world.end("--yes")
    assert isinstance(done.exception, ServiceError)
    assert done.exception.exit_code == 4
    assert done.stderr.count(f"waiting for {LINK.destination}: ") == 1
    assert f"{LINK.destination}: 30 files of 3 jobs stay: no answer in time" in done.stderr
    assert world.clock.now() <= START + timedelta(minutes=5)
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}


def test_a_transfer_that_may_still_write_is_looked_at_once_more_later(world: World) -> None:
    later = START + timedelta(hours=1)
    world.service.remove = lambda entries: [
        Removal(e.injection.key, gone=world.clock.now() >= later, again_at=later) for e in entries
    ]
    done = world.end("--yes")
    assert done.exit_code == 0
    assert f"look once more after {later:%Y-%m-%d %H:%M:%SZ}" in done.stderr
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}
    world.clock.advance(later)
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_deleting_tells_how_far_it_got(world: World) -> None:
    real = world.service.remove

    def slow(entries: Sequence[Entry]) -> list[Removal]:
        world.clock.advance(world.clock.now() + timedelta(seconds=6))
        return real(entries)

    world.service.remove = slow
    done = world.end("--yes")
    assert "of 30 files are known to be gone\n" in done.stderr


def test_interrupting_keeps_what_is_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = command.Ending.remove

    def cut(self: Any, *arguments: Any) -> Iterator[Removal]:
        yield next(removed(self, *arguments))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command.Ending, "remove", cut)
        done = world.end("--yes")
    assert done.exit_code == 130
    assert "interrupted: 10 of 30 files are gone; run it again to go on" in done.stderr
    assert world.states()[State.GONE] >= 1
    assert world.end("--yes").exit_code == 0
    assert world.states() == {State.GONE: 3, State.LIVE: 2}


def test_sweeping_deletes_only_files_of_the_campaign_that_no_ledger_answers_for(world: World) -> None:
    known, unknown = naming.copies(_injection(0))[0], naming.copies(_injection(8, OLD))
    foreign = [f"{LINK.destination}/dc_inject/dc27/export/precious", f"{LINK.destination}/{unknown[0][-17:]}"]
    world.service.strays = [known, *unknown, *foreign]
    world.service.remove = lambda entries: [Removal(e.injection.key, gone=False) for e in entries]
    done = world.end("--sweep", LINK.destination, "--yes")
    assert "10 files (10 GB) of dc27" in done.stderr, done.stderr
    assert world.service.deleted == unknown


def test_sweeping_asks_before_it_deletes(world: World) -> None:
    world.service.strays = naming.copies(_injection(8, OLD))
    world.service.rules.clear()
    done = world.end("--sweep", LINK.destination, text="n\nn\n")
    assert isinstance(done.exception, UsageError)
    assert world.service.deleted == []


def test_where_nobody_can_be_asked_nothing_is_swept_up(world: World) -> None:
    world.service.strays = naming.copies(_injection(8, OLD))
    world.service.rules.clear()
    done = world.end("--sweep", LINK.destination, text="")
    assert isinstance(done.exception, UsageError), done.exception
    assert world.service.deleted == []


def test_files_are_swept_up_without_a_ledger_and_without_rucio(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    world.service.strays = naming.copies(_injection(8, OLD))
    asked: list[set[str]] = []
    monkeypatch.setattr(
        command.common, "backends", lambda services, **_: asked.append(services) or {"fts": world.service}
    )
    done = run("end", "dc27", "--sweep", LINK.destination, "--yes")
    assert done.exit_code == 0, done.exception
    assert asked == [{"fts"}]
    assert "looking for files only" in done.stderr
    assert world.service.deleted == world.service.strays


def test_a_link_of_urls_is_told_apart_and_written_in_its_one_form(world: World) -> None:
    done = world.end("--yes", "--link", "DAVS://A.example.org:443/dc/:davs://b.example.org/dc")
    assert done.exit_code == 0, done.exception
    assert world.states() == {State.GONE: 3, State.LIVE: 2}
    wrong = world.end("--yes", "--link", "davs://a.example.org/dc")
    assert wrong.exit_code == 2
    assert "a link has two ends" in wrong.stderr


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("notaurl", "not a URL"),
        ("davs://b.example.org/dc?token=hunter2", "may not have a query"),
        ("ftp://b.example.org/dc", "unknown scheme"),
        ("http://b.example.org/dc", "not encrypted"),
    ],
)
def test_a_prefix_that_cannot_be_one_is_refused_before_anything_is_done(
    world: World, prefix: str, why: str
) -> None:
    done = world.end("--yes", "--sweep", prefix)
    assert done.exit_code == 2, done.exception
    assert why in done.stderr
    assert "hunter2" not in done.stderr
    assert world.states() == {State.LIVE: 5}


def test_a_prefix_in_another_spelling_is_the_same_one(world: World) -> None:
    unknown = world.service.strays = naming.copies(_injection(8, OLD))
    done = world.end("--yes", "--sweep", "DAVS://B.example.org:443/dc/")
    assert done.exit_code == 0, done.exception
    assert "no job of this ledger went to" not in done.stderr
    assert world.service.deleted == unknown


def test_a_prefix_that_is_no_destination_of_the_ledger_is_told(world: World) -> None:
    done = world.end("--yes", "--sweep", "davs://c.example.org/dc")
    assert done.exit_code == 0, done.exception
    wrong = "no job of this ledger went to davs://c.example.org/dc; its destinations are davs://b.example.org/dc"
    assert wrong in done.stderr


def test_what_is_to_be_swept_up_is_shown_by_scenario_and_cycle(world: World) -> None:
    older = Cycle(OLD.start - OLD.length, OLD.length)
    world.service.strays = [*naming.copies(_injection(8, OLD)), *naming.copies(_injection(9, older))[:3]]
    done = world.end("--yes", "--sweep", LINK.destination)
    assert done.exit_code == 0, done.exception
    assert "13 files (13 GB) of dc27" in done.stderr
    assert "  export, cycle 2027-02-05 10:00:00Z: 10 files (10 GB), such as davs://b.example.org/" in done.stderr
    assert "  export, cycle 2027-02-05 09:45:00Z: 3 files (3 GB), such as davs://b.example.org/" in done.stderr
    assert sorted(world.service.deleted) == sorted(world.service.strays)


@pytest.mark.parametrize(("age", "young"), [(timedelta(hours=23), True), (timedelta(days=1), False)])
def test_files_of_young_cycles_may_be_those_of_another_injector(world: World, age: timedelta, young: bool) -> None:
    fresh = naming.copies(_injection(7, Cycle(START - age, CYCLE.length)))
    old = naming.copies(_injection(8, OLD))
    world.service.strays = [*fresh, *old]
    done = world.end("--yes", "--sweep", LINK.destination)
    assert done.exit_code == 0, done.exception
    assert sorted(world.service.deleted) == sorted(old if young else [*fresh, *old])
    assert ("left alone (--even-new takes them too)" in done.stderr) is young


def test_files_of_an_old_cycle_that_changed_within_a_day_are_young_too(world: World) -> None:
    world.service.strays = naming.copies(_injection(8, OLD))
    world.service.modified = START - timedelta(hours=2)
    done = world.end("--yes", "--sweep", LINK.destination)
    assert isinstance(done.exception, UsageError)
    assert "10 files (10 GB), the last changed 2027-02-08 08:00:00Z, such as" in done.stderr
    assert world.service.deleted == []


def test_young_files_alone_are_not_swept_up_unless_that_is_said(world: World) -> None:
    world.service.strays = naming.copies(_injection(8))
    done = world.end("--yes", "--sweep", LINK.destination)
    assert isinstance(done.exception, UsageError)
    assert "--even-new" in str(done.exception.hint)
    assert world.service.deleted == []
    assert world.end("--yes", "--sweep", LINK.destination, "--even-new").exit_code == 0
    assert world.service.deleted == world.service.strays


@pytest.mark.parametrize("status", [Status.WAITING, Status.MOVING, Status.UNKNOWN])
def test_files_of_a_job_that_is_at_work_are_never_swept_up(world: World, status: Status) -> None:
    busy, idle = _injection(7, OLD), _injection(8, OLD)
    world.service.strays = [*naming.copies(busy), *naming.copies(idle)]
    observe, asked = world.service.observe, []

    def tell(entries: Sequence[Entry], *, exact: bool = False) -> list[Observation]:
        asked.extend(entry for entry in entries if entry.injection.key == busy.key)
        return [
            Observation(one.key, status) if one.key == busy.key else one for one in observe(entries, exact=exact)
        ]

    world.service.observe = tell
    done = world.end("--yes", "--even-new", "--sweep", LINK.destination)
    assert done.exit_code == 0, done.exception
    assert world.service.deleted == naming.copies(idle)
    assert "left alone" in done.stderr
    assert [(entry.state, entry.external_id) for entry in asked] == [(State.CALLED, "")]


def test_nothing_is_swept_up_when_nobody_tells_of_the_jobs(world: World) -> None:
    world.service.strays = naming.copies(_injection(8, OLD))
    world.service.rules.clear()

    def mute(method: str, subject: Any) -> None:
        if method == "observe" and subject and subject[0].injection.cycle.start == OLD.start:
            raise Temporary("FTS does not answer")

    world.service.fault = mute
    done = world.end("--yes", "--sweep", LINK.destination)
    assert isinstance(done.exception, Temporary)
    assert world.service.deleted == []


def test_empty_folders_go_when_nothing_of_the_campaign_is_left(world: World) -> None:
    assert world.end("--yes").exit_code == 0
    assert world.service.tidied == [], "two jobs are at work, for which FTS makes folders"
    world.service.untidy = Temporary("busy")
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0, done.exception
    assert world.service.tidied == [(LINK.destination, "dc27")]
    assert f"empty folders stay at {LINK.destination}: busy" in done.stderr


def test_folders_stay_while_files_are_to_be_looked_at_once_more(world: World) -> None:
    later = START + timedelta(hours=1)
    world.service.remove = lambda entries: [Removal(e.injection.key, gone=False, again_at=later) for e in entries]
    assert world.end("--yes", "--cancel").exit_code == 0
    assert world.service.tidied == []
