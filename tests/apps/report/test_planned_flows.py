"""What menus plan from site to site: rates add up, pieces join, and the volumes are those of the menus."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dc_inject import menu
from dc_inject.apps.report.planned_flows import PlannedFlow, planned_flows
from dc_inject.model import Campaign, rates

HEAD = """\
menu: 1
campaign: dc27
contact: dc@example.org
start: 2027-02-08T10:00Z
end: 2027-02-08T18:00Z
limits: {total: 800 Gb/s, per_site: 800 Gb/s}
defaults: {datasets: {did: ["cms:*"]}}
sites:
  CERN: {rses: {T2_CH_CERN: {}}}
  KIT: {rses: {T1_DE_KIT_Disk: {}, T1_DE_KIT_Cache: {}}}
"""
START = datetime(2027, 2, 8, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
GB = 10**9


def campaign(scenarios: str) -> Campaign:
    return menu.campaign([menu.read(HEAD + scenarios, "day.yaml").preview])


def brief(flows: list[PlannedFlow]) -> list[tuple[object, ...]]:
    """From site, to site, hours of start and end, and GB/s."""
    return [
        (
            *flow.purpose[-2:],
            (flow.start - START) / HOUR,
            (flow.end - START) / HOUR,
            round(flow.rate / GB, 6),
        )
        for flow in flows
    ]


def test_links_of_two_sites_are_one_flow_and_rses_without_a_site_their_own():
    made = planned_flows(
        campaign(
            "scenarios: {export: {from: T2_CH_CERN, rate: 3 GB/s,"
            " to: [T1_DE_KIT_Disk, T1_DE_KIT_Cache, T1_US_FNAL_Disk]}}"
        )
    )
    assert brief(made) == [("CERN", "KIT", 0, 8, 2), ("CERN", "T1_US_FNAL_Disk", 0, 8, 1)]
    assert [len(flow.links) for flow in made] == [2, 1]
    assert [round(flow.bytes) for flow in made] == [2 * 8 * 3600 * GB, 8 * 3600 * GB]


def test_a_flow_is_cut_where_its_rate_changes_and_nowhere_else():
    """An exclusion of one link gives its rate to the other; the third link has nothing to do with it."""
    made = planned_flows(
        campaign(
            "exclude: [{rse: T1_DE_KIT_Disk, from: 2027-02-08T12:00Z, to: 2027-02-08T13:00Z, reason: x,"
            " redistribute: true}]\n"
            "scenarios:\n"
            "  a: {from: T2_CH_CERN, rate: 2 GB/s, to: [T1_DE_KIT_Disk, T1_US_FNAL_Disk]}\n"
            "  b: {from: T2_CH_CERN, rate: 1 GB/s, to: T1_ES_PIC_Disk}\n"
        )
    )
    fnal = "T1_US_FNAL_Disk"
    assert sorted(brief(made)) == sorted([
        *[("CERN", "KIT", 0, 2, 1), ("CERN", "KIT", 3, 8, 1)],
        *[("CERN", fnal, 0, 2, 1), ("CERN", fnal, 2, 3, 2), ("CERN", fnal, 3, 8, 1)],
        ("CERN", "T1_ES_PIC_Disk", 0, 8, 1),
    ])  # fmt: skip
    assert [flow.start for flow in made] == sorted(flow.start for flow in made)


def test_a_ramp_has_its_mean_and_its_highest_rate_and_the_volume_is_that_of_the_menu():
    one = campaign("scenarios: {a: {from: T2_CH_CERN, rate: 4 GB/s, to: T1_DE_KIT_Disk, shape: {ramp: 2 h}}}")
    made = planned_flows(one)
    assert brief(made) == [("CERN", "KIT", 0, 2, 2), ("CERN", "KIT", 2, 8, 4)]
    assert [round(flow.peak / GB, 3) for flow in made] == [4, 4]
    (flow,) = one.flows
    asked = float(rates.area(flow, flow.start, flow.end))
    assert abs(sum(flow.bytes for flow in made) / asked - 1) < 1e-6


def test_a_volume_ends_when_it_is_there():
    made = planned_flows(
        campaign("scenarios: {a: {from: T2_CH_CERN, rate: 1 GB/s, volume: 7200 GB, to: T1_DE_KIT_Disk}}")
    )
    assert brief(made) == [("CERN", "KIT", 0, 2, 1)]


def test_of_a_time_there_is_what_flows_in_it():
    one = campaign(
        "scenarios:\n"
        "  a: {from: T2_CH_CERN, rate: 1 GB/s, to: T1_DE_KIT_Disk, end: 2027-02-08T12:00Z}\n"
        "  b: {from: T2_CH_CERN, rate: 1 GB/s, to: T1_DE_KIT_Disk, start: 2027-02-08T14:00Z}\n"
    )
    assert [flow.purpose.scenario for flow in planned_flows(one)] == ["a", "b"]
    assert [flow.purpose.scenario for flow in planned_flows(one, since=START + 2 * HOUR)] == ["b"]
    assert [flow.purpose.scenario for flow in planned_flows(one, until=START + 4 * HOUR)] == ["a"]
