"""What goes out once is remembered, and taken back when it did not arrive."""

from __future__ import annotations

import pytest

from dc_inject.model import Bundle, File, JobOptions
from dc_inject.model.errors import Permanent
from dc_inject.model.goals import Keep, Volume
from dc_inject.model.ports import Observation, Outcome, Status
from tests.ledger.world import AB, AC, CYCLE, GB, LENGTH, START, accepted, dues, injection, opened, seen, started

FILES = tuple(File(f"davs://a/{n}", 25 * GB) for n in range(4))
ONE = injection(once=True)
JOB = injection("bundle", item=Bundle("bundle", 100 * GB, 4, members=FILES), job=JobOptions(), once=True)


def test_what_goes_out_once_is_known_by_its_scenario(tmp_path):
    with opened(tmp_path) as ledger:
        started(ledger, ONE, JOB, injection("cms:/b#2"))
        everything = {("cms:/a#1", "day"), *((file.name, "day") for file in FILES)}
        assert ledger.once_only() == everything
        accepted(ledger)
        ledger.call([ONE.key], START)
        ledger.answer([Outcome(ONE.key, "rule")], START, {})
        ledger.observe([seen(ONE.key, Status.COMPLETE)], START)
        ledger.ended([ONE.key], START)
        ledger.gone([ONE.key], START)
        assert ledger.once_only() == everything, "also when it is gone"


@pytest.mark.parametrize("how", ["withdrawn", "refused"])
def test_what_was_dropped_may_go_out_again(tmp_path, how):
    with opened(tmp_path) as ledger:
        started(ledger, ONE, JOB)
        if how == "withdrawn":
            ledger.withdraw([ONE.key, JOB.key], "too late", START)
        else:
            ledger.call([ONE.key, JOB.key], START)
            ledger.answer([Outcome(key, error=Permanent("no")) for key in (ONE.key, JOB.key)], START, {})
        assert ledger.once_only() == set()
        ledger.add_injections([ONE], START)
        assert ledger.once_only() == {("cms:/a#1", "day")}, "intended again"


@pytest.mark.parametrize(
    ("told", "left"),
    [
        (Observation("", Status.COMPLETE, "job"), {0, 1, 2, 3}),
        (Observation("", Status.COMPLETE, "job", failed=25 * GB, undone=(FILES[1].name,)), {0, 2, 3}),
        (Observation("", Status.COMPLETE, "job", failed=25 * GB), set()),
        (Observation("", Status.ABSENT, moved=50 * GB, exact=True, undone=(FILES[0].name, FILES[1].name)), {2, 3}),
        (Observation("", Status.ABSENT, moved=100 * GB, exact=True), {0, 1, 2, 3}),
        (Observation("", Status.ABSENT), set()),
        (Observation("", Status.MOVING, "job", moved=50 * GB), {0, 1, 2, 3}),
    ],
)
def test_files_that_did_not_arrive_may_go_out_again(tmp_path, told, left):
    with opened(tmp_path) as ledger:
        started(ledger, JOB)
        ledger.call([JOB.key], START)
        ledger.answer([Outcome(JOB.key, "job")], START, {})
        for _ in range(2):
            ledger.observe([told._replace(key=JOB.key)], START)
            assert ledger.once_only() == {(FILES[n].name, "day") for n in left}


def test_a_dataset_whose_rule_ended_half_way_may_go_out_again(tmp_path):
    with opened(tmp_path) as ledger:
        started(ledger, ONE)
        ledger.call([ONE.key], START)
        ledger.answer([Outcome(ONE.key, "rule")], START, {})
        ledger.observe([Observation(ONE.key, Status.MOVING, "rule", moved=40 * GB)], START)
        ledger.ended([ONE.key], START)
        assert ledger.once_only() == set()


def test_goals_are_those_that_the_last_cycle_was_opened_with(tmp_path):
    with opened(tmp_path) as ledger:
        ledger.bind("dc27", LENGTH, (), START)
        ledger.open_cycle(CYCLE, dues(), START, goals={AB: Volume(5 * GB), AC: Keep(GB)})
        assert ledger.goals() == {AB: ("volume", 5 * GB), AC: ("keep", GB)}
        ledger.open_cycle(CYCLE, dues(), START, goals={AB: Volume(7 * GB)})
        assert ledger.goals()[AB] == ("volume", 5 * GB), "a cycle is opened once"
        ledger.open_cycle(CYCLE.next, dues(), START, goals={AB: Volume(7 * GB), AC: None})
        assert ledger.goals() == {AB: ("volume", 7 * GB)}
