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
    ("more", "place"),
    [
        ("colour: red", "4:1"),
        ("link: {}", "4:1"),
        ("fts: {actives: 0..5}", "4:16"),
        ("fts: {mode: bold}", "4:13"),
        ("rucio: {requests: 0}", "4:19"),
        ("fts: {operations: 1000001}", "4:19"),
        ("rucio: {requests: 0.01}", "4:9"),
        ("fts: {operations: 0.01}", "4:19"),
        ("fts: {per_storage: 1000000000000}", "4:20"),
        ("fts: {retries: 1000}", "4:16"),
        ("rucio: {judge_every: 400 d}", "4:22"),
        ("links: {'a:b': {overhead: 400 d}}", "4:27"),
        ("links: {'a:b': {rate: 0.1 b/s}}", "4:23"),
        ("links: {'a:b': {highest_measured: 0.1 b/s}}", "4:35"),
        ("links: {'a:b': {rate: 1 Gb/s, highest_measured: 2 Gb/s}}", "4:31"),
        ("links: {'a:b': {file_speed: 0 B/s}}", "4:29"),
        ("defaults: {storage: {deletion: {seconds_per_file: 0 s}}}", "4:51"),
        ("defaults: {storage: {deletion: {seconds_per_file: 0}}}", "4:51"),
        ("defaults: {storage: {deletion: {parallel: 0}}}", "4:43"),
        ("defaults: {storage: {connections: 0}}", "4:35"),
        ("defaults: {storage: {fts_in: 1000001}}", "4:30"),
        ("production: [{link: 'a:b', rate: 1 Gb/s, file_size: 1 kB}]", "4:28"),
        ("datasets: [{sources: [a], count: 5, files: 1..2, file_size: 0..2 GB}]", "4:61"),
        ("datasets: [{sources: [a], count: 5, files: 1..2, file_size: 1..20 TB}]", "4:61"),
        (f"datasets: [{STOCK}, {STOCK.replace('*', 'a')}]", "4:94"),
        ("troubles: [{fault: deletion-slow, subject: a, at: 0 s, for: 1 h, times: 0}]", "4:73"),
        ("rucio: {poll_every: 0 s}", "4:21"),
        ("rucio: {poll_every: 10}", "4:21"),
        ("links: {'a-b': {}}", "4:9"),
        ("links: {'a:c': {}}", "4:9"),
        ("links: {'a:b': {failures: 120 %}}", "4:27"),
        ("inconclusive: {'a:c': an outage}", "4:16"),
        ("inconclusive: {'a:b': ''}", "4:23"),
        (f"inconclusive: {{'a:b': {'o' * 501}}}", "4:23"),
        ("inconclusive: {'b:b': an outage}", "4:16"),
        ("links: {'a:a': {}}", "4:9"),
        ("production: [{link: 'a:a', rate: 1 Gb/s}]", "4:15"),
        ("inconclusive: [a:b]", "4:1"),
        ("paths: {cable: {rate: 1 Gb/s, links: ['a:z']}}", "4:31"),
        ("production: [{link: 'a:*', rate: 1 Gb/s}]", "4:15"),
        ("production: [{link: 'a:b'}]", "4:14"),
        ("datasets: [{sources: [q], count: 5, files: 1..2, file_size: 1..2 GB}]", "4:13"),
        ("datasets: [{sources: [a], count: 500000, files: 1..2, file_size: 1..2 GB}]", "4:34"),
        ("troubles: [{fault: flood, at: 1 h, for: 1 h}]", "4:20"),
        ("troubles: [{fault: storage-down, at: 1 h, for: 1 h}]", "4:12"),
        ("troubles: [{fault: rucio-down, subject: a, at: 1 h, for: 1 h}]", "4:32"),
        ("troubles: [{fault: capacity, subject: a, at: 1 h, for: 1 h}]", "4:12"),
        ("troubles: [{fault: fts-down, at: 1 h, for: 1 h, part: 1 %}]", "4:49"),
        ("troubles: [{fault: capacity, subject: a, at: 1 h, for: 1 h, part: 1}]", "4:30"),
        ("troubles: [{fault: fts-down, at: 1 h, for: 1 h}, {fault: fts-down, at: 90 min, for: 1 h}]", "4:50"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place_and_a_hint(more, place, wording):
    found = problems(SMALL + more)
    assert len(found) == 1, found
    assert found[0].startswith(f"grid.yaml:{place}: ")
    wording(found[0])


def test_a_grid_says_which_links_it_does_not_predict_and_why():
    made = read(f"{SMALL}inconclusive: {{'*:b': an outage, 'a:b': others' traffic}}".encode(), "grid.yaml")
    assert made.why_inconclusive("a", "b") == "others' traffic"
    assert made.why_inconclusive("b", "b") == "an outage"
    assert made.why_inconclusive("b", "a") == ""


def test_all_problems_are_told_at_once():
    assert len(problems(SMALL + "fts: {mode: bold, retries: -1}\nrucio: {judge_every: soon}\n")) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "grid: 1\nname: x\nsites: {A: {}}",
        "grid: 1\nname: x\nsites: {A: {storages: {a: {}}}, B: {storages: {a: {}}}}",
        "grid: [",
        SMALL.replace("grid: 1", "grid: 2") + "colour: red",
        SMALL.replace("grid: 1", "menu: 1"),
        SMALL.replace("grid: 1", "grid: 2.0"),
        SMALL.replace("grid: 1", "grid: 1.0"),
    ],
)
def test_what_is_no_grid_is_refused(text, wording):
    found = problems(text)
    wording(found[0])
    assert "menu: 1" not in found[0]


def test_a_grid_of_another_version_is_refused_by_that_alone():
    """Nothing else of it can be judged; the error says which version is read."""
    (problem,) = problems(SMALL.replace("grid: 1", "grid: 2") + "colour: red")
    assert "`grid: 2`" in problem


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
