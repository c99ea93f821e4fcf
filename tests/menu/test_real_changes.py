"""Menus of the real thing go through the commands that change menus, and stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.ledgers import run

MENUS = Path(__file__).parents[2] / "menus"
CHOSEN = ("cms/day-08.yaml", "atlas/minimal.yaml", "lhcb-writing.yaml", "alice.yaml", "fts-juno-steps.yaml")


@pytest.mark.parametrize("name", CHOSEN)
def test_expand_and_scale_real_menus(name: str, tmp_path: Path) -> None:
    """Written out it asks for the same, written out twice it stays; half of twice is the menu again."""
    links, twice, back = (tmp_path / one for one in ("links.yaml", "twice.yaml", "back.yaml"))
    assert run("menu", "expand", MENUS / name, "-o", links).exit_code == 0
    assert run("menu", "diff", MENUS / name, links).stderr.startswith("equal: ")
    assert run("menu", "expand", links).stdout == links.read_text()
    assert run("menu", "scale", "0.5", links, "-o", twice).exit_code == 0
    assert run("menu", "scale", "2", twice, "-o", back).exit_code == 0
    assert run("menu", "diff", links, back).stderr.startswith("equal: ")
