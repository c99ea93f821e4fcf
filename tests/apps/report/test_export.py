"""`export`: records that agree with the ledger to the byte, in three formats with one schema."""

from __future__ import annotations

import csv
import io
import json
import shutil
import stat
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.report import export
from dc_inject.apps.report.export import FIELDS, marking
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Dataset, State, naming, units
from dc_inject.model.errors import LedgerError, Permanent, Temporary, UsageError
from dc_inject.model.overrides import Kind
from dc_inject.model.ports import Identity, Observation, Outcome, Status
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, injection, make, run
from tests.engine import world as simulated
from tests.engine.world import file_flow, flow, items, source_files, world

MENU = """\
menu: 1
campaign: dc27
contact: dc@example.org
start: 2027-02-08T10:00Z
end: 2027-02-09T10:00Z
defaults: {datasets: {did: ["cms:*"]}}
sites:
  CERN: {rses: {T2_CH_CERN: {}}}
  FNAL: {rses: {T1_US_FNAL_Disk: {}}}
scenarios:
  t0-export: {from: T2_CH_CERN, to: {T1_US_FNAL_Disk: 3, T1_DE_KIT_Disk: 1}, rate: 4 GB/s}
"""


@pytest.fixture(scope="module")
def four_hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of a simulated campaign of four hours, which stands open; one link has nothing to give."""
    folder = tmp_path_factory.mktemp("four-hours")
    flows = [
        flow("A", "B", 8, scenario="t0-export"),
        flow("A", "C", 8, scenario="t0-export"),
        flow("D", "B", 4, scenario="us-mesh"),
    ]
    made = world(folder, simulated.campaign(flows), {"A": items("A", 300), "D": items("D", 3)})
    made.run(16)
    made.ledger.close()
    return folder / "test.sqlite"


@pytest.fixture
def campaign(four_hours: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(four_hours, tmp_path))


def exported(*words: object) -> list[dict[str, Any]]:
    done = run("export", *words)
    assert done.exit_code == 0, done.exception
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_sums_of_all_records_are_those_of_the_ledger_and_of_the_report(campaign: Path) -> None:
    records = exported(campaign)
    with LedgerView.open(campaign) as view:
        totals, entries = view.totals(), view.entries()
    assert totals.moved > 0
    assert {record["key"] for record in records} == {entry.injection.key for entry in entries}
    assert sum(record["injected_bytes"] for record in records) == totals.injected
    assert sum(record["moved_bytes"] for record in records) == totals.moved
    assert sum(record["moved_bytes"] for record in records if not record["moved_exact"]) == totals.estimated
    told = json.loads(run("report", campaign, "--format", "json").stdout)["totals"]
    assert (told["injected"], told["moved"]) == (totals.injected, totals.moved)
    by_scenario = {record["scenario"] for record in records}
    assert by_scenario == {"t0-export", "us-mesh"}
    complete = [record for record in records if record["state"] == State.COMPLETE]
    assert complete
    for record in complete:
        assert record["injected_bytes"] == record["moved_bytes"] == record["bytes"]
        assert record["accepted_at"] <= record["completed_at"] <= record["expires_at"]
        assert record["time"] == record["accepted_at"]


def test_each_format_has_the_fields_of_the_schema_and_the_same_values(campaign: Path, tmp_path: Path) -> None:
    names = [field.name for field in FIELDS["injection"]]
    records = exported(campaign)
    assert {tuple(record) for record in records} == {tuple(names)}
    rows = list(csv.reader(io.StringIO(run("export", campaign, "--format", "csv").stdout)))
    assert rows[0] == names
    words = {None: "", True: "true", False: "false"}
    said = [[words[v] if v is None or isinstance(v, bool) else str(v) for v in r.values()] for r in records]
    assert rows[1:] == said
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("export", campaign, "--format", "parquet", "-o", tmp_path / "a.parquet").exit_code == 0
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == names
    for record, row in zip(records, table.to_pylist(), strict=True):
        for name, value in row.items():
            as_said = units.format_time(value) if isinstance(value, datetime) else value
            assert as_said == record[name], name
    assert json.loads(table.schema.metadata[b"dc_inject.export.version"]) == export.VERSION


def test_records_have_the_types_that_the_schema_says(campaign: Path) -> None:
    of = {"text": str, "integer": int, "time": str, "truth": bool}
    for record in exported(campaign):
        for field in FIELDS["injection"]:
            value = record[field.name]
            assert value is None or type(value) is of[field.type], field
            assert field.type != "time" or value is None or datetime.fromisoformat(value).tzinfo == UTC, field
        assert (record["type"], record["version"]) == ("injection", 1)


def test_of_a_time_there_are_the_cycles_that_begin_in_it(campaign: Path) -> None:
    all_ = exported(campaign)
    since, until = START + timedelta(hours=1), START + timedelta(hours=2)
    words = "--since", since.isoformat(), "--until", until.isoformat()
    wanted = [r for r in all_ if since <= datetime.fromisoformat(r["cycle"]) < until]
    assert wanted
    assert exported(campaign, *words) == wanted
    assert exported(campaign, "--since", (START + timedelta(days=9)).isoformat()) == []


def test_it_is_read_while_the_campaign_is_written_and_changes_nothing(tmp_path: Path) -> None:
    """Inside another process's transaction it tells the state before; and the file is written as a whole."""
    path = make(tmp_path / "dc27.sqlite", {FNAL: 2, KIT: 1}).path
    before = path.read_bytes()
    with Ledger.open(path, synchronous="OFF") as ledger, ledger.together():
        keys = [injection(FNAL, 0).key]
        ledger.observe([Observation(keys[0], Status.COMPLETE, files_done=10)], START)
        assert [record["state"] for record in exported(path)] == ["live"] * 3
    assert sorted(record["state"] for record in exported(path)) == ["complete", "live", "live"]
    goal = tmp_path / "out.jsonl"
    assert run("export", path, "-o", goal).exit_code == 0
    assert stat.S_IMODE(goal.stat().st_mode) == 0o600
    assert [json.loads(line) for line in goal.read_text().splitlines()] == exported(path)
    assert isinstance(run("export", path, "-o", goal).exception, UsageError)
    assert list(tmp_path.glob(".*")) == []
    assert len(before) > 0


def test_one_cycle_at_a_time_is_read(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the injections of a cycle are held, however many there are."""
    asked: list[object] = []
    read = LedgerView.entries

    def entries(view: LedgerView, *states: State, **more: Any) -> Any:
        asked.append(more["cycle"])
        return read(view, *states, **more)

    monkeypatch.setattr(LedgerView, "entries", entries)
    with LedgerView.open(campaign) as view:
        period = export.Period(START, START + timedelta(days=1))
        made = export.injections(view, period, export.About({}, {}))
        assert asked == []
        next(made)
        assert len(asked) == 1
        list(made)
        assert asked == [cycle for cycle, _ in view.cycles(period)]


def test_what_failed_and_what_was_refused_is_told(tmp_path: Path) -> None:
    """With what the service said; a secret, or what would move a cursor, is not in it."""
    path = make(tmp_path / "dc27.sqlite", {FNAL: 2}).path
    one, two = (injection(FNAL, number).key for number in range(2))
    said = "quota\x1b[2J of cms, Authorization: Bearer abcdefghijklmnopqrst"
    with Ledger.open(path, synchronous="OFF") as ledger:
        seen = Observation(
            one, Status.MOVING, files_done=5, moved=50 * GB, failed=10 * GB, files_stuck=1, error=said
        )
        ledger.observe([seen], START)
        more = injection(MESH, 7)
        ledger.add_injections([more], START)
        ledger.call([more.key], START)
        ledger.answer([Outcome(more.key, error=Temporary("x", lost=True))], START, {})
    records = {record["key"]: record for record in exported(path)}
    told = records[one]
    assert (told["failed_bytes"], told["moved_bytes"], told["injected_bytes"]) == (10 * GB, 50 * GB, 90 * GB)
    assert (told["files_done"], told["files_stuck"], told["moved_exact"]) == (5, 1, False)
    assert "quota" in told["error"]
    assert "abcdefghij" not in told["error"]
    assert told["error"].isprintable()
    assert records[two]["error"] == ""
    assert records[more.key]["state"] == "called"
    assert records[more.key]["accepted_at"] is None


def test_sites_are_those_of_the_menus_and_the_experiment_is_named_or_the_vo(tmp_path: Path) -> None:
    path = make(tmp_path / "dc27.sqlite", {FNAL: 1, KIT: 1}).path
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.put_in_force([("day.yaml", "0", MENU.replace("start: 2027-02-08", "start: 2027-02-06"))], START)
    records = {record["destination"]: record for record in exported(path)}
    fnal, kit = records["T1_US_FNAL_Disk"], records["T1_DE_KIT_Disk"]
    assert (fnal["source_site"], fnal["destination_site"]) == ("CERN", "FNAL")
    assert kit["destination_site"] == "T1_DE_KIT_Disk"
    assert {record["day"] for record in records.values()} == {3}
    assert (fnal["experiment"], fnal["scitag"]) == (None, None)  # of the VO `def` nobody knows
    named = exported(path, "--experiment", "CMS")[0]
    marked = ("experiment", "experiment_id", "activity", "activity_id", "scitag")
    assert [named[name] for name in marked] == ["cms", 3, "Data Challenge", 4, 196]


def test_the_vo_of_a_service_names_its_experiment(tmp_path: Path) -> None:
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        atlas = Identity("rucio", "sim://", "1", "atlas", "me", admin=False, may_end=True, credentials_until=None)
        ledger.bind("dc27", CYCLE.length, [atlas], START)
        ledger.open_cycle(CYCLE, {FNAL: (1, None)}, START)
        ledger.add_injections([injection(FNAL, 0)], START)
    (record,) = exported(path)
    assert (record["experiment"], record["scitag"], record["state"]) == ("atlas", 154, "intended")


def test_a_job_has_the_scitag_of_its_menu(tmp_path: Path) -> None:
    one = file_flow("A", "B", 8)
    assert one.job is not None
    one = replace(one, job=replace(one.job, scitag=196))
    made = world(tmp_path, simulated.campaign([one]), source_files("A", 100), name="fts")
    made.run(2)
    made.ledger.close()
    record = exported(tmp_path / "test.sqlite")[0]
    assert (record["service"], record["experiment"], record["scitag"]) == ("fts", "cms", 196)
    assert record["files"] > 1


def test_names_of_others_move_no_cursor_and_begin_no_line(tmp_path: Path) -> None:
    path = make(tmp_path / "dc27.sqlite", {}).path
    odd = replace(
        injection(FNAL, 0),
        item=Dataset("cms:/a\x1b[31m\nb", GB, 1),
        key=naming.key("x", "y", START, FNAL.link, "z"),
    )
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.add_injections([odd], START)
    (record,) = exported(path)
    assert record["item"] == "cms:/a [31m b"


def test_a_spreadsheet_computes_nothing_that_a_service_said(tmp_path: Path) -> None:
    """Only CSV is for spreadsheets; JSON has the text as it is."""
    path = make(tmp_path / "dc27.sqlite", {}).path
    said = '=HYPERLINK("https://example.org","more")'
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.add_injections([odd := injection(FNAL, 0)], START)
        ledger.call([odd.key], START)
        ledger.answer([Outcome(odd.key, error=Permanent(said))], START, {})
    (record,) = exported(path)
    assert record["error"] == said
    (row,) = csv.DictReader(io.StringIO(run("export", path, "--format", "csv").stdout))
    assert row["error"] == f"'{said}"


def test_without_pyarrow_it_says_how_to_get_it(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    error = run("export", campaign, "--format", "parquet").exception
    assert isinstance(error, UsageError)
    assert ".[parquet]" in (error.hint or "")


def test_a_campaign_that_is_not_there_and_two_of_them_are_refused(campaign: Path, tmp_path: Path) -> None:
    assert isinstance(run("export", tmp_path / "no.sqlite").exception, LedgerError)
    assert isinstance(run("export", campaign, campaign).exception, UsageError)
    assert isinstance(run("export").exception, UsageError)


# --------------------------------------------------------------------------- what is to come


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "day.yaml"
    path.write_text(MENU)
    return path


def test_what_is_to_come_is_told_from_menus_alone(day: Path) -> None:
    records = exported("--planned", day, "--experiment", "cms")
    assert {tuple(record) for record in records} == {tuple(field.name for field in FIELDS["planned"])}
    pairs = {(record["source_site"], record["destination_site"]): record for record in records}
    assert set(pairs) == {("CERN", "FNAL"), ("CERN", "T1_DE_KIT_Disk")}
    assert pairs["CERN", "FNAL"]["bytes_per_second"] == 3 * GB
    assert sum(record["bytes_per_second"] for record in records) == 4 * GB
    assert sum(record["bytes"] for record in records) == 4 * GB * 86400
    assert {(record["time"], record["end"]) for record in records} == {
        ("2027-02-08T10:00:00Z", "2027-02-09T10:00:00Z")
    }
    assert {(record["experiment"], record["scitag"], record["links"]) for record in records} == {("cms", 196, 1)}
    assert {record["type"] for record in records} == {"planned"}


def test_rates_that_people_set_are_in_what_is_to_come(day: Path, tmp_path: Path) -> None:
    """Of menus whose campaign has a ledger, and of the menus in force when only the campaign is named."""
    path = tmp_path / "state" / "dc_inject" / "dc27.sqlite"
    path.parent.mkdir(parents=True)
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", CYCLE.length, [], START)
        ledger.put_in_force([(str(day), "0", MENU)], START)
        ledger.override("t0-export", Kind.SCALE, 0.5, "me", "calm", START)
        ledger.pause("t0-export", "me", "lunch", START)
    for subject in (day, "dc27", path):
        done = run("export", "--planned", subject)
        assert sum(json.loads(line)["bytes_per_second"] for line in done.stdout.splitlines()) == 2 * GB, subject
        assert "set since" in done.stderr
        assert "stopped since" in done.stderr


def test_scitags_are_the_menus_or_the_registrys_or_unknown():
    """CMS's data challenges have the number 3 * 64 + 4, those of ATLAS 2 * 64 + 26."""
    assert marking("cms", "Data Challenge") == ("cms", 3, 4, 196)
    assert marking("atlas", "Data Challenge").scitag == 154
    assert marking("", "Data Challenge", 196) == ("cms", 3, 4, 196)
    assert marking("atlas", "Data Challenge", 196) == ("cms", 3, 4, 196)
    assert marking("cms", "Data Dreams") == ("cms", 3, None, None)
    assert marking("esa", "Data Challenge") == ("esa", None, None, None)
    assert marking("", "Data Challenge") == (None, None, None, None)
    assert marking("", "x", 64 * 100 + 7) == (None, 100, 7, 6407)
