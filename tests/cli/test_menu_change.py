"""`dc-inject menu scale` and `menu diff` as a user meets them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dc_inject.model.errors import MenuError, UsageError
from tests.cli.ledgers import run
from tests.menu.texts import text


@pytest.fixture
def menu(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(text(target="target: 10 Gb/s"))
    return path


def test_scale_writes_a_menu_that_check_accepts(menu: Path, tmp_path: Path) -> None:
    """From a file or stdin, to a file or stdout."""
    goal = tmp_path / "half.yaml"
    done = run("menu", "scale", "0.5", menu, "-o", goal)
    assert (done.exit_code, done.stdout) == (0, "")
    assert goal.read_text() == menu.read_text().replace("10 Gb/s", "5 Gb/s")
    assert run("check", goal, "--include-from", tmp_path).exit_code == 0
    assert run("menu", "scale", "50%", "-", text=menu.read_text()).stdout == goal.read_text()
    assert run("menu", "scale", "200%", goal, "-o", goal, "--force").exit_code == 0
    assert goal.read_text() == menu.read_text()


@pytest.mark.parametrize("factor", ["0", "-1", "x", "1e3", "", "nan", "1,5"])
def test_a_factor_is_a_number_above_0(factor: str, menu: Path, wording) -> None:
    """Anything else is a usage error."""
    done = run("menu", "scale", "--", factor, menu)
    assert done.exit_code == 2
    wording(done.stderr)


def test_a_scaled_menu_above_a_limit_is_refused(menu: Path) -> None:
    """With the problem that `check` would tell; nothing is printed."""
    done = run("menu", "scale", "1000", menu)
    assert isinstance(done.exception, MenuError)
    assert "above limits.total" in str(done.exception)
    assert done.stdout == ""


def test_a_scaled_menu_finds_its_files_from_its_new_place(menu: Path, tmp_path: Path) -> None:
    """What it includes and names is called from there; rates in other files need --expand."""
    (tmp_path / "out").mkdir()
    (tmp_path / "d.txt").write_text("cms:*\n")
    (tmp_path / "l.csv").write_text("from,to,rate\nA,C,4 Gb/s\n")
    (tmp_path / "_part.yaml").write_text("sites: {KIT: {rses: {T1_DE_KIT: {}}}}\n")
    menu.write_text(
        text(
            include="include: [_part.yaml]   # parts",
            defaults="defaults: {datasets: {file: d.txt}}",
            scenarios="scenarios:\n  one: {from: A, to: KIT, rate: 6 Gb/s}\n  two: {links: {file: l.csv}}",
        )
    )
    goal = tmp_path / "out" / "m.yaml"
    assert run("menu", "scale", "0.5", menu, "--scenario", "one", "-o", goal).exit_code == 0
    changed = goal.read_text()
    assert all(
        part in changed
        for part in ("[../_part.yaml]   # parts", "{file: ../d.txt}", "{file: ../l.csv}", " 3 Gb/s")
    )
    assert run("check", goal, "--include-from", tmp_path).exit_code == 0
    done = run("menu", "scale", "0.5", menu, "-o", goal, "--force")
    assert isinstance(done.exception, UsageError)
    assert "--expand" in str(done.exception.hint)
    assert run("menu", "scale", "0.5", menu, "--expand", "-o", goal, "--force").exit_code == 0
    assert "{from: A, to: C, rate: 2 Gb/s}" in goal.read_text()
    assert "{from: A, to: T1_DE_KIT, rate: 3 Gb/s}" in goal.read_text()
    same = run("menu", "scale", "1", menu, "--scenario", "one").stdout
    assert same == menu.read_text()


def test_diff_in_every_format(menu: Path, tmp_path: Path, wording) -> None:
    """The same rows with plain numbers; talk on stderr."""
    other = tmp_path / "n.yaml"
    other.write_text(menu.read_text().replace("10 Gb/s", "12.5 Gb/s"))
    rows = json.loads(run("menu", "diff", menu, other, "--format", "json").stdout)
    assert [(row["kind"], row["name"], row["change_gbps"]) for row in rows] == [
        ("link", "A:B", 2.5), ("scenario", "one", 2.5), ("site", "A", 2.5), ("site", "B", 2.5),
        ("total", "total", 2.5),
    ]  # fmt: skip
    assert rows[0]["after_tb"] == 135
    table = list(csv.DictReader(io.StringIO(run("menu", "diff", menu, other, "--format", "csv").stdout)))
    assert [float(row["after_gbps"]) for row in table] == [12.5] * 5
    done = run("menu", "diff", menu, "-", text=menu.read_text())
    assert (done.exit_code, done.stdout) == (0, "")
    wording(done.stderr)
    assert run("menu", "diff", menu, menu, "--format", "json").stdout == "[]\n"


def test_a_folder_is_compared_day_by_day(menu: Path, tmp_path: Path) -> None:
    """Links come, change and go; the same times of the next day are no other times."""
    one = "scenarios: {one: {from: A, to: B, rate: 6 Gb/s, shape: {ramp: 1 h}}}"
    days = [one, one.replace("6 Gb/s", "8 Gb/s"), one.replace("to: B", "to: C")]
    for number, scenarios in enumerate(days):
        start, end = (f"{key}: 2027-02-{number + day:02} 10:00" for key, day in (("start", 8), ("end", 9)))
        (tmp_path / f"day-{number}.yaml").write_text(text(scenarios=scenarios, start=start, end=end))
    menu.unlink()
    done = run("menu", "diff", tmp_path, "--format", "json")
    links = [
        (row["menus"][-10:], row["name"], row["what"]) for row in json.loads(done.stdout) if row["kind"] == "link"
    ]
    assert links == [("day-1.yaml", "A:B", "changed"), ("day-2.yaml", "A:B", "gone"), ("day-2.yaml", "A:C", "new")]
    assert "other times" not in done.stderr
    assert isinstance(run("menu", "diff", tmp_path / "day-0.yaml").exception, UsageError)


def test_equal_rates_of_unequal_menus(menu: Path, tmp_path: Path, wording) -> None:
    """Are not called equal menus."""
    other = tmp_path / "n.yaml"
    other.write_text(menu.read_text().replace("    rate:", "    priority: 5\n    rate:"))
    done = run("menu", "diff", menu, other)
    assert done.exit_code == 0
    wording(done.stderr)


def test_expressions_are_not_resolved_to_compare(menu: Path) -> None:
    """Which is said, since sites behind them may be others."""
    menu.write_text(text(scenarios='scenarios: {one: {from: A, to: "tier=2", rate: 6 Gb/s}}'))
    assert "also: RSE expressions, each counted as one RSE" in run("menu", "diff", menu, menu).stderr


def test_menus_that_cannot_be_compared(menu: Path, tmp_path: Path, wording) -> None:
    """Two from stdin, one that is not there, one that is wrong."""
    assert isinstance(run("menu", "diff", "-", "-").exception, UsageError)
    wording(str(run("menu", "diff", menu, tmp_path / "no.yaml").exception))
    assert isinstance(run("menu", "diff", menu, "-", text="- a\n").exception, MenuError)


# --------------------------------------------------------------------------- expand


def test_a_menu_written_out_is_the_same_menu(menu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder too, where it goes on to find the files that it names."""
    (tmp_path / "d.txt").write_text("cms:*\n")
    (tmp_path / "_part.yaml").write_text(
        "defaults: {datasets: {file: d.txt}}\nsites: {KIT: {rses: {T1_DE_KIT: {}}}}\n"
    )
    menu.write_text(
        text(defaults="include: _part.yaml", scenarios="scenarios: {one: {mesh: [A, KIT, C], rate: 6 Gb/s}}")
    )
    (tmp_path / "out").mkdir()
    goal = tmp_path / "out" / "links.yaml"
    done = run("menu", "expand", menu, "-o", goal)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"6 links, 6 Gb/s together\nwrote {goal}\n"
    assert run("menu", "diff", menu, goal, "--include-from", tmp_path).stderr.startswith("equal: ")
    printed = run("menu", "expand", menu).stdout
    assert printed == goal.read_text().replace("../", "")
    monkeypatch.chdir(tmp_path)
    assert run("menu", "expand", "-", text=printed).stdout == printed


def test_expressions_are_said_or_asked_for(menu: Path, wording) -> None:
    """Without either, the menu is refused, and says what to do."""
    menu.write_text(text(scenarios='scenarios: {one: {from: A, to: "tier=2&country=DE", rate: 6 Gb/s}}'))
    done = run("menu", "expand", menu)
    wording(str(done.exception))
    done = run("menu", "expand", menu, "--rses", "tier=2&country=DE=T2_DE_DESY, T2_DE_RWTH")
    assert done.exit_code == 0
    assert "{from: A, to: T2_DE_RWTH, rate: 3 Gb/s}" in done.stdout
    assert run("menu", "expand", menu, "--rses", "tier").exit_code == 2
    for unused in ("tier=3=T3", "tier=2&country=DE=T2"):
        other = run("menu", "expand", menu, "--rses", "tier=2&country=DE=T2_DE_DESY", "--rses", unused)
        assert isinstance(other.exception, UsageError)


def test_expressions_are_asked_for_online(menu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the service that the link goes through, and only those that nobody said."""

    class Rucio:
        def resolve(self, expression: str) -> tuple[str, ...]:
            assert expression == "tier=2"
            return ("T2_A", "T2_B")

    monkeypatch.setattr(
        "dc_inject.cli.shared.common.backends", lambda services, **_: dict.fromkeys(services, Rucio())
    )
    menu.write_text(text(scenarios='scenarios: {one: {from: ["tier=1"], to: "tier=2", rate: 6 Gb/s}}'))
    done = run("menu", "expand", menu, "--online", "--rses", "tier=1=T1")
    assert done.exit_code == 0
    assert "{from: T1, to: T2_B, rate: 3 Gb/s}" in done.stdout


def test_an_outlier_that_shares_hid_is_told(menu: Path) -> None:
    """Since `run` will refuse it now."""
    menu.write_text(text(scenarios="scenarios: {one: {from: A, to: {B: 90, C: 1, D: 1, E: 1}, rate: 6 Gb/s}}"))
    assert "[rate-outlier]" in run("menu", "expand", menu).stderr
