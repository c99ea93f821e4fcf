"""The menus of CMS's and ATLAS's Data Challenge 2024 have the sums, links and days that were published."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from dc_inject.model import Flow, Menu
from tests.menu.real import (
    FOLDER,
    GB,
    GBPS,
    by_end,
    read,
    scenarios,
    total,
)

# CMS: Final Report, 3.4; CMS Activities, 4.2 and 4.3

SCHEDULE = {
    1: (250, {"t0-export"}),
    2: (250, {"t0-export"}),
    3: (500, {"t0-export", "t1-export"}),
    4: (250, {"t1-export"}),
    5: (500, {"t1-export", "production-output"}),
    6: (500, {"t1-export", "production-output"}),
    7: (500, {"t1-export", "production-output"}),
    8: (250, {"aaa"}),
    **dict.fromkeys(range(9, 13), (1000, {"t0-export", "t1-export", "production-output", "aaa"})),
}
CMS = ("t0-export", "t1-export", "production-output", "aaa", "us-tier2-mesh")


def cms_day(day: int) -> dict[str, list[Flow]]:
    """Return the flows of a day by the papers' scenarios, with which ours begin."""
    found: dict[str, list[Flow]] = defaultdict(list)
    for name, flows in scenarios(read(f"cms/day-{day:02}.yaml")).items():
        (whole,) = (one for one in CMS if name.startswith(one))
        found[whole] += flows
    return found


@pytest.mark.parametrize("day", SCHEDULE)
def test_a_day_of_cms(day: int) -> None:
    """Its scenarios have 250 Gb/s each; day 8's mesh is apart, and makes 41 GB/s of the 31."""
    gbps, names = SCHEDULE[day]
    found = cms_day(day)
    mesh = found.pop("us-tier2-mesh", [])
    assert {name: total(flows, GBPS) for name, flows in found.items()} == dict.fromkeys(names, 250)
    assert total([flow for flows in found.values() for flow in flows], GBPS) == gbps
    assert total(mesh, GBPS) == (80 if day == 8 else 0)
    assert {flow.link.source[:6] for flow in mesh} <= {"T2_US_"}
    if day == 8:
        assert int(total([*mesh, *found["aaa"]], GB)) == 41


@pytest.mark.parametrize("day", SCHEDULE)
def test_a_day_of_cms_is_from_ten_to_ten_at_geneva(day: int) -> None:
    made = read(f"cms/day-{day:02}.yaml")
    start = datetime(2027, 2, 7 + day, 10, tzinfo=ZoneInfo("Europe/Zurich"))
    assert (made.start, made.end) == (start, start + timedelta(days=1))


def test_cms_has_no_more_links_than_in_dc24() -> None:
    """200 at most."""
    most = max(len({flow.link for flow in read(f"cms/day-{day:02}.yaml").flows}) for day in SCHEDULE)
    assert 150 <= most <= 200


@pytest.mark.parametrize("name", ["cms-t0-export.yaml", "cms/day-01.yaml"])
def test_cms_t0_export_goes_by_pledged_tape(name: str) -> None:
    """FNAL gets 40 %, six others 10 % each, of 250 Gb/s."""
    found = by_end(read(name).flows, "destination", GBPS)
    assert found.pop("T1_US_FNAL_Disk") == 100
    assert set(found.values()) == {25}
    assert len(found) == 6


def test_cms_scenarios_go_where_the_paper_says() -> None:
    found = cms_day(9)
    tiers = {
        name: {(flow.link.source[:2], flow.link.destination[:2]) for flow in flows}
        for name, flows in found.items()
    }
    assert tiers == {
        "t0-export": {("T2", "T1")},
        "t1-export": {("T1", "T2")},
        "production-output": {("T1", "T1"), ("T2", "T1")},
        "aaa": {("T1", "T2"), ("T2", "T2"), ("T2", "T1")},
    }
    for flow in found["aaa"]:
        american = flow.link.destination.startswith("T2_US_")
        assert flow.link.source == ("T1_US_FNAL_Disk" if american else "T2_CH_CERN")


# ATLAS: Final Report, 3.2

T0_EXPORT = {
    "BNL-ATLAS": 60,
    "FZK-LCG2": 32,
    "IN2P3-CC": 38,
    "INFN-T1": 23,
    "NDGF-T1": 15,
    "SARA-MATRIX": 15,
    "pic": 11,
    "RAL-LCG2": 38,
    "TRIUMF-LCG2": 25,
}
MINIMAL = {  # ingress and egress
    "CERN-PROD": (23.4, 282.5),
    "BNL-ATLAS": (84.5, 67.1),
    "FZK-LCG2": (55.9, 35.5),
    "IN2P3-CC": (59.8, 43.0),
    "INFN-T1": (36.3, 26.0),
    "NDGF-T1": (44.6, 33.7),
    "SARA-MATRIX": (31.0, 16.4),
    "pic": (17.1, 12.5),
    "RAL-LCG2": (64.7, 40.3),
    "TRIUMF-LCG2": (38.2, 27.8),
}
FLEXIBLE = {  # table 3.2.1a: ingress
    "CERN-PROD": 88.9,
    "BNL-ATLAS": 119.8,
    "FZK-LCG2": 92.9,
    "IN2P3-CC": 93.5,
    "INFN-T1": 61.2,
    "NDGF-T1": 95.6,
    "SARA-MATRIX": 60.1,
    "pic": 29.0,
    "RAL-LCG2": 92.8,
    "TRIUMF-LCG2": 60.0,
}
WAN = {
    "CERN-PROD": 891,
    "BNL-ATLAS": 400,
    "FZK-LCG2": 144,
    "IN2P3-CC": 177,
    "INFN-T1": 62,
    "NDGF-T1": 149,
    "SARA-MATRIX": 238,
    "pic": 85,
    "RAL-LCG2": 177,
    "TRIUMF-LCG2": 100,
    "NET2": 10,
}


def at_sites(made: Menu, end: str) -> dict[str, float]:
    """Sum the rates of each site in Gb/s."""
    site_of = {rse: site.name for site in made.sites for rse in site.rses}
    return {site_of[rse]: rate for rse, rate in by_end(made.flows, end, GBPS).items()}


def test_atlas_t0_export() -> None:
    made = read("atlas/t0-export.yaml")
    assert len(made.flows) == 9
    assert at_sites(made, "destination") == T0_EXPORT
    assert at_sites(made, "source") == {"CERN-PROD": 257}


def test_atlas_minimal_has_what_was_computed_for_each_site() -> None:
    made = read("atlas/minimal.yaml")
    assert len({flow.link for flow in made.flows}) == len(made.flows) == 200
    ingress, egress = at_sites(made, "destination"), at_sites(made, "source")
    assert {site: (ingress[site], egress[site]) for site in MINIMAL} == MINIMAL
    assert {flow.scenario: flow.rate for flow in made.flows}.keys() == {"t0-export", "t1-t1", "t1-t2", "t2-t1"}


def test_atlas_flexible_has_1200_links_and_the_published_ingress() -> None:
    """It has all of the minimal model, at the same rates, and (assumed) twice its sum."""
    made = read("atlas/flexible.yaml")
    minimal, flexible = read("atlas/minimal.yaml").flows, made.flows
    ingress = at_sites(made, "destination")
    assert {site: ingress[site] for site in FLEXIBLE} == FLEXIBLE
    assert len({flow.link for flow in flexible}) == len(flexible) == 1200
    assert total(flexible, GBPS) == 2 * total(minimal, GBPS)
    assert {(flow.key, flow.rate) for flow in minimal} <= {(flow.key, flow.rate) for flow in flexible}


def test_atlas_sites() -> None:
    """66 sites took part; WANs are the usable ones that were published."""
    sites = read("atlas/flexible.yaml").sites
    assert len(sites) == 66
    assert {site.name: site.wan / GBPS for site in sites if site.wan is not None} == WAN


def model():
    spec = importlib.util.spec_from_file_location("atlas_model", FOLDER / "atlas" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_generator_makes_what_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "atlas" / "model.py", "--to", tmp_path], check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {name: (FOLDER / "atlas" / name).read_text() for name in made}
    assert made.keys() == {path.name for path in (FOLDER / "atlas").glob("*.csv")} | {"_sites.yaml"}


@pytest.mark.parametrize("seed", [0, 7, 2026])
def test_any_seed_has_the_sums_and_the_numbers(seed: int) -> None:
    """In whole Mb/s; the same seed draws the same, another one draws others."""
    module = model()
    made = module.Model(seed)
    more = made.any_t1 | made.any_t2
    assert (len(made.t0), len(made.minimal), len(made.minimal | more)) == (9, 200, 1200)
    ingress, egress = Counter(), Counter()
    for (source, destination), rate in made.minimal.items():
        assert rate > 0
        egress[source] += rate
        ingress[destination] += rate
    assert {site: (ingress[site] / 1000, egress[site] / 1000) for site in MINIMAL} == MINIMAL
    assert sum(more.values()) == sum(made.minimal.values())
    assert min(more.values()) > 0
    for (_, destination), rate in more.items():
        ingress[destination] += rate
    assert {site: ingress[site] / 1000 for site in FLEXIBLE} == FLEXIBLE
    assert module.Model(seed).any_t2 == made.any_t2 != module.Model(seed + 1).any_t2
