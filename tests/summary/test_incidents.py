"""Five incidents of DC24, in a simulated grid: two cycles after each begins, its line names whom to call.

FTS stuck (by tokens, say), deletions too slow, FTS's default limit of a link, a cut WAN, and rules that are stuck
since their transfers fail. Sites, rates and hours are assumed, so that one short simulation has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from dc_inject.apps.twin import simulation
from dc_inject.summary import first_lines, short_links, standing
from dc_inject.summary.short_links import ShortGroup

pytest.importorskip("numpy")

START = datetime(2027, 2, 8, 10, tzinfo=UTC)
LENGTH = timedelta(minutes=15)
HOUR = timedelta(hours=1)
GRID = """
grid: 1
name: incidents
description: incidents of DC24
sources: ["assumed: all of it"]
rucio: {may_end: no}
defaults: {link: {file_speed: 20 MB/s, overhead: 10 s, failures: 0.5 %}}
fts: {actives: 2..40, per_storage: 400, named: yes}
sites:
  CERN: {wan: 400 Gb/s, storages: {CERN_Disk: {}}}
  IHEP: {wan: 400 Gb/s, storages: {IHEP_Disk: {}}}
  KIT: {wan: 144 Gb/s, storages: {KIT_Disk: {space: 500 TB}}}
  RAL: {wan: 177 Gb/s, storages: {RAL_Disk: {space: 500 TB}}}
  CNAF: {wan: 177 Gb/s, storages: {CNAF_Disk: {space: 500 TB}}}
  PIC:
    wan: 177 Gb/s
    storages: {PIC_Disk: {space: 2500 GB, deletion: {seconds_per_file: 1 s, parallel: 5, lag: 10 min}}}
troubles:
  - {fault: capacity, subject: RAL, at: 1 h, for: 40 min, part: 0.1 %}
  - {fault: failures, subject: CNAF_Disk, at: 1 h, for: 40 min, part: 100 %}
  - {fault: deletion-slow, subject: PIC_Disk, at: 0 h, for: 9 h, times: 200}
  - {fault: fts-down, at: 3 h, for: 1 h}
datasets:
  - {sources: ["*"], count: 250, files: 20..60, file_size: 1..3 GB}
"""
MENU = """
menu: 1
campaign: incidents
contact: dc-ops@example.org
timezone: UTC
start: 2027-02-08 10:00
end: 2027-02-08 15:00
accept: [fts-link-limit]
limits: {per_site: 400 Gb/s, total: 400 Gb/s}
defaults:
  cycle: 15 min
  control: act
  lifetime: {min: 1 h, max: 1 h}
  datasets: {did: "cms:/*/RAW#*", files: 1..1000, mean_file: 1..20 GB}
sites:
  KIT: {rses: {KIT_Disk: {}}}
  RAL: {rses: {RAL_Disk: {}}}
  CNAF: {rses: {CNAF_Disk: {}}}
  PIC: {rses: {PIC_Disk: {}}}
scenarios:
  test: {from: [CERN_Disk, IHEP_Disk], to: [RAL_Disk, CNAF_Disk, PIC_Disk], rate: 12 Gb/s}
  limit: {from: CERN_Disk, to: KIT_Disk, rate: 12 Gb/s}
"""
Seen = Mapping[timedelta, tuple[list[ShortGroup], list[str], list[str]]]


class EnoughError(BaseException):
    """All that is looked at has happened."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What is short, the first lines and the events, at the end of each cycle."""
    folder = tmp_path_factory.mktemp("incidents")
    (folder / "grid.yaml").write_text(GRID)
    (folder / "menu.yaml").write_text(MENU)
    seen: dict[timedelta, tuple[list[ShortGroup], list[str], list[str]]] = {}

    def look(_: float) -> None:
        closed = ledger.last_closed()
        if closed is None or closed.end - START in seen:
            return
        groups = short_links.grouped(short_links.judge_links(ledger, closed.end))
        status = {
            "campaign": "incidents",
            "rules": {"called": 0, "live": 1},
            "injector": {},
            "pauses": [],
            "troubles": [],
            "day": None,
        }
        lines = first_lines.lines(ledger, status, closed.end)
        seen[closed.end - START] = groups, lines["first_lines"], lines["events"]
        if closed.end - START >= 3.75 * HOUR:
            raise EnoughError

    request = simulation.Request(menus=(folder / "menu.yaml",), grid=folder / "grid.yaml")
    with simulation.new_ledger(folder / "ledger.sqlite") as ledger, pytest.raises(EnoughError):
        simulation.run(request, ledger, 1, look)
    return seen


@pytest.mark.parametrize(
    ("hours", "destinations", "cause", "subject", "call", "incidents"),
    [
        (1.0, {"KIT_Disk"}, "fts-limit", "CERN_Disk -> KIT_Disk", "FTS's operators", 1),
        (1.5, {"RAL_Disk"}, "silent", "all 2 links into RAL", "RAL", 2),
        (1.5, {"CNAF_Disk"}, "failing", "all 2 links into CNAF", "CNAF", 2),
        (2.25, {"PIC_Disk"}, "deletion-lag", "all 2 links into PIC", "PIC, then Rucio's operators", 1),
    ],
    ids=["FTS's limit", "a cut WAN", "rules stuck", "slow deletions"],
)
def test_two_cycles_later_a_line_names_whom_to_call(
    seen: Seen, hours: float, destinations: set[str], cause: str, subject: str, call: str, incidents: int
) -> None:
    """And it comes first, or second where two begin at once, whatever has been short for longer."""
    groups, lines, _ = seen[hours * HOUR]
    assert groups[0].line in lines[2]
    groups = groups[:incidents]
    (group,) = [one for one in groups if {link.key.link.destination for link in one.links} & destinations]
    assert (group.cause, group.subject, group.call) == (cause, subject, call)
    assert {link.key.link.destination for link in group.links} == destinations


def test_slow_deletions_are_never_the_menus(seen: Seen) -> None:
    """Also in the first cycles, before any deletion was seen to end, and so before a lag is measured."""
    into_pic = [
        (group.cause, group.call)
        for at, (groups, _, _) in seen.items()
        for group in groups
        if at < 3.25 * HOUR and group.links[0].key.link.destination == "PIC_Disk"
    ]
    assert len(into_pic) >= 5
    assert set(into_pic) == {("deletion-lag", "PIC, then Rucio's operators")}


def test_after_stuck_rules_each_line_names_the_site_and_nobody_is_called_while_links_return(seen: Seen) -> None:
    """They end after 1 h 40 min; dc_inject itself gives the site little until more arrives there."""
    into_cnaf = {
        at: [group for group in groups if {link.destination for link in group.links} == {"CNAF"}]
        for at, (groups, _, _) in seen.items()
        if 1.75 * HOUR < at <= 3 * HOUR
    }
    assert all(len(groups) in {1, 2} for groups in into_cnaf.values())
    slow = [group for groups in into_cnaf.values() for group in groups if group.links[0].returning is not None]
    assert {"CNAF" in group.call for group in slow} == {True}
    assert {group.needs_action for at in (2.5, 2.75, 3) for group in into_cnaf[at * HOUR]} == {False}


def test_where_fts_stands_still_no_site_is_blamed(seen: Seen) -> None:
    """It is the first of the lines about what is short, and an event."""
    groups, lines, _ = seen[3.5 * HOUR]
    silent = [group for group in groups if group.cause == short_links.UNEXPLAINED]
    assert [group.call for group in silent] == ["Rucio's and FTS's operators"]
    assert groups[0] is silent[0]
    assert [group.needs_action for group in groups] == [True] + [False] * (len(groups) - 1)
    assert len(lines) == 5
    assert silent[0].line in lines[2]
    assert silent[0].since == START + 3.25 * HOUR
    assert standing.TROUBLES["arrivals"].format(of="anywhere") in seen[3.75 * HOUR][2][0]
