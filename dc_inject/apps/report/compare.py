"""Two campaigns side by side: `report --compare CAMPAIGN`.

The other one is reported as a whole, without windows left out, since these belong to the campaign that is
reported. What is in only one of them is listed, too. Differences are this campaign less the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dc_inject.summary.adding import DIMENSIONS

Report = Mapping[str, Any]
SHOWN = ("due", "injected", "moved", "ratio", "grade", "sign")


def compared(report: Report, other: Report) -> dict[str, Any]:
    """Return what a report has of another campaign's."""
    parts = {f"{part}s": _pairs(report[f"{part}s"], other[f"{part}s"]) for part in DIMENSIONS}
    return {
        "campaign": other["campaign"],
        "simulated_in": other["simulated_in"],
        "control": other["control"],
        "since": other["since"],
        "until": other["until"],
        "counted": _pair("", report["counted"], other["counted"]),
        "completion": other["completion"],
        **parts,
    }


def _pairs(ours: list[Report], theirs: list[Report]) -> list[dict[str, Any]]:
    others = {entry["name"]: entry for entry in theirs}
    pairs = [_pair(entry["name"], entry, others.pop(entry["name"], None)) for entry in ours]
    return [*pairs, *(_pair(name, None, entry) for name, entry in others.items())]


def _pair(name: str, this: Report | None, other: Report | None) -> dict[str, Any]:
    """Return both, and by how much the ratio of this one is higher."""
    ratios = [report and report["ratio"] for report in (this, other)]
    difference = None if None in ratios else ratios[0] - ratios[1]  # type: ignore[operator]  # neither is None
    return {
        "name": name,
        "this": this and {key: this[key] for key in SHOWN},
        "other": other and {key: other[key] for key in SHOWN},
        "difference": difference,
    }
