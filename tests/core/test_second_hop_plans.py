"""Plans with second hops of files: who keeps the names of its files, and how they are bundled."""

from __future__ import annotations

from dataclasses import replace

from dc_inject.model import Bundle, File, FileFilter, Injection, JobOptions, PoolKey, naming
from dc_inject.model.goals import SecondHop
from dc_inject.planning.plan import plan
from tests.core.builders import GB, START, demand, flow, situation

HERE, THERE, LAST = "davs://a.example.org/dc", "davs://b.example.org/dc", "davs://t.example.org/dc"
JOBS = {"through": "fts", "job": JobOptions(files=10), "grain": 1.0}
FIRST = flow(HERE, THERE, datasets=FileFilter(folder=""), **JOBS)
HOP = flow(THERE, LAST, datasets=FileFilter(landed="test"), goal=SecondHop(), **JOBS)
SOURCES = [File(f"{HERE}/{n}", GB) for n in range(3)]


def planned(*flows, landed=(), due=9 * GB) -> list[Injection]:
    """The injections of a plan in which each flow is due so much."""
    made = situation([demand(one, due) for one in flows], SOURCES)
    pools = {**made.pools, PoolKey(THERE, HOP.datasets): list(landed)}
    return list(plan(replace(made, pools=pools)).injections)


def bundle(name: str, *sizes: int) -> Bundle:
    """Copies that landed together."""
    key = naming.key("camp", "test", START, FIRST.link, name)
    item = Bundle(name, sum(sizes), len(sizes))
    first = Injection(key, "camp", situation([], []).cycle, "test", FIRST.link, item, START,
                      FIRST.lifetime_max, "DC", 3, "me", JobOptions())  # fmt: skip
    copies = naming.copies(first)
    members = tuple(File(copy, size) for copy, size in zip(copies, sizes, strict=True))
    return Bundle(name, sum(sizes), len(sizes), members, key)


def test_files_are_kept_for_a_second_hop_and_by_it_and_for_nothing_else() -> None:
    """They cost room in the ledger."""
    assert [one.keeps_files for one in planned(FIRST)] == [False]
    both = planned(FIRST, HOP, landed=[bundle("1", GB)])
    assert {(one.link, one.keeps_files) for one in both} == {(FIRST.link, True), (HOP.link, True)}
    elsewhere = replace(HOP, scenario="other")
    assert {one.keeps_files for one in planned(FIRST, elsewhere) if one.link == FIRST.link} == {False}


def test_a_file_that_goes_out_again_begins_a_bundle_only_where_copies_go_on() -> None:
    """As many bundles as it takes for no file to be in one twice, and no more."""
    assert [one.item.files for one in planned(FIRST)] == [9]
    both = planned(FIRST, HOP)
    assert [one.item.files for one in both] == [3, 3, 3]
    for one in both:
        assert len({file.name for file in one.item.members}) == 3


def test_what_goes_on_stays_together_however_small_and_says_whose_copies_it_is() -> None:
    """Copies of small files are no odd files beside the data."""
    landed = [bundle("large", *[5 * GB] * 12), bundle("small", 10**6)]
    made = planned(HOP, landed=landed, due=61 * GB)
    assert sorted(one.item.files for one in made) == [1, 12]
    for one in made:
        source = next(item for item in landed if item.members == one.item.members)
        copy = naming.read_copy(THERE, source.members[0].name)
        assert copy is not None
        assert one.item.copied_by == copy.key
        assert one.item.name.endswith(f" copied by {copy.key}")
