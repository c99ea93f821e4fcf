"""The menus that come with the tool: right, planned, and with the sums that were published."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import re
import subprocess
import sys
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from dc_inject import files, lint, menu
from dc_inject.cli.root import root
from dc_inject.model import Campaign, FileFilter, Flow, Menu

FOLDER = Path(__file__).resolve().parents[2] / "menus"
MENUS = [path for path in sorted(FOLDER.rglob("*.yaml")) if not path.name.startswith("_")]
NAMES = [str(path.relative_to(FOLDER)) for path in MENUS]
README = (FOLDER / "README.md").read_text()

GBPS = 1e9 / 8  # what rates and sizes are published in, in bytes
GB = 1e9
MIB, GIB = 2**20, 2**30

# The figures below are those of the reports that menus/README.md names.


def read(name: str) -> Menu:
    (draft,) = files.read_menus([FOLDER / name])
    return draft.preview


def campaign(name: str) -> Campaign:
    return menu.campaign([draft.preview for draft in files.read_menus([FOLDER / name])])


def total(flows: list[Flow] | tuple[Flow, ...], unit: float) -> float:
    """Sum rates in a unit, but for what floating point makes of them."""
    return round(math.fsum(flow.rate for flow in flows) / unit, 9)


def by_end(flows: list[Flow] | tuple[Flow, ...], end: str, unit: float) -> dict[str, float]:
    """Sum the rates of each source or destination."""
    found: dict[str, list[Flow]] = defaultdict(list)
    for flow in flows:
        found[getattr(flow.link, end)].append(flow)
    return {name: total(some, unit) for name, some in found.items()}


def scenarios(made: Menu) -> dict[str, list[Flow]]:
    found: dict[str, list[Flow]] = defaultdict(list)
    for flow in made.flows:
        found[flow.scenario].append(flow)
    return found


def levels(flow: Flow, *moments: datetime) -> list[float]:
    """Return a flow's rate in bytes per second at some times."""
    assert flow.shape is not None
    return [float(flow.rate * flow.shape.level(moment)) for moment in moments]


# All of them


@pytest.mark.parametrize("name", NAMES)
def test_each_menu_is_right_and_has_no_finding(name: str) -> None:
    """But for the plans for the HL-LHC: nine or eleven links, which the README tells of."""
    found = Counter(problem.code for problem in lint.findings(campaign(name)))
    assert found == ({"fts-link-limit": 11 if "full" in name else 9} if name.startswith("hllhc/") else {})


@pytest.mark.parametrize("name", ["cms", "atlas"])
def test_a_folder_of_menus_is_a_campaign(name: str) -> None:
    """Its menus follow each other without a gap and without an overlap."""
    menus = sorted(campaign(name).menus, key=lambda made: made.start)
    assert lint.findings(campaign(name)) == ()
    assert [made.start for made in menus[1:]] == [made.end for made in menus[:-1]]


def test_every_file_is_in_the_readme() -> None:
    """By its path, a campaign's first files after the folder; parts without figures need no row."""
    for path in [*MENUS, *FOLDER.rglob("*.py"), *FOLDER.rglob("_*.yaml")]:
        name = str(path.relative_to(FOLDER))
        known = (name, f"[{path.parent.name}/]({path.parent.name}/) `{path.name}`")
        days = re.fullmatch(r"cms/day-(0[1-9]|1[0-2])\.yaml", name)
        assert days or path.name in {"_common.yaml", "_minimal.yaml"} or any(one in README for one in known), name


def item(flow: Flow) -> tuple[str, str, int, int]:
    """Make up what passes a flow's filter: a file through FTS, else a dataset of about half of its due."""
    source, wanted = flow.link.source, flow.datasets
    if isinstance(wanted, FileFilter):
        return source, f"{source}/{wanted.folder}/1.root", wanted.size[0], 1
    count = min(max(1, int(flow.rate * 450 / 5e9)), 1000)
    return source, f"{wanted.dids[0].replace('*', source)}{count}", count * 5 * 10**9, count


@pytest.mark.parametrize("name", NAMES)
def test_each_menu_plans_its_first_cycle(name: str, tmp_path: Path) -> None:
    """Every link whose window has begun has something due; something goes out from each source that has stock."""
    made = read(name)
    first = [flow for flow in made.flows if flow.start == made.start]
    sources = set(sorted({flow.link.source for flow in first})[:3])  # more would only take longer
    with (tmp_path / "stock.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("source", "name", "bytes", "files"))
        out.writerows(sorted({item(flow) for flow in first if flow.link.source in sources}))
    result = CliRunner().invoke(
        root,
        ["plan", str(FOLDER / name), "--at", f"{made.start:%Y-%m-%dT%H:%MZ}", "--format", "csv",
         "--inventory", str(tmp_path / "stock.csv"), "--ledger", str(tmp_path / "none.db")],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [row for row in csv.DictReader(result.stdout.splitlines()) if int(row["due"])]
    links = Counter((flow.scenario, flow.link.source, flow.link.destination) for flow in first)
    assert Counter((row["scenario"], row["source"], row["destination"]) for row in rows) == links
    assert {row["source"] for row in rows if int(row["planned"])} == sources


def footprint(*names: str, options: tuple[str, ...] = ()) -> dict[tuple[str, str], dict[str, float]]:
    """Return what `plan --footprint` tells, by level and name."""
    paths = [str(FOLDER / name) for name in names]
    result = CliRunner().invoke(root, ["plan", "--footprint", *paths, "--format", "json", *options])
    assert result.exit_code == 0, result.output
    return {(row["by"], row["name"]): row for row in json.loads(result.stdout)}


def test_all_menus_together_have_a_footprint() -> None:
    """CMS's last days and ATLAS's flexible model are DC24's 2.4 Tb/s, within 2 %."""
    alone = [name for name in NAMES if not name.startswith(("cms/", "atlas/"))]
    assert footprint("cms", "atlas", *alone)["total", "total"]["links"] > 2400
    both = footprint("cms/day-12.yaml", "atlas/flexible.yaml")
    assert both["total", "total"]["ingress_Gbit_s"] == pytest.approx(2400, rel=0.02)
    there = both["site", "INFN-T1"]["ingress_Gbit_s"]
    assert there == pytest.approx(
        sum(
            footprint(name)["site", "INFN-T1"]["ingress_Gbit_s"]
            for name in ("cms/day-12.yaml", "atlas/flexible.yaml")
        )
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


@pytest.mark.parametrize(("site", "terabytes", "deletions"), [("BNL-ATLAS", 892, 12681), ("FZK-LCG2", 590, 8386)])
def test_atlas_minimal_fills_and_deletes_what_was_computed(site: str, terabytes: int, deletions: int) -> None:
    """In 24 h, with 1 TB taken as 1024 GB; deletions an hour at a mean file of 3.0 GB."""
    found = footprint("atlas/minimal.yaml", options=("--mean-file", "3 GB"))["site", site]
    assert found["written_24h_TB"] * 1000 / 1024 == pytest.approx(terabytes, abs=1)
    assert found["deletions_per_h"] == pytest.approx(deletions, rel=0.001)


def test_atlas_flexible_has_1200_links_and_twice_the_rate() -> None:
    """It has all of the minimal model, at the same rates."""
    minimal, flexible = read("atlas/minimal.yaml").flows, read("atlas/flexible.yaml").flows
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
    assert (len(made.t0), len(made.minimal), len(made.minimal | made.any)) == (9, 200, 1200)
    ingress, egress = Counter(), Counter()
    for (source, destination), rate in made.minimal.items():
        assert rate > 0
        egress[source] += rate
        ingress[destination] += rate
    assert {site: (ingress[site] / 1000, egress[site] / 1000) for site in MINIMAL} == MINIMAL
    assert sum(made.any.values()) == sum(made.minimal.values())
    assert min(made.any.values()) > 0
    assert module.Model(seed).any == made.any != module.Model(seed + 1).any


# LHCb: Final Report, 3.6

LHCB_WRITING = {"CNAF": 2.05, "GRIDKA": 2.74, "IN2P3": 1.53, "NCBJ": 1.02, "PIC": 0.51, "RAL": 3.96, "SARA": 1.15}
PERCENT = {"CNAF": 15.79, "GRIDKA": 21.14, "IN2P3": 11.81, "NCBJ": 7.89, "PIC": 3.93, "RAL": 30.54, "SARA": 8.90}
LHCB_STAGING = {"CNAF": 1.60, "GRIDKA": 1.66, "IN2P3": 1.20, "NCBJ": 0.89, "PIC": 0.40, "RAL": 2.40, "SARA": 0.80}


def test_lhcb_writes() -> None:
    """To disk and on to tape at the same rates, whose parts are the printed shares within their rounding."""
    found = scenarios(read("lhcb-writing.yaml"))
    disk, tape = (by_end(found[name], "destination", GIB) for name in ("to-disk", "to-tape"))
    assert disk == {f"{site}_DC_DISK": rate for site, rate in LHCB_WRITING.items()}
    assert tape == {f"{site}_DC_TAPE": rate for site, rate in LHCB_WRITING.items()}
    assert total(found["to-disk"], GIB) == 12.96
    for site, percent in PERCENT.items():
        assert 100 * disk[f"{site}_DC_DISK"] / 12.96 == pytest.approx(percent, abs=0.04)
    goals = {flow.goal for flow in found["to-disk"]}
    assert {goal.kind for goal in goals} == {"volume"}
    assert sum(goal.bytes for goal in goals) == pytest.approx(2 * 2**50, abs=len(goals))


def test_lhcb_stages() -> None:
    made = read("lhcb-staging.yaml")
    assert by_end(made.flows, "source", GIB) == {f"{site}_DC_TAPE": rate for site, rate in LHCB_STAGING.items()}
    assert total(made.flows, GIB) == 8.95
    assert all(flow.link.source[:3] == flow.link.destination[:3] for flow in made.flows)


# ALICE, Belle II, DUNE, JUNO


def test_alice() -> None:
    """Final Report, 3.1, in GB/s."""
    made = read("alice.yaml")
    found = by_end(made.flows, "destination", GB)
    targets = {"cnaf": 0.8, "in2p3": 0.4, "kisti": 0.2, "gridka": 0.6, "ndgf": 0.3, "nlt1": 0.1, "ral": 0.1}
    assert found.pop("root://cta.cern.example.org//alice/dc") == 10
    assert found == {f"root://se.{site}.example.org//alice/dc": rate for site, rate in targets.items()}
    assert len({flow.link.source for flow in made.flows}) == 1
    assert {flow.goal.kind for flow in made.flows} == {"keep"}


BELLE2 = {
    "BNL-TMP-SE": (3.3, 5.6),
    "CNAF-TMP-SE": (2.2, 3.7),
    "DESY-TMP-SE": (1.1, 1.9),
    "KIT-TMP-SE": (1.1, 1.9),
    "IN2P3CC-TMP-SE": (1.7, 2.8),
    "UVic-TMP-SE": (1.7, 2.8),
}


@pytest.mark.parametrize(("column", "name", "gbps"), [(0, "minimum", 11.1), (1, "maximum", 18.7)])
def test_belle2(column: int, name: str, gbps: float) -> None:
    """Final Report, 3.3; 18.5 Gb/s is printed, but the destinations sum to 18.7."""
    made = read(f"belle2-{name}.yaml")
    assert by_end(made.flows, "destination", GBPS) == {rse: rates[column] for rse, rates in BELLE2.items()}
    assert by_end(made.flows, "source", GBPS) == {"KEK-TMP-SE": gbps}
    assert {flow.goal.kind for flow in made.flows} == {"again"}


def test_dune() -> None:
    """1 GB/s all day; 3.5 GB/s for four hours of it."""
    made = read("dune.yaml")
    found = scenarios(made)
    assert total(found["archival"], GB) == 1
    assert total(found["burst"], GB) == 3.5
    assert all((flow.start, flow.end) == (made.start, made.end) for flow in found["archival"])
    (burst,) = {flow.start for flow in found["burst"]}
    for flow in found["burst"]:
        hours = [burst + timedelta(hours=hour) for hour in range(20)]
        assert levels(flow, *hours) == [flow.rate] * 4 + [0] * 16


def test_juno_takes_four_steps_on_each_of_three_links() -> None:
    """JUNO, 3.2 and 3.3, in MiB/s; three retries, something on top."""
    made = read("fts-juno-steps.yaml")
    assert len(made.flows) == 3
    for flow in made.flows:
        middles = [made.start + timedelta(hours=hour) for hour in (1, 3, 5, 7)]
        assert [rate / MIB for rate in levels(flow, *middles)] == pytest.approx([128, 256, 512, 1024], rel=1e-12)
        assert (flow.link.through, flow.job.retry, flow.overhead) == ("fts", 3, 0.05)


# The UK's mini-challenges: Mini-DC, UK edition

TIER1S = {"T1_DE_KIT_Disk", "T1_ES_PIC_Disk", "T1_FR_CCIN2P3_Disk", "T1_IT_CNAF_Disk"}


def test_uk_tier1() -> None:
    """RAL takes from CERN and the European CMS Tier-1s, and sends to them."""
    for flow in read("uk-tier1.yaml").flows:
        ends = [flow.link.source, flow.link.destination]
        ends.remove("T1_UK_RAL_Disk")
        assert set(ends) <= TIER1S | {"T2_CH_CERN"}
    assert {flow.link.source for flow in read("uk-tier1.yaml").flows} == TIER1S | {"T2_CH_CERN", "T1_UK_RAL_Disk"}


def test_uk_tier2() -> None:
    """Three Tier-2s from two sources; Brunel asked for 30 Gb/s."""
    made = read("uk-tier2.yaml")
    found = by_end(made.flows, "destination", GBPS)
    assert found["T2_UK_London_Brunel"] == 30
    assert found.keys() == {"T2_UK_London_Brunel", "T2_UK_London_IC", "T2_UK_SGrid_RALPP"}
    assert {flow.link.source for flow in made.flows} == {"T1_UK_RAL_Disk", "T2_CH_CERN"}


def test_uk_brunel() -> None:
    """30 Gb/s, then 40 Gb/s, out of RAL."""
    made = read("uk-brunel.yaml")
    (flow,) = made.flows
    assert str(flow.link) == "T1_UK_RAL_Disk:T2_UK_London_Brunel"
    found = levels(flow, made.start + timedelta(hours=1), made.start + timedelta(hours=3))
    assert [rate / GBPS for rate in found] == [30, 40]


# HL-LHC: Final Report, 2


@pytest.mark.parametrize(("name", "gbps"), [("half", 4800), ("full", 9600)])
def test_hllhc(name: str, gbps: int) -> None:
    """The flexible model's sum or half of it; of T0 export four times what ATLAS and CMS asked for, or twice."""
    made = read(f"hllhc/{name}.yaml")
    assert total(made.flows, GBPS) == gbps
    assert len({flow.link for flow in made.flows}) == 1200
    assert total(scenarios(made)["t0-export"], GBPS) == (257 + 250) * 4 * gbps / 9600


def test_half_of_hllhc_is_half_of_each_link() -> None:
    half, full = ({flow.key: flow.rate for flow in read(f"hllhc/{name}.yaml").flows} for name in ("half", "full"))
    assert half.keys() == full.keys()
    assert all(2 * half[key] == pytest.approx(full[key], rel=1e-12) for key in full)
