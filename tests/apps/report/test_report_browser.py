"""The report's page in a real Chromium: no error, charts are drawn, sorting and links work, nothing is asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, FlowKey, Link
from tests import browser
from tests.browser import Browser, Page
from tests.cli.ledgers import CYCLE, GB, START, make, run
from tests.engine import world as simulated
from tests.engine.world import flow, items, world

pytest.importorskip("vl_convert")
ROWS = "Array.from(document.querySelector('#{0} tbody').rows, row => row.cells[{1}].textContent)"
CLICK = "document.querySelectorAll('#{0} th > button')[{1}].click()"
A4 = round((297 - 2 * 12) / 25.4 * 96)  # CSS pixels
BAD = "<img src=x onerror=console.error(1)>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.running(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a campaign with 12 destinations, as a file."""
    folder = tmp_path_factory.mktemp("page")
    flows = [flow("A", f"D{number}", number + 1, scenario="export") for number in range(12)]
    made = world(folder, simulated.campaign([*flows, flow("X", BAD, 4, scenario="dry")]), {"A": items("A", 300)})
    made.run(6)
    made.ledger.change(BAD, "note", BAD, made.clock.now())
    made.ledger.close()
    goal = folder / "page.html"
    assert run("report", folder / "test.sqlite", "--format", "html", "-o", goal).exit_code == 0
    return goal.as_uri()


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """The page, which is to have no error and no request but its own, whatever a test does."""
    opened = chromium.page(address)
    yield opened
    assert opened.errors == []
    assert {one.partition("#")[0] for one in opened.requests} == {address}


def test_charts_are_drawn_and_names_of_others_are_text(page: Page) -> None:
    """Each drawing has a size and paths; nothing of a name became an element."""
    sizes = page.run("Array.from(document.querySelectorAll('svg'), one => one.getBoundingClientRect().height)")
    assert len(sizes) == 5
    assert min(sizes) > 150
    paths = page.run("Array.from(document.querySelectorAll('svg'), one => one.querySelectorAll('path').length)")
    assert min(paths) > 3
    assert page.run("document.images.length") == 0
    assert BAD in page.run("document.body.textContent")


def test_a_click_sorts_a_table_and_another_one_turns_it(page: Page) -> None:
    """Numbers by their size, whatever their unit; names as people count."""
    dues = "Array.from(document.querySelector('#destinations tbody').rows, row => +row.cells[1].dataset.v)"
    page.run(CLICK.format("destinations", 1))
    assert page.run(dues) == sorted(page.run(dues), reverse=True)
    page.run(CLICK.format("destinations", 1))
    assert page.run(dues) == sorted(page.run(dues))
    page.run(CLICK.format("destinations", 0))
    names = page.run(ROWS.format("destinations", 0))
    assert [name for name in names if name[0] == "D"] == [f"D{number}" for number in range(12)]
    marked = "Array.from(document.querySelectorAll('#destinations [aria-sort]'), one => one.ariaSort)"
    assert page.run(marked) == ["ascending"]


def test_links_lead_to_sections(page: Page) -> None:
    """Each of them, in the page itself."""
    page.run("for (const link of document.querySelectorAll('nav a')) { link.click(); }")
    assert page.run("location.hash") == "#method"
    assert page.run(
        "Array.from(document.querySelectorAll('a'), a => document.querySelector(a.hash) !== null).every(Boolean)"
    )


def test_print_leaves_out_what_is_folded(page: Page) -> None:
    """Twelve days by hour are six pages of a table whose picture stands above it."""
    shown = "Array.from(document.querySelectorAll('details'), one => one.checkVisibility())"
    assert page.run(shown) == [True]
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run(shown) == [False]
    page.run("document.querySelector('details').open = true")
    assert page.run(shown) == [True]
    page.run("document.querySelector('details').open = false")
    page.call("Emulation.setEmulatedMedia", media="")


def test_a_printed_page_cuts_nothing_off(chromium: Browser, tmp_path: Path) -> None:
    """Also a table with a column for each of twenty destinations, on A4 across with its margins."""
    keys = [FlowKey("t0-export", Link("T2_CH_CERN", f"T1_XX_LONGNAME{number:02}_Disk")) for number in range(24)]
    path = make(tmp_path / "dc27.sqlite", dict.fromkeys(keys, 1)).path
    with Ledger.open(path, synchronous="OFF") as ledger:
        ledger.close_cycle(CYCLE, CYCLE.end)
    goal = tmp_path / "page.html"
    assert run("report", path, "--format", "html", "-o", goal).exit_code == 0
    opened = chromium.page(goal.as_uri())
    opened.call("Emulation.setDeviceMetricsOverride", width=A4, height=720, deviceScaleFactor=1, mobile=False)
    opened.call("Emulation.setEmulatedMedia", media="print")
    assert opened.run("document.querySelectorAll('#day-sites th').length") == 2 + 9 + 1
    assert opened.run("document.documentElement.scrollWidth") <= A4
    # Chromium repeats the head of a table on each page, but not the buttons in it.
    assert opened.run("getComputedStyle(document.querySelector('th > button')).display") == "contents"
    assert opened.errors == []


def test_twelve_days_stand_beside_each_other(chromium: Browser, tmp_path: Path) -> None:
    """A challenge is about that long: its tables by day fit on a page, and on a phone ratios are seen at once."""
    key = FlowKey("t0-export", Link("T2_CH_CERN", "T2_UK_London_Brunel"))
    with Ledger.open(tmp_path / "dc27.sqlite", synchronous="OFF") as ledger:
        for number in range(12):
            cycle = Cycle(START + timedelta(days=number), CYCLE.length)
            ledger.open_cycle(cycle, {key: (450 * GB, None)}, cycle.start)
            ledger.close_cycle(cycle, cycle.end)
    goal = tmp_path / "page.html"
    assert run("report", tmp_path / "dc27.sqlite", "--format", "html", "-o", goal).exit_code == 0
    opened = chromium.page(goal.as_uri())
    opened.call("Emulation.setDeviceMetricsOverride", width=1280, height=720, deviceScaleFactor=1, mobile=False)
    assert opened.run("document.querySelectorAll('#day-sites tbody tr').length") == 12 + 1
    wide = "Array.from(document.querySelectorAll('section > .wide'))"
    assert opened.run(f"{wide}.filter(one => one.scrollWidth > one.clientWidth).length") == 0
    opened.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=2, mobile=True)
    cells = (
        "Array.from(document.querySelectorAll('#days td:nth-child(3)'), one => one.getBoundingClientRect().right)"
    )
    assert max(opened.run(cells)) <= 390
    assert opened.run("document.documentElement.scrollWidth") <= 390, "only tables scroll"
    widths = opened.run("Array.from(document.querySelectorAll('svg'), one => one.clientWidth)")
    assert 300 < min(widths) <= max(widths) <= 390, "the whole course is seen at once"


def test_the_policy_lets_no_other_script_run(chromium: Browser, address: str, tmp_path: Path) -> None:
    """Even if one got into the page."""
    text = Path(address.removeprefix("file://")).read_text()
    worse = tmp_path / "worse.html"
    worse.write_text(text.replace("</body>", "<script>document.title = 'other'</script></body>"))
    opened = chromium.page(worse.as_uri())
    assert opened.run("document.title").startswith("Report: ")
    assert any("Content Security Policy" in one for one in opened.errors)
