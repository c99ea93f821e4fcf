"""Small plots of shapes for terminals: a rate over its window, in columns of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from dc_inject.model import Flow, rates, units
from dc_inject.model.shape import Shape

WIDTH, HEIGHT = 64, 4
MOST = 12
_BLOCKS = " ▁▂▃▄▅▆▇█"


def shapes(flows: Iterable[Flow]) -> Iterator[str]:
    """Yield the lines that draw each distinct shape once: what its links ask for together, over their window."""
    groups: dict[tuple[Shape, datetime, datetime], list[Flow]] = {}
    for flow in flows:
        if flow.shape is not None:
            groups.setdefault((flow.shape, flow.start, flow.end), []).append(flow)
    for (shape, start, end), group in list(groups.items())[:MOST]:
        ticks = [start + (end - start) * column / WIDTH for column in range(WIDTH + 1)]
        columns = [rates.mean(group, left, right) for left, right in pairwise(ticks)]
        top = rates.peak(group).rate
        yield f"{shape.kind} of {_named(group)}, at most {units.format_rate(top)}:"
        yield from (f"  |{row}|" for row in bars(columns, top))
        yield f"  {start:%Y-%m-%d %H:%MZ} to {end:%Y-%m-%d %H:%MZ}"
    if len(groups) > MOST:
        yield f"and {units.counted(len(groups) - MOST, 'more shapes')}"


def bars(values: Sequence[float], top: float, height: int = HEIGHT) -> list[str]:
    """Return rows of blocks, the highest first: a column for each value, full where it is `top`."""
    eighths = [round(value / top * height * 8) if top else 0 for value in values]
    return [
        "".join(_BLOCKS[min(max(count - row * 8, 0), 8)] for count in eighths) for row in range(height - 1, -1, -1)
    ]


def _named(flows: Sequence[Flow]) -> str:
    names = list(dict.fromkeys(flow.scenario for flow in flows))
    scenarios = units.some(names, 3)
    return f"{scenarios}, {len(flows)} links" if len(flows) > 1 else f"{scenarios}, {flows[0].link.shown}"
