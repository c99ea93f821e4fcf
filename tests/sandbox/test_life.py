"""The sandbox is a real grid: what an ordinary account does through REST happens as in life."""

from __future__ import annotations

import uuid

import pytest
from rucio.client import Client
from rucio.common.exception import AccessDenied, InvalidObject, RuleNotFound

from dc_inject.model.errors import ServiceError
from dc_inject.sandbox import Link, Rse, Sandbox
from tests.conftest import client_for
from tests.sandbox.rules import inject, locks, standing, state, until

pytestmark = pytest.mark.sandbox


@pytest.fixture
def ordinary(sandbox: Sandbox) -> Client:
    return client_for(sandbox.config)


def test_an_ordinary_account_injects_moves_and_ends_a_dataset(ordinary, fresh_link):
    source, destination, (dataset, *_) = fresh_link()
    where = {"scope": dataset.scope, "name": dataset.name}
    (there,) = ordinary.list_dataset_replicas(**where)
    assert (there["rse"], there["bytes"], there["state"]) == (source, dataset.size, "AVAILABLE")

    rule = inject(ordinary, *where.values(), source, destination)
    until(lambda: state(ordinary, rule) == "OK")
    assert locks(ordinary, rule) == (len(dataset.files), 0, 0)
    (usage,) = ordinary.get_local_account_usage("dcops", destination)
    assert usage["bytes_limit"] == 400 * 10**12

    ordinary.update_replication_rule(rule, {"lifetime": 0})
    until(lambda: state(ordinary, rule) == "GONE")
    until(lambda: [one["rse"] for one in ordinary.list_dataset_replicas(**where)] == [source])


def test_an_owner_deletes_its_rule_but_not_somebody_elses(sandbox, ordinary, fresh_link):
    source, destination, (dataset, *_) = fresh_link()
    mine = inject(ordinary, dataset.scope, dataset.name, source, destination)
    assert ordinary.delete_replication_rule(mine)
    pinned = [rule["id"] for rule in ordinary.list_did_rules(dataset.scope, dataset.name) if rule["id"] != mine]
    with pytest.raises(AccessDenied):
        ordinary.delete_replication_rule(pinned[0])
    with pytest.raises(RuleNotFound):  # so the right can be asked for without harm
        ordinary.update_replication_rule(uuid.uuid4().hex, {"lifetime": 0})


def test_a_name_that_experiments_do_not_have_is_refused(ordinary):
    for name in ("a name", "-name", "name?"):
        with pytest.raises(InvalidObject):
            ordinary.add_dataset("user.dcops", name)


def test_used_space_follows_what_is_there(ordinary, fresh_link):
    space = 10**14
    source, destination, (dataset, *_) = fresh_link(space=space)

    def storage() -> tuple[int, int]:
        (usage,) = [one for one in ordinary.get_rse_usage(destination) if one["source"] == "storage"]
        return usage["used"], usage["free"]

    assert storage() == (0, space)
    rule = inject(ordinary, dataset.scope, dataset.name, source, destination)
    until(lambda: storage() == (dataset.size, space - dataset.size))
    until(lambda: state(ordinary, rule) == "OK")
    ordinary.update_replication_rule(rule, {"lifetime": 0})
    until(lambda: storage() == (0, space))


def test_a_slow_link_is_behind_a_fast_one(sandbox, ordinary, fresh_link):
    slow, slow_end, (heavy,) = fresh_link(count=1, files=(6, 6))
    fast, fast_end, (light,) = fresh_link(count=1, files=(6, 6))
    sandbox.set_links({(slow, slow_end): Link(rate=1e6), (fast, fast_end): Link(rate=1e12)})
    held = inject(ordinary, heavy.scope, heavy.name, slow, slow_end)
    quick = inject(ordinary, light.scope, light.name, fast, fast_end)
    until(lambda: locks(ordinary, quick) == (6, 0, 0))
    assert locks(ordinary, held) == (0, 6, 0)

    sandbox.set_links({(slow, slow_end): Link(rate=1e12)})  # taken up while the files are on their way
    until(lambda: locks(ordinary, held) == (6, 0, 0))


def test_a_broken_link_makes_locks_stuck_and_leaves_others_alone(sandbox, ordinary, fresh_link):
    bad, bad_end, (lost, *_) = fresh_link()
    good, good_end, (fine, *_) = fresh_link()
    sandbox.set_links({(bad, bad_end): Link(rate=1e12, failures=1)})
    stuck = inject(ordinary, lost.scope, lost.name, bad, bad_end)
    sound = inject(ordinary, fine.scope, fine.name, good, good_end)
    until(lambda: (seen := standing(ordinary, stuck))[0] == "STUCK" and seen[1][2] > 0)
    until(lambda: state(ordinary, sound) == "OK")
    # else the daemons repair it until its lifetime is over, which takes a third of their time
    ordinary.update_replication_rule(stuck, {"lifetime": 0})


def test_what_cannot_be_added_is_told_and_the_next_can(sandbox):
    name = f"T2_XX_{uuid.uuid4().hex[:8].upper()}"
    sandbox.add([Rse(name, 10**15)])
    with pytest.raises(ServiceError, match=r"the grid was not built: .*Duplicate"):
        sandbox.add([Rse(name, 10**15)])
    sandbox.set_quota(name, 10**12)
    (limit,) = client_for(sandbox.root_config).get_local_account_limit("dcops", name).values()
    assert limit == 10**12


def test_more_files_are_added_in_one_call_than_a_query_of_sqlite_takes(sandbox, ordinary, fresh_link):
    """Many datasets, and one that is large: Rucio asks for all files of a call in one condition."""
    _, _, many = fresh_link(count=20, files=(70, 70), file_size=(10**6, 2 * 10**6))
    _, _, (large,) = fresh_link(count=1, files=(1400, 1400), file_size=(10**6, 2 * 10**6))
    for dataset in (many[0], many[-1], large):
        (there,) = ordinary.list_dataset_replicas(dataset.scope, dataset.name, deep=True)
        assert (there["available_length"], there["state"]) == (len(dataset.files), "AVAILABLE")
