"""The built-in grid."""

from __future__ import annotations

from dc_inject.sandbox.grid import read_grid

SATURATED = 2 * 10**12  # bytes: at 100 Gb/s all that is on its way or being deleted in more than two minutes


def test_sources_of_the_examples_have_datasets_enough_to_saturate_a_link() -> None:
    """With names of their own, and small against what a cycle of 20 s moves at 100 Gb/s."""
    for source in ("T2_CH_CERN", "T1_UK_RAL_Disk"):
        datasets = read_grid().datasets[source]
        assert len({one.name for one in datasets}) == len(datasets) >= 120
        assert sum(one.size for one in datasets) > SATURATED
        assert max(one.size for one in datasets) < 20 * 12.5e9 / 2
