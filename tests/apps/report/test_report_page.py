"""The report as a page: one file that fetches nothing, with one script, and a table behind every picture."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import sys
from datetime import datetime, timedelta
from html import unescape
from importlib import resources
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.style import Style

from dc_inject.apps.report import making, pictures, sections
from dc_inject.apps.report import page as html_page
from dc_inject.apps.report.tables import Cell, Section, Table
from dc_inject.ledger import Ledger
from dc_inject.model import Cycle, FlowKey, Held, Hold, Link
from dc_inject.model.errors import UsageError
from dc_inject.summary.criteria import DARK, GRADES, LIGHT, TERMINAL
from tests.cli.ledgers import CYCLE, GB, START, run

UndefinedError = pytest.importorskip("jinja2").UndefinedError
pytest.importorskip("vl_convert")

BAD = '<script>alert("1")</script>&'
EXCLUDED = "2027-02-08T10:15/10:30 token <i>trouble</i>"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of four cycles, in which all names, notes and reasons are markup."""
    path = tmp_path_factory.mktemp("page") / "dc27.sqlite"
    keys = [FlowKey(BAD, Link(f"<img src=x>{BAD}", f"D{number}")) for number in range(3)]
    held = Held(Hold.POOL_DRY, {"free": 0})
    with Ledger.open(path, synchronous="OFF") as made:
        for number in range(4):
            cycle = Cycle(START + number * CYCLE.length, CYCLE.length)
            made.open_cycle(cycle, dict.fromkeys(keys, (450 * GB, held if number else None)), cycle.start)
            made.close_cycle(cycle, cycle.end)
        made.change(f"me{BAD}", "note", f"cut {BAD}", START + CYCLE.length)
    return path


@pytest.fixture(scope="module")
def page(ledger: Path) -> str:
    """The page of it."""
    done = run("report", ledger, "--format", "html", "--exclude", EXCLUDED)
    assert done.exit_code == 0, done.exception
    return done.stdout


def test_nothing_in_it_is_fetched_and_only_our_script_runs(page: str) -> None:
    """No address but the name of SVG, no source and no link but inside; a policy says the same."""
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert script == (resources.files("dc_inject.apps.report") / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = [*map(unescape, re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page))]
    allowed = f"script-src 'sha256-{digest}'; connect-src 'none'; form-action 'none'; base-uri 'none'"
    assert policy == [f"default-src 'none'; style-src 'unsafe-inline'; {allowed}"]
    page = page.replace(f"<script>{script}</script>", "")
    assert set(re.findall(r"https?://[^\"'\s<)]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert set(re.findall(r"<(script|iframe|img|object|embed|form|base|i)\b", page)) == set()
    assert re.findall(r"\s(?:src|srcset|on\w+|xlink:href)=", re.sub(r"<text[^>]*>[^<]*|&lt;[^<]*", "", page)) == []
    assert {link[:1] for link in re.findall(r'href="([^"]*)"', page)} == {"#"}
    assert not re.search(r"@import|url\((?!#)", page)


def test_names_reasons_and_notes_are_text(page: str) -> None:
    """Also in pictures."""
    shown = "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;&amp;"
    assert f'<td class="t">{shown}</td>' in page
    assert "token &lt;i&gt;trouble&lt;/i&gt;" in page
    assert f"cut {shown}" in page


def test_all_words_of_the_template_are_text() -> None:
    """Also what is not of a report, such as a list of campaigns; control characters are blanks."""
    others = f"{BAD}\x1b[31m'\x00"
    found = html_page.render(
        others,
        [others],
        first_lines=[f"! {others}", others],
        campaigns=[others],
        sections=[Section(others, others, (others,), Table((others,), 1, ((Cell(others, others, 1.0),),)))],
        drawings={},
    )
    assert found.replace("\n", "").isprintable()
    assert not re.search(r"<(?:script|i)\b|'", found.partition("</style>")[2])
    assert found.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;&amp; [31m&#39; ") == 15
    with pytest.raises(UndefinedError):
        html_page.render(BAD, [], sections=[object()])


def test_what_has_several_names_has_a_picture_and_every_link_its_section(page: str) -> None:
    """A picture of one name would be the first again; each is well-formed and has an ink for light and dark."""
    sections = re.findall(r'<section id="([\w-]+)">(.*?)</section>', page, re.DOTALL)
    drawn = [name for name, inner in sections if "<svg" in inner]
    assert drawn == ["over-time", "destinations", "holds"]
    assert [name for name, inner in sections if "<details>" in inner] == ["over-time"]
    assert re.findall(r'<a href="#([\w-]+)">', page.partition("</nav>")[0]) == [name for name, _ in sections]
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert ET.fromstring(drawing).tag.endswith("svg")
        assert "currentColor" in drawing


def test_ratios_have_a_sign_beside_their_colour(page: str) -> None:
    """So that nobody has to tell red from green."""
    cells = re.findall(r'<td class="n (green|yellow|orange|red)" data-v="[^"]+">([^<]*)</td>', page)
    assert cells
    signs = {"green": " ++", "yellow": " +", "orange": " !", "red": " !!"}
    assert all(text.removesuffix(signs[colour]).removesuffix(" %")[-1].isdigit() for colour, text in cells)


def test_every_colour_has_its_shades_on_pages_and_terminals(page: str) -> None:
    for name in [colour for _, colour, _ in GRADES]:
        assert [page.count(f"--{name}: #{shades[name]};") for shades in (LIGHT, DARK)] == [1, 1]
        assert f".{name} {{ background: var(--{name}); }}" in page
        Style.parse(TERMINAL[name])


def test_numbers_of_marks_do_not_stand_on_each_other(ledger: Path, tmp_path: Path) -> None:
    """Many notes within minutes are one label; each has its line."""
    path = tmp_path / "dc27.sqlite"
    shutil.copy(ledger, path)
    with Ledger.open(path, synchronous="OFF") as made:
        for number in range(30):
            made.change("me@vobox", "note", "again", START + timedelta(minutes=31, seconds=5 * number))
    report = json.loads(run("report", path, "--format", "json").stdout)
    *_, lines, labels = dict(pictures.pictures(report))["over-time"]["layer"]
    assert len(lines["data"]["values"]) == 31
    shown = labels["data"]["values"]
    assert [one["number"] for one in shown][:2] == ["1", "2-30"]
    times = [datetime.fromisoformat(one["at"]) for one in shown]
    assert all(later - at >= timedelta(minutes=60 * pictures.CLOSE) for at, later in pairwise(times))


def texts(drawing: str) -> list[str]:
    """Return all words of a drawing."""
    return [text for text in ET.fromstring(drawing).itertext() if text.strip()]


def test_times_of_short_cycles_are_told_apart(tmp_path: Path) -> None:
    """On the axis of a picture, and in tables; of usual cycles they are in minutes."""
    path, short = tmp_path / "dc27.sqlite", timedelta(seconds=12)
    with Ledger.open(path, synchronous="OFF") as made:
        for number in range(9):
            cycle = Cycle(START + number * short, short)
            made.open_cycle(cycle, {FlowKey("uk", Link("A", "B")): (GB, None)}, cycle.start)
            made.close_cycle(cycle, cycle.end)
    report = json.loads(run("report", path, "--format", "json").stdout)
    ticks = [text for text in texts(pictures.svg(next(pictures.pictures(report))[1])) if text[2:3] == ":"]
    assert len(ticks) == len(set(ticks)) > 4
    assert {len(tick) for tick in ticks} == {len("10:00"), len("10:00:12")}
    shown = run("report", path).stdout
    assert "2027-02-08 10:00:00 to 2027-02-08 10:01:48 UTC" in shown
    assert "| 2027-02-08 10:00:12 | " in shown
    usual = {**report, "step_seconds": 900}
    assert sections.heading(usual).startswith("2027-02-08 10:00 to 2027-02-08 10:01 UTC")


def test_a_picture_says_what_its_bands_and_marks_are(ledger: Path, tmp_path: Path) -> None:
    """A step that is not over is due in full: without its box it looks as if nothing moved any more."""
    path = tmp_path / "dc27.sqlite"
    shutil.copy(ledger, path)
    report = json.loads(run("report", path, "--format", "json", "--until", "2027-02-08T10:15Z").stdout)
    assert "grey" not in (words := " ".join(texts(pictures.svg(pictures.alone(report, "over-time"))))), words
    assert "not over" not in words
    with Ledger.open(path, synchronous="OFF") as made:
        cycle = Cycle(START + 4 * CYCLE.length, CYCLE.length)
        made.open_cycle(cycle, {FlowKey("uk", Link("A", "B")): (GB, None)}, cycle.start)
    done = run("report", path, "--format", "json", "--exclude", EXCLUDED)
    drawn = {section: texts(pictures.svg(spec)) for section, spec in pictures.pictures(json.loads(done.stdout))}
    (legend,) = [one for one in drawn["over-time"] if "dotted lines: " in one]
    bands = legend.partition("; dotted")[0]
    assert bands.startswith("grey: ")
    assert "not over" in bands
    assert all(bands in words for section, words in drawn.items() if section != "over-time")


def test_what_does_not_count_in_averages_has_no_ratio(page: str) -> None:
    (table,) = re.findall(r'<section id="verdict">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    rows = {row[0]: row[1] for row in re.findall(r"<td[^>]*>([^<]*)</td>" * 6, table)}
    assert set(rows) == {"counted", "excluded", "in all"}
    assert [name for name, ratio in rows.items() if ratio != "-"] == ["counted"]


def test_target_injected_and_moved_are_stacked_by_name_on_one_scale(ledger: Path) -> None:
    """So that they can be compared; each point of the report is drawn, of each name and field."""
    report = json.loads(run("report", ledger, "--format", "json").stdout)
    drawn = dict(pictures.pictures(report))
    for dimension in ("destination",):
        series, panels = report["series"][dimension], drawn[f"{dimension}s"]["vconcat"]
        ends = {tuple(layer["encoding"]["y"]["scale"]["domain"]) for p in panels for layer in p["layer"][:1]}
        assert len(ends) == 1
        highest = ends.pop()[1]
        for field, panel in zip(("due", "injected", "moved"), panels, strict=True):
            values = panel["data"]["values"]
            for row in series:
                rates = [value["rate"] for value in values if value["name"] == row["name"]][:-1]
                steps = zip(row[field], report["steps"], strict=True)
                assert rates == [round(8 * size / step["seconds"]) for size, step in steps]
            sums = {at: sum(v["rate"] for v in values if v["at"] == at) for at in {v["at"] for v in values}}
            assert max(sums.values()) <= highest
        assert {"target", "injected", "moved"} <= set(texts(pictures.svg(drawn[f"{dimension}s"])))


def test_the_pictures_alone_are_svg_or_png(ledger: Path, tmp_path: Path) -> None:
    """One a file; a folder gets all of them, also of the tables of days."""
    for part in ("over-time", "day-sites"):
        assert ET.fromstring(run("report", ledger, "--format", "svg", "--part", part).stdout).tag.endswith("svg")
    assert run("report", ledger, "--format", "png", "-o", tmp_path).exit_code == 0
    names = {"over-time", "destinations", "holds", "day-types", "day-sites"}
    assert {file.stem for file in tmp_path.glob("*.png")} == names
    assert {file.read_bytes()[:6] for file in tmp_path.iterdir()} == {b"\x89PNG\r\n"}
    assert isinstance(run("report", ledger, "--format", "svg", "--part", "x").exception, UsageError)


@pytest.mark.parametrize(
    ("fmt", "library"), [*((fmt, "vl_convert") for fmt in making.PICTURED), ("html", "jinja2")]
)
def test_without_the_library_an_error_says_what_to_install(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, fmt: str, library: str
) -> None:
    """And what works without."""
    monkeypatch.setitem(sys.modules, library, None)
    error = run("report", ledger, "--format", fmt).exception
    assert isinstance(error, UsageError)
    assert "[report]" in (error.hint or "")
    assert run("report", ledger).exit_code == 0
