"""Whatever happens in whatever order: accounts are what rows and injections sum to, and the past stays."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from dc_inject.ledger import LedgerView
from dc_inject.ledger.active_entries import STATES
from dc_inject.ledger.series import Period
from dc_inject.model import Cycle, Dataset, Held, Hold, State
from dc_inject.model.errors import NeedsOperator, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.model.ports import Observation, Outcome, Status
from tests.ledger.world import FLOWS, LENGTH, START, injection, opened, plan

from .world import totals_from_rows

BYTES = st.integers(0, 120)  # datasets have up to 100 bytes: services may say more
ERRORS = (
    TryOtherItem("deleting"),
    Permanent("no"),
    Temporary("503"),
    Temporary("timed out", lost=True),
    NeedsOperator("token"),
    ServiceError("odd"),
)
ACCEPTED = {State.LIVE, State.COMPLETE, State.ENDED, State.GONE}


class LedgerMachine(RuleBasedStateMachine):
    """A ledger to which everything happens that can, sensible or not."""

    keys = Bundle("keys")

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="dc_inject-"))
        self.ledger = opened(self.folder)
        self.now = START
        self.cycle = Cycle(START, LENGTH)
        self.past = ()
        self.accepted = set()

    def teardown(self):
        self.ledger.close()
        shutil.rmtree(self.folder)

    @initialize()
    def first(self):
        self.ledger.open_cycle(self.cycle, dict.fromkeys(FLOWS, (90, None)), self.now)

    @rule(
        target=keys,
        names=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
        flow=st.sampled_from(FLOWS),
        size=st.integers(1, 100),
        forgiven=st.none() | st.integers(0, 50),
        far=st.sampled_from(["intended", "called", "live", "live"]),
    )
    def intend(self, names, flow, size, forgiven, far):
        """Intents of the current cycle, with or without its plan; most of them get further at once."""
        some = [injection(f"i{name}", flow, self.cycle, item=Dataset(f"i{name}", size, size)) for name in names]
        if forgiven is not None:
            self.ledger.record_plan(plan(some, self.cycle, forgiven=forgiven), self.now)
        self.ledger.add_injections(some, self.now)
        keys = [one.key for one in some]
        if far != "intended":
            self.ledger.call(keys, self.now)
        if far == "live":
            self.ledger.answer([Outcome(key, "r") for key in keys], self.now, {})
        return multiple(*keys)

    @rule(some=st.lists(keys, max_size=4))
    def call(self, some):
        intended = {e.injection.key for e in self.ledger.entries(State.INTENDED)}
        assert set(self.ledger.call(some, self.now)) == intended & set(some)

    @rule(key=keys, present=BYTES, error=st.none() | st.sampled_from(ERRORS))
    def answer(self, key, present, error):
        self.ledger.answer([Outcome(key, "r", present=present, error=error)], self.now, {})

    @rule(
        key=keys,
        status=st.sampled_from([*Status, Status.COMPLETE, Status.MOVING]),
        done=BYTES,
        moved=st.none() | BYTES,
        exact=st.booleans(),
        present=st.none() | BYTES,
        size=st.none() | BYTES,
    )
    def observe(self, key, status, done, moved, exact, present, size):
        told = {"moved": moved, "exact": exact, "present": present, "size": size}
        one = Observation(key, status, "r", files_done=done, **told)
        self.ledger.observe([one], self.now)

    @rule(some=st.lists(keys, max_size=4), what=st.sampled_from(["end_asked", "ended", "gone"]))
    def end(self, some, what):
        getattr(self.ledger, what)(some, self.now)

    @rule(some=st.lists(keys, max_size=4))
    def withdraw(self, some):
        self.ledger.withdraw(some, "why not", self.now)

    @rule(key=keys, moved=st.integers(1, 100), present=st.integers(0, 5))
    def arrive(self, key, moved, present):
        """The usual thing: an estimate, then all of it."""
        self.ledger.observe([Observation(key, Status.MOVING, "r", moved=moved, present=present)], self.now)
        self.accounts_are_what_was_written()
        self.ledger.observe([Observation(key, Status.COMPLETE, "r")], self.now)

    @rule(due=st.integers(0, 100), flows=st.lists(st.sampled_from(FLOWS), unique=True), closing=st.booleans())
    def turn(self, due, flows, closing):
        """The next cycle begins, for some of the flows; the one before is closed, or was left open by a crash."""
        if closing:
            for cycle in self.ledger.unclosed():
                self.ledger.close_cycle(cycle, self.now, dict.fromkeys(FLOWS, Held(Hold.TOO_COARSE)))
        self.now += LENGTH
        self.cycle = self.cycle.next
        self.ledger.open_cycle(self.cycle, dict.fromkeys(flows, (due, None)), self.now)

    @rule()
    def die(self):
        """The process ends without closing anything, and another one goes on."""
        self.ledger._db._connection.close()
        self.ledger = opened(self.folder)

    @invariant()
    def accounts_are_what_was_written(self):
        accounts = self.ledger.accounts()
        assert accounts == totals_from_rows(self.ledger)
        rows = self.ledger.rows()
        for key, totals in accounts.items():
            own = [row for row in rows if row.key == key]
            assert sum(row.due for row in own) == totals.due
            assert sum(row.forgiven for row in own) == totals.forgiven
            assert 0 <= totals.estimated <= totals.moved <= totals.injected
        closed = not self.ledger.unclosed()
        oldest = {row.key for row in rows if row.cycle == min(self.ledger.unclosed(), default=None)}
        for key, totals in accounts.items():
            if closed or key in oldest:  # else its news waits for the close, which gives it a row
                own = [row for row in rows if row.key == key]
                assert sum(row.injected for row in own) == totals.injected
                assert sum(row.moved for row in own) == totals.moved
                assert sum(row.estimated for row in own) == totals.estimated
                assert sum(row.rules for row in own) == totals.rules

    @invariant()
    def what_was_injected_has_moved_or_is_on_its_way_or_will_not_move(self):
        own = {key: [0, 0] for key in self.ledger.accounts()}  # on its way, not moved: as the rows say
        for entry in self.ledger.entries(*ACCEPTED):
            rest = entry.injection.item.bytes - entry.present - entry.failed - entry.moved
            own[entry.injection.flow][entry.state is not State.LIVE] += rest
        lost = {key: [0, 0] for key in own}
        for span in self.ledger.lost(Period(START, self.cycle.end), LENGTH):
            lost[span.key][0] += span.sums.not_moved
            lost[span.key][1] += span.sums.failed
        for key, totals in self.ledger.accounts().items():
            assert [totals.on_its_way, totals.not_moved] == own[key]
            assert totals.injected == totals.moved + totals.on_its_way + totals.not_moved
            assert lost[key] == [totals.not_moved, totals.failed]

    @invariant()
    def what_is_counted_by_state_and_destination_is_there(self):
        entries = self.ledger.entries()
        counts = {}
        for entry in entries:
            count, size = counts.get(entry.state, (0, 0))
            counts[entry.state] = count + 1, size + entry.injection.item.bytes
        assert self.ledger.state_counts() == counts
        resident = {}
        for entry in entries:
            if entry.state.resident and (size := entry.injection.item.bytes - entry.present):
                to = entry.injection.link.destination
                resident[to] = resident.get(to, 0) + size
        assert self.ledger.resident() == resident
        names = {(e.injection.item.name, e.injection.link.destination) for e in entries if e.state.resident}
        assert self.ledger.taken(self.now) == names

    @invariant()
    def what_lives_is_what_the_file_says(self):
        with LedgerView.open(self.ledger.path) as view:
            assert self.ledger.entries(*STATES) == view.entries(*STATES)

    @invariant()
    def the_past_stays_and_no_rule_is_forgotten(self):
        closed = tuple(row for row in self.ledger.rows() if row.closed)
        assert set(map(repr, self.past)) <= set(map(repr, closed))
        self.past = closed
        accepted = {e.injection.key for e in self.ledger.entries() if e.state in ACCEPTED}
        assert self.accepted <= accepted
        self.accepted = accepted


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
