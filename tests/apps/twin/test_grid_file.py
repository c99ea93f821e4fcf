"""Grid files: what they may say, and how they are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dc_inject.apps.twin.grid import description as g
from dc_inject.apps.twin.grid.grid_entries import PARTS
from dc_inject.apps.twin.grid.grid_file import read
from dc_inject.model.errors import MenuError

FULL = """
grid: 1
name: small
description: a grid
sources: [a report]
fts: {actives: 2..100, per_storage: 300, mode: conservative, operations: 50, retries: 2,
      shares: {Production: 3}, named: yes}
rucio: {submit_every: 2 min, requests: 30, usage_every: 15 min, reaper_chunk: 500}
defaults:
  link: {file_speed: 20 MB/s, overhead: 4 s}
  storage: {space: 1 PB, deletion: {parallel: 4}}
sites:
  CERN: {wan: 80 Gb/s, wan_out: 40 Gb/s, storages: {T2_CH_CERN: {read: 10 GB/s}}}
  KIT:
    storages:
      T1_DE_KIT_Disk: {space: 2 TB, connections: 600, overload: fails, deletion: {seconds_per_file: 1 s, lag: 1 h}}
links:
  "T2_CH_CERN:*": {failures: 1 %, highest_measured: 6 Gb/s}
  "T2_CH_CERN:T1_DE_KIT_Disk": {rate: 8 Gb/s, actives: 5..50, file_speed: 10 MB/s}
paths:
  cable: {rate: 16 Gb/s, links: ["*:T1_DE_KIT_Disk"]}
production:
  - {link: "T2_CH_CERN:T1_DE_KIT_Disk", rate: 1 Gb/s, file_size: 1 GB, priority: 4}
troubles:
  - {fault: rucio-down, at: 2 h, for: 40 min}
  - {fault: capacity, subject: cable, at: 1 h, for: 1 h, part: 50 %}
  - {fault: deletion-slow, subject: T1_DE_KIT_Disk, at: 0 s, for: 1 h, times: 20}
datasets:
  - {sources: ["*"], count: 100, files: 10..20, file_size: 1..2 GB}
x-notes: [free]
"""
SITES = "sites: {A: {storages: {a: {}}}, B: {storages: {b: {}}}}"
SMALL = f"grid: 1\nname: small\n{SITES}\n"
STOCK = "{sources: ['*'], count: 60000, files: 1..2, file_size: 1..2 GB}"


def problems(text):
    with pytest.raises(MenuError) as refused:
        read(text.encode(), "grid.yaml")
    return [str(problem) for problem in refused.value.problems]


def test_a_full_grid_is_read_with_its_units():
    made = read(FULL.encode(), "grid.yaml")
    assert made.sites["CERN"] == g.Site("CERN", 10e9, 5e9)
    kit = made.storages["T1_DE_KIT_Disk"]
    assert kit == g.Storage(
        "T1_DE_KIT_Disk", "KIT", 2e12, connections=600, overload=g.Overload.FAILS,
        delete_seconds=1, deleting=4, delete_lag=3600,
    )  # fmt: skip
    assert made.traits("T2_CH_CERN", "T1_DE_KIT_Disk") == g.LinkTraits(1e9, 10e6, 4.0, 0.0, (5, 50))
    assert made.traits("T1_DE_KIT_Disk", "T2_CH_CERN") == g.LinkTraits(None, 20e6, 4.0)
    assert made.links["T2_CH_CERN:*"].highest_measured == 6e9 / 8
    assert made.fts == g.Fts((2, 100), 300, g.Mode.CONSERVATIVE, 50, 2, {"Production": 3}, named=True)
    assert made.rucio == g.Rucio(submit_every=120, requests=30, usage_every=900, reaper_chunk=500)
    assert made.production == (g.Production("T2_CH_CERN", "T1_DE_KIT_Disk", 0.125e9, 1e9, priority=4),)
    assert made.troubles[1] == g.Trouble(g.Fault.CAPACITY, 3600, 3600, "cable", 0.5)
    assert made.stocks == (g.Stock(("*",), 100, (10, 20), (1e9, 2e9)),)


def test_the_smallest_grid_has_the_defaults():
    made = read(SMALL.encode(), "grid.yaml")
    assert made.storages["a"] == g.Storage("a", "A")
    assert (made.fts, made.rucio, made.default_link) == (g.Fts(), g.Rucio(), g.LinkTraits())


def test_the_most_exact_entry_means_a_link():
    patterns = ("*:*", "a:*", "*:b", "a:b")
    links = {pattern: g.LinkTraits(rate=float(number)) for number, pattern in enumerate(patterns, 1)}
    for count, pattern in enumerate(patterns, 1):
        made = g.Grid("small", {}, {}, links=dict(list(links.items())[:count]))
        assert made.traits("a", "b") == links[pattern]
        assert made.traits("c", "d") == links["*:*"]


@pytest.mark.parametrize(
    ("more", "place", "message", "hint"),
    [
        ("colour: red", "4:1", "the key `colour` is unknown here", "known here: grid, name"),
        ("link: {}", "4:1", "the key `link` is unknown here", "did you mean `links`?"),
        ("fts: {actives: 0..5}", "4:16", "`actives`: '0..5' is not within 1 to 10000", "write bounds"),
        ("fts: {mode: bold}", "4:13", "`mode`: expected", "write conservative or normal"),
        ("rucio: {requests: 0}", "4:19", "'0' is not from 0.001 to 1000000", "such as 0.3"),
        ("fts: {operations: 1000001}", "4:19", "'1000001' is not from 0.1 to 1000000", "such as 200"),
        ("rucio: {requests: 0.01}", "4:9", "less than one in each `submit_every` (60 s)", "raise one"),
        ("fts: {operations: 0.01}", "4:19", "'0.01' is not from 0.1 to 1000000", "such as 200"),
        ("fts: {per_storage: 1000000000000}", "4:20", "a whole number from 1 to 1000000000, got", "write a whole"),
        ("fts: {retries: 1000}", "4:16", "expected a whole number from 0 to 100, got '1000'", "from 0 to 100"),
        ("rucio: {judge_every: 400 d}", "4:22", "'400 d' is longer than a year", "shorter"),
        ("links: {'a:b': {overhead: 400 d}}", "4:27", "'400 d' is longer than a year", "shorter"),
        ("links: {'a:b': {rate: 0.1 b/s}}", "4:23", "'0.1 b/s' is below 1 b/s", "higher rate"),
        ("links: {'a:b': {highest_measured: 0.1 b/s}}", "4:35", "'0.1 b/s' is below 1 b/s", "higher rate"),
        ("links: {'a:b': {rate: 1 Gb/s, highest_measured: 2 Gb/s}}", "4:31",
         "`highest_measured`: it is above the `rate` of the link", "raise `rate`"),
        ("links: {'a:b': {file_speed: 0 B/s}}", "4:29", "must be above 0", "remove the link"),
        ("defaults: {storage: {deletion: {seconds_per_file: 0 s}}}", "4:51", "than a millisecond", "0.3 s"),
        ("defaults: {storage: {deletion: {seconds_per_file: 0}}}", "4:51", "has no unit", "90 s"),
        ("defaults: {storage: {deletion: {parallel: 0}}}", "4:43", "from 1 to 1000000000, got '0'", "whole"),
        ("defaults: {storage: {connections: 0}}", "4:35", "from 1 to 1000000000, got '0'", "whole"),
        ("defaults: {storage: {fts_in: 1000001}}", "4:30", "from 0 to 1000000, got '1000001'", "whole number"),
        ("production: [{link: 'a:b', rate: 1 Gb/s, file_size: 1 kB}]", "4:28", "makes 125000 files a second",
         "at most 10000"),
        ("datasets: [{sources: [a], count: 5, files: 1..2, file_size: 0..2 GB}]", "4:61",
         "'0..2 GB' is not within 1 B to 10 TB", "such as 1..5 GB"),
        ("datasets: [{sources: [a], count: 5, files: 1..2, file_size: 1..20 TB}]", "4:61",
         "'1..20 TB' is not within 1 B to 10 TB", "such as 1..5 GB"),
        (f"datasets: [{STOCK}, {STOCK.replace('*', 'a')}]", "4:94",
         "a has more than 100000 datasets", "fewer"),
        ("troubles: [{fault: deletion-slow, subject: a, at: 0 s, for: 1 h, times: 0}]", "4:73",
         "'0' is not from 1 to 10000", "such as 20"),
        ("rucio: {poll_every: 0 s}", "4:21", "shorter than a second", "1 min"),
        ("rucio: {poll_every: 10}", "4:21", "10", "30 min"),
        ("links: {'a-b': {}}", "4:9", "'a-b' is no link", "SOURCE:DESTINATION"),
        ("links: {'a:c': {}}", "4:9", "no storage is called c", "known: a, b"),
        ("links: {'a:b': {failures: 120 %}}", "4:27", "more than 100 %", "10 %"),
        ("inconclusive: {'a:c': an outage}", "4:16", "no storage is called c", "known: a, b"),
        ("inconclusive: {'a:b': ''}", "4:23", "one line of up to 500 characters", "a short text in one line"),
        (f"inconclusive: {{'a:b': {'o' * 501}}}", "4:23", "one line of up to 500 characters", "a short text"),
        ("inconclusive: {'b:b': an outage}", "4:16", "'b:b' begins and ends at one storage", "two storages"),
        ("links: {'a:a': {}}", "4:9", "'a:a' begins and ends at one storage", "two storages"),
        ("production: [{link: 'a:a', rate: 1 Gb/s}]", "4:15", "'a:a' begins and ends at one", "two storages"),
        ("inconclusive: [a:b]", "4:1", "expected a mapping, got a list", "write `key: value` lines"),
        ("paths: {cable: {rate: 1 Gb/s, links: ['a:z']}}", "4:31", "no storage is called z", "known"),
        ("production: [{link: 'a:*', rate: 1 Gb/s}]", "4:15", "`*` names no link", "each link"),
        ("production: [{link: 'a:b'}]", "4:14", "`rate` is missing", "rate"),
        ("datasets: [{sources: [q], count: 5, files: 1..2, file_size: 1..2 GB}]", "4:13", "called q", "known"),
        ("datasets: [{sources: [a], count: 500000, files: 1..2, file_size: 1..2 GB}]", "4:34", "500000", "100000"),
        ("troubles: [{fault: flood, at: 1 h, for: 1 h}]", "4:20", "got 'flood'", "rucio-down"),
        ("troubles: [{fault: storage-down, at: 1 h, for: 1 h}]", "4:12", "storage-down of what", "known: a, b"),
        ("troubles: [{fault: rucio-down, subject: a, at: 1 h, for: 1 h}]", "4:32", "of 'a'", "remove `subject`"),
        ("troubles: [{fault: capacity, subject: a, at: 1 h, for: 1 h}]", "4:12", "needs `part`", "add `part"),
        ("troubles: [{fault: fts-down, at: 1 h, for: 1 h, part: 1 %}]", "4:49", "means nothing", "remove it"),
        ("troubles: [{fault: capacity, subject: a, at: 1 h, for: 1 h, part: 1}]", "4:30", "has no rate", "a rate"),
        ("troubles: [{fault: fts-down, at: 1 h, for: 1 h}, {fault: fts-down, at: 90 min, for: 1 h}]", "4:50",
         "is on already", "one of both"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_a_hint(more, place, message, hint):
    found = problems(SMALL + more)
    assert len(found) == 1, found
    assert found[0].startswith(f"grid.yaml:{place}: ")
    assert message in found[0]
    assert hint in found[0].rpartition("(")[2] or hint in found[0]


def test_a_grid_says_which_links_it_does_not_predict_and_why():
    made = read(f"{SMALL}inconclusive: {{'*:b': an outage, 'a:b': others' traffic}}".encode(), "grid.yaml")
    assert made.why_inconclusive("a", "b") == "others' traffic"
    assert made.why_inconclusive("b", "b") == "an outage"
    assert made.why_inconclusive("b", "a") == ""


def test_all_problems_are_told_at_once():
    assert len(problems(SMALL + "fts: {mode: bold, retries: -1}\nrucio: {judge_every: soon}\n")) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- a", "the file is a list"),
        ("grid: 1\nname: x\nsites: {A: {}}", "there are no storages"),
        ("grid: 1\nname: x\nsites: {A: {storages: {a: {}}}, B: {storages: {a: {}}}}", "a is at A already"),
        ("grid: [", "this is not YAML"),
        (SMALL.replace("grid: 1", "grid: 2") + "colour: red", "1:7: `grid: 2` is from a newer dc_inject"),
        (SMALL.replace("grid: 1", "menu: 1"), "1:1: this is a menu file, not a grid"),
        (SMALL.replace("grid: 1", "grid: 2.0"), "grid.yaml:1:7: `grid`: '2.0' is not a version"),
        (SMALL.replace("grid: 1", "grid: 1.0"), "grid.yaml:1:7: `grid`: '1.0' is not a version"),
    ],
)
def test_what_is_no_grid_is_refused(text, message):
    found = problems(text)
    assert message in found[0]
    assert "menu: 1" not in found[0]


def test_a_grid_of_another_version_is_refused_by_that_alone():
    """Nothing else of it can be judged; the error says which version is read."""
    (problem,) = problems(SMALL.replace("grid: 1", "grid: 2") + "colour: red")
    assert "this release reads version 1" in problem


def test_a_grid_that_is_too_large_is_refused():
    many = "\n".join(f"  S{n}: {{storages: {{s{n}: {{}}}}}}" for n in range(1001))
    assert "`sites` has 1001 entries" in problems(f"grid: 1\nname: x\nsites:\n{many}")[0]


ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "grids.md").read_text()


def test_the_reference_names_every_key_and_its_example_is_a_grid():
    keys = {part.key_of(name) for part in PARTS.values() for name in part.model_fields}
    assert [key for key in sorted(keys) if f"`{key}`" not in PAGE] == []
    examples = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [read(example.encode(), "example").name for example in examples] == ["small"]


def test_the_reference_has_the_defaults():
    for words in (
        "| 0.3 s, 10, 0 s |",
        "| 25 MB/s |",
        "| 5 s |",
        "| 2..130 |",
        "| 1 min, 200 |",
        "| 1 min, 10000 |",
    ):
        assert words in PAGE
    one = g.Storage("a", "A")
    assert (one.delete_seconds, one.deleting, one.delete_lag) == (0.3, 10, 0)
    assert (g.LinkTraits().file_speed, g.LinkTraits().overhead) == (25e6, 5)
    assert (g.Fts().actives, g.Fts().per_storage, g.Fts().operations, g.Fts().retries) == ((2, 130), 200, 200, 3)
    assert (g.Rucio().requests, g.Rucio().rules_a_pass, g.Rucio().reaper_chunk) == (200, 1000, 10_000)
