"""A day of 96 cycles through engine and ledger: 8 links from 0.1 to 100 Gb/s, datasets of 0.05 to 8 TB."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass

import pytest

from dc_inject.engine.context import Settings
from dc_inject.model import Dataset
from dc_inject.model.events import Refused
from tests.engine.world import CYCLE, TB, campaign, flow, world

SETTINGS = Settings(drain=False, poll=CYCLE, observations_per_cycle=2)


def _run(path, cycles, links, **more):
    """Run some cycles and return what is left of them."""
    chance = random.Random(24)
    rates = [0.1 * 1000 ** (n / (links - 1)) for n in range(links)]
    chance.shuffle(rates)
    flows = [flow(f"S{n % 4}", f"D{n}", rate, **more) for n, rate in enumerate(rates)]
    stock = {
        f"S{n}": [
            Dataset(f"cms:/S{n}/{m}", int(0.05 * TB * 160 ** chance.random()), chance.randint(5, 900))
            for m in range(200)
        ]
        for n in range(4)
    }
    one = world(path, campaign(flows), stock, settings=SETTINGS)
    one.run(cycles=cycles)
    return Day(
        flows=flows,
        smallest={source: min(item.bytes for item in some) for source, some in stock.items()},
        accounts=one.ledger.accounts(),
        rows=one.ledger.rows(),
        entries=one.ledger.entries(),
        injections=[rule.injection for rule in one.backend.rules.values()],
        refused={refused.kind for refused in one.heard.of(Refused)},
    )


@dataclass
class Day:
    """What is left of a run: the ledger's word, the service's word, and what the engine told."""

    flows: list
    smallest: dict
    accounts: dict
    rows: tuple
    entries: list
    injections: list
    refused: set


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    return _run(tmp_path_factory.mktemp("day"), 96, 8)


def _check_accounts(day, overhead):
    for each in day.flows:
        account = day.accounts[each.key]
        wanted = account.due * (1 + overhead)
        assert account.forgiven == 0
        assert abs(account.injected - wanted) <= max(0.005 * wanted, day.smallest[each.link.source] / 2)


def test_over_a_day_every_link_gets_what_it_is_due(day):
    _check_accounts(day, 0.0)
    for each in day.flows:
        assert abs(day.accounts[each.key].due - each.rate * 86400) <= 96, "at most a byte a cycle is rounded"


def test_an_overhead_of_a_tenth_gives_a_tenth_more(tmp_path):
    _check_accounts(_run(tmp_path, 32, 4, overhead=0.1), 0.1)


def test_at_the_end_of_each_cycle_no_link_is_further_from_its_account_than_one_choice(day):
    largest: dict = defaultdict(int)
    for entry in day.entries:
        largest[entry.injection.flow] = max(largest[entry.injection.flow], entry.injection.item.bytes)
    off: dict = defaultdict(int)
    for row in day.rows:
        off[row.key] += row.injected + row.forgiven - row.due
        allowed = max(0.2 * row.due, largest[row.key], day.smallest[row.key.link.source])
        assert abs(off[row.key]) <= allowed, row
    assert len(day.rows) == 96 * len(day.flows)


def test_no_dataset_was_ever_asked_for_twice_at_a_destination(day):
    """The simulated service refuses a second one, as Rucio does: there was nothing to refuse."""
    assert "another-now" not in day.refused
    assert all(entry.accepted_at for entry in day.entries)


def test_every_row_that_is_short_says_one_reason(day):
    for row in day.rows:
        assert (row.held is not None) == (row.injected < row.due), row


def test_the_rows_sum_to_the_account_and_to_the_service(day):
    rules: dict = defaultdict(int)
    for injection in day.injections:
        rules[injection.flow] += injection.item.bytes
    sums: dict = defaultdict(int)
    for row in day.rows:
        sums[row.key] += row.injected
    assert dict(sums) == {key: account.injected for key, account in day.accounts.items()}
    assert dict(sums) == dict(rules)
