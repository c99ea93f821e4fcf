"""A campaign in shards at the command line: commands read all its ledgers as one, and reach all of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.ledger import Ledger, LedgerView, files, shard_path
from dc_inject.metrics import Metrics
from dc_inject.model import Dataset, State
from dc_inject.model.errors import LedgerError, UsageError
from tests.cli.ending import behind_the_command
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, make, run
from tests.menu.texts import scenarios
from tests.sim import SimBackend


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of a campaign's ledger that is in three shards: of FNAL, KIT and the mesh."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: START)
    path = tmp_path / "dc_inject" / "dc27.sqlite"
    for index, (flow, count) in enumerate(((FNAL, 3), (KIT, 2), (MESH, 1))):
        make(shard_path(path, f"{index}/3"), {flow: count})
    return path


@pytest.fixture
def running(whole: Path) -> Iterator[list[Ledger]]:
    """The ledgers, held by their injectors."""
    ledgers = [Ledger.open(file) for file in files(whole)]
    held = [ledger.hold(f"pod-{number}") for number, ledger in enumerate(ledgers)]
    for ledger, hold in zip(ledgers, held, strict=True):
        hold.__enter__()
        ledger.turned(START)
    yield ledgers
    for ledger, hold in zip(ledgers, held, strict=True):
        hold.__exit__(None, None, None)
        ledger.close()


@pytest.mark.usefixtures("whole")
def test_status_report_and_export_have_all_shards() -> None:
    shown = json.loads(run("status", "dc27", "--summary", "--format", "json").stdout)
    assert [line["rules"] for line in shown["links"]] == [2, 3, 1]
    assert shown["total"]["injected"] == 600 * GB
    assert shown["total"]["due"] == 3 * 450 * GB
    standing = json.loads(run("status", "dc27", "--format", "json").stdout)
    assert len(standing["rows"]) == 3
    assert standing["rules"]["live"] == 6
    assert standing["ledger"].endswith("dc27.sqlite")
    assert "injector: none" in run("status", "dc27").stdout
    assert "1.35 TB" in run("report", "dc27").stdout
    records = run("export", "dc27").stdout.splitlines()
    assert len(records) == 6


def test_a_ledger_of_one_shard_is_read_by_its_name(whole: Path) -> None:
    shown = json.loads(run("status", str(files(whole)[1]), "--summary", "--format", "json").stdout)
    assert [line["rules"] for line in shown["links"]] == [2]


def test_metrics_of_all_ledgers_or_of_one(whole: Path) -> None:
    """One injector serves those of its own ledger: sums over all of them count nothing twice."""
    live = 'dc_inject_rules{campaign="dc27",state="live"} '
    texts = [Metrics(file, "dc27").text().decode() for file in (whole, *files(whole))]
    assert [text.partition(live)[2].partition("\n")[0] for text in texts] == ["6.0", "3.0", "2.0", "1.0"]


def test_status_names_the_injector_of_each_shard(running: list[Ledger]) -> None:
    told = json.loads(run("status", "dc27", "--format", "json").stdout)["injector"]
    assert told["who"].startswith("shard 0: pod-0, process")
    assert "; shard 2: pod-2, process" in told["who"]
    assert json.loads(run("campaigns", "--format", "json").stdout)[0]["running"]
    assert len(running) == 3


@pytest.mark.usefixtures("running")
def test_health_of_one_shard_and_of_all(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("health", "dc27").stdout.count("dc27: a cycle ") == 3
    assert "pod-1" in run("health", "dc27", "--shard", "1/3").stdout
    monkeypatch.setenv("DC_INJECT_SHARD", "2/3")
    assert "pod-2" in run("health").stdout
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: START + 3 * CYCLE.length)
    with Ledger.open(files(whole)[2]) as third:
        third.turned(START + 3 * CYCLE.length)
    assert run("health").exit_code == 0
    assert isinstance(run("health", "--shard", "0/3").exception, LedgerError)


def test_a_pause_reaches_all_shards_and_is_one(whole: Path) -> None:
    assert run("pause", "dc27", "us-mesh", "--why", "lunch").exit_code == 0
    assert run("stop", "dc27", "--why", "more").exit_code == 0
    for file in files(whole):
        with LedgerView.open(file) as view:
            assert [pause.subject for pause in view.pauses()] == ["*", "us-mesh"]
    shown = json.loads(run("status", "dc27", "--format", "json").stdout)
    assert [pause["why"] for pause in shown["pauses"]] == ["more", "lunch"]
    assert len(shown["changes"]) == 2
    assert run("resume", "dc27").exit_code == 0
    with LedgerView.open(whole) as view:
        assert [pause.subject for pause in view.pauses()] == ["us-mesh"]
    assert isinstance(run("pause", "dc27", "nothing").exception, UsageError)


def test_a_rate_is_set_and_unset_in_all_shards(whole: Path) -> None:
    done = run("set", "dc27", "t0-export", "rate", "8Gb/s", "--why", "less")
    assert done.exit_code == 0, done.exception
    assert "(last cycle: 8 Gb/s)" in done.stderr, "the sum of both links"
    for file in (*files(whole), whole):
        with LedgerView.open(file) as view:
            assert [override.value for override in view.overrides()] == [1e9]
    assert "already set" in run("set", "dc27", "t0-export", "rate", "8Gb/s").stderr
    assert run("unset", "dc27", "t0-export").stderr.count("8 Gb/s") == 1
    with LedgerView.open(whole) as view:
        assert not view.overrides()


def test_a_note_is_one_note(whole: Path) -> None:
    assert run("note", "dc27", "token trouble").exit_code == 0
    with LedgerView.open(whole) as view:
        assert [change.why for change in view.changes()] == ["token trouble"]


def test_end_ends_the_rules_of_all_shards(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimClock(START)
    with LedgerView.open(whole) as view:
        entries = view.entries()
    stock = [Dataset(entry.injection.item.name, 100 * GB, 10) for entry in entries]
    service = SimBackend(clock, {"T2_CH_CERN": stock, "T2_US_MIT": stock}, speed=lambda _link: 0.0)
    service.submit([entry.injection for entry in entries])
    for rule in service.rules.values():
        rule.moved, rule.completed = 100 * GB, START
    behind_the_command(monkeypatch, clock, "rucio", service)
    clock.advance(START + timedelta(minutes=1))
    part = run("end", "dc27", "us-mesh", "--yes")
    assert part.exit_code == 0, part.exception
    assert part.stderr.count("1 rules ended") + part.stderr.count("1 rule ended") == 1
    done = run("end", "dc27", "--yes")
    assert done.exit_code == 0, done.exception
    with LedgerView.open(whole) as view:
        assert set(view.state_counts()) <= {State.ENDED, State.GONE}
    assert all(rule.ended for rule in service.rules.values())


@pytest.mark.usefixtures("running")
def test_end_waits_for_all_injectors() -> None:
    error = run("end", "dc27", "--yes").exception
    assert isinstance(error, LedgerError)
    assert "shard 1: pod-1" in error.message


def test_ledgers_are_checked_and_forgotten_together_and_kept_one_by_one(whole: Path, tmp_path: Path) -> None:
    assert "no contradiction" in run("ledger", "check", "dc27").stderr
    error = run("ledger", "backup", "dc27", tmp_path / "copy.sqlite").exception
    assert isinstance(error, UsageError)
    assert str(files(whole)[2]) in (error.hint or "")
    assert run("ledger", "backup", files(whole)[2], tmp_path / "copy.sqlite").exit_code == 0
    assert [row["campaign"] for row in json.loads(run("campaigns", "--format", "json").stdout)] == ["dc27"]
    assert run("campaigns", "--forget", "dc27", "--yes", "--force").exit_code == 0
    assert files(whole) == []


def test_plans_of_all_shards_are_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    menu = tmp_path / "m.yaml"
    menu.write_text(scenarios("one: {from: A, to: [B, C, D, E, F, G], rate: 6 Gb/s}"))
    stock = tmp_path / "stock.csv"
    stock.write_text("source,name,bytes,files\n" + "".join(f"A,cms:{n},5000000000,10\n" for n in range(200)))
    plan = ("plan", menu, "--inventory", stock, "--at", "2027-02-08T10:00Z", "--format", "csv")

    def planned(*options: str) -> list[tuple[str, str, str]]:
        done = run(*plan, *options)
        assert done.exit_code == 0, done.exception
        rows = csv.DictReader(done.stdout.splitlines())
        return [(row["destination"], row["due"], row["planned"]) for row in rows]

    parts = [planned("--shard", f"{index}/3") for index in range(3)]
    assert sorted(row for part in parts for row in part) == planned()
    assert all(len(part) < 6 for part in parts)


@pytest.mark.parametrize("shard", ["3/3", "1", "0/11"])
def test_what_is_no_shard_is_refused(tmp_path: Path, shard: str) -> None:
    done = run("plan", tmp_path, "--shard", shard)
    assert done.exit_code == 2
    assert "shard" in done.stderr
