"""`make screenshots`: the pictures of pages in the docs, taken in Chromium, of a campaign that is simulated.

Nothing in it depends on when it is made, so a picture changes only if the page does, or Chromium's fonts.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from dc_inject.apps.report import page
from dc_inject.apps.report.serving import Pages
from dc_inject.ledger import LedgerView
from dc_inject.metrics import page as server
from dc_inject.model import Link
from dc_inject.model.shape import Point, Shape
from dc_inject.model.thresholds import parse
from dc_inject.model.types import Flow
from dc_inject.summary import figures, standing
from dc_inject.summary.figures import ExcludedWindow, ReportScope
from tests import browser
from tests.docs import DOCS
from tests.engine import world as simulated
from tests.engine.world import START, flow, items, world

FOLDER = DOCS / "images"
EVERY = 10  # seconds
WIDE, HIGH = 1100, 1030
HOUR = timedelta(hours=1)
EXPORT = {
    "T1_US_FNAL_Disk": 80,  # Gb/s
    "T1_DE_KIT_Disk": 40,
    "T1_FR_CCIN2P3_Disk": 30,
    "T1_IT_CNAF_Disk": 25,
    "T1_ES_PIC_Disk": 15,
}
MESH = ("T2_US_Caltech", "T2_US_MIT", "T2_US_Nebraska")
MENU = """sites:
  CERN: {rses: {T2_CH_CERN: {}}}
  FNAL: {rses: {T1_US_FNAL_Disk: {}}}
  KIT: {rses: {T1_DE_KIT_Disk: {}}}
  CC-IN2P3: {rses: {T1_FR_CCIN2P3_Disk: {}}}
  CNAF: {rses: {T1_IT_CNAF_Disk: {}}}
  PIC: {rses: {T1_ES_PIC_Disk: {}}}
  RAL: {rses: {T1_UK_RAL_Disk: {}}}
  Brunel: {rses: {T2_UK_London_Brunel: {}}}
  Caltech: {rses: {T2_US_Caltech: {}}}
  MIT: {rses: {T2_US_MIT: {}}}
  Nebraska: {rses: {T2_US_Nebraska: {}}}
thresholds: ratio{scenario="t0-export"} >= 0.9 over 6h
"""


def flows() -> list[Flow]:
    """An export that ramps up, a mesh in pulses, and a link whose source has too little."""
    ramp = Shape(START, (Point(timedelta(0), 0.2), Point(3 * HOUR, 1.0)), kind="ramp")
    pulses = Shape(
        START,
        (Point(timedelta(0), 1.0), Point(4 * HOUR, 1.0), Point(4 * HOUR, 0.3), Point(6 * HOUR, 0.3)),
        6 * HOUR,
        kind="burst",
    )
    export = [flow("T2_CH_CERN", to, rate, scenario="t0-export", shape=ramp) for to, rate in EXPORT.items()]
    pairs = [(a, b) for a in MESH for b in MESH if a != b]
    mesh = [flow(a, b, 12, scenario="us-mesh", shape=pulses) for a, b in pairs]
    return [*export, *mesh, flow("T1_UK_RAL_Disk", "T2_UK_London_Brunel", 20, scenario="uk")]


def speed(link: Link) -> float:
    """What a link carries at most, in bytes per second: one is slow."""
    return {"T1_IT_CNAF_Disk": 2e9}.get(link.destination, 12e9)


def campaign(folder: Path, cycles: int) -> Any:
    """Simulate a campaign; return its world, which can go on."""
    folder.mkdir()
    sources = {"T2_CH_CERN": 4000, "T1_UK_RAL_Disk": 60} | dict.fromkeys(MESH, 1500)
    stock = {source: items(source, count, 50 * 10**9) for source, count in sources.items()}
    made = world(folder, simulated.campaign(flows()), stock, speed=speed)
    made.ledger.put_in_force([("day.yaml", "digest", MENU)], START)
    made.run(cycles)
    return made


def make(path: Path, renewed_every: float = 0) -> bytes:
    """Return the page of a ledger, as it is at the end of its last cycle."""
    excluded = (ExcludedWindow(START + 9 * HOUR, START + 10 * HOUR, "token trouble"),)
    with LedgerView.open(path) as view:
        last = view.last_cycle()
        wanted = ReportScope(excluded=excluded, thresholds=(parse("rate >= 200 Gb/s over 6h"),))
        now = last.end if last else START
        report = figures.report(view, wanted, None, now)
        shown = standing.standing("dc27-rehearsal", view, now) if renewed_every else {"first_lines": []}
    assert report is not None
    values = {**report, "campaign": "dc27-rehearsal", "running": True}
    return page.html(values, renewed_every, shown["first_lines"]).encode()


def main() -> None:
    """Take all of them."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, browser.running(Path(name) / "profile") as chromium:
        folder = Path(name)
        made = campaign(folder / "ledger", 60)
        made.ledger.change("dc@vobox", "note", "tokens of KIT refused", START + 9 * HOUR)
        made.ledger.pause("us-mesh", "dc@vobox", "LHCONE intervention", START + 11 * HOUR)
        (folder / "page.html").write_bytes(make(made.ledger.path))
        for scheme in ("light", "dark"):
            opened = chromium.page((folder / "page.html").as_uri(), prefers_color_scheme=scheme)
            opened.picture(FOLDER / f"report-{scheme}.png", WIDE, HIGH)
        opened = chromium.page((folder / "page.html").as_uri(), prefers_color_scheme="light")
        opened.run("document.getElementById('destinations').scrollIntoView()")
        opened.run("document.querySelectorAll('#destinations th > button')[4].click()")
        opened.picture(FOLDER / "report-destinations.png", WIDE, HIGH)
        pages = Pages({"dc27-rehearsal": made.ledger.path}, lambda path: make(path, EVERY), EVERY)
        with server.serve(pages, "127.0.0.1:0") as place:
            opened = chromium.page(f"http://{place}/", prefers_color_scheme="light")
            opened.run("renew()")
            opened.until("document.getElementById('renewed').textContent !== ''")
            opened.run("document.getElementById('renewed').textContent = 'Renewed 01:00:07 UTC, every 10 s.'")
            opened.picture(FOLDER / "live.png", WIDE, HIGH // 2)
        made.ledger.close()


if __name__ == "__main__":
    main()
