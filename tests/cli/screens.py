"""Playing `watch` on a terminal of a size, and reading its pictures as a person does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path

from dc_inject.apps.report.watch_app import WatchApp
from tests.apps.report.campaigns_to_watch import standing

CHARACTER = 12.2  # the width of one in a picture of a terminal


def app(path: Path) -> WatchApp:
    """The screen of it, at NOW."""
    return WatchApp(standing(path), lambda: standing(path))


def on_screen(app: WatchApp, size: tuple[int, int], *keys: str) -> str:
    """Return the picture of a screen (SVG) after some keys."""
    return on_screens(app, size, keys)[0]


def on_screens(app: WatchApp, size: tuple[int, int], *steps: Sequence[str]) -> list[str]:
    """Return the picture of a screen (SVG) after each step of some keys."""

    async def play() -> list[str]:
        shown = []
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            for keys in steps:
                await pilot.press(*keys)
                await pilot.pause()
                shown.append(app.export_screenshot())
        return shown

    return asyncio.run(play())


def text(picture: str) -> list[str]:
    """Return the lines of a picture of a terminal, as a person reads them."""
    rows: dict[float, str] = {}
    cell = r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>'
    for x, y, inner in sorted(re.findall(cell, picture), key=lambda found: float(found[0])):
        place = round(float(x) / CHARACTER)
        rows[float(y)] = rows.get(float(y), "").ljust(place) + unescape(inner).replace("\xa0", " ")
    return [rows[y].rstrip() for y in sorted(rows)]
