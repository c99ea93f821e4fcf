"""Files of docs/ that follow from the code: the CLI reference and the picture of the layers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from dc_inject.apps.report.export import FIELDS
from dc_inject.metrics.catalogue import LEDGER, LINK, PROCESS, Spec
from dc_inject.model import Hold
from dc_inject.summary import what_to_do
from tests.apps.twin.bounds_stored import in_words, stored_bounds
from tests.docs import DOCS, ROOT, responses
from tests.docs.command_reference import cli

SEEN, ENTRIES = "## By what you see", "## What each one means"  # of the page for whoever is on call

# The picture

WIDE, HIGH, GAP, LEFT, TOP = 980, 34, 8, 170, 24
SVG = "http://www.w3.org/2000/svg"
FAMILY = "DejaVu Sans, Verdana, sans-serif"


def layers() -> str:
    """Return the layers of the import contracts as an SVG: each module may import only from rows below its own."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    by_id = {contract["id"]: contract for contract in contracts}
    rows = [[module.strip() for module in layer.split("|")] for layer in by_id["layers"]["layers"]]
    core = {module.removeprefix("dc_inject.") for module in by_id["core"]["source_modules"]}
    homes = _homes(contracts)
    height = TOP + len(rows) * (HIGH + GAP) + 30
    first = next(number for number, row in enumerate(rows) if set(row) <= core)
    shade = TOP + first * (HIGH + GAP) - GAP // 2
    parts = [
        f'<svg xmlns="{SVG}" viewBox="0 0 {WIDE} {height}" font-family="{FAMILY}" font-size="13" role="img">',
        "<title>Layers of dc_inject: imports go downwards only</title>",
        f'<rect width="{WIDE}" height="{height}" fill="#ffffff"/>',
        f'<rect x="0" y="{shade}" width="{WIDE}" height="{len(rows[first:]) * (HIGH + GAP)}" fill="#e8f1fa"/>',
        _text(12, TOP + HIGH // 2 + 5, "I/O, clock, services"),
        _text(12, shade + HIGH // 2 + 9, "core: no I/O, no clock"),
    ]
    for number, row in enumerate(rows):
        wide = (WIDE - LEFT - GAP) / len(row)
        for place, module in enumerate(row):
            x, y = LEFT + place * wide, TOP + number * (HIGH + GAP)
            fill = "#ffffff" if module in core else "#fdf3e1"
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{wide - GAP:.0f}" height="{HIGH}" rx="4" '
                f'fill="{fill}" stroke="#5b6b7b"/>'
            )
            middle, uses = x + (wide - GAP) / 2, homes.get(module, ())
            parts.append(_text(middle, y + (15 if uses else 22), module.strip("_"), middle=True))
            if uses:
                parts.append(_text(middle, y + 28, ", ".join(uses), middle=True, small=True))
    parts.append(
        _text(12, height - 12, "Imports go downwards only. In small print: the library that has its home there.")
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _homes(contracts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the libraries that only certain modules may import, by the top-level module."""
    homes: dict[str, list[str]] = {}
    for contract in contracts:
        if contract["type"] == "protected":
            for importer in contract["allowed_importers"]:
                module = importer.split(".")[1]
                if module != "sandbox":
                    known = homes.setdefault(module, [])
                    known += [name for name in contract["protected_modules"] if name not in known]
    return homes


def _text(x: float, y: float, words: str, *, middle: bool = False, small: bool = False) -> str:
    extra = ' text-anchor="middle"' if middle else ""
    extra += ' font-size="10" fill="#5b6b7b"' if small else ' fill="#1d2733"'
    return f'<text x="{x:.0f}" y="{y:.0f}"{extra}>{escape(words)}</text>'


def control() -> str:
    """Return the page on control with its table as it is measured now."""
    page = (DOCS / "explanation" / "control.md").read_text()
    return re.sub(r"^\| link \| policy.*?\n\n", responses.table() + "\n\n", page, flags=re.MULTILINE | re.DOTALL)


def export() -> str:
    """Return the page on export with the fields of its records as the code has them, shared ones once."""
    heads = ("## Injections", "## Planned flows")
    injected, planned = (
        [f"\n| `{field.name}` | {field.type} | {field.text} |" for field in fields] for fields in FIELDS.values()
    )
    new = [row for row in planned if row not in injected]
    tables = ("| field | type | meaning |\n|---|---|---|" + "".join(rows) for rows in (injected, new))
    return with_tables((DOCS / "reference" / "export.md").read_text(), dict(zip(heads, tables, strict=True)))


def metrics() -> str:
    """Return the page on metrics with the tables of the catalogue."""

    def row(spec: Spec) -> str:
        labels = spec.labels
        words = ["link"] if labels[: len(LINK)] == LINK else []
        words += [f"`{label}`" for label in labels[len(LINK) if words else 0 :]]
        return f"\n| `dc_inject_{spec.name}` | {spec.type} | {', '.join(words)} | {spec.text} |"

    heads = {"## The ledger's numbers": LEDGER, "## The process's own numbers": PROCESS}
    head = "| metric | type | labels | meaning |\n|---|---|---|---|"
    tables = {heading: head + "".join(row(spec) for spec in specs) for heading, specs in heads.items()}
    return with_tables((DOCS / "reference" / "metrics.md").read_text(), tables)


def twin() -> str:
    """Return the page on the twin with the bounds of its scenarios as they are stored."""
    page = (DOCS / "explanation" / "twin.md").read_text()
    for name, row in stored_bounds().items():
        page, found = re.subn(rf"(?m)^\| {name} \| [^|]+ \|", f"| {name} | {in_words(row)[0]} |", page)
        assert found, name
    return page


def with_tables(page: str, tables: Mapping[str, str]) -> str:
    """Return a page in which the first table below each of these headings is another one."""
    for heading, table in tables.items():
        before, found, after = page.partition(f"\n{heading}\n")
        assert found, heading
        page = before + found + re.sub(r"(?m)^\|.*(\n\|.*)*", lambda _, table=table: table, after, count=1)
    return page


def on_call() -> str:
    """Return the page for whoever is on call with its table by what you see, and the entry of each."""
    page = (DOCS / "how-to" / "on-call.md").read_text()
    every = {key: what_to_do.entry(key) for key in what_to_do.entries()}
    rows = "".join(f"\n| {one['see']} | [{key}](#{key}) |" for key, one in every.items())
    page = with_tables(page, {SEEN: "| what you see | entry |\n|---|---|" + rows})
    before, found, _ = page.partition(f"\n{ENTRIES}\n")
    assert found
    return before + found + "".join(map(_entry, every.values()))


def _entry(entry: Mapping[str, Any]) -> str:
    key, places = entry["key"], what_to_do.PLACES
    lines = [f"- What to do: {entry['do']}"]
    lines += [f"- {title[0].upper()}{title[1:]}: {entry[name]}" for name, title in places.items() if entry[name]]
    last = [f"Whom to call: {what_to_do.whom(entry)}."]
    if entry["alerts"]:
        last.append(f"Alerts: {', '.join(f'`{alert}`' for alert in entry['alerts'])}.")
    if key in {hold.value for hold in Hold}:
        last.append(f"[Numbers](../reference/holds.md#{key}).")
    lines.append(f"- {' '.join(last)}")
    see = f"**{entry['see'][0].upper()}{entry['see'][1:]}.** {entry['means']}"
    return "\n".join([f"\n### {key}\n", see, "", *lines, ""])


def dashboard() -> str:
    """Return the Grafana dashboard."""
    from tests.docs import dashboards  # noqa: PLC0415  only this needs Grafana's library

    return dashboards.grafana()


FILES: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli,
    "how-to/on-call.md": on_call,
    "reference/export.md": export,
    "reference/metrics.md": metrics,
    "explanation/layers.svg": layers,
    "explanation/control.svg": responses.picture,
    "explanation/control.md": control,
    "explanation/twin.md": twin,
    "reference/grafana-dashboard.json": dashboard,
}

# These have figures from simulations.
MEASURED = ("explanation/control.svg", "explanation/control.md")
