"""Menus on disk, and `dc-inject check` and `dc-inject menu schema` over them."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.cli.root import root
from dc_inject.model.errors import MenuError
from dc_inject.system import disk, files
from tests.menu.texts import scenarios, text

BAD: dict[str, str | bytes] = {
    "empty": "",
    "no mapping": "- a\n",
    "binary": b"\x00\x01\x02",
    "wrong encoding": "description: é\n".encode("latin-1"),
    "tag": text(x="x-y: !!python/name:os.system"),
    "bomb": "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "unknown unit": scenarios("one: {from: A, to: B, rate: 10 Gbit}"),
    "future": text(menu="menu: 99"),
    "key twice": text(x="menu: 1"),
    "DST": text(start="start: 2027-03-28 02:30"),
}
ACCEPT = "accept: [fts-link-limit]"  # 10 Gb/s are more than 200 files of 6 MB/s


def check(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(root, ["check", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "day1.yaml").write_text(text())
    (tmp_path / "day2.yml").write_text(text(start="start: 2027-02-09 10:00", end="end: 2027-02-10 10:00"))
    (tmp_path / "_sites.yaml").write_text("sites: {}\n")
    (tmp_path / ".hidden.yaml").write_text("nonsense")
    (tmp_path / "README.md").write_text("# not a menu")
    return tmp_path


def test_a_folder_is_a_campaign(folder: Path) -> None:
    """Its menus are read by name, parts and hidden files are not; a file named twice is read once."""
    drafts = files.read_menus([folder, folder / "day1.yaml"])
    assert [Path(draft.name).name for draft in drafts] == ["day1.yaml", "day2.yml"]
    assert drafts[0].text == text()


@pytest.mark.parametrize(
    "name", ["Day-02.YAML", "day-03.yaml.txt", "day4.Yml", "day5.yml (1)", "day6.yaml ", "week2"]
)
def test_what_looks_like_a_menu_is_read_or_reported(folder: Path, name: str) -> None:
    """Nor is a folder in the folder passed over: it is named, too, or begins with `_`."""
    odd = folder / name
    if name == "week2":
        odd.mkdir()
        (odd / "day8.yaml").write_text(text(start="start: 2027-02-10 10:00", end="end: 2027-02-11 10:00"))
    else:
        odd.write_text(text())
    done = check(folder, "--format", "json")
    assert done.exit_code == 2
    assert [problem["file"] for problem in json.loads(done.stdout)] == [str(odd)]
    if name == "week2":
        assert len(files.read_menus([folder, odd])) == 3
    odd.rename(folder / f"_{name}")
    assert len(files.read_menus([folder])) == 2


def test_what_editors_leave_and_what_a_menu_uses_is_no_nuisance(folder: Path) -> None:
    for name in (
        "day1.yaml~",
        "#day1.yaml#",
        "day1.yaml.bak",
        ".day1.yaml.swp",
        "links.csv",
        ".yamllint",
        "x.yamllint",
    ):
        (folder / name).write_text("from,to,rate\nA,B,1 Gb/s\n")
    (folder / "parts").mkdir()
    (folder / "parts" / "sites.yaml").write_text("sites: {}\n")
    (folder / "parts" / "notes.txt").write_text("x")
    (folder / "day1.yaml").write_text(text(x="include: parts/sites.yaml"))
    assert len(files.read_menus([folder])) == 2


@given(
    st.sets(
        st.builds(
            "".join,
            st.tuples(
                st.sampled_from(["", "_", ".", "sub/", "day"]),
                st.sampled_from(["1", "a b"]),
                st.sampled_from([".yaml", ".yml", ".YAML", ".Yml", ""]),
                st.sampled_from(["", ".txt", "~", ".bak", " (1)"]),
            ),
        ),
        min_size=1,
        max_size=5,
    )
)
@settings(max_examples=30)
def test_every_file_of_a_folder_is_read_or_reported_or_no_menu(names: set[str]) -> None:
    """By names alone: what has the ending of a menu, in any case, is a draft or a problem."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "sub").mkdir()
        (folder / "first.yaml").write_text(text())
        for name in names:
            (folder / name).write_text(text())
        try:
            read = {Path(draft.name).relative_to(folder).as_posix() for draft in files.read_menus([folder])}
            reported = ""
        except MenuError as error:
            read, reported = set(), str(error)
        for name in names:
            plain = Path(name).name[0] not in "_." and not name.endswith(("~", ".bak"))
            like = plain and re.search(r"\.ya?ml", name, re.IGNORECASE)
            mine = like and re.search(r"\.ya?ml$", name) and "/" not in name
            assert name in read or (mine and reported) or not like or Path(name).name in reported


def test_includes_are_read_beside_the_menu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command was started."""
    (folder / "day1.yaml").write_text(text(x="include: parts/a.yaml"))
    (folder / "parts").mkdir()
    (folder / "parts" / "a.yaml").write_text(
        "include: ../_sites.yaml\nscenarios: {two: {mesh: [A, B], rate: 1 Gb/s}}\n"
    )
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    (draft,) = files.read_menus([Path("..") / "day1.yaml"])
    assert len(draft.preview.flows) == 3


def test_the_problems_of_all_files_come_together(folder: Path) -> None:
    """One wrong menu does not hide another one, nor a missing file."""
    (folder / "day1.yaml").write_text("")
    (folder / "day2.yml").write_text(text(contact=""))
    (folder / "empty").mkdir()
    with pytest.raises(MenuError) as caught:
        files.read_menus([folder, folder / "missing.yaml", folder / "empty"])
    assert sorted(Path(problem.file).name for problem in caught.value.problems) == [
        "day1.yaml", "day2.yml", "empty", "missing.yaml",
    ]  # fmt: skip
    assert all(problem.hint for problem in caught.value.problems)


def test_a_file_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is a problem of the menu, not an unexpected error; refused by hand, since root may read everything."""

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(disk, "opened", refuse)
    assert "day1.yaml: " in check(folder).stdout


def test_a_name_that_no_file_can_have(folder: Path) -> None:
    """As a folder that one may not look into: that it cannot be looked at is a problem of that menu alone."""
    done = check(folder, folder / ("n" * 256))
    assert done.exit_code == 2
    assert f"{'n' * 256}: " in done.stdout
    assert "File name too long" in done.stdout
    assert "day1.yaml" not in done.stdout


def test_an_include_that_is_a_folder(folder: Path) -> None:
    """Is told with the line that names it."""
    (folder / "day1.yaml").write_text(text(x="include: ."))
    assert "day1.yaml:14:10: . " in check(folder).stdout


# --------------------------------------------------------------------------- dc-inject check


def test_check_says_in_one_sentence_what_menus_ask_for(folder: Path) -> None:
    """On stderr, since it is talk; there is no data to tell."""
    for day in folder.glob("day*"):
        day.write_text(day.read_text() + ACCEPT + "\n")
    result = check(folder)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr == (
        "rehearsal: 1 link in 1 scenario, 10 Gb/s together, from 2027-02-08T09:00Z to 2027-02-10T09:00Z\n"
    )


def test_check_counts_expressions(folder: Path) -> None:
    """It says that they are not resolved yet."""
    (folder / "day1.yaml").write_text(scenarios('one: {from: A, to: "tier=1", rate: 10 Gb/s}'))
    assert "1 RSE expression counted as one RSE each" in check(folder / "day1.yaml").stderr


@pytest.mark.parametrize("name", BAD)
def test_check_lists_every_problem_without_a_traceback(name: str, tmp_path: Path) -> None:
    """Exit code 2, and a line for each problem with file, line and hint."""
    path = tmp_path / "bad.yaml"
    content = BAD[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = check(path)
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert lines
    assert all(line.startswith(f"error: {path}:") and line.endswith(")") for line in lines)
    assert "Traceback" not in result.output
    assert result.stderr.endswith("0 warnings\n")


def test_check_of_an_empty_folder(tmp_path: Path, wording) -> None:
    """A folder without menus is an error."""
    result = check(tmp_path)
    assert result.exit_code == 2
    wording(result.stdout)


def test_warnings(tmp_path: Path) -> None:
    """A finding is printed with its code and exits 0; --strict makes it an error."""
    path = tmp_path / "m.yaml"
    path.write_text(text(limits="limits: {per_site: 9 Gb/s}", accept=ACCEPT))
    result = check(path)
    assert result.exit_code == 0
    assert "[site-over-limit]" in result.stdout
    assert result.stderr.endswith("0 errors, 2 warnings\n")
    assert check("--strict", path).exit_code == 2


def test_formats(tmp_path: Path) -> None:
    """JSON and CSV carry the same problems; without any, JSON is an empty list."""
    path = tmp_path / "m.yaml"
    path.write_text(text(contact=""))
    (found,) = json.loads(check("--format", "json", path).stdout)
    assert found["file"] == str(path)
    assert (found["line"], found["column"], found["severity"], found["code"]) == (1, 1, "error", None)
    assert found["message"] == "`contact` is missing"
    head, row = check("--format", "csv", path).stdout.splitlines()
    assert head == "file,line,column,severity,code,outlier,message,hint"
    assert row.startswith(f"{path},1,1,error,")
    path.write_text(text(accept=ACCEPT))
    assert json.loads(check("--format", "json", path).stdout) == []


def test_menu_schema() -> None:
    """`dc-inject menu schema` prints a JSON Schema."""
    result = CliRunner().invoke(root, ["menu", "schema"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["title"] == "dc_inject menu"


@pytest.mark.parametrize("command", [["check"], ["menu"], ["menu", "schema"]])
def test_help_has_an_example(command: list[str]) -> None:
    """Every command shows how it is called."""
    assert f"Example: dc-inject {command[0]}" in CliRunner().invoke(root, [*command, "--help"]).stdout
