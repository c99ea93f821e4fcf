"""`report`: figures from the ledger alone, that agree with `status` and the ledger to the byte."""

from __future__ import annotations

import csv
import json
import shutil
import stat
from dataclasses import replace
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dc_inject.apps.report import making
from dc_inject.apps.report.sections import sections
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.goals import SecondHop
from dc_inject.model.ports import Observation, Status
from dc_inject.model.units import format_size
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, ME, MESH, START, make, run
from tests.engine import world as simulated
from tests.engine.world import flow, items, world
from tests.wording import lines

AMOUNTS = ("due", "injected", "moved", "moved_estimated", "forgiven", "rules")
TB = 1000 * GB


@pytest.fixture(scope="module")
def simulated_campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of a simulated campaign of four hours, with a note, in which it stands open for some minutes."""
    folder = tmp_path_factory.mktemp("campaign")
    flows = [
        flow("A", "B", 8, scenario="t0-export"),
        flow("A", "C", 8, scenario="t0-export"),
        flow("D", "B", 4, scenario="us-mesh"),
    ]
    made = world(folder, simulated.campaign(flows), {"A": items("A", 300), "D": items("D", 3)})
    made.run(16)
    made.ledger.put_in_force([("day.yaml", "digest", "sites: {SITE: {rses: {B: {}, C: {}}}}")], START)
    made.ledger.change("me@vobox", "note", "begins in a minute", START - timedelta(minutes=1))
    made.ledger.change("me@vobox", "note", "power cut <b>|*", START + timedelta(hours=1))
    made.ledger.pause("us-mesh", "me@vobox", "lunch", START + timedelta(hours=2))
    made.ledger.close()
    return folder / "test.sqlite"


@pytest.fixture
def campaign(simulated_campaign: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return shutil.copy(simulated_campaign, tmp_path / "test.sqlite")


def told(path: Path, *more: str) -> dict[str, Any]:
    done = run("report", path, "--format", "json", *more)
    assert done.exit_code == 0, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sums(of: list[dict[str, Any]]) -> dict[str, int]:
    return {name: sum(one[name] for one in of) for name in AMOUNTS}


def test_figures_agree_with_status_and_the_ledger_to_the_byte(campaign: Path) -> None:
    """In all, by time, by scenario, source, destination and link, and in each line of the CSV."""
    made = told(campaign)
    total = json.loads(run("status", campaign, "--summary", "--format", "json").stdout)["total"]
    expected = {name: total[name] for name in AMOUNTS}
    assert expected["injected"] > 10 * TB
    assert expected["moved"] > TB
    assert {name: made["totals"][name] for name in AMOUNTS} == expected
    with LedgerView.open(campaign) as view:
        totals = view.totals()
    assert (totals.injected, totals.moved) == (made["totals"]["injected"], made["totals"]["moved"])
    assert sums(made["steps"]) == sums(made["days"]) == expected
    counted = {name: made["counted"][name] for name in AMOUNTS}
    for part in ("scenarios", "sources", "destinations", "source_sites", "destination_sites", "links"):
        assert sums(made[part]) == counted, part
    assert sums([made[kind] for kind in ("counted", "excluded", "open")]) == expected
    for dimension in ("scenario", "source", "destination"):
        series = made["series"][dimension]
        assert sum(sum(one["moved"]) for one in series) == expected["moved"]
        assert [len(one["due"]) for one in series] == [len(made["steps"])] * len(series)
    rows = list(csv.DictReader(run("report", campaign, "--format", "csv").stdout.splitlines()))
    assert {name: sum(int(row[name]) for row in rows) for name in AMOUNTS} == expected
    assert {row["start"] for row in rows} == {one["start"] for one in made["steps"]}


def test_a_part_that_is_empty_can_be_asked_for(tmp_path: Path) -> None:
    """Where no link is behind, a nightly job goes on."""
    ledger = make(tmp_path / "dc27.sqlite", {FNAL: 1})
    with Ledger.open(ledger.path, synchronous="OFF") as one:
        one.observe([Observation(entry.injection.key, Status.COMPLETE) for entry in ledger.entries], START)
    for fmt in ("md", "csv"):
        assert run("report", ledger.path, "--part", "behind", "--format", fmt).exit_code == 0
    assert "furthest behind" not in run("report", ledger.path).stdout


def test_the_name_of_the_file_chooses_the_format(campaign: Path, tmp_path: Path) -> None:
    """A page that holds Markdown is no page."""
    for name, start in (
        ("a.json", "{"),
        ("A.JSON", "{"),
        ("a.csv", "start,"),
        ("a.txt", "# "),
        ("a", "# "),
    ):
        assert run("report", campaign, "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_text().startswith(start), name
    junit = run("report", campaign, "-o", tmp_path / "a.xml").exception
    assert isinstance(junit, UsageError)  # it would have no test cases
    assert run("report", campaign, "--format", "md", "-o", tmp_path / "b.json").exit_code == 0
    assert (tmp_path / "b.json").read_text().startswith("# ")


def test_what_is_known_of_a_campaign_is_told(campaign: Path) -> None:
    """Verdict, days, holds, completion, the note, and the pause with its end at the report's."""
    made = told(campaign)
    assert (made["since"], made["until"]) == ("2027-02-08T10:00:00Z", "2027-02-08T14:00:00Z")
    assert made["step_seconds"] == 900
    assert [(one["number"], one["date"]) for one in made["days"]] == [(1, "2027-02-08")]
    assert {one["name"] for one in made["scenarios"]} == {"t0-export", "us-mesh"}
    dry = next(one for one in made["holds"] if one["hold"] == "pool-dry")
    assert dry["cycles"] == sum(dry["by_step"]) > 5
    assert dry["missing"] > TB
    mesh = next(one for one in made["scenarios"] if one["name"] == "us-mesh")
    assert (mesh["grade"], mesh["sign"]) == ("red", "!!")
    assert made["completion"]["count"] == sum(one["completion"]["count"] for one in made["scenarios"])
    assert made["completion"]["median"] <= made["completion"]["p90"]
    marks = [(one["kind"], one["what"], one["until"]) for one in made["marks"]]
    assert marks[:2] == [("note", "begins in a minute", None), ("note", "power cut <b>|*", None)]
    assert marks[2:] == [("pause", "paused: us-mesh", None)]
    assert made["challenge"] is None
    assert "production traffic" in " ".join(made["method"])


def test_an_excluded_window_is_shown_and_left_out_of_averages(campaign: Path) -> None:
    """Its bytes stay in the totals, and its cycles are marked."""
    whole = told(campaign)
    made = told(campaign, "--exclude", "2027-02-08T11:00/12:00 token trouble")
    assert made["excluded_windows"] == [
        {
            "since": "2027-02-08T11:00:00Z",
            "until": "2027-02-08T12:00:00Z",
            "of": "",
            "why": "token trouble",
            "cycles": 4,
        }
    ]
    assert made["totals"] == whole["totals"]
    assert made["excluded"]["due"] == 4 * whole["steps"][0]["due"] > 0
    assert [one["excluded"] for one in made["steps"]] == [4 <= number < 8 for number in range(16)]
    assert [one["ratio"] is None for one in made["steps"]] == [4 <= number < 8 for number in range(16)]
    assert made["counted"]["due"] + made["excluded"]["due"] == whole["counted"]["due"]
    shown = run("report", campaign, "--exclude", "2027-02-08T12:00+01:00/2027-02-08T12:00Z token trouble").stdout
    assert "| 2027-02-08 11:00 | 2027-02-08 12:00 | everything | token trouble | 4 |" in shown


def test_a_part_of_the_time_is_a_part_of_the_sums(campaign: Path) -> None:
    """Cycles that begin in it, and marks of it."""
    whole = told(campaign)
    made = told(campaign, "--since", "2027-02-08T11:00Z", "--until", "2027-02-08T12:00Z")
    assert sums(made["steps"]) == sums(whole["steps"][4:8])
    assert [one["start"] for one in made["steps"]] == [one["start"] for one in whole["steps"][4:8]]
    assert [one["kind"] for one in made["marks"]] == ["note"]


def test_a_cycle_that_is_not_over_counts_in_no_average(tmp_path: Path, wording) -> None:
    """It is due in full from its first second."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 2, MESH: 1}, dry=(KIT,))
    found = told(made.path)
    assert found["open"]["due"] == found["totals"]["due"] == 3 * 450 * GB
    assert found["counted"]["due"] == 0
    assert found["verdict"]["ratio"] is None
    assert [one["open"] for one in found["steps"]] == [True]
    wording(lines(run("report", made.path).stdout, "so far."))
    with Ledger.open(made.path) as ledger:
        ledger.close_cycle(CYCLE, CYCLE.end)
    assert told(made.path)["counted"]["due"] == 3 * 450 * GB


def test_a_day_of_which_a_part_is_left_out_says_so(campaign: Path) -> None:
    """It has a ratio nevertheless, which is not that of the sums beside it."""
    shown = run("report", campaign, "--exclude", "2027-02-08T11:00/12:00 token trouble").stdout
    assert "| 1 (2027-02-08) |  | in part: excluded | " in shown
    assert "| 2027-02-08 11:00 | excluded | " in shown


def test_a_window_without_a_cycle_is_told(campaign: Path, wording) -> None:
    """Most probably its date is wrong, and nothing would be left out."""
    done = run("report", campaign, "--exclude", "2026-02-08T11:00/12:00 token trouble")
    assert done.exit_code == 0
    wording(done.stderr)
    assert not run("report", campaign, "--exclude", "2027-02-08T11:00/12:00 token trouble").stderr


def test_the_verdict_names_the_links_furthest_behind_and_why(tmp_path: Path, wording) -> None:
    """With the hold that led in most of their cycles; nothing of those that moved enough."""
    held = Held(Hold.API_ERRORS, {})
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        cycle = Cycle(START, CYCLE.length)
        ledger.open_cycle(cycle, {FNAL: (450 * GB, held)}, cycle.start)
        ledger.close_cycle(cycle, cycle.end)
    shown = run("report", tmp_path / "dc27.sqlite").stdout
    wording(lines(shown, "450 GB"))
    assert "| in all |" not in shown
    report = told(tmp_path / "dc27.sqlite")
    link = {**report["links"][0], "moved": 440 * GB, "ratio": 440 / 450, "grade": "green"}
    verdict = {**report["verdict"], "ratio": link["ratio"]}
    (section, *_) = sections({**report, "links": [link], "verdict": verdict})
    assert not any(FNAL.link.destination in line for line in section.words)


def test_markdown_has_names_as_text_and_signs_beside_ratios(campaign: Path) -> None:
    """Nothing in a name, reason or note becomes markup."""
    shown = run("report", campaign).stdout
    made = told(campaign)
    assert shown.startswith("# Report: test\n")
    moved = made["counted"]
    assert f"{format_size(moved['moved'])} of {format_size(moved['due'])} due " in shown.replace("~", "")
    assert "power cut &lt;b>\\|\\*" in shown
    assert "<b>" not in shown
    assert " % !! |" in shown
    for line in shown.splitlines():
        assert not line.startswith("|") or line.endswith("|")


@pytest.mark.parametrize("fmt", ["md", "json", "html", "svg", "junit", "csv"])
def test_a_report_of_a_simulation_says_so_in_every_format(tmp_path: Path, fmt: str) -> None:
    if fmt in making.PICTURED:
        pytest.importorskip("vl_convert")
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", CYCLE.length, [replace(ME, address="twin://one-link")], START)
        ledger.open_cycle(CYCLE, {FNAL: (450 * GB, None)}, START)
        ledger.close_cycle(CYCLE, CYCLE.end)
    shown = run("report", path, "--format", fmt, "--fail-under", "ratio >= 0").stdout
    words = {
        "md": "simulation: dc27\n\nSimulated in the grid one-link: ",
        "json": '"simulated_in": "one-link"',
        "html": "simulation: dc27</h1>\n<p>Simulated in the grid one-link: ",
        "svg": "the grid one-link: ",
        "junit": " the grid one-link",
        "csv": ",kind,simulated_in\n",
    }
    assert words[fmt] in shown
    if fmt == "csv":
        assert {line.rpartition(",")[2] for line in shown.splitlines()[1:]} == {"one-link"}


def test_a_report_and_status_say_that_all_rates_were_scaled(tmp_path: Path) -> None:
    """By what and since when; a report only of what was so in its time."""
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.bind("dc27", CYCLE.length, [ME], START)
        for cycle, scale in ((CYCLE, 1.0), (CYCLE.next, 0.5), (CYCLE.next.next, 1.0)):
            ledger.scale(scale, cycle.start)
            ledger.open_cycle(cycle, {FNAL: (450 * GB, None)}, cycle.start)
            ledger.close_cycle(cycle, cycle.end)
            shown = json.loads(run("status", path, "--format", "json").stdout)
            assert shown["scale"] == scale
            said = " times 0.5, by `run --scale`"
            assert (said in run("status", path).stdout) == (scale != 1)
    half, whole = CYCLE.next.start, CYCLE.next.end
    scales = [{"at": f"{half:%FT%TZ}", "scale": 0.5}, {"at": f"{whole:%FT%TZ}", "scale": 1.0}]
    for since, until, expected in (
        (START, CYCLE.end, []), (START, whole, scales[:1]), (half, whole, scales[:1]), (whole, None, []),
    ):  # fmt: skip
        times = ["--since", f"{since:%FT%TZ}", *(["--until", f"{until:%FT%TZ}"] if until else [])]
        assert json.loads(run("report", path, "--format", "json", *times).stdout)["scales"] == expected
    assert json.loads(run("report", path, "--format", "json").stdout)["scales"] == scales
    words = f" 0.5 since {half:%F %H:%M}, 1 since {whole:%F %H:%M}, by"
    assert words in run("report", path).stdout.replace("\\", "")


def test_a_name_is_no_formula_in_a_csv(tmp_path: Path) -> None:
    """Nor in that of `status`."""
    path = make(tmp_path / "dc27.sqlite", {FlowKey("=1+1", Link("@SUM(A1)", "T2_US_MIT")): 1}).path
    for command_, option in (("report", ()), ("status", ()), ("status", ("--summary",))):
        (row,) = csv.DictReader(run(command_, path, "--format", "csv", *option).stdout.splitlines())
        assert (row["scenario"], row["source"], row["destination"]) == ("'=1+1", "'@SUM(A1)", "T2_US_MIT")


def test_a_file_is_for_us_alone_and_not_replaced_by_mistake(campaign: Path, tmp_path: Path) -> None:
    """As the ledger is, from which it comes."""
    goal = tmp_path / "out.md"
    done = run("report", campaign, "-o", goal)
    assert (done.exit_code, done.stdout) == (0, "")
    assert stat.S_IMODE(goal.stat().st_mode) == 0o600
    assert isinstance(run("report", campaign, "-o", goal).exception, UsageError)
    assert run("report", campaign, "-o", goal, "--force", "--format", "csv").exit_code == 0
    assert goal.read_text().startswith("start,seconds,scenario,")


@pytest.mark.parametrize(
    "more",
    [
        ("--exclude", "2027-02-12T08:00/12:00"),
        ("--exclude", "2027-02-12T08:00/07:00 x"),
        ("--exclude", "yesterday/12:00 x"),
        ("--exclude", "2027-02-12T08:00 12:00 x"),
        ("--since", "yesterday"),
    ],
)
def test_what_is_no_time_is_refused(campaign: Path, more: tuple[str, ...], wording) -> None:
    """With what it should look like."""
    done = run("report", campaign, *more)
    assert done.exit_code == 2
    wording(done.stderr)


@pytest.mark.parametrize("time", ["2027-02-08T11:00", "2027-02-08 11:00Z", "2027-02-08T12:00+01:00"])
def test_times_are_utc_unless_they_have_an_offset(campaign: Path, time: str) -> None:
    """As those are that a report shows, and those of --exclude."""
    made = told(campaign, "--since", time, "--until", "2027-02-08T12:00")
    assert (made["since"], made["until"]) == ("2027-02-08T11:00:00Z", "2027-02-08T12:00:00Z")
    rows = [json.loads(row) for row in run("export", campaign, "--since", time).stdout.splitlines()]
    assert rows
    assert min(row["release_at"] for row in rows) >= "2027-02-08T11:00:00Z"


def test_without_a_cycle_there_is_nothing_to_report(campaign: Path, tmp_path: Path, wording) -> None:
    """In a new ledger, or in that time; in every format."""
    Ledger.open(tmp_path / "new.sqlite").close()
    formats = set(making.FORMATS)
    if find_spec("vl_convert") is None:  # an extra
        formats -= set(making.PICTURED)
    for fmt in formats:
        fresh = run("report", tmp_path / "new.sqlite", "--format", fmt).exception
        assert isinstance(fresh, UsageError)
        wording(fresh.message)
        none = run("report", campaign, "--since", "2027-03-01T00:00Z", "--format", fmt).exception
        assert isinstance(none, UsageError)
        wording(none.message)
    assert isinstance(run("report", tmp_path / "none.sqlite").exception, LedgerError)


def keys(value: object, path: str = "") -> set[str]:
    """Every key of a report, with the keys above it; names of holds and classes are values there."""
    if isinstance(value, list):
        return set().union(*(keys(one, path) for one in value))
    if not isinstance(value, dict) or path in {".failed_files", ".links.held"}:
        return set()
    return {f"{path}.{key}" for key in value}.union(*(keys(one, f"{path}.{key}") for key, one in value.items()))


def test_the_page_has_every_key(campaign: Path) -> None:
    """Amounts are written out once, for the totals."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "report.md").read_text()
    example = json.loads(page.partition("```json report\n")[2].partition("```")[0])
    amounts = set(example["totals"]) - {"due"}

    def without(found: set[str]) -> set[str]:
        return {key for key in found if key.rpartition(".")[2] not in amounts or key.startswith(".verdict")}

    shown = keys(example)
    real = keys(told(campaign, "--exclude", "2027-02-08T11:00/12:00 x", "--fail-under", "ratio >= 0"))
    parts = ("completion.", ".repeats.", ".menu_exclusions.")  # what this campaign has nothing of
    assert without({key for key in real if not any(part in key for part in parts)}) == without(
        {key for key in shown if not any(part in key for part in parts)}
    )
    assert set(example["completion"]) == set(told(campaign)["completion"])


def test_the_twenty_largest_have_series_of_their_own_and_second_hops_are_marked(tmp_path: Path) -> None:
    """The others are added up, so that nothing is lost; all are in the tables."""
    flows = {FlowKey("export", Link("CERN", f"D{number:02}")): (number + 1) * GB for number in range(25)}
    hop = FlowKey("onward", Link("D00", "E"))
    dues = {key: (due, None) for key, due in {**flows, hop: GB}.items()}
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        ledger.open_cycle(CYCLE, dues, START, goals={hop: SecondHop()})
        ledger.close_cycle(CYCLE, CYCLE.end)
    made = told(tmp_path / "dc27.sqlite")
    series = made["series"]["destination"]
    assert [one["name"] for one in series[:2]] == ["D24", "D23"]
    assert (len(series), series[-1]["name"], series[-1]["due"]) == (21, "others (6)", [16 * GB])
    assert len(made["destinations"]) == 26
    assert [one["second_hops"] for one in made["scenarios"]] == [0, 1]
    assert [one["scenario"] for one in made["links"] if one["second_hop"]] == ["onward"]
    assert "| onward (second hop) |" in run("report", tmp_path / "dc27.sqlite").stdout


def test_sites_are_those_of_menus_and_hosts_of_urls(tmp_path: Path) -> None:
    """An end without one is its own; without any site there are no tables of sites."""
    kit = [FlowKey("export", Link("T2_CH_CERN", f"T1_DE_KIT_{end}")) for end in ("Disk", "Tape")]
    files = FlowKey("export", Link("davs://one.example.org:443/a", "davs://two.example.org:443/b", "fts"))
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.open_cycle(CYCLE, dict.fromkeys(kit, (GB, None)), START)
        ledger.close_cycle(CYCLE, CYCLE.end)
        assert told(path)["destination_sites"] == []
        assert "By site" not in run("report", path).stdout
        later = Cycle(CYCLE.end, CYCLE.length)
        ledger.open_cycle(later, {files: (GB, None)}, later.start)
        ledger.close_cycle(later, later.end)
        sites = "sites: {KIT: {rses: {T1_DE_KIT_Disk: {}, T1_DE_KIT_Tape: {}}}}"
        ledger.put_in_force([("day.yaml", "digest", sites)], later.end)
    made = told(path)
    assert [(one["name"], one["due"]) for one in made["source_sites"]] == [
        ("T2_CH_CERN", 2 * GB),
        ("one.example.org", GB),
    ]
    assert [(one["name"], one["due"]) for one in made["destination_sites"]] == [
        ("KIT", 2 * GB),
        ("two.example.org", GB),
    ]
    assert "## By site" in run("report", path).stdout
