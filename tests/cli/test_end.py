"""`end` says what it will do, does only that, keeps its pace, and can be run again at any time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.backends.sim import SimClock
from dc_inject.ledger import Ledger, LedgerView
from dc_inject.model import Dataset, State
from dc_inject.model.errors import LedgerError, ServiceError, Temporary, UsageError
from tests.cli.ending import World, behind_the_command
from tests.cli.ledgers import FNAL, GB, MESH, START, make, run
from tests.sim import SimBackend
from tests.wording import lines


class Rules(World[SimBackend]):
    """Those that are at the service."""

    def live(self) -> list[str]:
        return [key for key, rule in self.service.rules.items() if rule.ended is None]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Three rules to FNAL that are complete, and two of the mesh with 4 of 10 files done each."""
    made = make(tmp_path / "dc27.sqlite", {FNAL: 3, MESH: 2})
    clock = SimClock(START)
    items = [Dataset(entry.injection.item.name, 100 * GB, 10) for entry in made.entries]
    service = SimBackend(clock, {"T2_CH_CERN": items, "T2_US_MIT": items}, speed=lambda _link: 0.0)
    service.submit([entry.injection for entry in made.entries])
    for rule in service.rules.values():
        done = rule.injection.flow == FNAL
        rule.moved = (100 if done else 40) * GB
        rule.completed = START if done else None
    behind_the_command(monkeypatch, clock, "rucio", service)
    return Rules(made.path, clock, service)


def test_complete_rules_end_at_once_and_unfinished_ones_are_left(world: Rules, wording) -> None:
    """It says how many files are under way, and until when their rules live; no time passes."""
    done = world.end("--yes")
    assert done.exit_code == 0, done.exception
    wording(done.stderr)
    assert done.stdout == ""
    assert len(world.live()) == 2
    assert world.states() == {State.ENDED: 3, State.LIVE: 2}
    assert world.clock.now() == START


def test_what_has_moved_is_exact_in_the_ledger_after_cancelling(world: Rules, wording) -> None:
    """Unfinished rules are cancelled, at the pace, with their bytes settled."""
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0
    wording(lines(done.stderr, "cancels"))
    assert "5 rules ended" in done.stderr
    assert world.live() == []
    assert world.clock.now() == START + timedelta(seconds=6)
    with LedgerView.open(world.path) as view:
        totals = view.accounts()[MESH]
        (change,) = view.changes()
    assert (totals.moved, totals.estimated) == (80 * GB, 0)
    assert change.what == "end 3 rules, cancel 2"


def test_a_pace_of_ones_own(world: Rules) -> None:
    """60 an hour: the second one a minute after the first."""
    assert world.end("--yes", "--cancel", "--cancel-rate", "60/h").exit_code == 0
    assert world.clock.now() == START + timedelta(minutes=1)


@pytest.mark.parametrize("rate", ["600", "0/h", "-1/h", "600/day", "nan/h", "1e3/h", "/h"])
def test_a_pace_needs_a_number_above_0_and_its_unit(world: Rules, rate: str) -> None:
    """A bare number is refused: 600 a second and 600 an hour are not the same."""
    done = world.end("--yes", "--cancel", "--cancel-rate", rate)
    assert done.exit_code == 2
    assert len(world.live()) == 5


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_without_a_yes_nothing_is_ended(world: Rules, answer: str, wording) -> None:
    """No, nothing said, and nobody there to ask are all the same."""
    done = world.end("--cancel", text=answer)
    assert isinstance(done.exception, UsageError)
    wording(done.exception.message)
    assert len(world.live()) == 5
    with LedgerView.open(world.path) as view:
        assert view.changes() == ()


def test_a_yes_ends(world: Rules) -> None:
    """The question is asked after all has been said."""
    done = world.end(text="y\n")
    assert done.exit_code == 0
    assert (
        done.stderr.index("3 complete rules") < done.stderr.index("End them?") < done.stderr.index("3 rules ended")
    )
    assert len(world.live()) == 2


def test_only_a_scenario_or_a_link(world: Rules) -> None:
    """Others are not touched, nor counted; the reason is in the ledger."""
    done = world.end("us-mesh", "--yes", "--cancel", "--why", "all done")
    assert "complete" not in done.stderr
    assert len(world.live()) == 3
    assert world.end("--yes", "T2_CH_CERN", "T1_US_FNAL_Disk").exit_code == 0
    assert world.live() == []
    with LedgerView.open(world.path) as view:
        assert [change.why for change in view.changes()] == ["", "all done"]


def test_an_unknown_scenario_is_refused(world: Rules) -> None:
    """With the nearest name that is known."""
    error = world.end("--yes", "us-mush").exception
    assert isinstance(error, UsageError)
    assert "us-mesh" in (error.hint or "")


def test_twice_is_the_same_as_once(world: Rules) -> None:
    """The second time there is nothing to end, and nothing is asked."""
    world.end("--yes", "--cancel")
    again = world.end("--cancel")
    assert again.exit_code == 0
    assert "no rules of dc27 to end" in again.stderr


def test_rules_that_are_gone_already_are_a_success(world: Rules) -> None:
    """They expired while nobody looked: the ledger learns of it."""
    for rule in world.service.rules.values():
        rule.ended = START
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 0
    assert "5 rules already gone" in done.stderr
    assert world.states() == {State.ENDED: 5}


def test_rules_that_are_ending_already_are_left_alone(world: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rucio takes a while to let a rule go whose lifetime is over: until then there is nothing to do."""
    observe = world.service.observe

    def expired(*args, **kwargs):
        return [seen._replace(expires_at=START) for seen in observe(*args, **kwargs)]

    monkeypatch.setattr(world.service, "observe", expired)
    done = world.end("--cancel")
    assert done.exit_code == 0
    assert "5 rules already ending" in done.stderr
    assert world.service.calls.get("end") is None


def test_a_ledger_that_is_in_use_is_refused_with_its_holder(world: Rules) -> None:
    """Two writers of one record would be one too many; exit code 3."""
    with Ledger.open(world.path) as ledger, ledger.hold("me@vobox"):
        error = world.end("--yes").exception
    assert isinstance(error, LedgerError)
    assert "me@vobox" in error.message
    assert "SIGTERM" in (error.hint or "")
    assert len(world.live()) == 5


def test_without_the_right_nothing_is_tried(world: Rules, wording) -> None:
    """Exit code 4, and that the rules end with their lifetime."""
    world.service.may_end = False
    error = world.end("--yes").exception
    assert isinstance(error, ServiceError)
    assert error.exit_code == 4
    wording(error.message)
    assert world.service.calls.get("end") is None


def test_another_account_than_the_ledgers_is_refused(world: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is bound to whom it was made for."""
    other = replace(world.service.check(), account="somebody")
    monkeypatch.setattr(world.service, "check", lambda: other)
    assert isinstance(world.end("--yes").exception, LedgerError)
    assert len(world.live()) == 5


def test_a_failure_is_told_with_what_was_done(world: Rules) -> None:
    """Exit code 4; run again, it goes on with what is left."""
    failing = iter([Temporary("busy")])

    def fault(method: str, _subject: object) -> None:
        if method == "end" and (error := next(failing, None)):
            raise error

    world.service.fault = fault
    error = world.end("--yes", "--cancel").exception
    assert isinstance(error, ServiceError)
    assert error.exit_code == 4
    assert error.message == "2 of 5 rules ended, 3 not: busy"
    assert len(world.live()) == 3
    assert world.end("--yes", "--cancel").exit_code == 0
    assert world.live() == []


def test_an_interruption_keeps_what_is_done_and_says_what_is_left(world: Rules, wording) -> None:
    """Ctrl-C while it waits for its pace, and while it looks: nothing is known to be gone then."""

    def fault(method: str, _subject: object) -> None:
        if method == "observe" and world.clock.now() > START:
            raise KeyboardInterrupt

    world.service.fault = fault
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 130
    wording(lines(done.stderr, "interrupted"))
    assert len(world.live()) == 1
    with LedgerView.open(world.path) as view:
        assert sum(entry.end_asked_at is not None for entry in view.entries()) == 4


def test_an_interruption_leaves_the_ledger_as_the_service_has_it(world: Rules) -> None:
    """What was ended until then is ended there as well; it says until when the rest lives."""
    pressed = iter([KeyboardInterrupt])

    def fault(method: str, _subject: object) -> None:
        if method == "observe" and world.clock.now() > START and (key := next(pressed, None)):
            raise key

    world.service.fault = fault
    done = world.end("--yes", "--cancel")
    assert done.exit_code == 130
    last = max(entry.expires_at for entry in world.entries() if entry.expires_at and entry.state is State.LIVE)
    assert f"{last:%Y-%m-%d %H:%M:%SZ}" in done.stderr
    assert world.states() == {State.ENDED: 4, State.LIVE: 1}


def test_a_failure_leaves_the_ledger_as_the_service_has_it(world: Rules) -> None:
    """Those that could be ended are ended there."""
    failing = iter([Temporary("busy")])

    def fault(method: str, _subject: object) -> None:
        if method == "end" and (error := next(failing, None)):
            raise error

    world.service.fault = fault
    assert world.end("--yes", "--cancel").exit_code != 0
    assert world.states() == {State.ENDED: 2, State.COMPLETE: 3}


def test_without_a_ledger_nothing_is_asked_and_the_hint_makes_a_new_one(
    world: Rules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is lost, or its name has a typo; and no file is made."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "empty"))
    error = run("end", "dc72", "--yes", "--cancel").exception
    assert isinstance(error, LedgerError)
    assert error.exit_code == 3
    assert "`dc-inject ledger rebuild dc72 MENUS`" in (error.hint or "")
    assert len(world.live()) == 5
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(
    ("words", "name"), [(["dc27", "--ledger", "none.sqlite"], "dc27"), (["./none.sqlite"], "CAMPAIGN")]
)
@pytest.mark.parametrize("more", [[], ["--sweep", "davs://b.example.org/dc"]])
def test_a_ledger_that_was_named_has_to_exist(words: list[str], name: str, more: list[str]) -> None:
    """A typo in its name is no reason to look without it."""
    error = run("end", *words, *more).exception
    assert isinstance(error, LedgerError)
    assert f"ledger rebuild {name} MENUS" in (error.hint or "")
