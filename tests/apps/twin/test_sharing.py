"""Weighted max-min sharing, where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dc_inject.apps.twin.grid.sharing import Sharing


def share(members, wanted, capacity, weights=None):
    made = Sharing(np.array(members), len(capacity))
    weights = np.ones(len(wanted)) if weights is None else np.array(weights, dtype=float)
    return made.rates(np.array(wanted, dtype=float), weights, np.array(capacity, dtype=float)).tolist()


INF = np.inf


@pytest.mark.parametrize(
    ("members", "wanted", "capacity", "weights", "rates"),
    [
        ([[1]], [5], [INF, 10], None, [5]),
        ([[1]], [50], [INF, 10], None, [10]),
        ([[1], [1]], [50, 50], [INF, 10], None, [5, 5]),
        ([[1], [1]], [2, 50], [INF, 10], None, [2, 8]),  # what one does not want the other gets
        ([[1], [1]], [50, 50], [INF, 10], [1, 4], [2, 8]),
        ([[1, 2], [1, 0], [2, 0]], [50, 50, 50], [INF, 10, 4], None, [2, 8, 2]),  # the textbook's three flows
        ([[1, 2], [1, 0], [2, 0]], [50, 50, 50], [INF, 1, 9], None, [0.5, 0.5, 8.5]),
        ([[1], [1]], [0, 50], [INF, 10], None, [0, 10]),
        ([[0], [0]], [3, 7], [INF], None, [3, 7]),
        ([[1], [1]], [50, 50], [INF, 0], None, [0, 0]),
    ],
)
def test_shares_are_those_of_the_textbook(members, wanted, capacity, weights, rates):
    assert share(members, wanted, capacity, weights) == pytest.approx(rates)


@given(st.data())
def test_no_flow_can_get_more_without_taking_from_one_that_has_no_more(data):
    flows, resources = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    numbers = st.integers(0, resources)
    members = data.draw(st.lists(st.tuples(numbers, numbers), min_size=flows, max_size=flows))
    positive = st.floats(0.1, 100)
    wanted = data.draw(st.lists(positive, min_size=flows, max_size=flows))
    weights = data.draw(st.lists(positive, min_size=flows, max_size=flows))
    capacity = [INF, *data.draw(st.lists(positive, min_size=resources, max_size=resources))]
    members = [sorted({*one}) + [0] * (2 - len({*one})) for one in members]  # each resource once
    rates = np.array(share(members, wanted, capacity, weights))
    loads = [sum(rate for rate, one in zip(rates, members, strict=True) if r in one) for r in range(len(capacity))]
    assert all(load <= most * (1 + 1e-9) for load, most in zip(loads, capacity, strict=True))
    for flow, rate in enumerate(rates):
        satisfied = rate >= wanted[flow] * (1 - 1e-9)
        level = rate / weights[flow]
        bottlenecks = [
            r
            for r in members[flow]
            if r
            and loads[r] >= capacity[r] * (1 - 1e-9)
            and all(
                rates[other] / weights[other] <= level * (1 + 1e-6)
                for other, one in enumerate(members)
                if r in one
            )
        ]
        assert satisfied or bottlenecks
