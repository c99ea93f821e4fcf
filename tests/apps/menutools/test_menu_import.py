"""`dc-inject menu import`: what it writes is right, complete or not there, and says what was assumed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dc_inject.apps.menutools import workbooks
from dc_inject.model.errors import MenuError, UsageError
from dc_inject.system import files
from tests.cli.ledgers import run
from tests.menu.texts import draft, rates

LINES = "src, dst, Mbps\nT2_CH_CERN, T1_US_FNAL_Disk, 40000\nT2_CH_CERN, T1_DE_KIT_Disk, 7800.125\n"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "day 1 (new).csv"
    path.write_text(LINES)
    return path


def test_check_accepts_what_was_imported(lines: Path, tmp_path: Path) -> None:
    """Without any option; all that was assumed is told and marked, the sum is exact."""
    goal = tmp_path / "m.yaml"
    done = run("menu", "import", lines, "-o", goal)
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "assumed: " in done.stderr
    assert "(--contact)" in done.stderr
    assert "target: 47.800125 Gb/s" in goal.read_text()
    assert goal.read_text().count("# assumed") == 6
    assert run("check", goal).exit_code == 0
    (draft,) = files.read_menus([goal])
    assert draft.campaign == "day-1--new"


def test_a_menu_on_stdout_out_of_stdin() -> None:
    """Data on stdout, talk on stderr; nothing else on either."""
    done = run("menu", "import", "-", "--scenario", "t0", "--timezone", "Europe/Zurich", text=LINES)
    assert done.exit_code == 0
    assert done.stdout.startswith("# Imported from stdin, 2 links")
    assert "  t0:\n" in done.stdout
    assert "imported 2 links, 47.8 Gb/s together, from lines" in done.stderr


def test_through_fts(lines: Path, tmp_path: Path) -> None:
    """Ends are URL prefixes, and files come from a folder below the source."""
    lines.write_text("davs://a.example.org/x, davs://b.example.org/y, 8000\n")
    goal = tmp_path / "m.yaml"
    done = run("menu", "import", lines, "--through", "fts", "--fts", "https://fts.example.org:8446", "-o", goal)
    assert done.exit_code == 0
    assert run("check", goal).exit_code == 0
    assert "files: {folder: .}" in goal.read_text()


def test_a_mistake_of_every_line_is_told_once(lines: Path, tmp_path: Path, wording) -> None:
    """With its first place, and how many more there are."""
    lines.write_text("".join(f"T1_A_{n}, T2_B_{n}, 8000\n" for n in range(20)))
    error = run("menu", "import", lines, "--through", "fts", "-o", tmp_path / "m.yaml").exception
    assert isinstance(error, MenuError)
    (problem,) = error.problems
    wording(str(problem))


def test_sites_are_included_and_the_only_names(lines: Path, tmp_path: Path, wording) -> None:
    """A name that is not among them is refused where it stands; the include counts from the menu."""
    (tmp_path / "out").mkdir()
    (tmp_path / "_sites.yaml").write_text(
        "sites:\n  KIT: {rses: {T1_DE_KIT_Disk: {}}}\n  CERN: {wan: 1 Tb/s, rses: {T2_CH_CERN: {}}}\n"
    )
    lines.write_text("CERN, KIT, 1000\n")
    goal = tmp_path / "out" / "m.yaml"
    assert run("menu", "import", lines, "--sites", tmp_path / "_sites.yaml", "-o", goal).exit_code == 0
    assert "include: ../_sites.yaml" in goal.read_text()
    files.allow([tmp_path])
    (draft,) = files.read_menus([goal])
    files.allow(())
    assert [str(flow.link) for flow in draft.preview.flows] == ["T2_CH_CERN:T1_DE_KIT_Disk"]
    lines.write_text("CREN, KIT, 1000\n")
    done = run("menu", "import", lines, "--sites", tmp_path / "_sites.yaml")
    assert isinstance(done.exception, MenuError)
    wording(str(done.exception))
    (tmp_path / "_sites.yaml").write_text("limits: {}\n")
    wording(str(run("menu", "import", lines, "--sites", tmp_path / "_sites.yaml").exception))


def test_an_outlier_is_told_at_once(tmp_path: Path) -> None:
    """As the link of DC24 that was typed in at 50,000 Mb/s beside its neighbours' 7,800."""
    neighbours = "".join(f"CERN, T{number}, 7800\n" for number in range(4))
    done = run("menu", "import", "-", text=f"{neighbours}CERN, T9, 50000\n")
    assert done.exit_code == 0
    assert "[rate-outlier]" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--start", "tomorrow"),
        ("--timezone", "Mars"),
        ("--did", "cms"),
        ("--campaign", "a b"),
        ("--fts", "ftp://x"),
        ("--unit", "Gbit"),
        ("--end", "2000-01-01"),
    ],
)
def test_options_are_checked(option: str, value: str, lines: Path, wording) -> None:
    """Before anything is written; exit code 2, and no menu."""
    done = run("menu", "import", lines, option, value)
    assert done.stdout == ""
    wording(done.stderr or done.exception)
    assert done.exit_code == 2 or isinstance(done.exception, MenuError)


def test_no_file_is_replaced_without_force(lines: Path, tmp_path: Path) -> None:
    """And one that is replaced keeps its rights; nothing is left beside it."""
    goal = tmp_path / "m.yaml"
    goal.write_text("mine")
    goal.chmod(0o640)
    done = run("menu", "import", lines, "-o", goal)
    assert isinstance(done.exception, UsageError)
    assert goal.read_text() == "mine"
    assert run("menu", "import", lines, "-o", goal, "--force").exit_code == 0
    assert goal.read_text().startswith("# Imported")
    assert stat.S_IMODE(goal.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([lines.name, "m.yaml"])


@pytest.mark.parametrize("force", [True, False])
def test_a_file_is_there_as_a_whole_or_not_at_all(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens while it is written, Ctrl-C included."""
    goal = tmp_path / "m.yaml"
    goal.write_text("mine") if force else None

    def interrupt(number: int) -> None:
        raise KeyboardInterrupt(number)

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(goal, "half", force=force)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == ({"m.yaml": "mine"} if force else {})


def test_a_name_that_was_taken_meanwhile_stays_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that write at once do not overwrite each other."""
    goal = tmp_path / "m.yaml"
    monkeypatch.setattr("os.fsync", lambda _: goal.write_text("theirs"))
    with pytest.raises(UsageError, match="exists already"):
        files.write_whole(goal, "ours", force=False)
    assert goal.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there(lines: Path, tmp_path: Path, wording) -> None:
    """Is told as a path, and a file that is not there as a problem."""
    done = run("menu", "import", lines, "-o", tmp_path / "no" / "m.yaml")
    assert isinstance(done.exception, UsageError)
    assert "No such file" in done.exception.message
    wording(str(run("menu", "import", tmp_path / "none.csv").exception))
    done = run("menu", "import", lines, "-o", tmp_path / ("x" * 300))
    assert isinstance(done.exception, UsageError)
    assert run("menu", "import", lines, "-o", tmp_path / ("x" * 255)).exit_code == 0
    assert isinstance(run("menu", "import", lines, "-o", tmp_path, "--force").exception, UsageError)


def sheets(path: Path) -> Path:
    book = pytest.importorskip("openpyxl").Workbook()
    book.active.append(["to [Gbit/s]", "B", "C"])
    book.active.append(["A", 10.0, 2.5])
    book.active.append(["B", None, "1 GB/s"])
    other = book.create_sheet("lines")
    for row in (["src", "dst", "Mbps"], ["A", "B", 8000]):
        other.append(row)
    book.save(path)
    return path


def test_a_spreadsheet_is_read(tmp_path: Path) -> None:
    """The sheet that was open, or the one that is named; numbers and cells with units."""
    file = sheets(tmp_path / "m.xlsx")
    done = run("menu", "import", file)
    assert done.exit_code == 0, done.exception
    assert rates(draft(done.stdout).preview) == {"A:B": 10, "A:C": 2.5, "B:C": 8}
    named = run("menu", "import", file, "--sheet", "lines")
    assert rates(draft(named.stdout).preview) == {"A:B": 8}
    wrong = run("menu", "import", file, "--sheet", "liens")
    assert "known: Sheet, lines" in str(wrong.exception)
    assert "'lines'" in done.stderr  # the sheet that is not read


@pytest.mark.parametrize("data", [b"PK\x03\x04 and nothing", b"\xd0\xcf\x11\xe0 an old one"])
def test_what_is_no_xlsx_is_told_with_a_way(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "m.xls"
    file.write_bytes(data)
    done = run("menu", "import", file)
    assert isinstance(done.exception, MenuError)
    assert "CSV" in done.exception.problems[0].hint


def test_a_spreadsheet_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbooks, "LARGEST", 100)
    done = run("menu", "import", sheets(tmp_path / "m.xlsx"))
    assert isinstance(done.exception, MenuError)
    assert done.exception.exit_code == 2


def test_options_say_what_of_a_spreadsheet_counts(tmp_path: Path) -> None:
    """As openpyxl writes one: a formula has no saved value, a row is hidden, a column is a comment."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["Day 1"], ["to [Gb/s]", "B", "C", "by"], ["A", 10, "=B3/4", "x"], ["D", 1, 1, "x"]):
        book.active.append(row)
    book.active.row_dimensions[4].hidden = True
    book.save(file := tmp_path / "m.xlsx")
    options = ["--header-row", "2", "--ignore-column", "by", "--hidden", "ignore"]
    done = run("menu", "import", file, *options)
    assert isinstance(done.exception, MenuError)
    assert [str(problem).split(":")[1] for problem in done.exception.problems] == ["Sheet!C3"]
    done = run("menu", "import", file, *options, "--ignore-column", "C")
    assert rates(draft(done.stdout).preview) == {"A:B": 10}
