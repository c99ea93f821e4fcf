"""`dc-inject check`: findings are warnings, and with --strict errors; the speed of a file can be told."""

from __future__ import annotations

import json

import pytest

from tests.cli.ledgers import run
from tests.menu.texts import text

ONE = "scenarios: {one: {from: A, to: B, rate: 6 Gb/s}}"


@pytest.fixture
def menu(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="target: 6 Gb/s", scenarios=ONE))
    return path


def codes(done) -> list[str]:
    return [row["code"] for row in json.loads(done.stdout)]


def test_a_warning_ends_with_0_and_strictly_with_2(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="target: 12 Gb/s", scenarios=ONE))
    done = run("check", path, "--format", "json")
    assert (done.exit_code, codes(done)) == (0, ["target-differs"])
    (row,) = json.loads(done.stdout)
    assert (row["severity"], row["line"], row["outlier"]) == ("warning", 10, True)
    assert "0 errors, 1 warning" in done.stderr
    strict = run("check", path, "--strict")
    assert strict.exit_code == 2
    assert "0 errors, 1 warning (treated as errors: --strict)" in strict.stderr


def test_what_is_right_ends_with_0_even_strictly(menu):
    done = run("check", menu, "--strict", "--format", "json")
    assert (done.exit_code, codes(done)) == (0, [])


def test_the_speed_of_a_file_can_be_told_offline(menu):
    """6 Gb/s are 125 files at 6 MB/s, and 150 at 5 MB/s."""
    assert codes(run("check", menu, "--format", "json", "--file-speed", "5 MB/s")) == ["fts-link-limit"]


def test_windows_are_checked_over_all_menus_of_a_folder(tmp_path):
    (tmp_path / "1.yaml").write_text(text(scenarios=ONE))
    (tmp_path / "2.yaml").write_text(
        text(start="start: 2027-02-09 11:00", end="end: 2027-02-10 10:00", scenarios=ONE)
    )
    assert codes(run("check", tmp_path, "--format", "json")) == ["window-gap"]


def test_programs_get_the_column_of_each_problem(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="target: 12 Gb/s", scenarios=ONE.replace("6 Gb/s", "fast")))
    done = run("check", path, "--format", "json")
    (row,) = json.loads(done.stdout)
    line = path.read_text().splitlines()[row["line"] - 1]
    assert line[row["column"] - 1 :].startswith("fast")
    assert run("check", path, "--format", "csv").stdout.startswith(
        "file,line,column,severity,code,outlier,message,hint"
    )


def test_where_only_the_line_is_known_the_column_is_null(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="target: 12 Gb/s", scenarios=ONE))
    (row,) = json.loads(run("check", path, "--format", "json").stdout)
    assert row["line"]
    assert row["column"] is None
