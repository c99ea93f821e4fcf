"""The program can die at any step: the next start goes on, nothing is given twice and nothing is forgotten."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import cache

import pytest

from dc_inject.ledger.check import check
from dc_inject.model import State, events
from dc_inject.model.errors import LedgerError
from tests.engine.world import CYCLE, GB, START, campaign, flow, items, opened, world

STEPS = [
    events.CycleOpened,
    events.Intended,
    events.Calling,
    events.Called,
    events.Answered,
    events.Observed,
    events.EndRequested,
    events.EndCalled,
    events.Ended,
]
LINKS = [flow("A", "B", 1.0), flow("A", "C", 0.5), flow("D", "B", 1.0)]


class Killed(BaseException):
    """The process is gone: nothing may catch it."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """What an undisturbed run of so many cycles gives, and what was due in it."""

    @cache
    def run(cycles):
        one = _campaign(tmp_path_factory.mktemp("calm"), cycles)
        _end(one)
        return _given(one), {key: account.due for key, account in one.ledger.accounts().items()}

    return run


def _campaign(folder, cycles):
    made = campaign([replace(link, end=START + cycles * CYCLE) for link in LINKS])
    return world(folder, made, {"A": items("A", 100, 10 * GB), "D": items("D", 100, 10 * GB)})


def _given(one):
    return {(r.injection.item.name, r.injection.link) for r in one.backend.rules.values()}


def _end(one):
    one.settings = replace(one.settings, drain=True)
    one.run()


@pytest.mark.parametrize(("time", "cycles"), [(0, 1), (1, 3), (4, 3)])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_and_started_again_gives_what_an_undisturbed_run_gives(
    tmp_path, calm, step, time, cycles
):
    """In the cycle of the kill to the dataset; in later ones to the byte of due, and always with no rule lost."""
    given, due = calm(cycles)
    wild = _campaign(tmp_path, cycles)
    left = [time]

    def kill():
        if left[0] == 0:
            left[0] = -1
            raise Killed
        left[0] -= 1

    wild.heard.at[step] = kill
    with contextlib.suppress(Killed):  # a step that does not come that often kills nobody
        _end(wild)
    assert time or left == [-1]
    wild.ledger.close()
    wild.ledger = opened(wild.path)
    wild.heard.at.clear()
    _end(wild)
    if cycles == 1:
        assert _given(wild) == given
    _whole(wild, due)


def _whole(wild, due):
    """All that was due was given once, and the service, the ledger and its accounts agree."""
    for key, account in wild.ledger.accounts().items():
        assert abs(account.injected - account.due) <= 10 * GB
        assert account.due == due[key]
    assert set(wild.backend.rules) == {e.injection.key for e in wild.ledger.entries() if e.accepted_at}
    assert {e.state for e in wild.ledger.entries()} == {State.GONE}
    injected = sum(account.injected for account in wild.ledger.accounts().values())
    assert injected == sum(rule.injection.item.bytes for rule in wild.backend.rules.values())


def _full(connection):
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")


def _read_only(connection):
    connection.execute("PRAGMA query_only = ON")


@pytest.mark.parametrize("step", STEPS[::2])
@pytest.mark.parametrize(("harm", "said"), [(_full, "the disk is full"), (_read_only, "cannot be written")])
def test_a_disk_that_is_full_or_read_only_from_a_step_on_ends_the_run_and_the_next_one_goes_on(
    tmp_path, calm, step, harm, said
):
    """It says what it is and what to do, exit code 3; whatever the services have done by then is found."""
    _, due = calm(2)
    wild = _campaign(tmp_path, 2)
    wild.heard.at[step] = lambda: harm(wild.ledger._db._connection)
    with pytest.raises(LedgerError, match=said) as stopped:
        _end(wild)
    assert stopped.value.exit_code == 3
    assert stopped.value.hint
    wild.ledger.close()
    wild.heard.at.clear()
    wild.ledger = opened(wild.path)
    _end(wild)
    _whole(wild, due)
    wild.ledger.close()
    assert not [found for found in check(wild.ledger.path) if not found.note]
