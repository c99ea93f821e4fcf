"""Sizes that cannot be true, from lists, storages and services, end no run."""

from __future__ import annotations

from dc_inject.model import Dataset, DatasetFilter
from dc_inject.model.items import LARGEST_DATASET
from tests.engine.world import campaign, flow, items, world

HUGE = 10**18 - 1
GB = 10**9
ANY_SIZE = DatasetFilter(("*:*",), files=(1, 10**6), mean_file=(1, 2**63 - 1))


def test_a_dataset_with_more_bytes_than_one_can_have_is_not_taken(tmp_path):
    stock = [*items("A", 20, 5 * GB), *(Dataset(f"cms:huge-{n}", HUGE, 10) for n in range(40))]
    one = world(tmp_path, campaign([flow("A", "B", 0.1, datasets=ANY_SIZE)]), {"A": stock})
    one.run(3)
    rows = one.ledger.rows()
    assert [row.injected > 0 for row in rows] == [True] * 3
    assert {row.pool_items for row in rows} <= set(range(21))


def test_a_pool_whose_sum_no_ledger_can_keep_ends_no_run(tmp_path):
    """A thousand datasets, each as large as one can be: the row has the largest number that a ledger keeps."""
    stock = [*items("A", 20, 5 * GB), *(Dataset(f"cms:large-{n}", LARGEST_DATASET, 1000) for n in range(1000))]
    one = world(tmp_path, campaign([flow("A", "B", 0.1, datasets=ANY_SIZE)]), {"A": stock})
    one.run(2)
    assert [row.pool_bytes for row in one.ledger.rows()] == [2**63 - 1] * 2
