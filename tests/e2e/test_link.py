"""`dc-inject link` against a real Rucio: what it refuses at once, and what it tells of a link that is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dc_inject.sandbox import Sandbox
from tests.e2e.tool import Tool, add_stock


def left(state: Path) -> list[str]:
    """Ledgers and menus that were made."""
    return sorted(str(path.relative_to(state)) for path in (state / "dc_inject").rglob("*.*"))


def test_what_cannot_be_answered_is_refused_in_one_go_and_leaves_nothing(
    sandbox: Sandbox, tool: Tool, label: str, wording: Callable[..., None]
) -> None:
    """An RSE that is not known, datasets that are not there or do not fit, more than there is."""
    source, destination = f"T1_{label}_Disk", f"T2_{label}"
    add_stock(sandbox, [source], [destination], count=3)
    wanted = ("--rate", "1Gb/s", "--for", "30s", "--cycle", "5s")

    def refused(*words: str) -> str:
        return tool.run("link", *wanted, *words, code=2).err.partition("dc-inject: ")[2]

    assert refused(source, f"T2_{label}X").rpartition("hint: ")[2].split("?")[0].split()[-1] == destination
    refusals = [
        refused(source, destination, "--did", "cms:/wrong/*"),
        refused(source, destination, "--mean-file", "5..6 GB"),
        refused(source, destination, "--rate", "9Gb/s"),
    ]
    wording(refusals, LABEL=label)
    assert left(tool.state) == []
