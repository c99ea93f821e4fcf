"""The first lines of a campaign on a terminal, for `watch`, `run` and `link`, and parts of lines.

Colours only repeat words and signs: `!` before what is wrong, and behind ratios `++`, `+`, `!` and `!!`,
as in reports. Where a terminal has no more than ASCII, trends are drawn with that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from dc_inject.apps.report.watch_figures import Standing
from dc_inject.model import units
from dc_inject.summary import first_lines
from dc_inject.summary.criteria import TERMINAL

ASCII = str.maketrans(first_lines.HEIGHTS, " .:-=+*#")
WARNING = TERMINAL["red"]
ROWS = 2  # of a terminal, that one of the first lines may take


def heading(standing: Standing, width: int, rows: int, *, ascii_only: bool = False) -> list[Text]:
    """Return the first lines, and the other groups of short links that find room in some rows, folded."""
    folded: list[Text] = []
    for line in first_lines.block(standing.status, width, rows):
        words = line.translate(ASCII).encode("ascii", "replace").decode() if ascii_only else line
        text = Text(words, WARNING if line.startswith("!") else "" if folded else "bold")
        folded += text.wrap(Console(width=width), width)[:ROWS]
    return folded


# --------------------------------------------------------------------------- parts of lines


def ratio(line: Mapping[str, Any]) -> Text:
    """Return a ratio with its sign, in the colour of reports; `-` where there is none, since no cycle is over."""
    if line["ratio"] is None:
        return Text("-")
    return Text(f"{units.percent(line['ratio'])} {line['sign']:<2}", TERMINAL[line["grade"]])
