"""`dc-inject menu scale` and `menu diff` as a user meets them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dc_inject.errors import MenuError, UsageError
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
    assert run("check", goal).exit_code == 0
    assert run("menu", "scale", "50%", "-", text=menu.read_text()).stdout == goal.read_text()
    assert run("menu", "scale", "200%", goal, "-o", goal, "--force").exit_code == 0
    assert goal.read_text() == menu.read_text()


@pytest.mark.parametrize("factor", ["0", "-1", "x", "1e3", "", "nan", "1,5"])
def test_a_factor_is_a_number_above_0(factor: str, menu: Path) -> None:
    """Anything else is a usage error."""
    done = run("menu", "scale", "--", factor, menu)
    assert done.exit_code == 2
    assert "is not a factor" in done.stderr


def test_a_scaled_menu_above_a_limit_is_refused(menu: Path) -> None:
    """With the problem that `check` would tell; nothing is printed."""
    done = run("menu", "scale", "1000", menu)
    assert isinstance(done.exception, MenuError)
    assert "above limits.total" in str(done.exception)
    assert done.stdout == ""


def test_diff_in_every_format(menu: Path, tmp_path: Path) -> None:
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
    assert done.stderr == "equal: the same rates on the same links at all times\n"
    assert run("menu", "diff", menu, menu, "--format", "json").stdout == "[]\n"


def test_equal_rates_of_unequal_menus(menu: Path, tmp_path: Path) -> None:
    """Are not called equal menus."""
    other = tmp_path / "n.yaml"
    other.write_text(menu.read_text().replace("    rate:", "    priority: 5\n    rate:"))
    done = run("menu", "diff", menu, other)
    assert done.exit_code == 0
    assert done.stderr == "equal in rates and volumes\nalso: 1 link with other terms: priority\n"


def test_menus_that_cannot_be_compared(menu: Path, tmp_path: Path) -> None:
    """Two from stdin, one that is not there, one that is wrong."""
    assert isinstance(run("menu", "diff", "-", "-").exception, UsageError)
    assert "cannot be read" in str(run("menu", "diff", menu, tmp_path / "no.yaml").exception)
    assert isinstance(run("menu", "diff", menu, "-", text="- a\n").exception, MenuError)
