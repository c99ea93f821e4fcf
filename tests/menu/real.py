"""The menus that come with the tool, as tests read them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from datetime import datetime
from functools import cache
from pathlib import Path

from click.testing import CliRunner

from dc_inject import menu
from dc_inject.cli.root import root
from dc_inject.model import Campaign, Flow, Menu
from dc_inject.system import files

FOLDER = Path(__file__).resolve().parents[2] / "menus"
MENUS = [
    path
    for path in sorted(FOLDER.rglob("*.yaml"))
    if not path.name.startswith("_") and "twin" not in path.relative_to(FOLDER).parts
]
NAMES = [str(path.relative_to(FOLDER)) for path in MENUS]
README = (FOLDER / "README.md").read_text()

GBPS = 1e9 / 8  # what rates and sizes are published in, in bytes
GB = 1e9
MIB, GIB = 2**20, 2**30


@cache
def read(name: str) -> Menu:
    (draft,) = files.read_menus([FOLDER / name])
    return draft.preview


@cache
def campaign(name: str) -> Campaign:
    return menu.campaign([draft.preview for draft in files.read_menus([FOLDER / name])])


def total(flows: list[Flow] | tuple[Flow, ...], unit: float) -> float:
    """Sum rates in a unit, but for what floating point makes of them."""
    return round(math.fsum(flow.rate for flow in flows) / unit, 9)


def by_end(flows: list[Flow] | tuple[Flow, ...], end: str, unit: float) -> dict[str, float]:
    """Sum the rates of each source or destination."""
    found: dict[str, list[Flow]] = defaultdict(list)
    for flow in flows:
        found[getattr(flow.link, end)].append(flow)
    return {name: total(some, unit) for name, some in found.items()}


def scenarios(made: Menu) -> dict[str, list[Flow]]:
    found: dict[str, list[Flow]] = defaultdict(list)
    for flow in made.flows:
        found[flow.scenario].append(flow)
    return found


def levels(flow: Flow, *moments: datetime) -> list[float]:
    """Return a flow's rate in bytes per second at some times."""
    assert flow.shape is not None
    return [float(flow.rate * flow.shape.level(moment)) for moment in moments]


@cache
def footprint(*names: str, options: tuple[str, ...] = ()) -> dict[tuple[str, str], dict[str, float]]:
    """Return what `footprint` tells, by level and name."""
    paths = [str(FOLDER / name) for name in names]
    result = CliRunner().invoke(root, ["footprint", *paths, "--format", "json", *options])
    assert result.exit_code == 0, result.output
    return {(row["by"], row["name"]): row for row in json.loads(result.stdout)}
