"""What commands make of the menus that come with the tool: checks, footprints, differences, plans."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from . import adapter
from .compare import check, digest
from .wire import HttpTransport
from .world import World, here

ROOT = Path(__file__).resolve().parents[2] / "menus"
MENUS = [
    str(path.relative_to(ROOT))
    for path in sorted(ROOT.rglob("*.yaml"))
    if not path.name.startswith("_") and path.relative_to(ROOT).parts[0] != "twin"  # which `simulate` runs
]
FOLDERS = ["atlas", "cms"]
SINGLE = [name for name in MENUS if "/" not in name or name == "hllhc/full.yaml"]
SMALL = ["uk-brunel.yaml", "belle2-minimum.yaml", "fts-juno-steps.yaml"]  # whose outputs are kept as they are
EXPANDED = [name for name in MENUS if not re.match(r"cms/day-(0[24-79]|1)|hllhc/|atlas/flex", name)]
PLANNED = [
    name for name in EXPANDED if not re.match(r"cms/day-0[18]|atlas/minimal|belle2-max|cms-t0|dune|uk-tier2", name)
]
PAIRS = [
    ("cms/day-01.yaml", "cms/day-03.yaml"),
    ("belle2-minimum.yaml", "belle2-maximum.yaml"),
    ("uk-tier1.yaml",) * 2,
]
ITEMS = 100  # of each source
Json = Any


@pytest.fixture(autouse=True)
def world(tmp_path: Path) -> Iterator[World]:
    """A machine with nothing on it but the menus, and no network."""
    made = World(tmp_path)
    with here(made, HttpTransport({}, made.stamp, lambda _: False)):
        yield made


def out(*arguments: object, code: int = 0) -> str:
    """Return what a command prints, with paths as they are in the repository."""
    done = adapter.command(*arguments)
    assert done.code == code, done.err
    return done.out.replace(f"{ROOT}/", "menus/")


def test_checks() -> None:
    """Also as CSV, and with --strict, where what is found is an error."""
    told = []
    for name in [*SINGLE, *FOLDERS]:
        text = out("check", ROOT / name, "--format", "json")
        told.append(f"# {name}\n{text if json.loads(text) else ''}")
    told += [f"# {name} as csv\n{out('check', ROOT / name, '--format', 'csv')}" for name in SMALL]
    told.append(out("check", "--strict", ROOT / "hllhc" / "full.yaml", "--format", "csv", code=2))
    check("menus/check.txt", "".join(told))


def test_footprints() -> None:
    """As CSV: all rows of small ones, and sums of the others."""
    told = []
    for name in [*SINGLE, *FOLDERS]:
        text = out("footprint", ROOT / name, "--format", "csv")
        totals = text.splitlines(keepends=True)
        short = [line for line in totals if line.startswith(("by,", "scenario,", "total,"))]
        told.append(f"# {name}\n" + (text if name in SMALL else f"{''.join(short)}... {digest(text)}\n"))
    check("menus/footprint.csv.txt", "".join(told))


def test_footprint_of_all_with_every_option() -> None:
    words = [
        "--mean-file",
        "3GB",
        "--dataset-files",
        "500",
        "--file-speed",
        "10MB/s",
        "--deletion-seconds",
        "2",
        "--deletion-lag",
        "30min",
        "--lifetime",
        "2h",
        "--link-limit",
        "200",
        "--format",
        "json",
    ]
    rows = json.loads(out("footprint", ROOT / "atlas" / "t0-export.yaml", ROOT / "uk-tier2.yaml", *words))
    check("menus/footprint.json", json.dumps(rows, indent=1))


def test_expanded_menus() -> None:
    """What they say, not how it is written."""
    told = []
    for name in EXPANDED:
        said = adapter.read_yaml(out("menu", "expand", ROOT / name))
        scenarios: Json = said.pop("scenarios")
        told.append(f"# {name}\n{json.dumps(said, sort_keys=True)}\n")
        for scenario, what in scenarios.items():
            shown = json.dumps(what, sort_keys=True)
            told.append(f"{scenario}: {shown if len(shown) < 400 else digest(shown)}\n")
    check("menus/expanded.txt", "".join(told))


def test_differences() -> None:
    told = []
    for before, after in PAIRS:
        rows = json.loads(out("menu", "diff", ROOT / before, ROOT / after, "--format", "json"))
        text = out("menu", "diff", ROOT / before, ROOT / after, "--format", "csv")
        assert len(rows) == len(text.splitlines()) - 1
        told.append(f"# {before} {after}: json {digest(json.dumps(rows, sort_keys=True))}\n{text}")
    check("menus/diff.csv.txt", "".join(told))


def test_schema_without_its_words() -> None:
    def mute(value: Json) -> Json:
        if isinstance(value, list):
            return [mute(one) for one in value]
        if isinstance(value, dict):
            return {
                k: mute(v) for k, v in value.items() if not (k in {"description", "title"} and isinstance(v, str))
            }
        return value

    check("menus/schema.json", json.dumps(mute(json.loads(out("menu", "schema"))), indent=1, sort_keys=True))


def test_plans(world: World) -> None:
    """All that would be injected in a cycle from a seeded catalogue: link, release, item, bytes, lifetime."""
    told = []
    for name in PLANNED:
        stock = world.folder / "stock.csv"
        at = catalogue(ROOT / name, stock)
        words = ["plan", ROOT / name, "--inventory", stock, "--at", at, "--cycles", 1]
        rows = json.loads(out(*words, "--datasets", "--format", "json"))
        told.append(f"# {name}: {len(rows)} injections\n")
        scenarios = sorted({row["scenario"] for row in rows})
        for scenario in scenarios:
            some = [json.dumps(row, sort_keys=True) for row in rows if row["scenario"] == scenario]
            told.append(f"{scenario}: {len(some)}, {digest(''.join(some))}\n")
        if name in SMALL:
            told.append(out(*words, "--datasets", "--format", "csv"))
            told.append(out(*words, "--format", "csv"))
    check("menus/plans.txt", "".join(told))


def catalogue(menu: Path, stock: Path) -> str:
    """Write datasets or files for every source of a menu, as its filters want them; return the menu's start."""
    said: Json = adapter.read_yaml(out("menu", "expand", menu))
    defaults, rows = said.get("defaults", {}), {}
    for scenario in said["scenarios"].values():
        for link in scenario["links"]:
            both = {**defaults, **scenario, **link}
            for number in range(ITEMS):
                row = item(link["from"], both, number)
                rows[row[0], row[1]] = row
    with stock.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("source", "name", "bytes", "files"), *rows.values()])
    start = datetime.fromisoformat(said["start"]).replace(tzinfo=ZoneInfo(said.get("timezone", "UTC")))
    return (start.astimezone(UTC) + timedelta(hours=1)).isoformat()


def item(source: str, said: Json, number: int) -> tuple[str, str, int, int]:
    """Return one dataset, or file, of a source; its size depends on its name alone."""
    if said.get("through") in {"fts", "reads"}:
        name = f"{source}/{said['files'].get('folder', 'x')}/{number:04}.root"
        return source, name, 4 * 10**9, 1
    patterns = said["datasets"]["did"]
    pattern = patterns if isinstance(patterns, str) else patterns[0]
    name = pattern.replace("*", f"{source}-{number:04}")
    dice = int.from_bytes(sha256(name.encode()).digest()[:8])
    files = 5 + dice % 400
    return source, name, files * (2 * 10**9 + dice % (3 * 10**9)), files
