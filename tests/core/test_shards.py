"""Shards of a campaign: which destination is in which, and what of the limits each one has."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from dc_inject.model import Campaign, Flow, Limits, Site, overrides
from dc_inject.model.goals import SecondHop, Volume
from dc_inject.model.overrides import Kind, Override
from dc_inject.model.shards import Shard, read_shard
from dc_inject.planning import limits, shards
from dc_inject.planning.overrides import apply_overrides
from tests.engine.world import GB, START, campaign, file_flow, flow

COUNT = 4
FLOWS = [flow("A", f"RSE{n:02}", 1.0 + n) for n in range(40)]


def _parts(made: Campaign, count: int = COUNT) -> list[tuple[Flow, ...]]:
    return [shards.part(made, Shard(index, count)).flows for index in range(count)]


def _with(index: int, count: int = COUNT) -> list[str]:
    """The destinations of a shard, among those of FLOWS."""
    return [place for place, shard in shards.assigned(FLOWS, count).items() if shard == index]


def test_each_flow_is_in_one_shard_and_a_shard_knows_the_others() -> None:
    made = campaign(FLOWS)
    parts = _parts(made)
    assert sorted(f.key for part in parts for f in part) == sorted(f.key for f in FLOWS)
    assert all(len(part) >= 5 for part in parts), "forty destinations are about even"
    one = shards.part(made, Shard(1, COUNT)).menus[0]
    assert sorted(f.key for f in (*one.flows, *one.elsewhere)) == sorted(f.key for f in FLOWS)


def test_the_assignment_is_for_good() -> None:
    """A successor on another machine, with another version of Python, has the same destinations."""
    few = shards.assigned([flow("A", name, 1.0) for name in ("T1_DE_KIT_Disk", "T1_ES_PIC_Disk", "T2_UK")], 4)
    assert few == {"T1_DE_KIT_Disk": 1, "T1_ES_PIC_Disk": 0, "T2_UK": 1}
    assert shards.assigned(reversed(FLOWS), COUNT) == shards.assigned(FLOWS, COUNT)
    hop = flow("T1_ES_PIC_Disk", "T1_DE_KIT_Disk", 1.0, goal=SecondHop())
    assert set(shards.assigned([hop], 4).values()) == {1}, "the first name's"


def test_a_further_destination_moves_no_other() -> None:
    before = shards.assigned(FLOWS, COUNT)
    after = shards.assigned([*FLOWS, flow("B", "NEW", 1.0)], COUNT)
    assert {place: after[place] for place in before} == before


def test_prefixes_of_one_host_are_in_one_shard() -> None:
    flows = [file_flow("a", f"h{n}", 1.0) for n in range(8)]
    more = [
        replace(f, link=f.link._replace(destination=f.link.destination.replace("/dc", "/other"))) for f in flows
    ]
    for part in _parts(campaign([*flows, *more])):
        hosts = [f.link.destination.split("/")[2] for f in part]
        assert all(hosts.count(host) == 2 for host in hosts)


def test_a_second_hop_is_in_the_shard_of_what_lands() -> None:
    hops = [flow(f.link.destination, f"FAR{n:02}", 1.0, goal=SecondHop()) for n, f in enumerate(FLOWS)]
    parts = _parts(campaign([*FLOWS, *hops]))
    assert sum(map(len, parts)) == 80
    for part in parts:
        landed = {f.link.destination for f in part}
        assert all(f.link.source in landed for f in part if f.goal is not None)


def test_hop_after_hop_and_what_goes_out_once_at_the_end_of_one_are_in_one_shard() -> None:
    """Whatever comes first: groups that have a destination in common are one."""
    names = [f"RSE{n:02}" for n in range(20)]
    hops = [flow(a, b, 1.0, goal=SecondHop()) for a, b in pairwise(names)]
    volumes = [replace(flow("A", name, 1.0), scenario="once", goal=Volume(GB)) for name in ("RSE19", "END")]
    for flows in ([*hops, *volumes], [*hops[::2], *volumes, *hops[1::2]]):
        assert sorted(map(len, _parts(campaign(flows)))) == [0, 0, 0, len(flows)]


def test_what_goes_out_once_in_a_scenario_is_in_one_shard() -> None:
    volumes = [replace(f, scenario="once", goal=Volume(GB)) for f in FLOWS[:10]]
    parts = _parts(campaign([*FLOWS[5:], *volumes]))
    having = [part for part in parts if any(f.scenario == "once" for f in part)]
    assert len(having) == 1
    assert {f.link.destination for f in FLOWS[:10]} <= {f.link.destination for f in having[0]}


def test_a_rate_of_a_scenario_is_shared_with_the_links_of_other_shards() -> None:
    made = campaign(FLOWS)
    half = [Override("test", Kind.RATE, 10e9, "who", "", START)]
    whole = {f.key: f.rate for f in apply_overrides(made, half).flows}
    assert sum(whole.values()) == pytest.approx(10e9)
    for index in range(COUNT):
        ours = apply_overrides(shards.part(made, Shard(index, COUNT)), half).flows
        assert {f.key: f.rate for f in ours} == {key: whole[key] for key in (f.key for f in ours)}


def test_limits_of_all_shards_sum_to_those_of_one() -> None:
    whole = Limits(total=100e9, per_site=50e9, rules_per_hour=1000, files_in_flight=10**5)
    sites = (Site("KIT", wan=20e9, rses={"A": ...}),)  # type: ignore[dict-item]
    site_of = {"A": "KIT"}
    totals, rules, files, out = 0.0, 0, 0, 0.0
    for index in range(COUNT):
        menu = shards.part(campaign(FLOWS), Shard(index, COUNT)).menus[0]
        own, places = shards.divided(whole, sites, site_of, menu.flows, menu.elsewhere)
        totals, rules, files = totals + own.total, rules + own.rules_per_hour, files + own.files_in_flight
        strict = limits.strictest(places)
        out += limits.site_limit(strict["KIT"], "out", own)
        for f in menu.flows:
            assert limits.site_limit(strict[f.link.destination], "in", own) == 50e9, "it is in no other shard"
    assert totals == pytest.approx(100e9)
    assert out == pytest.approx(20e9)
    assert 996 <= rules <= 1000
    assert 99_996 <= files <= 10**5


def test_a_small_part_of_a_limit_is_still_a_rule_and_a_file() -> None:
    least = Limits(total=100e9, per_site=50e9, rules_per_hour=2, files_in_flight=2)
    for index in range(COUNT):
        menu = shards.part(campaign(FLOWS), Shard(index, COUNT)).menus[0]
        own, _ = shards.divided(least, (), {}, menu.flows, menu.elsewhere)
        assert (own.rules_per_hour, own.files_in_flight) == (1, 1)


def test_links_without_a_rate_divide_nothing() -> None:
    """Those outside their windows, say."""
    still = [replace(f, rate=0.0) for f in FLOWS[:2]]
    assert shards.divided(Limits(total=8e9), (), {}, still[:1], still[1:])[0].total == 8e9


def test_a_site_with_disks_in_two_shards_has_one_limit() -> None:
    names = [_with(0)[0], _with(1)[0]]
    flows = [flow("A", names[0], 3.0), flow("A", names[1], 1.0)]
    site_of = dict.fromkeys(names, "KIT")
    sites = (Site("KIT", max_ingress=8e9),)
    allowed = []
    for index in (0, 1):
        menu = shards.part(campaign(flows), Shard(index, COUNT)).menus[0]
        _, places = shards.divided(Limits(), sites, site_of, menu.flows, menu.elsewhere)
        allowed.append(limits.strictest(places)["KIT"].max_ingress)
    assert allowed == [6e9, 2e9]


def test_a_shard_without_a_destination_has_no_flows() -> None:
    parts = _parts(campaign(FLOWS[:1]))
    assert sorted(map(len, parts)) == [0, 0, 0, 1]


def test_what_is_no_longer_in_menus_is_of_one_shard_too() -> None:
    made = campaign(FLOWS[:20])
    hops = campaign([flow(f.link.destination, f"TO{n:02}", 1.0, goal=SecondHop()) for n, f in enumerate(FLOWS)])
    of_hops = shards.assigned(hops.flows, COUNT)
    for index in range(COUNT):
        is_ours = shards.member(shards.part(hops, Shard(index, COUNT)), Shard(index, COUNT))
        assert [is_ours(f.link) for f in hops.flows] == [of_hops[f.link.destination] == index for f in hops.flows]
    for f in FLOWS:
        members = [
            index
            for index in range(COUNT)
            if shards.member(shards.part(made, Shard(index, COUNT)), Shard(index, COUNT))(f.link)
        ]
        assert members == [shards.assigned(FLOWS, COUNT)[f.link.destination]]


@pytest.mark.parametrize("text", ["4/4", "-1/4", "1", "1/0", "a/b", "", "0/11", "0/4/2", "1 / 4"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="shard"):
        read_shard(text)


def test_a_shard_is_written_as_it_is_read() -> None:
    assert read_shard("2/4") == Shard(2, 4)
    assert str(Shard(2, 4)) == "2/4"
    assert read_shard("0/1") == Shard(0, 1)


def test_an_override_of_one_link_changes_no_share_of_others() -> None:
    """So it does not matter to a shard whether it knows what is set for links of others."""
    made = shards.part(campaign(FLOWS), Shard(0, COUNT))
    other = made.menus[0].elsewhere[0]
    one = [Override(overrides.EVERYTHING, Kind.SCALE, 0.5, "who", "", START)]
    two = [*one, Override(str(other.link), Kind.RATE, 1e9, "who", "", START + timedelta(minutes=1))]
    assert apply_overrides(made, one).flows == apply_overrides(made, two).flows
