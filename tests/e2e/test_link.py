"""`dc-inject link` against a real Rucio: what it refuses at once, and what it tells of a link that is there."""

from __future__ import annotations

from pathlib import Path

from dc_inject.sandbox import Sandbox
from tests.e2e.tool import Tool, add_stock


def left(state: Path) -> list[str]:
    """Ledgers and menus that were made."""
    return sorted(str(path.relative_to(state)) for path in (state / "dc_inject").rglob("*.*"))


def test_what_cannot_be_answered_is_refused_in_one_go_and_leaves_nothing(
    sandbox: Sandbox, tool: Tool, label: str
) -> None:
    """An RSE that is not known, datasets that are not there or do not fit, more than there is."""
    source, destination = f"T1_{label}_Disk", f"T2_{label}"
    add_stock(sandbox, [source], [destination], count=3)
    wanted = ("--rate", "1Gb/s", "--for", "30s", "--cycle", "5s")

    def refused(*words: str) -> str:
        return tool.run("link", *words, *wanted, code=2).err

    assert f" {destination} " in refused(source, f"T2_{label}X").rpartition("hint: ")[2]
    wrong = refused(source, destination, "--did", "cms:/wrong/*")
    assert "cms:/wrong/*" in wrong
    assert f"cms:/E2E_{source}" in wrong
    said = refused(source, destination, "--mean-file", "5..6 GB")
    assert "their mean files are 1 GB to 1.44 GB, and --mean-file asks for 5..6 GB" in said
    said = tool.run("link", source, destination, "--rate", "9Gb/s", "--for", "30s", "--cycle", "5s", code=2).err
    assert f"needs 33.8 GB, and {source} has 7.28 GB in 3 datasets" in said
    assert left(tool.state) == []
