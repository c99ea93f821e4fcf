"""What had not moved when its rule or job ended, in `status --summary`, at the end of `run`, and in the report."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dc_inject.cli.shared import tables
from dc_inject.cli.shared.summary_output import show_totals
from dc_inject.ledger import ControlDecision, Ledger, LedgerView
from dc_inject.model import Cycle, FlowKey, Hold, units
from dc_inject.model.ports import Observation, Status
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, make, run

ROOT = Path(__file__).parents[2]
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
LOST = {"expired": 160 * GB, "cancelled": 70 * GB, "ended_otherwise": 0, "not_moved": 230 * GB, "failed": 30 * GB}


def ended(path: Path) -> Path:
    """A ledger of rules of 100 GB: of FNAL's one is complete and two expire on the next day, of KIT's one is
    cancelled and a part of another has failed, and MESH's is on its way."""
    made = make(path, {FNAL: 3, KIT: 2, MESH: 1})
    keys: dict[FlowKey, list[str]] = {}
    for entry in made.entries:
        keys.setdefault(entry.injection.flow, []).append(entry.injection.key)
    next_day = Cycle(START + DAY, CYCLE.length)

    def seen(key: str, status: Status, moved: int, **more: Any) -> Observation:
        return Observation(key, status, f"sim-{key}", moved=moved * GB, exact=True, **more)

    with Ledger.open(path, synchronous="OFF") as ledger:
        complete, *expiring = keys[FNAL]
        cancelled, failing = keys[KIT]
        (moving,) = keys[MESH]
        moments = [
            seen(complete, Status.COMPLETE, 100),
            seen(expiring[0], Status.MOVING, 40),
            seen(expiring[1], Status.WAITING, 0),
            seen(cancelled, Status.MOVING, 30),
            seen(failing, Status.COMPLETE, 70, failed=30 * GB, reasons={"timeout": 3}),
            seen(moving, Status.MOVING, 10),
        ]
        ledger.observe(moments, START + timedelta(minutes=10))
        ledger.end_asked([cancelled], START + timedelta(minutes=11))
        ledger.observe([Observation(cancelled, Status.ABSENT)], START + timedelta(minutes=12))
        ledger.close_cycle(CYCLE, CYCLE.end)
        ledger.open_cycle(next_day, {FNAL: (GB, None)}, next_day.start)
        ledger.observe(
            [Observation(key, Status.ABSENT) for key in expiring], next_day.start + timedelta(minutes=1)
        )
    return path


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return ended(tmp_path / "dc27.sqlite")


def told(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "--format", "json")
    assert done.exit_code == 0, done.exception
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def test_the_summary_adds_up_to_what_was_injected(campaign: Path) -> None:
    """To the byte, and as a recount of the ledger's own rows has it."""
    closing = told("status", campaign, "--summary")
    with LedgerView.open(campaign) as view:
        rows = view._db.rows(
            "SELECT scenario, destination, state, accepted_at, bytes - present - injection.failed AS injected, "
            "injection.moved AS moved FROM injection JOIN account ON account.id = account"
        )
    for line in closing["links"]:
        own = [r for r in rows if (r["scenario"], r["destination"]) == (line["scenario"], line["destination"])]
        over = [row for row in own if row["state"] in {"ended", "gone"}]
        assert line["injected"] == sum(row["injected"] for row in own if row["accepted_at"])
        assert line["not_moved"] == sum(row["injected"] - row["moved"] for row in over)
    for line in (*closing["links"], closing["total"]):
        assert line["injected"] == line["moved"] + line["on_its_way"] + line["not_moved"]
    by_link = {line["destination"]: (line["not_moved"], line["failed"]) for line in closing["links"]}
    assert by_link == {
        FNAL.link.destination: (160 * GB, 0),
        KIT.link.destination: (70 * GB, 30 * GB),
        MESH.link.destination: (0, 0),
    }
    assert {name: closing["total"][name] for name in ("not_moved", "on_its_way", "failed")} == {
        "not_moved": 230 * GB, "on_its_way": 90 * GB, "failed": 30 * GB,
    }  # fmt: skip


def test_tables_show_it_where_there_is_any(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = run("status", campaign, "--summary").stdout
    assert "not moved" in table.splitlines()[0]
    assert table.splitlines()[-2].split()[:1] == ["total"]
    assert "230 GB" in table.splitlines()[-2]
    assert table.splitlines()[-1].startswith("230 GB ")
    assert table.splitlines()[-1].endswith("`dc-inject report dc27`")
    heads, *_ = csv.reader(io.StringIO(run("status", campaign, "--summary", "--format", "csv").stdout))
    assert {"on_its_way", "not_moved", "failed"} <= set(heads)
    make(tmp_path / "whole.sqlite", {FNAL: 1})
    whole = run("status", tmp_path / "whole.sqlite", "--summary").stdout
    assert "not moved" not in whole
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    narrow = run("status", campaign, "--summary").stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.splitlines()[-1] == table.splitlines()[-1]


def test_a_run_ends_with_it(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open(campaign, synchronous="OFF") as ledger:
        show_totals("dc27", ledger)
    out = capsys.readouterr().out
    assert "not moved" in out.splitlines()[1]
    assert out.splitlines()[-1].startswith("230 GB had not moved")


def test_the_report_has_it_by_link_scenario_and_day_and_how_it_ended(campaign: Path) -> None:
    report = told("report", campaign)
    assert {name: report["totals"][name] for name in LOST} == LOST
    assert report["totals"]["not_moved"] == told("status", campaign, "--summary")["total"]["not_moved"]
    for part in ("steps", "days"):
        assert {name: sum(row[name] for row in report[part]) for name in LOST} == LOST, part
    apart = [report[kind] for kind in ("counted", "excluded", "open")]
    assert {name: sum(row[name] for row in apart) for name in LOST} == LOST
    counted = {name: report["counted"][name] for name in LOST}
    assert counted == {**LOST, "expired": 0, "not_moved": 70 * GB}  # the second day is open
    for part in ("scenarios", "sources", "destinations", "links"):
        assert {name: sum(row[name] for row in report[part]) for name in LOST} == counted, part
    assert [row["not_moved"] for row in report["days"]] == [70 * GB, 160 * GB]
    assert {row["destination"]: row["cancelled"] for row in report["links"]}[KIT.link.destination] == 70 * GB
    later = told("report", campaign, "--since", "2027-02-09T00:00Z")
    assert {name: later["totals"][name] for name in LOST} == {
        **dict.fromkeys(LOST, 0), "expired": 160 * GB, "not_moved": 160 * GB,
    }  # fmt: skip


def test_the_csv_has_it_in_a_line_for_each_step_link_and_kind(campaign: Path) -> None:
    """Also where the link has no row: MESH and KIT are due nothing on the second day."""
    rows = list(csv.DictReader(io.StringIO(run("report", campaign, "--format", "csv").stdout)))
    lines = [(row["start"], row["scenario"], row["destination"], row["kind"]) for row in rows]
    assert len(set(lines)) == len(lines)
    assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)
    sums = {name: sum(int(row[name]) for row in rows) for name in LOST if name != "not_moved"}
    assert sums == {name: size for name, size in LOST.items() if name != "not_moved"}
    assert sum(int(row["injected"]) for row in rows) == told("report", campaign)["totals"]["injected"]


@pytest.mark.parametrize("fmt", ["md", "html"])
def test_people_read_it_in_the_verdict_and_in_tables(campaign: Path, fmt: str) -> None:
    if fmt == "html":
        pytest.importorskip("vl_convert")
    page = run("report", campaign, "--format", fmt).stdout
    assert "160 GB expired, 70 GB cancelled." in page
    assert page.count("230 GB (40.4 % ") == 2
    assert "30 GB failed for good" in page
    assert "due again" in page
    assert ": 70 GB not moved, 30 GB failed." in page  # one cycle is open
    for title in ("Not moved", "by day", "by scenario"):
        assert title in page


def test_a_table_of_nothing_is_left_out(campaign: Path) -> None:
    """What was lost on the second day is in a cycle that is open, and counts in no average."""
    page = run("report", campaign, "--since", "2027-02-09T00:00Z").stdout
    part = page.partition("## Not moved ")[2].partition("\n## ")[0]
    assert "160 GB expired" in part
    assert "|" not in part
    assert "ended, by scenario" not in page


def test_nothing_is_said_of_losses_where_there_are_none(tmp_path: Path) -> None:
    make(tmp_path / "whole.sqlite", {FNAL: 1})
    page, _, method = run("report", tmp_path / "whole.sqlite").stdout.partition("## How it ")
    assert "ot moved" not in page
    assert "Not moved:" in method


@pytest.mark.parametrize(
    "trouble", ["", "{fault: storage-down, subject: T1_DE_KIT_Disk, at: 30 min, for: 30 min}"]
)
def test_jobs_that_a_run_ends_after_their_lifetime_have_expired(trouble: str, tmp_path: Path) -> None:
    """FTS does not end them by itself, so dc_inject asks; the grid counts the same bytes. What failed is apart."""
    pytest.importorskip("numpy")  # an extra
    grid = (ROOT / "menus" / "twin" / "link-at-70-percent" / "grid.yaml").read_text()
    for old, new in (
        ("rate: 7 Gb/s", "rate: 4 Gb/s"),
        ("count: 500", "count: 100"),
        ("T2_CH_CERN: {}", "T2_CH_CERN: {host: a.example.org}"),
        ("{space: 500 TB}", "{space: 500 TB, host: b.example.org}"),
    ):
        assert old in grid
        grid = grid.replace(old, new)
    (tmp_path / "grid.yaml").write_text(f"{grid}troubles: [{trouble}]\n")
    (tmp_path / "menu.yaml").write_text(
        "menu: 1\ncampaign: dc27\ncontact: dc@example.org\nstart: 2027-02-08 10:00\nend: 2027-02-08 12:00\n"
        "defaults: {through: fts, files: {folder: x}, lifetime: {min: 30 min, max: 30 min}}\n"
        'scenarios: {all: {from: "davs://a.example.org/x", to: "davs://b.example.org/y", rate: 10 Gb/s}}\n'
    )
    menu, grid_file, ledger = (tmp_path / name for name in ("menu.yaml", "grid.yaml", "kept.sqlite"))
    simulated = told("simulate", menu, "--grid", grid_file, "--ledger", ledger)
    lost = simulated["lost"]
    totals = told("report", ledger)["totals"]
    assert totals["not_moved"] == totals["expired"] > 100 * GB
    assert (
        totals["not_moved"] == simulated["total"]["not_moved"] == lost["unsent_bytes"] + lost["interrupted_bytes"]
    )
    assert totals["failed"] == simulated["total"]["failed"] == lost["failed_bytes"]
    assert (lost["failed_bytes"] > 0) is bool(trouble)
    assert lost["unseen_bytes"] == 0  # the answer to the call that ends a job says what has moved


def test_what_rests_on_an_estimate_is_marked(tmp_path: Path) -> None:
    """Nobody looked at its locks before it expired."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 1})
    (entry,) = made.entries
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.observe([Observation(entry.injection.key, Status.ABSENT)], START + 3 * HOUR)
    assert told("report", made.path)["totals"]["not_moved_estimated"] == 100 * GB
    assert "~100 GB (100.0 % of what was injected) had not moved" in run("report", made.path).stdout


def test_a_report_says_which_control_was_in_force(campaign: Path) -> None:
    """For how many links, and when where that changed; a cycle that only drains does not count."""
    assert "Control: off for 3 links." in run("report", campaign).stdout
    with Ledger.open(campaign, synchronous="OFF") as ledger:
        ledger.record_decisions([ControlDecision(CYCLE, key, "act", None, 1.0, {}) for key in (FNAL, KIT)])
    assert "Control: act for 2 links, off for 1 link." in run("report", campaign).stdout
    modes = {row["mode"]: (row["links"], row["cycles"]) for row in told("report", campaign)["control"]}
    assert modes == {"act": (2, 2), "off": (1, 1)}
    assert told("report", campaign, "--since", "2027-02-09T00:00Z")["control"] == []  # not planned
    with Ledger.open(campaign, synchronous="OFF") as ledger:
        (later,) = ledger.unclosed()
        ledger.record_decisions([ControlDecision(later, FNAL, "advise", Hold.BACKLOG, 1.0, {})])
        ledger._db.run("UPDATE cycle SET planned_at = opened_at WHERE closed_at IS NULL")
    words = "advise for 1 link (2027-02-09 10:00 to 2027-02-09 10:15)."
    assert words in run("report", campaign).stdout
    page = run("report", campaign, "--compare", str(campaign)).stdout
    assert page.count(words) == 2
    if find_spec("vl_convert") is not None:
        assert words in run("report", campaign, "--format", "html").stdout


def test_what_failed_in_all_attempts_of_a_rule_is_failed_in_the_summary_and_in_the_report(tmp_path: Path) -> None:
    """Not expired, although the rule has; the rest of it, which still waited, is."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 1, KIT: 1})
    entry = next(e for e in made.entries if e.injection.flow == FNAL)
    key, files = entry.injection.key, entry.injection.item.files
    size = 100 * GB * 2 // files
    stuck = Observation(key, Status.MOVING, f"sim-{key}", files_stuck=2, moved=10 * GB, exact=True)
    with Ledger.open(made.path, synchronous="OFF") as ledger:
        ledger.observe([stuck], START + HOUR)
        ledger.observe([Observation(key, Status.ABSENT)], START + 3 * HOUR)
    totals, closing = told("report", made.path)["totals"], told("status", made.path, "--summary")
    names = ("not_moved", "not_moved_failed", "expired", "failed")
    assert [totals[name] for name in names] == [90 * GB, size, 90 * GB - size, 0]
    assert {line["destination"]: line["not_moved_failed"] for line in closing["links"]} == {
        FNAL.link.destination: size, KIT.link.destination: 0,
    }  # fmt: skip
    assert closing["total"]["not_moved_failed"] == size
    failed, expired = units.format_size(size), units.format_size(90 * GB - size)
    report = run("report", made.path).stdout
    assert re.search(f": {failed} failed .*, {expired} expired", report)
    assert re.search(f"90 GB had .*, {failed} of it failed ", run("status", made.path, "--summary").stdout)
