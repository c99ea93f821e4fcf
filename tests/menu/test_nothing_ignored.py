"""Each part of an input is used or reported: change it, and what is read differs, or there is a problem."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.menu import nodes, source_lists
from dc_inject.model.errors import MenuError, Problem
from tests.menu.texts import draft, text

MENU = """\
menu: 1
campaign: dc27
contact: dc-ops@example.org
description: all keys that matter
timezone: Europe/Zurich
start: 2027-02-08 10:00
end: 2027-02-09 10:00
target: 25 Gb/s
limits: {total: 100 Gb/s, per_site: 60 Gb/s, rules_per_hour: 500}
accept: [fts-link-limit]
tape: {T1_TAPE: Ada}
sites:
  KIT: {wan: 300 Gb/s, max_ingress: 80 Gb/s, rses: {T1_KIT: {space: 500 TB}}}
exclude:
  - {site: KIT, from: 2027-02-08 14:00, to: 2027-02-08 15:00, reason: downtime}
defaults:
  cycle: 15 min
  priority: 4
  lifetime: {min: 2 h, max: 1 d}
  datasets: {did: ["cms:/*/RAW#*", "cms:b"], exclude: ["cms:x"], files: 1..1000, mean_file: 1..20 GB}
scenarios:
  export:
    from: T0
    to: {T1_KIT: 3, T1_PIC: 1}
    rate: 20 Gb/s
    shape: {ramp: 1 h}
    activity: Data Challenge
  others:
    control: advise
    links:
      - {from: A, to: B, rate: 2 Gb/s, priority: 5}
      - {from: B, to: A, rate: 3 Gb/s, both_ways: no}
"""
LINKS = [
    ["from", "to", "rate", "priority"],
    ["A", "B", "10 Gb/s", "3"],
    ["B", "C", "1 GB/s", ""],
    ["C", "A", "5 Gb/s", "1"],
]
SOURCES = [["url", "size", "checksum"], ["davs://h/d/1", "1 GB", "0cc737eb"], ["davs://h/d/2", "", ""]]
WORDS = st.sampled_from(
    ["7", "zz", "2", "x y", "9 Gb/s", "1 h", "2027-02-08 12:00", "rucio", "act", "B", "#N/A", "b:c"]
)


def leaves(node: nodes.Node) -> list[nodes.Text]:
    """Return all scalars, keys too."""
    if isinstance(node, nodes.Text):
        return [node]
    if isinstance(node, nodes.Map):
        return [leaf for key, value in node.entries() for leaf in (key, *leaves(value))]
    return [leaf for item in node for leaf in leaves(item)]


ROOT = nodes.compose(MENU.encode(), "m.yaml", lambda *_: None)
assert ROOT is not None
LEAVES = leaves(ROOT)


def outcome(of: str, files: dict[str, str] | None = None) -> tuple[object, ...]:
    """Return all that a menu means, or its problems."""
    try:
        made = draft(of, files)
    except MenuError as error:
        return error.problems
    return without_places(made.document.model_dump()), made.preview.flows


def without_places(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_places(each) for key, each in value.items() if key != "place"}
    if isinstance(value, tuple | list):
        return [without_places(each) for each in value]
    return value


BASE = outcome(MENU)


def test_places_do_not_count() -> None:
    """Else each change would make a difference; nor has the menu problems, which would hide one."""
    assert outcome(MENU.replace(": ", ":  ").replace("[", "[ ")) == BASE
    assert isinstance(BASE[0], dict)


@settings(max_examples=80)
@given(st.sampled_from(LEAVES), WORDS)
def test_every_scalar_of_a_menu(leaf: nodes.Text, word: str) -> None:
    """Keys and values alike."""
    lines = MENU.splitlines(keepends=True)
    line, at = lines[leaf.place.line - 1], leaf.place.column - 1
    quoted = 2 if line[at] == '"' else 0
    lines[leaf.place.line - 1] = line[:at] + json.dumps(word) + line[at + len(leaf) + quoted :]
    if word != leaf:
        assert outcome("".join(lines)) != BASE


def table(rows: list[list[str]], separator: str) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=separator).writerows(rows)
    return out.getvalue()


@st.composite
def changed(draw: st.DrawFn, rows: list[list[str]]) -> tuple[str, str]:
    """Draw a table, and the same with one cell changed or added."""
    separator = draw(st.sampled_from(",;\t"))
    row = draw(st.integers(0, len(rows) - 1))
    column = draw(st.integers(0, len(rows[row]) - (not row)))  # a head without cells holds nothing
    word = draw(WORDS.filter(lambda word: rows[row][column : column + 1] != [word]))
    other = [list(cells) for cells in rows]
    other[row][column : column + 1] = [word]
    return table(rows, separator), table(other, separator)


@settings(max_examples=60)
@given(changed(LINKS))
def test_every_cell_of_a_file_of_links(tables: tuple[str, str]) -> None:
    of = text(scenarios="scenarios: {one: {links: {file: l.csv}}}")
    before, after = (outcome(of, {"l.csv": one}) for one in tables)
    assert before != after


def listed(content: str) -> object:
    found: list[Problem] = []
    listing = source_lists.read(
        content.encode(),
        "s.csv",
        "s.csv",
        lambda place, what, hint: found.append(Problem(place.file, place.line, what, hint)),
    )
    return found or (listing and listing.files)


@settings(max_examples=60)
@given(changed(SOURCES))
def test_every_cell_of_a_source_list(tables: tuple[str, str]) -> None:
    before, after = map(listed, tables)
    assert before != after


@settings(max_examples=40)
@given(
    st.sampled_from(["rse: A", "rse: B", "rse: X", "link: A:B", "link: B:A", "scenario: one", "site: S"]),
    st.integers(-30, 30),
    st.integers(1, 5),
)
def test_every_exclusion(of: str, hour: int, hours: int) -> None:
    """It leaves something out, or there is a finding at its line, or a problem."""
    kind, _, name = of.partition(": ")
    times = {"from": timedelta(hours=hour), "to": timedelta(hours=hour + hours)}
    start = draft(text()).preview.start
    entry = {kind: name, "reason": "x"} | {key: (start + after).isoformat() for key, after in times.items()}
    try:
        made = draft(text(x=f"exclude: [{json.dumps(entry)}]"))
    except MenuError:
        return
    campaign = menu.campaign([made.preview])
    found = {problem.code for problem in lint.findings(campaign)}
    covered = of in {"rse: A", "rse: B", "link: A:B", "scenario: one"} and -hours < hour < 24
    assert covered != ("idle-exclusion" in found)


@given(st.sets(st.sampled_from(["A:B", "B:A", "B:C", "A:C"]), min_size=1))
@settings(max_examples=15)
def test_every_link_that_is_asked_for(links: set[str]) -> None:
    """As `--link` has it: each is there, or all are refused."""
    body = "scenarios: {one: {links: [{from: A, to: B, rate: 1 Gb/s}, {from: B, to: C, rate: 1 Gb/s}]}}"
    campaign = menu.campaign([draft(text(scenarios=body)).preview])
    try:
        assert {str(flow.link) for flow in menu.narrowed(campaign, links).flows} == links
    except MenuError:
        assert not links <= {"A:B", "B:C"}
