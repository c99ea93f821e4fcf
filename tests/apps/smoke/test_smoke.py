"""`dc-inject smoke` on a simulated service and clock: each link is reported, nothing is left."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result

from dc_inject.apps.smoke import results
from dc_inject.ledger import LedgerView
from dc_inject.model import FlowKey, Held, Hold, Injection, Link, State
from dc_inject.model.errors import LinkRefused, ThresholdMissed
from dc_inject.model.holds import Fault
from dc_inject.model.ports import Identity
from dc_inject.system import files
from dc_inject.system.service_manager import ServiceManager
from tests.apps.link.linking import signalled
from tests.cli.ledgers import run
from tests.engine.world import GB, items, source_files, url
from tests.sim import SimBackend

A, B, C = "T1_A_Disk", "T1_B_Disk", "T2_C"
STOCK = {name: items(name, 3, 100 * GB) for name in (A, B, C)}
DAY = """\
menu: 1
campaign: dc27
contact: ops@example.org
start: 2027-03-{day} 10:00Z
end: 2027-03-{day} 22:00Z
target: 90 Gb/s
exclude: [{{rse: T2_C, from: 2027-03-{day} 12:00Z, to: 2027-03-{day} 13:00Z, reason: downtime}}]
defaults: {{datasets: {{did: ["*:*"], mean_file: 1..20 GB}}}}
scenarios:
  {scenario}: {{mesh: [T1_A_Disk, T1_B_Disk, T2_C], rate: 90 Gb/s, shape: {{ramp: 1 h}}}}
"""


@pytest.fixture
def menus(tmp_path: Path) -> Path:
    """Two days with the same six links."""
    folder = tmp_path / "menus"
    folder.mkdir()
    for day, scenario in ((10, "mesh"), (11, "again")):
        (folder / f"day{day}.yaml").write_text(DAY.format(day=day, scenario=scenario))
    return folder


def found(done: Result) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["source"], one["destination"]): one for one in json.loads(done.stdout)["links"]}


def bad(done: Result) -> dict[tuple[str, str], tuple[str, str, str]]:
    return {
        pair: (one["outcome"], one["fault"], one["cause"])
        for pair, one in found(done).items()
        if one["outcome"] != "passed"
    }


def left(tmp_path: Path, backend: SimBackend) -> list[State]:
    """The states in the last ledger; nothing of ours is in the service any more."""
    assert all(rule.ended for rule in backend.rules.values())
    ledger = max((tmp_path / "dc_inject").glob("smoke-dc27-*.sqlite"))
    with LedgerView.open(ledger) as view:
        assert not any(entry.state.in_service for entry in view.entries())
        return [entry.state for entry in view.entries()]


def test_each_link_of_all_days_gets_one_file_once(service, tmp_path: Path, menus: Path) -> None:
    """Weeks before the window: 100 GB of 50 files are not sent, a slice of one file is; all of it is removed."""
    backend = service(8, stock=STOCK)
    done = run("smoke", menus, "--format", "json")
    assert done.exit_code == 0, done.exception
    assert {(one["outcome"], one["bytes"], one["fault"]) for one in found(done).values()} == {
        ("passed", 2 * GB, "")
    }
    assert all(0 < one["rate"] <= 1e9 for one in found(done).values())
    assert [rule.injection.item.files for rule in backend.rules.values()] == [1] * 6
    assert len(left(tmp_path, backend)) == 6


def refuse(pair: tuple[str, str], error: Exception) -> Any:
    def fault(method: str, subject: Any) -> None:
        if method == "submit" and any(isinstance(one, Injection) and one.link.ends == pair for one in subject):
            raise error

    return fault


def test_each_broken_link_is_reported_with_whose_fault_it_is(service, tmp_path: Path, menus: Path) -> None:
    """Closed, without quota, without files, and refused by the service."""
    backend = service(8, stock={A: STOCK[A], B: STOCK[B]}, unwritable={C}, quota={B: GB})
    backend.fault = refuse((B, A), LinkRefused("the link is banned", hold="quarantined"))
    junit = tmp_path / "smoke.xml"
    done = run("smoke", menus, "--format", "json", "--junit", junit)
    assert done.exception.exit_code == 5
    assert bad(done) == {
        (A, C): ("failed", "destination", "destination-unavailable"),
        (B, C): ("failed", "destination", "destination-unavailable"),
        (A, B): ("failed", "Rucio", "quota"),
        (C, B): ("failed", "source", "pool-dry"),
        (C, A): ("failed", "source", "pool-dry"),
        (B, A): ("failed", "Rucio", "quarantined"),
    }
    suite = ET.parse(junit).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("6", "6", "0")
    assert left(tmp_path, backend) in ([], [State.WITHDRAWN])


def test_a_link_that_never_answers_ends_with_the_time_of_the_test(service, tmp_path: Path, menus: Path) -> None:
    backend = service(8, stock=STOCK)
    backend.speed = lambda link: 0.0 if link.ends == (A, B) else 1e9
    before = backend.clock.now()
    done = run("smoke", menus, "--within", "10m", "--format", "json")
    assert done.exception.exit_code == 5
    assert bad(done) == {(A, B): ("no result", "unknown", "no-answer")}
    assert (backend.clock.now() - before).total_seconds() >= 600
    left(tmp_path, backend)
    assert run("smoke", menus, "--at-least", "80%", "--within", "5m").exit_code == 0


def test_only_links_that_did_not_pass_are_repeated(service, menus: Path) -> None:
    backend = service(8, stock=STOCK, unwritable={C})
    assert run("smoke", menus).exception.exit_code == 5
    backend.unwritable.clear()
    backend.clock.advance(backend.clock.now().replace(hour=20))
    done = run("smoke", menus, "--failed", "--format", "json")
    assert done.exit_code == 0, done.exception
    assert set(found(done)) == {(A, C), (B, C)}
    backend.clock.advance(backend.clock.now().replace(hour=21))
    assert run("smoke", menus, "--failed").exception.exit_code == 2
    assert set(found(run("smoke", menus, "--link", f"{A}:{B}", "--format", "json"))) == {(A, B)}


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_removes_what_was_made_and_shows_the_results_so_far(
    service, tmp_path: Path, menus: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """A second one leaves at once, and names the command that ends what is left."""
    backend = service(0.001, stock=STOCK)
    signalled(backend, "submit", 2, lost=None)
    if again:
        monkeypatch.setattr(
            "dc_inject.apps.smoke.results.of_campaign", lambda *_: signal.raise_signal(signal.SIGINT)
        )
    done = run("smoke", menus, "--format", "json")
    if again:
        assert done.exit_code == 130
        assert "`dc-inject end smoke-dc27-" in done.stderr.splitlines()[-1]
        return
    assert done.exception.exit_code == 2
    assert {outcome for outcome, _, _ in bad(done).values()} == {"no result"}
    left(tmp_path, backend)


def test_files_of_jobs_that_fail_and_slow_ones_do_not_pass(service, tmp_path: Path) -> None:
    """Through FTS; the copies are deleted, also those of links that passed."""
    stock = source_files("a", 3, GB) | source_files("b", 2, 2 * GB)
    backend = service(8, name="fts", stock=stock)
    backend.failing = lambda file: file.name.startswith(url("b"))
    menu = tmp_path / "files.yaml"
    menu.write_text(
        "menu: 1\ncampaign: dc27\ncontact: me@example.org\nstart: 2027-03-01 10:00\nend: 2027-03-02 10:00\n"
        "fts: {endpoint: 'https://fts.example.org:8446'}\ndefaults: {through: fts, files: {folder: x}}\n"
        f"scenarios: {{files: {{mesh: ['{url('a')}', '{url('b')}'], rate: 1 Gb/s}}}}\n"
    )
    done = run("smoke", menu, "--min-rate", "9Gb/s", "--format", "json")
    assert done.exception.exit_code == 5
    assert bad(done) == {
        (url("a"), url("b")): ("failed", "network", "slow"),
        (url("b"), url("a")): ("failed", "source", "source-missing"),
    }
    assert all(rule.deleted for rule in backend.rules.values())


def test_an_administrator_is_refused_without_the_option(service, menus: Path) -> None:
    backend = service(8, stock=STOCK)
    identity = replace(backend.check(), admin=True)
    backend.check = lambda: identity
    assert run("smoke", menus).exception.exit_code == 2
    assert backend.rules == {}
    assert run("smoke", menus, "--allow-admin").exit_code == 0


def test_all_pairs_of_named_rses_need_no_menu(service) -> None:
    service(8, stock=STOCK | {A: items(A, 3, 3_000_000)})  # of a size that no menu takes by default
    done = run("smoke", "--among", A, "--among", B, "--format", "csv")
    assert done.exit_code == 0, done.exception
    assert [line.split(",")[:2] for line in done.stdout.splitlines()[1:]] == [[A, B], [B, A]]
    for words in ([], ["--among", A], ["--among", A, "--among", url("b")], ["menu.yaml", "--among", A]):
        assert run("smoke", *words).exception.exit_code == 2


def test_the_time_of_the_test_begins_after_a_slow_start(service, menus: Path) -> None:
    backend = service(8, stock=STOCK)
    identity = backend.check()

    def slowly() -> Identity:
        backend.clock.advance(backend.clock.now() + timedelta(minutes=20))
        return identity

    backend.check = slowly
    done = run("smoke", menus, "--format", "json")
    assert done.exit_code == 0, done.exception
    assert len(found(done)) == 6


def test_a_test_without_results_lists_all_links_and_is_never_a_pass(
    service, menus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped before its first cycle; later tests look for results before it."""
    backend = service(8, stock=STOCK)
    with monkeypatch.context() as patched:
        patched.setattr(ServiceManager, "ready", lambda _: signal.raise_signal(signal.SIGINT))
        done = run("smoke", menus, "--format", "json")
    assert done.exception.exit_code == 2
    assert set(bad(done).values()) == {("no result", "unknown", "not-sent")}
    assert len(bad(done)) == 6
    unsent = [results.Result(A, B, "rucio", results.OPEN)]
    for nothing in ([], unsent):
        assert isinstance(results.error("x", nothing, 0.0, finished=True), ThresholdMissed)
    backend.clock.advance(backend.clock.now() + timedelta(minutes=1))
    again = run("smoke", menus, "--failed").exception
    assert again.exit_code == 2
    assert "smoke-" not in again.message  # no test, so none whose links all passed


def held_by(*holds: Hold | Held) -> results.Result:
    """The result of a link on which nothing was sent, with the hold of each cycle."""
    every = [hold if isinstance(hold, Held) else Held(hold) for hold in holds]
    key = FlowKey("mesh", Link(A, B))
    view = SimpleNamespace(
        entries=list, rows=lambda: [SimpleNamespace(key=key, held=held) for held in every], failures=dict,
        accounts=lambda: {key: None},
    )  # fmt: skip
    (one,) = results.read(view)
    return one


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        *((hold, "unknown") for hold in (Hold.BACKLOG, Hold.FAILING)),
        *((hold, "the menu") for hold in (Hold.OUTSIDE_WINDOW, Hold.EXCLUDED, Hold.SITE_LIMIT, Hold.TOO_COARSE)),
        *((hold, "Rucio") for hold in (Hold.QUOTA, Hold.API_ERRORS, Hold.QUARANTINED)),
        (Hold.POOL_DRY, "source"),
        (Held(Hold.POOL_DRY, {"wanted": 2 * GB, "left": GB}), "the menu"),
        (Hold.NOT_RUNNING, Fault.MACHINE),
        (Hold.PAUSED, Fault.OPERATOR),
        (Held(Hold.QUARANTINED, {"inventory": A}), "source"),
        (Held(Hold.API_ERRORS, {"inventory": A}), "Rucio"),
        (Held(Hold.API_ERRORS, {"inventory": "davs://a.example.org/x"}), "source"),
        (Held(Hold.DESTINATION_FULL, {"space": GB}), "destination"),
        (Held(Hold.DESTINATION_FULL, {"message": "the space holds 30 % of the rates"}), "the menu"),
        (Held(Hold.DESTINATION_FULL, {"message": "the space holds 30 %", "overdue": GB}), "destination"),
    ],
)  # fmt: skip
def test_a_service_is_at_fault_only_for_what_it_does(held: Hold | Held, fault: str) -> None:
    assert held_by(held).fault == fault


def test_no_time_for_all_calls_is_not_the_fault_of_the_service() -> None:
    one = held_by(Hold.OVERLOAD)
    assert (one.outcome, one.fault, one.cause) == ("no result", "unknown", "not-sent")


def test_a_service_that_does_not_answer_in_the_last_cycle_hides_no_reason_that_was_found_before() -> None:
    one = held_by(Hold.API_ERRORS, Hold.DESTINATION_UNAVAILABLE, Hold.API_ERRORS)
    assert (one.outcome, one.fault, one.cause) == ("failed", "destination", "destination-unavailable")
    assert held_by(Hold.API_ERRORS).cause == "api-errors"


def test_a_junit_file_that_cannot_be_written_is_refused_before_the_start(
    service, tmp_path: Path, menus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails at the end costs no results."""
    backend = service(8, stock=STOCK)
    assert run("smoke", menus, "--junit", tmp_path / "none" / "smoke.xml").exception.exit_code == 2
    assert backend.rules == {}
    monkeypatch.setattr(files, "need_folder", lambda _: None)
    done = run("smoke", menus, "--format", "json", "--junit", tmp_path / "none" / "smoke.xml")
    assert done.exception.exit_code == 2
    assert len(found(done)) == 6


def test_failed_repeats_the_links_of_the_same_test_only(service, tmp_path: Path, menus: Path) -> None:
    """Of campaigns whose names differ late, and of other RSEs, it knows nothing."""
    backend = service(8, stock=STOCK, unwritable={C})
    for path in menus.iterdir():
        text = path.read_text()
        path.write_text(text.replace("campaign: dc27", f"campaign: {'x' * 50}1"))
    other = tmp_path / "other"
    other.mkdir()
    for path in menus.iterdir():
        (other / path.name).write_text(path.read_text().replace("x1", "x2"))
    for words in ([menus], ["--among", A, "--among", C]):
        assert run("smoke", *words).exception.exit_code == 5
    backend.clock.advance(backend.clock.now() + timedelta(minutes=1))
    for words in ([other], ["--among", B, "--among", C]):
        assert run("smoke", *words, "--failed").exception.exit_code == 2
    again = run("smoke", "--among", C, "--among", A, "--failed", "--format", "json")
    assert set(found(again)) == {(A, C)}
