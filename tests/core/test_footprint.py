"""Footprints: they agree with what was published, grow with the rates, and add up in any order."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dc_inject.analysis.footprint.adding import footprint, spans, streams
from dc_inject.analysis.footprint.load import Assumptions, Footprint, FootprintRow, Load, most
from dc_inject.model import (
    Campaign,
    Dataset,
    DatasetFilter,
    Exclusion,
    File,
    FileFilter,
    Flow,
    JobOptions,
    Limits,
    Link,
    Listing,
    Menu,
    ReadOptions,
    RseSpec,
    Site,
)
from dc_inject.model.goals import Keep, SecondHop, Volume
from dc_inject.model.shape import Point, Shape

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
GBIT, GB, TB = 1e9 / 8, 10**9, 10**12
ALL = DatasetFilter(("cms:*",))


def flow(source: str, destination: str, gbit: float, scenario: str = "one", **more) -> Flow:
    """A link of so many Gb/s, for a day."""
    terms = {"start": START, "end": START + DAY, "datasets": ALL} | more
    through = terms.pop("through", "rucio")
    return Flow(scenario, Link(source, destination, through), gbit * GBIT, **terms)


def campaign(*flows: Flow, name: str = "dc27", sites: tuple[Site, ...] = (), **more) -> Campaign:
    """A campaign of one menu."""
    start, end = min(f.start for f in flows), max(f.end for f in flows)
    menu = Menu("m.yaml", name, "nobody", start, end, flows, sites=sites, **more)
    return Campaign(name, "nobody", menu.cycle, (menu,))


def row(made: Footprint, by: str, name: str) -> FootprintRow:
    """The row of a name."""
    return next(one for one in made.by(by) if one.group.name == name)


# --------------------------------------------------------------------------- published figures

# ATLAS's plan for the minimal model of Data Challenge 2024 ("WLCG/DOMA Data Challenge 2024, Final Report",
# zenodo 11444180, section 3.2): ingress and egress of sites in Gb/s, TB of 1024 GB written in 24 hours, and
# deletions an hour at a mean file of 3.0 GB.
ATLAS = {"BNL-ATLAS": (84.5, 67.1, 892, 12681), "FZK-LCG2": (55.9, 35.5, 590, 8386)}


@pytest.mark.parametrize(("site", "figures"), ATLAS.items())
def test_the_figures_that_atlas_computed_by_hand_come_out(site, figures):
    """Within 0.15 %: the rates were rounded to 0.1 Gb/s."""
    ingress, egress, space, deletions = figures
    made = footprint(
        [campaign(flow("others", site, ingress), flow(site, "others", egress))], Assumptions(mean_file=3 * GB)
    )
    found = row(made, "site", site)
    assert found.peak.ingress == pytest.approx(ingress * GBIT)
    assert found.peak.egress == pytest.approx(egress * GBIT)
    assert found.written / (1024 * GB) == pytest.approx(space, rel=0.0015)
    assert found.peak.files * 3600 == pytest.approx(deletions, rel=0.0015)


def test_the_transfers_that_atlas_planned_are_those_of_one_speed_for_both_sites():
    """719 and 473 transfers into the two sites are files of 14.7 MB/s (same report, FTS transfers in)."""
    made = footprint(
        [campaign(*(flow("others", site, figures[0]) for site, figures in ATLAS.items()))],
        Assumptions(file_speed=14.7e6),
    )
    assert row(made, "site", "BNL-ATLAS").peak.transfers_in == pytest.approx(719, rel=0.005)
    assert row(made, "site", "FZK-LCG2").peak.transfers_in == pytest.approx(473, rel=0.005)


def test_the_transfers_that_cern_to_ral_had_follow_from_their_speed():
    """4.74 GB/s at 6.2 MB/s for each file were 766 transfers (same report, section 3.2.2)."""
    made = footprint([campaign(flow("CERN", "RAL", 4.74 * 8))], Assumptions(file_speed=6.2e6))
    assert made.total.busiest == pytest.approx(766, rel=0.005)


def test_an_experiment_with_most_of_the_tokens_is_estimated_in_the_right_order():
    """CMS peaked at 200 requests a second; 1 Tb/s of 2 GB files is 125 here (same report, section 4)."""
    made = footprint([campaign(flow("A", "B", 1000))], Assumptions(mean_file=2 * GB))
    assert 50 < made.total.peak.tokens < 200


# --------------------------------------------------------------------------- by hand


def test_a_link_is_worked_out_as_by_hand():
    """80 Gb/s are 10 GB/s: with files of 5 GB, two arrive each second."""
    sites = (Site("KIT", wan=100 * GBIT, max_ingress=90 * GBIT, rses={"B": RseSpec(100 * TB, HOUR)}),)
    made = footprint([campaign(flow("A", "B", 80), sites=sites)])
    found = row(made, "site", "KIT")
    assert (found.links, found.wan, found.max_ingress, found.space) == (1, 100 * GBIT, 50 * GBIT, 100 * TB)
    assert found.max_egress == 50 * GBIT
    assert found.peak == pytest.approx(
        Load(
            ingress=10 * GB,
            resident=10 * GB * 3.25 * 3600,  # 2 h of lifetime, 1 h of lag, a cycle
            shortest=10 * GB * 2.25 * 3600,
            cancelled=10 * GB * 7200,
            quota=10 * GB * 7200,
            files=2,
            transfers_in=10_000 / 6,
            rules=2 / 1000,
            live_rules=7200 * 2 / 1000,
            locks=14_400,
            calls=8 / 1000,
            tokens=2,
        )
    )
    assert (found.volume, found.written) == (864 * TB, 864 * TB)
    assert found.fits == timedelta(seconds=10_000) - HOUR - timedelta(minutes=15)
    assert row(made, "site", "A").peak == pytest.approx(Load(egress=10 * GB, transfers_out=10_000 / 6, tokens=2))


def test_what_is_said_is_taken_instead_of_the_defaults():
    said = Assumptions(
        mean_file=2 * GB, dataset_files=10, deletion_lag=timedelta(0), lifetime=timedelta(hours=4), file_speed=2e7
    )
    peak = footprint([campaign(flow("A", "B", 8))], said).total.peak
    assert peak.files == pytest.approx(0.5)
    assert peak.rules == pytest.approx(0.05)
    assert peak.transfers_in == pytest.approx(50)
    assert peak.resident == pytest.approx(4.25 * 3600 * GB)
    assert peak.cancelled == pytest.approx(4 * 3600 * GB)


def test_a_short_menu_fills_no_more_than_it_injects():
    peak = footprint([campaign(flow("A", "B", 8, end=START + HOUR))]).total.peak
    assert peak.resident == pytest.approx(3600 * GB)
    assert peak.cancelled == pytest.approx(3600 * GB)


def test_overhead_is_injected_too():
    assert footprint([campaign(flow("A", "B", 8, overhead=0.1))]).total.peak.ingress == pytest.approx(1.1 * GB)


def test_traffic_inside_of_a_site_fills_its_space_but_not_its_wan():
    sites = (Site("X", rses={"A": RseSpec(), "B": RseSpec()}),)
    made = footprint([campaign(flow("A", "B", 8), flow("A", "C", 16), sites=sites)])
    found = row(made, "site", "X").peak
    assert (found.ingress, found.inside, found.egress) == (0, GB, 2 * GB)
    assert found.files == pytest.approx(0.2)
    assert made.total.peak.ingress == made.total.peak.egress == 3 * GB


def test_jobs_of_fts_need_no_quota_and_have_no_locks():
    """Their files come from a list, and their number is that of a job."""
    a, b = "davs://a/dc", "davs://b/dc"
    listing = Listing("l", "x", (File(f"{a}/1", GB), File(f"{a}/2", 3 * GB), File("davs://else/1", 9)))
    through = flow(a, b, 8, through="fts", datasets=FileFilter(listing), job=JobOptions(files=50))
    made = footprint([campaign(through)])
    assert (made.total.peak.quota, made.total.peak.locks) == (0, 0)
    assert made.total.peak.files == pytest.approx(0.5)
    assert made.total.peak.rules == pytest.approx(0.01)
    assert made.total.pool_lasts == timedelta(seconds=4)
    unsized = FileFilter(Listing("l", "x", (File(f"{a}/1", 0),)))
    assert footprint([campaign(replace(through, datasets=unsized))]).total.pool_lasts is None


def test_reads_fill_no_space_and_have_as_many_readers_as_their_rate_needs():
    job = JobOptions(reading=ReadOptions(rate=10_000_000))
    files = FileFilter(folder="", size=(GB, GB))
    reads = flow("root://a//dc", "T2", 8, through="reads", datasets=files, job=job)
    total = footprint([campaign(reads)]).total
    assert (total.volume, total.written) == (86_400 * GB, 0)
    assert footprint([campaign(reads, flow("A", "T2", 16))]).total.written == 2 * 86_400 * GB
    peak = total.peak
    assert (peak.ingress, peak.egress, peak.transfers_in, peak.transfers_out) == (GB, GB, 100, 100)
    assert (peak.resident, peak.files, peak.cancelled, peak.rules, peak.tokens) == (0, 0, 0, 0, 0)


def test_an_inventory_tells_file_sizes_and_how_long_the_poorest_pool_lasts():
    items = {
        "A": [Dataset("cms:1", 40 * GB, 10), Dataset("cms:2", 20 * GB, 10), Dataset("other:3", 999 * GB, 100)]
    }
    one = campaign(flow("A", "B", 8), flow("A", "C", 16))
    made = footprint([one], inventory=items)
    assert made.total.peak.files == pytest.approx(1)  # 3 GB/s, files of 3 GB
    assert made.total.pool_lasts == row(made, "site", "A").pool_lasts == timedelta(seconds=30)
    assert row(made, "site", "B").pool_lasts is None
    assert footprint([one]).total.pool_lasts is None
    assert footprint([one], inventory={}).total.pool_lasts == timedelta(0)


def test_what_goes_on_in_a_second_hop_has_no_pool_that_an_inventory_tells():
    items = {"A": [Dataset("cms:1", 30 * GB, 10)]}
    hops = campaign(flow("A", "B", 8), flow("B", "C", 8, goal=SecondHop()))
    assert footprint([hops], inventory=items).total.pool_lasts == timedelta(seconds=30)


def test_files_of_a_dataset_and_their_size_keep_to_the_bounds_of_the_menu():
    bounds = DatasetFilter(("cms:*",), files=(1, 100), mean_file=(10 * GB, 20 * GB))
    peak = footprint([campaign(flow("A", "B", 8, datasets=bounds))]).total.peak
    assert peak.files == pytest.approx(0.1)
    assert peak.rules == pytest.approx(0.001)


def test_what_follows_each_other_does_not_add_up_but_its_volume_does():
    later = flow("A", "B", 24, start=START + DAY, end=START + 2 * DAY)
    made = footprint([campaign(flow("A", "B", 8), later)])
    assert made.total.peak.ingress == 3 * GB
    assert made.total.volume == pytest.approx(4 * 86.4 * TB)
    assert made.total.written == pytest.approx(3 * 86.4 * TB)
    assert made.total.links == 1


def test_an_exclusion_takes_volume_away_and_redistribution_gives_it_to_others():
    gone = Exclusion(START, START + 6 * HOUR, "downtime", rse="B", redistribute=True)
    made = footprint([campaign(flow("A", "B", 8), flow("A", "C", 8), exclusions=(gone,))])
    assert row(made, "site", "C").peak.ingress == 2 * GB
    assert row(made, "site", "B").volume == pytest.approx(0.75 * 86.4 * TB)
    assert made.total.volume == pytest.approx(2 * 86.4 * TB)


def test_the_peak_and_the_volume_of_a_shape_are_counted():
    """A ramp to 8 Gb/s in an hour: its top is just before the jump down, after a flat start its mean is half."""
    ramp = Shape(START, (Point(timedelta(0), 0.0), Point(HOUR, 1.0), Point(HOUR, 0.5)))
    made = footprint([campaign(flow("A", "B", 8, end=START + 2 * HOUR, shape=ramp), flow("A", "C", 8))])
    found = row(made, "site", "B")
    assert found.peak.ingress == pytest.approx(GB)
    assert found.volume == pytest.approx(GB * 3600)
    assert made.total.peak.ingress == pytest.approx(2 * GB)


def test_pulses_of_links_out_of_step_never_add_up():
    """Bursts of half an hour, one in the first and one in the second half of each hour, for a day."""
    half = HOUR / 2
    first = Shape(START, (Point(0 * HOUR, 1.0), Point(half, 1.0), Point(half, 0.0), Point(HOUR, 0.0)), HOUR)
    second = Shape(START, (Point(0 * HOUR, 0.0), Point(half, 0.0), Point(half, 1.0), Point(HOUR, 1.0)), HOUR)
    made = footprint([campaign(flow("A", "B", 8, shape=first), flow("A", "C", 8, shape=second))])
    assert made.total.peak.ingress == pytest.approx(GB)
    assert made.total.volume == pytest.approx(86.4 * TB)
    assert row(made, "site", "B").volume == pytest.approx(43.2 * TB)


def test_what_is_redistributed_is_shared_by_links_in_proportion_whatever_their_windows():
    gone = Exclusion(START, START + HOUR, "downtime", rse="B", redistribute=True)
    late = flow("A", "D", 8, start=START + HOUR)
    made = footprint(
        [campaign(flow("A", "B", 8), flow("A", "C", 8), flow("A", "E", 16), late, exclusions=(gone,))]
    )
    assert row(made, "site", "C").peak.ingress == pytest.approx(GB * 4 / 3)
    assert row(made, "site", "E").peak.ingress == pytest.approx(GB * 8 / 3)
    assert row(made, "site", "D").peak.ingress == pytest.approx(GB)


def test_a_volume_flows_until_it_is_there_and_never_fills_more():
    """3.6 TB at 1 GB/s are there in an hour; with another link and no overhead, whatever the menu says."""
    plain = flow("A", "C", 8, start=START + 2 * HOUR)
    made = footprint([campaign(flow("A", "B", 8, goal=Volume(3600 * GB), overhead=0.1), plain)])
    found = row(made, "site", "B")
    assert found.peak.ingress == made.total.peak.ingress == GB
    assert found.volume == pytest.approx(3600 * GB)
    assert found.peak.resident == pytest.approx(3600 * GB)
    assert row(made, "site", "C").peak.resident == pytest.approx(8100 * GB)


def test_a_second_hop_carries_what_has_landed_and_no_more():
    """3.6 TB of a volume, or what a rate brings in the window, however fast it may go on."""
    landed = DatasetFilter((), landed="one")
    hop = flow("B", "T", 4, goal=SecondHop(), datasets=landed)
    made = footprint([campaign(flow("A", "B", 8, goal=Volume(3600 * GB)), hop)])
    found = row(made, "site", "T")
    assert found.peak.ingress == GB / 2
    assert found.volume == found.peak.quota == pytest.approx(3600 * GB)
    assert made.total.volume == pytest.approx(7200 * GB)
    fast = replace(hop, rate=10 * GB)
    whole = row(footprint([campaign(flow("A", "B", 8), fast)]), "site", "T")
    assert whole.volume == pytest.approx(row(footprint([campaign(flow("A", "B", 8))]), "site", "B").volume)


def test_of_a_keep_no_more_than_its_bytes_are_on_their_way():
    found = footprint([campaign(flow("A", "B", 8, goal=Keep(TB)))]).total
    assert found.peak.cancelled == pytest.approx(TB)
    assert found.peak.quota == pytest.approx(7200 * GB)
    assert footprint([campaign(flow("A", "B", 8, goal=Keep(9 * TB)))]).total.peak.cancelled == pytest.approx(
        7200 * GB
    )


def test_links_that_share_a_volume_end_at_one_time():
    """However their bytes are rounded: a span for each would make footprints of large menus slow."""
    shares = [flow("A", f"B{n}", 8, goal=Volume(3600 * GB + n)) for n in range(50)]
    one = [campaign(*shares)]
    assert len(list(spans(one, streams(one)))) == 1


def test_links_of_several_scenarios_share_what_fts_allows():
    made = footprint([campaign(flow("A", "B", 4.8), flow("A", "B", 4.8, "two"))])
    assert made.total.busiest == pytest.approx(200)
    assert row(made, "scenario", "two").busiest == pytest.approx(100)


def test_experiments_are_added_at_their_common_sites_and_the_lowest_wan_counts():
    """Each has its own RSEs and its own limits there."""
    cms = campaign(
        flow("CERN", "T1_DE_KIT_Disk", 8, "t0"),
        name="cms",
        sites=(Site("KIT", wan=100 * GBIT, rses={"T1_DE_KIT_Disk": RseSpec(TB)}),),
    )
    atlas = campaign(
        flow("CERN-PROD", "FZK-LCG2", 16, "t0"),
        name="atlas",
        sites=(Site("KIT", wan=144 * GBIT, rses={"FZK-LCG2": RseSpec(2 * TB)}),),
        limits=Limits(per_site=20 * GBIT),
    )
    made = footprint([cms, atlas])
    kit = row(made, "site", "KIT")
    assert (kit.peak.ingress, kit.wan, kit.space, kit.max_ingress) == (3 * GB, 100 * GBIT, 3 * TB, 70 * GBIT)
    assert {one.group.name for one in made.by("scenario")} == {"cms t0", "atlas t0"}
    unknown = replace(atlas, menus=(replace(atlas.menus[0], sites=(Site("KIT", rses={"FZK-LCG2": RseSpec()}),)),))
    assert row(footprint([cms, unknown]), "site", "KIT").space is None


# --------------------------------------------------------------------------- properties

RSES = ["A", "B", "C", "D", "E"]
SITES = (Site("X", rses={"A": RseSpec(), "B": RseSpec()}), Site("Y", rses={"C": RseSpec()}))
ENDS = st.tuples(st.sampled_from(RSES), st.sampled_from(RSES)).filter(lambda ends: ends[0] != ends[1])


@st.composite
def campaigns(draw, name: str = "dc27", *, windows: bool = False) -> Campaign:
    """Links with scenarios; with `windows` of their own."""
    keys = draw(st.lists(st.tuples(ENDS, st.sampled_from(["one", "two"])), min_size=1, max_size=8, unique=True))
    flows = []
    for (source, destination), scenario in keys:
        begin, hours = draw(st.integers(0, 40)), draw(st.integers(1, 40))
        span = {"start": START + begin * HOUR, "end": START + (begin + hours) * HOUR} if windows else {}
        gbit = draw(st.floats(0.01, 500))
        through = draw(st.sampled_from(["rucio", "fts"]))
        flows.append(flow(source, destination, gbit, scenario, through=through, **span))
    return campaign(*flows, name=name, sites=SITES)


def numbers(one: FootprintRow) -> list[float]:
    """All that grows with the rates."""
    return [*one.peak, one.volume, one.written, one.busiest]


def scaled(one: Campaign, scale: float) -> Campaign:
    """The campaign with all rates times `scale`."""
    menus = tuple(replace(m, flows=tuple(replace(f, rate=f.rate * scale) for f in m.flows)) for m in one.menus)
    return replace(one, menus=menus)


@settings(max_examples=30)
@given(campaigns(windows=True), st.floats(0.01, 100))
def test_twice_the_rates_are_twice_the_footprint(one, scale):
    plain, more = footprint([one]), footprint([scaled(one, scale)])
    assert [r.group for r in plain.rows] == [r.group for r in more.rows]
    for before, after in zip(plain.rows, more.rows, strict=True):
        assert numbers(after) == pytest.approx([scale * number for number in numbers(before)])


@settings(max_examples=30)
@given(campaigns())
def test_scenarios_that_run_at_once_sum_to_the_total(one):
    made = footprint([one])
    summed = [math.fsum(column) for column in zip(*(r.peak for r in made.by("scenario")), strict=True)]
    assert summed == pytest.approx(list(made.total.peak))
    assert math.fsum(r.volume for r in made.by("scenario")) == pytest.approx(made.total.volume)


@settings(max_examples=30)
@given(campaigns(windows=True))
def test_volumes_sum_to_the_total_whatever_the_windows(one):
    made = footprint([one])
    for by in ("site", "scenario"):
        assert math.fsum(r.volume for r in made.by(by)) == pytest.approx(made.total.volume)
    asked = math.fsum(f.rate * (f.end - f.start).total_seconds() for f in one.flows)
    assert made.total.volume == pytest.approx(asked)


@settings(max_examples=30)
@given(campaigns())
def test_sites_sum_to_the_sum_of_links(one):
    """What is inside of a site counts there once; what crosses a border leaves one site and enters another."""
    made = footprint([one])
    sites, total = [r.peak for r in made.by("site")], made.total.peak
    links = [footprint([campaign(f, sites=SITES)]).total.peak for f in one.flows]
    for name in set(Load._fields) - {"ingress", "egress", "inside"}:
        assert math.fsum(getattr(p, name) for p in sites) == pytest.approx(getattr(total, name))
        assert math.fsum(getattr(p, name) for p in links) == pytest.approx(getattr(total, name))
    for way in ("ingress", "egress"):
        assert math.fsum(getattr(p, way) + p.inside for p in sites) == pytest.approx(total.ingress)


@settings(max_examples=30)
@given(campaigns("cms", windows=True), campaigns("atlas", windows=True), campaigns("lhcb", windows=True))
def test_experiments_add_up_in_any_order(one, two, three):
    assert footprint([one, two, three]) == footprint([three, one, two]) == footprint([two, three, one])


@settings(max_examples=30)
@given(campaigns("cms"), campaigns("atlas"))
def test_experiments_at_once_are_the_sum_of_each(one, two):
    both = footprint([one, two]).total.peak
    each = [footprint([c]).total.peak for c in (one, two)]
    assert list(both) == pytest.approx([a + b for a, b in zip(*each, strict=True)])


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0, 100)), min_size=1, max_size=6),
    st.integers(1, 60),
)
def test_no_window_holds_more_than_the_fullest_one(parts, hours):
    """Tried out at every hour: rates change only then."""
    history, begin = [], START
    for length, rate in parts:
        history.append((begin, begin + length * HOUR, rate))
        begin += length * HOUR
    window = hours * HOUR

    def inside(moment: datetime) -> float:
        return sum(
            rate * max((min(end, moment + window) - max(start, moment)).total_seconds(), 0)
            for start, end, rate in history
        )

    tried = max(inside(START + hour * HOUR) for hour in range(-hours, (begin - START) // HOUR))
    assert most(history, window) == pytest.approx(tried)
