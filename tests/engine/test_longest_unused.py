"""Of datasets of about one size those come first that have not been used for longest, also after a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dc_inject.model import Cycle, Dataset

from .world import CYCLE, GB, START, World, campaign, flow, items, world


def uses(one: World) -> Counter[str]:
    return Counter(rule.injection.item.name for rule in one.backend.rules.values())


def test_a_pool_goes_round_before_anything_goes_out_again(tmp_path: Path) -> None:
    """60 datasets at a source with two links, 10 a cycle for each; rules end as soon as they are complete."""
    one = world(tmp_path, campaign([flow("A", "B", 4), flow("A", "C", 4)]), {"A": items("A", 60, 45 * GB)})
    for _ in range(2):
        one.run(cycles=6)  # by two engines, one after the other
    counts = uses(one)
    assert counts.total() == 240
    assert set(counts.values()) == {4}


def test_sizes_come_before_use(tmp_path: Path) -> None:
    """What is large and fits is taken all the same; only among equals it counts."""
    large, small = items("A", 30, 90 * GB), [Dataset(f"cms:/A/small#{n}", 10 * GB, 5) for n in range(300)]
    one = world(tmp_path, campaign([flow("A", "B", 4)]), {"A": large + small})
    one.run(cycles=12)
    counts = uses(one)
    assert {counts[item.name] for item in large} == {2}


def test_old_uses_are_forgotten_and_only_new_cycles_are_read(tmp_path: Path) -> None:
    one = world(tmp_path, campaign([flow("A", "B", 1)]), {"A": items("A", 60, 45 * GB)})
    one.run(cycles=2)
    later = Cycle(START + CYCLE, CYCLE).start
    everything = {item: at for item, source, at in one.ledger.used(START) if source == "A"}
    assert len(everything) == len(uses(one))
    assert {item for item, at in everything.items() if at >= later} == {i for i, _, _ in one.ledger.used(later)}
