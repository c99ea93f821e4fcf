"""`dc-inject check`: findings are warnings, and with --strict errors; the speed of a file can be told."""

from __future__ import annotations

import json

import pytest

from tests.cli.ledgers import run
from tests.menu.texts import text
from tests.wording import lines

ONE = "scenarios: {one: {from: A, to: B, rate: 6 Gb/s}}"


@pytest.fixture
def menu(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="target: 6 Gb/s", scenarios=ONE))
    return path


def codes(done) -> list[str]:
    return [row["code"] for row in json.loads(done.stdout)]


def test_a_warning_ends_with_0_and_strictly_with_2(tmp_path, wording):
    path = tmp_path / "m.yaml"
    path.write_text(text(x="target: 12 Gb/s", scenarios=ONE))
    done = run("check", path, "--format", "json")
    assert (done.exit_code, codes(done)) == (0, ["target-differs"])
    (row,) = json.loads(done.stdout)
    assert (row["severity"], row["line"], row["outlier"]) == ("warning", 10, True)
    assert "0 errors, 1 warning" in done.stderr
    strict = run("check", path, "--strict")
    assert strict.exit_code == 2
    wording(lines(strict.stderr, "--strict"))


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


def test_a_menu_of_a_wrong_year_is_a_finding(menu):
    menu.write_text(text(start="start: 2097-02-08 10:00", end="end: 2097-02-09 10:00", scenarios=ONE))
    assert codes(run("check", menu, "--format", "json")) == ["far-ahead"]


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


TWO = "scenarios: {one: {from: A, to: {B: 1, C: 2}, rate: 6 Gb/s}}"


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ((), "2 links in 1 scenario, 6 Gb/s together, "),
        (("--scale", 2), "2 links in 1 scenario, 12 Gb/s together (rates times 2), "),
        (("--link", "A->C"), "1 link in 1 scenario, 4 Gb/s together, "),
    ],
)
def test_what_run_is_given_on_its_command_line_can_be_checked(tmp_path, more, asked):
    """The target is that of all links: it is scaled, too, and does not count for some of them."""
    (path := tmp_path / "m.yaml").write_text(text(x="target: 6 Gb/s", scenarios=TWO))
    done = run("check", path, "--format", "json", *more)
    assert done.exit_code == 0, done.output
    assert asked in done.stderr
    assert "target-differs" not in codes(done)


def test_rates_that_are_too_high_only_when_scaled_are_found(tmp_path):
    (path := tmp_path / "m.yaml").write_text(text(scenarios=TWO))
    assert codes(run("check", path, "--format", "json")) == []
    assert codes(run("check", path, "--format", "json", "--scale", 2)) == ["fts-link-limit"]


def test_a_link_that_is_misspelt_is_told_with_the_nearest_one(tmp_path, wording):
    (path := tmp_path / "m.yaml").write_text(text(scenarios=TWO.replace("A", "T2_CH_CERN").replace("B", "KIT")))
    done = run("check", path, "--link", "T2_CH_CERN:KTI")
    assert done.exit_code == 2
    wording(done.stdout)


def test_a_link_that_only_an_expression_may_mean_is_told_to_be_asked_for(tmp_path, wording):
    (path := tmp_path / "m.yaml").write_text(
        text(scenarios="scenarios: {one: {from: A, to: tier=2, rate: 6 Gb/s}}")
    )
    done = run("check", path, "--link", "A:B")
    assert done.exit_code == 2
    wording(done.stdout)


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf", "fast"])
def test_a_scale_is_a_number_above_0(menu, scale):
    done = run("check", menu, "--scale", scale)
    assert done.exit_code == 2
    assert "Invalid value for '--scale'" in done.stderr
