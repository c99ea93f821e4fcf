"""Step responses of the controller, measured on the toy link of the tests, for explanation/control.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from tests.core.toy import Toy

CYCLES = 72
WIDE, HIGH, MARGIN, TOP = 480, 200, 40, 36  # of a panel
SVG = "http://www.w3.org/2000/svg"
FAMILY = "DejaVu Sans, Verdana, sans-serif"
LINES = (
    ("in flight, fixed rate", "#b0b8c0", "fixed", lambda toy: toy.in_flight),
    ("in flight, control", "#1f6fb4", "act", lambda toy: toy.in_flight),
    ("moved, control", "#2f9e5a", "act", lambda toy: toy.moved),
)
PANELS: Sequence[tuple[str, Callable[[float], float], float]] = (  # title, capacity, latency in cycles
    ("the link carries 0.7 of its target", lambda _t: 0.7, 0.1),
    ("an outage of six cycles", lambda t: 0.0 if 24 <= t < 30 else 1.2, 0.1),
    ("0.4 of the target for 24 cycles", lambda t: 0.4 if 24 <= t < 48 else 1.2, 0.1),
    ("a latency of four cycles", lambda _t: 1.2, 4.0),
)


def picture() -> str:
    """Return all panels as an SVG."""
    width, height = 2 * WIDE, 2 * HIGH + TOP
    parts = [
        f'<svg xmlns="{SVG}" viewBox="0 0 {width} {height}" font-family="{FAMILY}" font-size="12" role="img">',
        "<title>Step responses of the controller and of a fixed rate, on a toy link</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, colour, _, _) in enumerate(LINES):
        x = MARGIN + number * 220
        parts.append(f'<path d="M{x} 16h24" stroke="{colour}" stroke-width="2" fill="none"/>')
        parts.append(f'<text x="{x + 30}" y="20">{escape(name)}</text>')
    for number, (title, capacity, latency) in enumerate(PANELS):
        left, top = number % 2 * WIDE, TOP + number // 2 * HIGH
        parts += _panel(left, top, title, capacity, latency)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: int, top: int, title: str, capacity: Callable[[float], float], latency: float) -> list[str]:
    toys = {policy: Toy(capacity, policy, latency=latency).run(CYCLES) for policy in ("fixed", "act")}
    bottom, tall, wide = top + HIGH - 30, HIGH - 60, WIDE - MARGIN - 16
    parts = [
        f'<text x="{left + MARGIN}" y="{top + 18}" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{left + MARGIN} {top + 26}V{bottom}h{wide}" stroke="#5b6b7b" fill="none"/>',
    ]
    for worth in (0, 2, 4, 6, 8):
        y = bottom - tall * worth / 8
        parts.append(f'<text x="{left + MARGIN - 8}" y="{y + 4:.0f}" text-anchor="end">{worth}</text>')
    for cycle in range(0, CYCLES + 1, 12):
        x = left + MARGIN + wide * cycle / CYCLES
        parts.append(f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{cycle}</text>')
    for _, colour, policy, values in LINES:
        points = " ".join(
            f"{left + MARGIN + wide * cycle / CYCLES:.1f},{bottom - tall * min(value, 8.2) / 8:.1f}"
            for cycle, value in enumerate(values(toys[policy]))
        )
        parts.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="2" fill="none"/>')
    return parts


def table() -> str:
    """Return what the panels come to, as rows of Markdown."""
    rows = ["| link | policy | moved | most in flight | expired unsent |", "|---|---|---|---|---|"]
    for title, capacity, latency in PANELS:
        for policy, name in (("fixed", "fixed rate"), ("act", "control")):
            toy = Toy(capacity, policy, latency=latency).run(96)
            rows.append(
                f"| {title} | {name} | {sum(toy.moved):.1f} | {max(toy.in_flight):.1f} "
                f"| {100 * toy.expired_part:.1f} % |"
            )
    return "\n".join(rows)
