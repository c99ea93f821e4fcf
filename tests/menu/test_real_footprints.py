"""The footprints of the real menus are what the experiments computed by hand before Data Challenge 2024."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from dc_inject import menu
from dc_inject.analysis.footprint.adding import footprint
from dc_inject.analysis.footprint.load import Assumptions, Footprint
from dc_inject.system import files

MENUS = Path(__file__).parents[2] / "menus"
GBIT, GB = 1e9 / 8, 10**9

# "WLCG/DOMA Data Challenge 2024, Final Report" (zenodo 11444180), section 3.2: what ATLAS planned for the minimal
# model, ingress and egress in Gb/s, and the WAN that each site could use.
ATLAS = {
    "CERN-PROD": (23.4, 282.5, 891),
    "BNL-ATLAS": (84.5, 67.1, 400),
    "FZK-LCG2": (55.9, 35.5, 144),
    "IN2P3-CC": (59.8, 43.0, 177),
    "INFN-T1": (36.3, 26.0, 62),
    "NDGF-T1": (44.6, 33.7, 149),
    "SARA-MATRIX": (31.0, 16.4, 238),
    "pic": (17.1, 12.5, 85),
    "RAL-LCG2": (64.7, 40.3, 177),
    "TRIUMF-LCG2": (38.2, 27.8, 100),
}
# The same: TB of 1024 GB in 24 hours and deletions an hour, at a mean file of 3.0 GB.
SPACE = {"BNL-ATLAS": (892, 12681), "FZK-LCG2": (590, 8386)}
# The same for the flexible model, table 3.2.1a: ingress in Gb/s, TB of 1024 GB in 24 hours, deletions an hour.
FLEXIBLE = {
    "CERN-PROD": (88.9, 937, 13330),
    "BNL-ATLAS": (119.8, 1263, 17964),
    "FZK-LCG2": (92.9, 980, 13939),
    "IN2P3-CC": (93.5, 987, 14032),
    "INFN-T1": (61.2, 645, 9177),
    "NDGF-T1": (95.6, 1009, 14345),
    "SARA-MATRIX": (60.1, 634, 9020),
    "pic": (29.0, 306, 4355),
    "RAL-LCG2": (92.8, 978, 13915),
    "TRIUMF-LCG2": (60.0, 632, 8996),
}
# "Data Challenge 2024 - CMS Activities", sections 4.2 and 4.3: Gb/s of each day; on day 8 the mesh of American
# Tier-2s, 80 Gb/s, comes on top.
CMS = (250, 250, 500, 250, 500, 500, 500, 250 + 80, 1000, 1000, 1000, 1000)


@cache
def of(name: str) -> Footprint:
    campaign = menu.campaign([draft.preview for draft in files.read_menus([MENUS / name])])
    return footprint([campaign], Assumptions(mean_file=3 * GB))


def site(name: str, model: str = "minimal"):
    return next(row for row in of(f"atlas/{model}.yaml").by("site") if row.group.name == name)


@pytest.mark.parametrize("name", ATLAS)
def test_the_rates_of_each_site_are_those_that_atlas_planned(name):
    ingress, egress, wan = ATLAS[name]
    row = site(name)
    assert row.peak.ingress / GBIT == pytest.approx(ingress, abs=0.05)
    assert row.peak.egress / GBIT == pytest.approx(egress, abs=0.05)
    assert row.wan == wan * GBIT


@pytest.mark.parametrize("name", SPACE)
def test_space_and_deletions_are_those_that_atlas_planned(name):
    """Within 0.15 %: rates were rounded to 0.1 Gb/s."""
    space, deletions = SPACE[name]
    row = site(name)
    assert row.written / (1024 * GB) == pytest.approx(space, rel=0.0015)
    assert row.peak.files * 3600 == pytest.approx(deletions, rel=0.0015)


@pytest.mark.parametrize("name", FLEXIBLE)
def test_the_flexible_model_is_the_one_that_atlas_planned(name):
    """Within 0.2 %: rates were rounded to 0.1 Gb/s, of 29.0 Gb/s and less by more than elsewhere."""
    ingress, space, deletions = FLEXIBLE[name]
    row = site(name, "flexible")
    assert row.peak.ingress / GBIT == pytest.approx(ingress, abs=1e-9)
    assert row.written / (1024 * GB) == pytest.approx(space, rel=0.002)
    assert row.peak.files * 3600 == pytest.approx(deletions, rel=0.002)


@pytest.mark.parametrize("day", range(1, 13))
def test_each_day_of_cms_sums_to_its_schedule(day):
    """Exactly, in and out of all sites together; in 24 hours so much is written."""
    made = of(f"cms/day-{day:02}.yaml")
    assert made.total.peak.ingress / GBIT == pytest.approx(CMS[day - 1])
    assert sum(row.peak.egress for row in made.by("site")) / GBIT == pytest.approx(CMS[day - 1])
    assert made.total.written == pytest.approx(CMS[day - 1] * GBIT * 86400)


def test_the_whole_campaign_of_cms_moves_what_its_days_move():
    """76.5 PB; no day adds to the peak of another."""
    made = of("cms")
    assert made.total.volume == pytest.approx(sum(CMS) * GBIT * 86400)
    assert made.total.peak.ingress / GBIT == pytest.approx(max(CMS))
