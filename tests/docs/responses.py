"""Step responses of the controller and of a fixed rate, measured in the twin, for explanation/control.md."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import accumulate
from pathlib import Path

from dc_inject.apps.twin import forecast, simulation
from tests.docs import ROOT

CYCLES = 32
MOST = 10  # cycles' worth on the vertical axis
WORTH = 10e9 / 8 * 900  # bytes: 10 Gb/s for a cycle
WIDE, HIGH, MARGIN, TOP = 480, 200, 40, 36  # of a panel
SVG = "http://www.w3.org/2000/svg"
FAMILY = "DejaVu Sans, Verdana, sans-serif"
POLICIES = {simulation.FIXED: "fixed rate", "act": "control"}
LINES = (
    ("in flight, fixed rate", "#b0b8c0", simulation.FIXED, "in_flight"),
    ("in flight, control", "#1f6fb4", "act", "in_flight"),
    ("moved, control", "#2f9e5a", "act", "moved"),
)
SCENARIO = ROOT / "menus" / "twin" / "one-link"
LINK = "T2_CH_CERN:T1_DE_KIT_Disk"
_STEP = "{{fault: capacity, subject: '" + LINK + "', at: 2 h, for: {hours} h, part: {part} %}}"
PANELS: Sequence[tuple[str, str, str]] = (  # title, what the link is like, what goes wrong
    ("the link carries 0.7 of its target", "rate: 7 Gb/s", ""),
    ("an outage of six cycles", "rate: 12 Gb/s", _STEP.format(hours=1.5, part=0)),
    ("a third of the target for 16 cycles", "rate: 12 Gb/s", _STEP.format(hours=4, part=28)),
    ("each file takes an hour", "rate: 12 Gb/s, overhead: 1 h, actives: 2..2000", ""),
)


@dataclass(frozen=True)
class Response:
    """How a link responds, in each cycle, in cycles' worth of bytes; in flight is that at the end of the cycle."""

    in_flight: Sequence[float]
    moved: Sequence[float]
    expired: float  # part of what was due that expired before its transfer began
    interrupted: float  # and while it ran


@cache
def response(link: str, trouble: str, policy: str) -> Response:
    """Simulate a link of the grid of menus/twin/one-link, changed like this."""
    grid = (SCENARIO / "grid.yaml").read_text()
    grid += f"fts: {{per_storage: 2000}}\nlinks: {{'{LINK}': {{{link}}}}}\ntroubles: [{trouble}]\n"
    menu = (SCENARIO / "menu.yaml").read_text().replace("end: 2027-02-08 22:00", "end: 2027-02-08 18:00")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "grid.yaml").write_text(grid)
        (folder / "menu.yaml").write_text(menu)
        request = simulation.Request([folder / "menu.yaml"], folder / "grid.yaml", policy=policy)
        with simulation.new_ledger(folder / "ledger.sqlite") as ledger:
            made = simulation.run(request, ledger)
            rows = ledger.rows(before=made.end)
            ended = [each for parts in ledger.expired(made.start, made.start).values() for each in parts]
    assert len(rows) == CYCLES, policy
    gone = [sum(size for at, size in ended if row.cycle.start < at <= row.cycle.end) for row in rows]
    added = (row.injected - row.moved - expired for row, expired in zip(rows, gone, strict=True))
    lost, due = forecast.lost(made.world), sum(row.due for row in rows)
    return Response(
        [in_flight / WORTH for in_flight in accumulate(added)],
        [row.moved / WORTH for row in rows],
        lost["unsent_bytes"] / due,
        lost["interrupted_bytes"] / due,
    )


def picture() -> str:
    """Return all panels as an SVG."""
    width, height = 2 * WIDE, 2 * HIGH + TOP
    parts = [
        f'<svg xmlns="{SVG}" viewBox="0 0 {width} {height}" font-family="{FAMILY}" font-size="12" role="img">',
        "<title>Step responses of the controller and of a fixed rate, in the twin</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, colour, _, _) in enumerate(LINES):
        x = MARGIN + number * 220
        parts.append(f'<path d="M{x} 16h24" stroke="{colour}" stroke-width="2" fill="none"/>')
        parts.append(f'<text x="{x + 30}" y="20">{escape(name)}</text>')
    for number in range(len(PANELS)):
        parts += panel(number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def panel(number: int) -> list[str]:
    """Return the lines of a panel, one of which is drawn for each of LINES."""
    title, link, trouble = PANELS[number]
    responses = {policy: response(link, trouble, policy) for policy in POLICIES}
    left, top = number % 2 * WIDE, TOP + number // 2 * HIGH
    bottom, tall, wide = top + HIGH - 30, HIGH - 60, WIDE - MARGIN - 16
    parts = [
        f'<text x="{left + MARGIN}" y="{top + 18}" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{left + MARGIN} {top + 26}V{bottom}h{wide}" stroke="#5b6b7b" fill="none"/>',
    ]
    for worth in range(0, MOST + 1, 2):
        y = bottom - tall * worth / MOST
        parts.append(f'<text x="{left + MARGIN - 8}" y="{y + 4:.0f}" text-anchor="end">{worth}</text>')
    for cycle in range(0, CYCLES + 1, 8):
        x = left + MARGIN + wide * cycle / CYCLES
        parts.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{cycle}</text>')
    for _, colour, policy, values in LINES:
        points = " ".join(
            f"{left + MARGIN + wide * cycle / CYCLES:.1f},{bottom - tall * value / MOST:.1f}"
            for cycle, value in enumerate(getattr(responses[policy], values), 1)
        )
        parts.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="2" fill="none"/>')
    return parts


def table() -> str:
    """Return what the panels come to, as rows of Markdown."""
    heads = ("link", "policy", "moved", "most in flight", "expired unsent", "expired unfinished")
    head = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*head, *(row for number in range(len(PANELS)) for row in rows(number))])


def rows(number: int) -> list[str]:
    """Return the rows of the table that a panel comes to."""
    title, link, trouble = PANELS[number]
    made = {name: response(link, trouble, policy) for policy, name in POLICIES.items()}
    return [
        f"| {title} | {name} | {sum(one.moved):.1f} | {max(one.in_flight):.1f} "
        f"| {100 * one.expired:.1f} % | {100 * one.interrupted:.1f} % |"
        for name, one in made.items()
    ]
