"""Through the real Rucio: a volume is given once and ends the run, and what has landed goes on."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from dc_inject.model import State
from tests.e2e.tool import add_stock, rules, stock, this_cycle

pytestmark = pytest.mark.sandbox

CYCLE = 6  # seconds
MENU = """\
menu: 1
campaign: {campaign}
contact: tests@example.org
start: {start}
end: {end}
limits: {{total: 1 Tb/s, per_site: 1 Tb/s, rules_per_hour: 100000}}
defaults:
  cycle: {cycle} s
  lifetime: {{min: 5 min, max: 20 min}}
  datasets: {{did: "*:*", files: 1..1000, mean_file: 1 B..1 TB}}
scenarios:
  writing:
    from: {source}
    to: {{{one}: 2, {two}: 1}}
    volume: {volume} B
    rate: 20 Gb/s
    then: {{to: {{{one}: {last}}}}}
"""


def test_a_volume_goes_out_once_and_what_has_landed_goes_on(tool, sandbox, label):
    """The run ends by itself, long before its menu does, and nothing of it is left in Rucio."""
    source, one, two, last = (f"T2_{label}_{end}" for end in ("From", "To1", "To2", "Tape"))
    add_stock(sandbox, [source], [one, two, last], count=16)
    cycle, campaign = this_cycle(CYCLE), f"goals-{label}"
    volume = 60 * 10**9
    end = cycle.start + timedelta(hours=1)
    menu = tool.state / "goals.yaml"
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    menu.write_text(
        MENU.format(
            campaign=campaign, start=cycle.start.strftime(stamp), end=end.strftime(stamp), cycle=CYCLE,
            source=source, one=one, two=two, last=last, volume=volume,
        )
    )  # fmt: skip
    tool.run("run", menu, now=cycle.start)
    # On a slow machine a cycle may end before all its calls are made: those are withdrawn, and given again.
    entries = [entry for entry in tool.entries(campaign) if entry.state is not State.WITHDRAWN]
    assert {entry.state for entry in entries} == {State.GONE}
    assert rules(sandbox.config, campaign) == []
    given = {entry.injection.item.name for entry in entries}
    smallest = min(item.size for item in stock(source, 16) if f"{item.scope}:{item.name}" not in given)
    links = {link["destination"]: link for link in tool.status(campaign, "--summary")["links"]}
    for destination, part in ((one, 2 / 3), (two, 1 / 3)):
        assert abs(links[destination]["moved"] - part * volume) <= smallest / 2 + 1  # one more would miss by more
        assert links[destination]["goal"]["moved"] == links[destination]["moved"]
    assert links[last]["moved"] == links[one]["moved"]
    first = [entry for entry in entries if entry.injection.link.source == source]
    assert max(Counter(entry.injection.item.name for entry in first).values()) == 1
    landed = {entry.injection.item.name: entry for entry in first if entry.injection.link.destination == one}
    second = {entry.injection.item.name: entry for entry in entries if entry.injection.link.source == one}
    assert second.keys() == landed.keys()
    for name, entry in second.items():
        assert landed[name].completed_at <= entry.accepted_at
        assert landed[name].ended_at >= entry.completed_at
