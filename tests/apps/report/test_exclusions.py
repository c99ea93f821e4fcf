"""Windows that are left out: only what is named, and what is made up later counts where it was due."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Cycle
from dc_inject.model.errors import UsageError
from dc_inject.model.thresholds import parse
from dc_inject.summary import figures, thresholds
from dc_inject.summary.figures import ExcludedWindow, ReportScope
from tests.apps.report.test_day_tables import arrive
from tests.apps.report.test_report import told
from tests.cli.ledgers import CYCLE, FNAL, GB, KIT, MESH, START, injection, run

WHEN = "2027-02-08T10:15/10:45"
RATIO = "ratio{{{}}} >= 0.9"
SITES = "menu: 1\nsites: {FZK: {rses: {T1_DE_KIT_Disk: {}}}}\n"
# Datasets of 100 GB that arrive in each cycle, of which two are due; KIT is down in the second and third, which is
# made up by and by, and then falls short for another reason.
ARRIVES = {KIT: (2, 0, 0, 3, 4, 3, 1), FNAL: (2, 2, 1, 2, 2, 2, 2), MESH: (2, 2, 2, 2, 2, 2, 2)}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("excluded") / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as made:
        made.put_in_force([("day.yaml", "0", SITES)], START)
        for number in range(7):
            cycle = Cycle(START + number * CYCLE.length, CYCLE.length)
            made.open_cycle(cycle, dict.fromkeys(ARRIVES, (200 * GB, None)), cycle.start)
            arrive(made, [injection(key, n, cycle) for key in ARRIVES for n in range(ARRIVES[key][number])], cycle)
            made.close_cycle(cycle, cycle.end)
    return path


def ratios(report: dict[str, Any]) -> dict[str, tuple[int, float]]:
    rows = {row["destination"]: row for row in report["links"]}
    keys = {"KIT": KIT, "FNAL": FNAL, "MESH": MESH}
    found = {name: rows[key.link.destination] for name, key in keys.items()}
    return {name: (row["due"] // GB, round(row["ratio"], 3)) for name, row in found.items()}


NAMES = "site=FZK", "site=T1_DE_KIT_Disk", "rse=T1_DE_KIT_Disk"
LINKS = (f"link=T2_CH_CERN{between}T1_DE_KIT_Disk" for between in (":", "->", " -> "))


def test_a_site_that_no_menu_names_is_refused_with_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "dc27.sqlite"
    with Ledger.open(path, synchronous="OFF") as made:
        made.open_cycle(CYCLE, {KIT: (200 * GB, None)}, CYCLE.start)
    error = run("report", path, "--exclude", f"{WHEN} site=KIT downtime").exception
    assert isinstance(error, UsageError)
    assert "T1_DE_KIT_Disk" in (error.hint or "")
    assert "rse=NAME" in (error.hint or "")


@pytest.mark.parametrize("of", [*NAMES, *LINKS])
def test_only_what_is_named_is_left_out(ledger: Path, of: str) -> None:
    """KIT's due of five cycles, of which the last one moved half: what it made up is in no average."""
    made = told(ledger, "--exclude", f"{WHEN} {of} downtime")
    assert ratios(made) == {"KIT": (1000, 0.9), "FNAL": (1400, 0.929), "MESH": (1400, 1.0)}
    assert (made["excluded"]["due"], made["excluded"]["moved"], made["excluded"]["injected"]) == (400 * GB,) * 3
    assert made["counted"]["moved"] + made["excluded"]["moved"] == made["totals"]["moved"]
    assert made["excluded_windows"][0]["of"] == of
    assert made["excluded_windows"][0]["why"] == "downtime"
    assert max(step["ratio"] for step in made["steps"]) == 1.0


def test_a_scenario_has_its_links_left_out_and_no_other(ledger: Path) -> None:
    made = told(ledger, "--exclude", f"{WHEN} scenario={KIT.scenario} downtime")
    assert ratios(made) == {"KIT": (1000, 0.9), "FNAL": (1000, 1.0), "MESH": (1400, 1.0)}


def test_a_window_of_all_leaves_out_what_was_made_up_after_it_too(ledger: Path) -> None:
    """It was 106 percent of a link's due, and more."""
    made = told(ledger, "--exclude", f"{WHEN} downtime")
    assert ratios(made) == {"KIT": (1000, 0.9), "FNAL": (1000, 1.0), "MESH": (1000, 1.0)}
    shown = run("report", ledger, "--exclude", f"{WHEN} downtime").stdout
    assert "| 2027-02-08 10:15 | 2027-02-08 10:45 | everything | downtime | 2 |" in shown


def test_thresholds_and_csv_leave_out_the_same(ledger: Path) -> None:
    of = "site=FZK"
    lines = run("report", ledger, "--format", "csv", "--exclude", f"{WHEN} {of} downtime").stdout.splitlines()
    assert sum(int(line.split(",")[8]) for line in lines if line.endswith("excluded")) == 400 * GB
    window = ExcludedWindow(START + CYCLE.length, START + 3 * CYCLE.length, "downtime", of)
    wanted = [parse(text.format('destination="T1_DE_KIT_Disk"')) for text in (RATIO, f"{RATIO} over 30 min")]
    with LedgerView.open(ledger) as view:
        judged = thresholds.judge_thresholds(view, figures.period(view, ReportScope(excluded=(window,))), wanted)
    assert [(one.outcome, one.value) for one in judged] == [("met", 0.9), ("missed", 0.75)]


def test_a_name_that_no_link_has_is_an_error(ledger: Path) -> None:
    error = run("report", ledger, "--exclude", f"{WHEN} site=FZKK downtime").exception
    assert isinstance(error, UsageError)
    assert "FZK" in (error.hint or "")


def test_what_menus_exclude_is_listed_with_its_reason(tmp_path: Path) -> None:
    text = (
        "menu: 1\ncampaign: dc27\ncontact: me@example.org\ntimezone: UTC\n"
        "start: 2027-02-08 10:00\nend: 2027-02-08 12:00\n"
        "exclude:\n- {site: FZK, from: 2027-02-08 10:15, to: 2027-02-08 10:45, reason: downtime}\n"
        "- {site: FZK, from: 2027-02-08 11:15, to: 2027-02-08 11:45, reason: after the report}\n"
        "sites: {FZK: {rses: {T1_DE_KIT_Disk: {}}}}\n"
        "scenarios: {x: {from: T2_CH_CERN, to: T1_DE_KIT_Disk, rate: 1 Gb/s, datasets: {did: 'cms:*'}}}\n"
    )
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as made:
        made.put_in_force([("day.yaml", "0", text)], START)
        made.open_cycle(Cycle(START, CYCLE.length), {KIT: (GB, None)}, START)
    made = told(tmp_path / "dc27.sqlite")
    window = {
        "since": "2027-02-08T10:15:00Z",
        "until": "2027-02-08T10:45:00Z",
        "of": "site=FZK",
        "why": "downtime",
    }
    until_eleven = told(tmp_path / "dc27.sqlite", "--until", "2027-02-08T11:00")
    assert until_eleven["menu_exclusions"] == [window]
    shown = run(
        "report", tmp_path / "dc27.sqlite", "--part", "menu-exclusions", "--until", "2027-02-08T11:00"
    ).stdout
    assert [word in shown for word in ("site=FZK", "downtime")] == [True, True]
    assert made["menu_exclusions"] == []
