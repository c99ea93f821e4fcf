"""`end --sweep`: files of ours that no ledger answers for go, after a question, and nothing else does."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.model import Cycle, State, naming
from dc_inject.model.errors import Temporary, UsageError
from dc_inject.model.ports import Removal, Status
from tests.cli.ending import LINK, Files, command, job, world_of_files
from tests.cli.ledgers import CYCLE, START, run
from tests.wording import lines

OLD = Cycle(START - timedelta(days=3), CYCLE.length)  # young files are left


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return world_of_files(tmp_path, monkeypatch)


def test_sweeping_deletes_only_files_of_the_campaign_that_no_ledger_answers_for(world: Files) -> None:
    known, unknown = naming.copies(job(0))[0], naming.copies(job(8, OLD))
    foreign = [f"{LINK.destination}/dc_inject/dc27/export/precious", f"{LINK.destination}/{unknown[0][-17:]}"]
    world.service.strays = [known, *unknown, *foreign]
    world.service.remove = lambda entries: [Removal(e.injection.key, gone=False) for e in entries]
    done = world.end("--sweep", LINK.destination, "--yes")
    assert "10 files (10 GB) of dc27" in done.stderr, done.stderr
    assert world.service.deleted == unknown


def test_sweeping_asks_before_it_deletes(world: Files) -> None:
    world.service.strays = naming.copies(job(8, OLD))
    world.service.rules.clear()
    done = world.end("--sweep", LINK.destination, text="n\nn\n")
    assert isinstance(done.exception, UsageError)
    assert world.service.deleted == []


def test_where_nobody_can_be_asked_nothing_is_swept_up(world: Files) -> None:
    world.service.strays = naming.copies(job(8, OLD))
    world.service.rules.clear()
    done = world.end("--sweep", LINK.destination, text="")
    assert isinstance(done.exception, UsageError), done.exception
    assert world.service.deleted == []


def test_files_are_swept_up_without_a_ledger_and_without_rucio(
    world: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    world.service.strays = naming.copies(job(8, OLD))
    asked: list[set[str]] = []
    monkeypatch.setattr(
        command.common, "backends", lambda services, **_: asked.append(services) or {"fts": world.service}
    )
    done = run("end", "dc27", "--sweep", LINK.destination, "--yes")
    assert done.exit_code == 0, done.exception
    assert asked == [{"fts"}]
    wording(done.stderr)
    assert world.service.deleted == world.service.strays


@pytest.mark.parametrize(
    "prefix",
    [
        "notaurl",
        "davs://b.example.org/dc?token=hunter2",
        "ftp://b.example.org/dc",
        "http://b.example.org/dc",
    ],
)
def test_a_prefix_that_cannot_be_one_is_refused_before_anything_is_done(
    world: Files, prefix: str, wording
) -> None:
    done = world.end("--yes", "--sweep", prefix)
    assert done.exit_code == 2, done.exception
    wording(done.stderr)
    assert "hunter2" not in done.stderr
    assert world.states() == {State.LIVE: 5}


def test_a_prefix_in_another_spelling_is_the_same_one(world: Files) -> None:
    unknown = world.service.strays = naming.copies(job(8, OLD))
    done = world.end("--yes", "--sweep", "DAVS://B.example.org:443/dc/")
    assert done.exit_code == 0, done.exception
    assert "its destinations" not in done.stderr
    assert world.service.deleted == unknown


def test_a_prefix_that_is_no_destination_of_the_ledger_is_told(world: Files, wording) -> None:
    done = world.end("--yes", "--sweep", "davs://c.example.org/dc")
    assert done.exit_code == 0, done.exception
    wording(lines(done.stderr, "davs://c.example.org/dc", "davs://b.example.org/dc"))


def test_what_is_to_be_swept_up_is_shown_by_scenario_and_cycle(world: Files) -> None:
    older = Cycle(OLD.start - OLD.length, OLD.length)
    world.service.strays = [*naming.copies(job(8, OLD)), *naming.copies(job(9, older))[:3]]
    done = world.end("--yes", "--sweep", LINK.destination)
    assert done.exit_code == 0, done.exception
    assert "13 files (13 GB) of dc27" in done.stderr
    assert "  export, cycle 2027-02-05 10:00:00Z: 10 files (10 GB), such as davs://b.example.org/" in done.stderr
    assert "  export, cycle 2027-02-05 09:45:00Z: 3 files (3 GB), such as davs://b.example.org/" in done.stderr
    assert sorted(world.service.deleted) == sorted(world.service.strays)


@pytest.mark.parametrize(("age", "young"), [(timedelta(hours=23), True), (timedelta(days=1), False)])
def test_files_of_young_cycles_may_be_those_of_another_injector(world: Files, age: timedelta, young: bool) -> None:
    fresh = naming.copies(job(7, Cycle(START - age, CYCLE.length)))
    old = naming.copies(job(8, OLD))
    world.service.strays = [*fresh, *old]
    done = world.end("--yes", "--sweep", LINK.destination)
    assert done.exit_code == 0, done.exception
    assert sorted(world.service.deleted) == sorted(old if young else [*fresh, *old])
    assert ("--include-recent" in done.stderr) is young


def test_files_of_an_old_cycle_that_changed_within_a_day_are_young_too(world: Files) -> None:
    world.service.strays = naming.copies(job(8, OLD))
    world.service.modified = START - timedelta(hours=2)
    done = world.end("--yes", "--sweep", LINK.destination)
    assert isinstance(done.exception, UsageError)
    assert "2027-02-08 08:00:00Z" in done.stderr
    assert world.service.deleted == []


def test_young_files_alone_are_not_swept_up_unless_that_is_said(world: Files) -> None:
    world.service.strays = naming.copies(job(8))
    done = world.end("--yes", "--sweep", LINK.destination)
    assert isinstance(done.exception, UsageError)
    assert "--include-recent" in str(done.exception.hint)
    assert world.service.deleted == []
    assert world.end("--yes", "--sweep", LINK.destination, "--include-recent").exit_code == 0
    assert world.service.deleted == world.service.strays


@pytest.mark.parametrize("status", [Status.WAITING, Status.MOVING, Status.UNKNOWN])
def test_files_of_a_job_that_is_at_work_are_never_swept_up(world: Files, status: Status, wording) -> None:
    busy, idle = job(7, OLD), job(8, OLD)
    world.service.strays = [*naming.copies(busy), *naming.copies(idle)]
    statuses = world.service.statuses
    world.service.statuses = lambda keys: {**statuses(keys), busy.key: status}
    done = world.end("--yes", "--include-recent", "--sweep", LINK.destination)
    assert done.exit_code == 0, done.exception
    assert world.service.deleted == naming.copies(idle)
    wording(lines(done.stderr, "kept: "))


def test_nothing_is_swept_up_when_nobody_tells_of_the_jobs(world: Files) -> None:
    world.service.strays = naming.copies(job(8, OLD))
    world.service.rules.clear()

    def mute(method: str, subject: Any) -> None:
        if method == "statuses":
            assert subject == [job(8, OLD).key]
            raise Temporary("FTS does not answer")

    world.service.fault = mute
    done = world.end("--yes", "--sweep", LINK.destination)
    assert isinstance(done.exception, Temporary)
    assert world.service.deleted == []


def test_whose_young_files_are_is_said_before_they_go(world: Files) -> None:
    world.service.strays = naming.copies(job(8))
    world.service.rules.clear()
    done = world.end("--sweep", LINK.destination, "--include-recent", text="y\nn\n")
    assert world.service.deleted == []
    whose = f"contact {job(0).contact}, "
    assert done.stderr.index(whose) < done.stderr.index("Delete them?")


def test_files_that_are_not_young_are_swept_up_without_a_word_of_whose_they_are(world: Files) -> None:
    world.service.strays = naming.copies(job(8, OLD))
    done = world.end("--yes", "--sweep", LINK.destination, "--include-recent")
    assert done.exit_code == 0, done.exception
    assert "last day" not in done.stderr


def test_without_a_ledger_nobody_can_tell_whose_young_files_are(
    world: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    world.service.strays = naming.copies(job(8))
    monkeypatch.setattr(command.common, "backends", lambda *_, **__: {"fts": world.service})
    done = run("end", "dc27", "--sweep", LINK.destination, "--yes", "--include-recent")
    assert done.exit_code == 0, done.exception
    wording(lines(done.stderr, "last day"))
