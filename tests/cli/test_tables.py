"""Tables fit the terminal; off a terminal, and with --wide, they have all columns and no line is folded."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from dc_inject.apps.data.command import LISTED as SETS
from dc_inject.apps.preview import command_ping, command_plan
from dc_inject.apps.twin import printing
from dc_inject.cli import campaigns, status
from dc_inject.cli.shared import summary_output, tables
from tests.apps.report import campaigns_to_watch
from tests.apps.report.campaigns_to_watch import LINKS
from tests.cli.ledgers import FNAL, KIT, MESH, make, run

GB = 10**9
ROW = {
    "cycle": "2027-02-08T10:00:00Z",
    "scenario": "t0-export-of-the-first-day",
    "source": "T2_CH_CERN",
    "destination": "T1_FR_CCIN2P3_Disk",
    "target": 123.4 * GB,
    "due": 999 * GB,
    "budget": 999 * GB,
    "planned": 999 * GB,
    "datasets": 123,
    "files": 12345,
    "lifetime": 5400.0,
    "injected": 999 * GB,
    "injected_ratio": 1.001,
    "moved": 999 * GB,
    "moved_ratio": 0.999,
    "rules": 12345,
    "forgiven": 999 * GB,
    "failed_files": {"connection": 12, "checksum": 3},
    "goal": {"volume": 10**15, "moved": 10**14},
}
HELD = {"held": "destination-unavailable", "numbers": {"free": 1, "wanted": 2}}
HELD_CYCLES = next(column for column in summary_output.SUMMARY if column.key == "held")
SUMS = {"held": {"destination-unavailable": 12}, "harmless": {"too-coarse": 3}, "not_moved": 99 * GB}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaigns_to_watch.campaign(tmp_path_factory.mktemp("tables") / "dc27.sqlite")


def printed(columns, rows, most: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    console = tables.console()
    console.width = most
    console.print(tables.table(columns, rows, "a title", most))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


SHORT = {
    "scenario": "t0-export",
    "source": "T2_CH_CERN",
    "destination": "T1_DE_KIT_Disk",
    "due": 999 * GB,
    "moved": 99 * GB,
    "moved_of_due": 0.1,
    "why": "backlog in 3 of 8 cycles; WAN into a site of some length carries no more (92 % of the time)",
}


@pytest.mark.parametrize("name", ["t0-export", "a-scenario-whose-name-is-as-long-as-that"])
@pytest.mark.parametrize("most", [80, 120])
def test_why_a_link_is_short_stands_below_it_where_whole_lines_are_too_wide(most: int, name: str, capsys) -> None:
    lines = printed(printing.SHORT_LINKS, [SHORT | {"scenario": name}] * 2, most, capsys)
    assert max(map(len, lines)) <= most
    (first, _) = [number for number, line in enumerate(lines) if "999 GB" in line]
    assert lines[first + 1 : first + 3] == [f"    {cause}" for cause in SHORT["why"].split("; ")]
    assert "why" not in "\n".join(lines)
    (title, head, one, _) = printed(printing.SHORT_LINKS, [SHORT] * 2, 200, capsys)
    assert (title, head.split()[-1]) == ("a title", "why")
    assert one.endswith(SHORT["why"])


@pytest.mark.parametrize("most", [80, 120])
@pytest.mark.parametrize(
    ("columns", "more"),
    [(status.ROWS, HELD), (summary_output.SUMMARY, SUMS), (command_plan.COLUMNS, HELD)],
    ids=["rows", "summary", "plan"],
)
def test_a_table_fits_and_no_number_is_folded(columns, more, most: int, capsys) -> None:
    """What is left out is named."""
    lines = printed(columns, [ROW | more] * 2, most, capsys)
    assert max(map(len, lines)) <= most
    assert any("999 GB" in line for line in lines)
    assert sum("T2_CH_CERN" in line for line in lines) == 2
    for column in columns:
        assert column.quiet or any(column.head.split()[0][:6] in line for line in lines[1:]), column.head


MOMENT = "2027-02-08T10:00:00Z"
LISTED = {
    "campaign": "dc27-rehearsal-of-february", "running": True, "start": MOMENT, "end": MOMENT,
    "last_cycle": MOMENT, "unended": 12345,
    "ledger": "/home/dcops/.local/state/dc_inject/dc27-rehearsal-of-february.sqlite",
}  # fmt: skip
SERVICE = {
    "service": "fts", "address": "https://fts3-cms.cern.ch:8446", "version": "3.14.4", "vo": "cms",
    "account": "dcops", "admin": False, "may_end": True, "credentials_from": "X509_USER_PROXY",
    "credentials_until": MOMENT, "credentials_left": 40000.0, "delegation_needed": True, "delegated_until": MOMENT,
}  # fmt: skip
TEST_DATA = {
    "set": "dc27-test-set", "at": "T2_CH_CERN_Disk", "scope": "user.dcops", "files": 1000, "of": 1000,
    "file_bytes": GB, "bytes": 999 * GB, "datasets": 10, "rules_elsewhere": 0, "until": MOMENT,
}  # fmt: skip


@pytest.mark.parametrize("most", [80, 100, 120])
@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (campaigns.COLUMNS[:-1], LISTED),
        (command_ping.COLUMNS[:-2], SERVICE),
        (SETS, TEST_DATA),
    ],
    ids=["campaigns", "ping", "data"],
)
def test_a_time_is_not_folded_and_a_row_is_one_line(columns, row, most: int, capsys) -> None:
    title, head, one, *rest = printed(columns, [row], most, capsys)
    assert max(map(len, (title, head, one))) <= most
    assert MOMENT in one
    assert not rest or rest[0].startswith("(--wide")


@pytest.mark.parametrize("most", [80, 120])
@pytest.mark.parametrize("option", [(), ("--summary",)], ids=["now", "summary"])
def test_status_fits_a_terminal_and_names_what_it_leaves_out(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, most: int, option: tuple[str, ...]
) -> None:
    """Every table of it, with real names; --wide has what is named. At 120 columns no name is folded."""
    monkeypatch.setenv("COLUMNS", str(most))
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    told = run("status", ledger, *option).stdout
    lines = told[told.index("scenario") if option else told.index("\n\n") :].splitlines()
    assert max(map(len, lines)) <= most
    wide = run("status", ledger, *option, "--wide").stdout
    left_out = re.findall(r"\(--wide shows also: (.*?)\)", told.replace("(cycles)", "cycles"), re.DOTALL)
    heads = [line for line in wide.replace("(cycles)", "cycles").splitlines() if line.startswith("scenario ")]
    assert left_out
    for names, head in zip(left_out, heads, strict=False):  # the second table may fit
        assert all(name in head for name in " ".join(names.split()).split(", "))
    if most == 120:
        assert all(any(str(name) in line for line in lines) for key in LINKS for name in key.link.ends)


@pytest.mark.parametrize(("option", "most"), [((), 80), (("--summary",), 84)], ids=["now", "summary"])
def test_scenarios_become_headings_before_a_name_is_cut(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...], most: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(most))
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    told = run("status", ledger, *option).stdout
    lines = [line.rstrip() for line in told[told.index("scenario, source") :].splitlines()]
    table = lines[: lines.index("")] if "" in lines else lines
    assert all(table.count(scenario) == 1 for scenario in ("t0-export", "uk", "us-mesh"))
    for key in LINKS:
        under = table[table.index(key.scenario) :]
        source, destination = (re.escape(name) for name in key.link.ends)
        assert any(re.match(f" {source} +{destination} +[0-9]", line) for line in under), key
    assert not option or any(re.match("total +101 TB", line) for line in table)


def test_names_that_do_not_fit_are_cut_in_the_middle_and_keep_one_line(capsys) -> None:
    """Two prefixes of one storage differ at their ends."""
    begin = "https://eospublic.cern.example:8443/eos/"
    rows = [ROW | HELD | {"source": f"{begin}challenge/{number}/", "destination": f"{begin}to"} for number in "12"]
    lines = printed(status.ROWS, rows, 80, capsys)
    assert max(map(len, lines)) <= 80
    assert [line[:9] for line in lines if "999 GB" in line] == [" https://"] * 2
    assert ["1/ " in line for line in lines if "999 GB" in line] == [True, False]
    assert tables.cut(begin, 12) == "https:…/eos/"
    assert tables.cut(begin, 12, dots="..") == "https../eos/"


def test_a_terminal_without_utf_8_gets_other_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1", write_through=True))
    rows = [ROW | HELD | {"source": "https://eospublic.cern.example:8443/eos/challenge/"}]
    tables.console().print(tables.table(status.ROWS, rows, most=80))
    assert b".." in raw.getvalue()


def test_a_table_that_fits_has_all_columns(capsys) -> None:
    lines = printed(status.ROWS, [ROW | HELD], 300, capsys)
    assert not any("--wide" in line for line in lines)
    for column in status.ROWS:
        assert column.quiet or column.head in lines[1]


def test_only_a_terminal_is_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a pipe gets whole lines; --wide prints them on a terminal, too."""
    path = make(tmp_path / "dc27.sqlite", {FNAL: 2, MESH: 1}, dry=(KIT,)).path
    whole = rest(run("status", path).stdout)
    monkeypatch.setenv("COLUMNS", "60")
    assert rest(run("status", path).stdout) == whole
    monkeypatch.setattr(tables, "_is_terminal", lambda stream: True)
    narrow = run("status", path).stdout
    rows = [line for line in narrow.splitlines() if "GB" in line]
    assert rows
    assert max(map(len, rows)) <= 60
    assert rest(narrow) != whole
    assert rest(run("status", path, "--wide").stdout) == whole


def rest(text: str) -> list[str]:
    """The lines but for the one with the time, in any order: on a terminal, the first ones come last."""
    return sorted(line.rstrip() for line in text.splitlines() if line and not line.startswith("dc27 "))


def test_off_a_terminal_no_line_ends_with_blanks(capsys) -> None:
    """They are wider than any screen, and whoever compares two files sees them."""
    tables.emit("table", summary_output.SUMMARY, [ROW | SUMS, ROW], "a title")
    tables.write(tables.table(printing.SHORT_LINKS, [SHORT], "another title", 80))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert "another title" in lines


def test_counts_have_separators_of_thousands_in_all_columns(capsys) -> None:
    """As in the sentences beside them; programs get plain numbers."""
    columns = (tables.Column("files", "files", right=True), tables.Column("dry", "dry"), HELD_CYCLES)
    rows = [{"files": 12345, "dry": True, "held": {"pool-dry": 1152}}]
    tables.emit("table", columns, rows)
    assert capsys.readouterr().out.splitlines()[1].split("  ")[0:2] == ["12,345", "True"]
    tables.emit("table", columns, rows)
    assert "1,152 pool-dry" in capsys.readouterr().out
    tables.emit("csv", columns[:1], rows)
    assert capsys.readouterr().out == "files\n12345\n"
