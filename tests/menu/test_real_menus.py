"""The menus that come with the tool: right, planned, and with the sums that were published.

Figures are those of the reports that menus/README.md names; test_cms_and_atlas.py has those of the large ones.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from dc_inject.analysis import lint
from dc_inject.cli.root import root
from dc_inject.model import DatasetFilter, FileFilter, Flow
from tests.menu.real import (
    FOLDER,
    GB,
    GBPS,
    GIB,
    MENUS,
    MIB,
    NAMES,
    README,
    by_end,
    campaign,
    footprint,
    levels,
    read,
    scenarios,
    total,
)

# All of them


@pytest.mark.parametrize("name", NAMES)
def test_each_menu_is_right_and_has_no_finding(name: str) -> None:
    """But for the plans for the HL-LHC: links of some scenarios, which the README tells of."""
    found = Counter(problem.code for problem in lint.findings(campaign(name)))
    assert found == ({"fts-link-limit": 5 if "full" in name else 3} if name.startswith("hllhc/") else {})


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


def second_hop(flow: Flow) -> bool:
    """Tell whether a flow takes what has landed at its source."""
    return isinstance(flow.datasets, DatasetFilter) and bool(flow.datasets.landed)


def item(flow: Flow) -> tuple[str, str, int, int]:
    """Make up what passes a flow's filter: a large file, of which few are planned, else half of its due."""
    source, wanted = flow.link.source, flow.datasets
    if isinstance(wanted, FileFilter):
        return source, f"{source}/{wanted.folder}/1.root", max(wanted.size[0], min(wanted.size[1], 50 * 10**9)), 1
    count = min(max(1, int(flow.rate * 450 / 5e9)), 1000)
    return source, f"{wanted.dids[0].replace('*', source)}{count}", count * 5 * 10**9, count


@pytest.mark.parametrize("name", NAMES)
def test_each_menu_plans_its_first_cycle(name: str, tmp_path: Path) -> None:
    """Every link whose window has begun has something due; something goes out from each source that has stock."""
    made = read(name)
    first = [flow for flow in made.flows if flow.start == made.start and not second_hop(flow)]
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


# LHCb: Final Report, 3.6

LHCB_WRITING = {"CNAF": 2.05, "GRIDKA": 2.74, "IN2P3": 1.53, "NCBJ": 1.02, "PIC": 0.51, "RAL": 3.96, "SARA": 1.15}
PERCENT = {"CNAF": 15.79, "GRIDKA": 21.14, "IN2P3": 11.81, "NCBJ": 7.89, "PIC": 3.93, "RAL": 30.54, "SARA": 8.90}
LHCB_STAGING = {"CNAF": 1.60, "GRIDKA": 1.66, "IN2P3": 1.20, "NCBJ": 0.89, "PIC": 0.40, "RAL": 2.40, "SARA": 0.80}


def test_lhcb_writes() -> None:
    """To disk and on to tape at the same rates, whose parts are the printed shares within their rounding."""
    flows = read("lhcb-writing.yaml").flows
    first, second = ([flow for flow in flows if second_hop(flow) == after] for after in (False, True))
    disk, tape = (by_end(some, "destination", GIB) for some in (first, second))
    assert disk == {f"{site}_DC_DISK": rate for site, rate in LHCB_WRITING.items()}
    assert tape == {f"{site}_DC_TAPE": rate for site, rate in LHCB_WRITING.items()}
    assert total(first, GIB) == 12.96
    for site, percent in PERCENT.items():
        assert 100 * disk[f"{site}_DC_DISK"] / 12.96 == pytest.approx(percent, abs=0.04)
    goals = {flow.goal for flow in first}
    assert {goal.kind for goal in goals} == {"volume"}
    assert sum(goal.bytes for goal in goals) == pytest.approx(2 * 2**50, abs=len(goals))


def test_lhcb_stages() -> None:
    made = read("lhcb-staging.yaml")
    assert by_end(made.flows, "source", GIB) == {f"{site}_DC_TAPE": rate for site, rate in LHCB_STAGING.items()}
    assert total(made.flows, GIB) == 8.95
    assert all(flow.link.source[:3] == flow.link.destination[:3] for flow in made.flows)
    drives = {end: site.tape.rate for site in made.sites if site.tape for end in site.tape.ends}
    assert all(flow.rate <= drives[flow.link.source] < flow.rate + 400e6 + 1 for flow in made.flows)


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


def test_dune_reads_what_it_archives() -> None:
    made = read("dune-keep-up-reads.yaml")
    assert (total(made.flows, GB), {flow.link.through for flow in made.flows}) == (1, {"reads"})


def test_dune() -> None:
    """1 GB/s all day; 3.5 GB/s for four hours of it."""
    made = read("dune.yaml")
    found = scenarios(made)
    archival, to_tape = ([flow for flow in found["archival"] if second_hop(flow) == hop] for hop in (False, True))
    assert total(found["burst"], GB) == 3.5
    assert total(archival, GB) == total(to_tape, GB) == 1
    assert all((flow.start, flow.end) == (made.start, made.end) for flow in (*archival, *to_tape))
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
