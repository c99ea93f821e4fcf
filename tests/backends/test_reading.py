"""Reading: inventories, the last look, how rules stand, and what is known of RSEs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend
from dc_inject.errors import Fatal, Permanent, Temporary
from dc_inject.model import DatasetFilter, Entry, Item, Link, State
from dc_inject.ports import Candidate, Status

from .fake import BORN, GB, FakeClient, FakeRse, FakeRucio
from .support import ANYTHING, Heard, injection, live

# ---------------------------------------------------------------------------------------- inventory


def names(backend: RucioBackend, source: str, datasets: DatasetFilter) -> list[str]:
    return sorted(item.name.rpartition("#")[2] for item in backend.inventory(source, datasets))


def test_an_inventory_by_pattern_is_one_streamed_call(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server._rule("cms", "/data/RAW#3", link.source, "somebody", {"comments": None, "expires_at": None})
    assert sorted(backend.inventory(link.source, ANYTHING), key=str) == sorted(items, key=str)
    assert [name for name, _, _ in server.calls] == ["get_dataset_locks_by_rse"]


def test_what_is_incomplete_or_empty_at_the_source_is_left_out(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#empty", link.source, files=0)
    server.add("cms:/data/RAW#partial", link.source)
    next(r for r in server.rules.values() if r.row["name"].endswith("partial")).files["/data/RAW#partial/0"] = (
        "STUCK"
    )
    server.replicas[link.source].discard("/data/RAW#partial/0")
    assert not {"empty", "partial"} & set(names(backend, link.source, ANYTHING))
    named = DatasetFilter(("cms:/data/RAW#empty", "cms:/data/RAW#partial", "cms:/data/RAW#1"))
    assert names(backend, link.source, named) == ["1"]


def test_what_is_named_is_looked_up_and_nothing_else_is_read(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#elsewhere", link.destination)
    wanted = DatasetFilter(
        (
            "cms:/data/RAW#1",
            "cms:/data/RAW#2",
            "cms:/data/RAW#nowhere",
            "cms:/data/RAW#elsewhere",
            "cms:/bad!name",
        ),
        exclude=("cms:*#2",),
    )
    assert names(backend, link.source, wanted) == ["1"]
    assert server.called("get_dataset_locks_by_rse") == 0


def test_the_datasets_of_containers_count_also_of_containers_in_them(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.containers["cms", "/inner"] = [("cms", "/data/RAW#2"), ("cms", "/outer")]
    server.containers["cms", "/outer"] = [("cms", "/data/RAW#1"), ("cms", "/inner")]
    assert names(backend, link.source, DatasetFilter((), containers=("cms:/outer", "cms:/nowhere"))) == ["1", "2"]
    assert names(backend, link.source, DatasetFilter(("cms:/outer",))) == ["1", "2"]
    mixed = DatasetFilter(("cms:*#7", "cms:/data/RAW#8"), containers=("cms:/outer",))
    assert names(backend, link.source, mixed) == ["1", "2", "7", "8"]


def test_an_unknown_source_is_permanent(backend: RucioBackend) -> None:
    with pytest.raises(Permanent):
        list(backend.inventory("NOWHERE", ANYTHING))


# ---------------------------------------------------------------------------------------- look


def test_a_fresh_dataset_is_whole_at_the_source_and_not_at_the_destination(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    candidate = Candidate(items[0].name, link)
    sight = backend.look([candidate])[candidate]
    assert sight.item == items[0]
    assert (sight.closed, sight.source_complete, sight.source_locked) == (True, True, True)
    assert (sight.source_until, sight.destination_bytes, sight.destination_locked) == (None, 0, False)


def test_any_number_of_candidates_is_three_calls_and_one_for_each_rule_that_holds_them(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    candidates = [Candidate(item.name, link) for item in items]
    assert set(backend.look(candidates)) == set(candidates)
    assert len(server.calls) == 3 + len(items)
    backend.look(candidates)
    assert len(server.calls) == 6 + len(items)  # when rules expire is known by now
    server.clock.time += timedelta(hours=13)
    backend.look(candidates)
    assert len(server.calls) == 9 + 2 * len(items)


def test_an_unknown_dataset_has_no_item_and_spoils_nothing(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    unknown, bad, good = (Candidate(name, link) for name in ("cms:nope", "cms:bad!", items[0].name))
    sights = backend.look([unknown, bad, good])
    assert [sights[c].item for c in (unknown, bad, good)] == [None, None, items[0]]


def test_an_open_dataset_is_told(backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link) -> None:
    server.opened.add(("cms", "/data/RAW#0"))
    candidate = Candidate(items[0].name, link)
    sight = backend.look([candidate])[candidate]
    assert not sight.closed
    assert sight.item == items[0]  # its size is that of its replica


def test_a_ghost_is_not_there_and_a_lock_or_a_single_file_is(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server.ghosts.add(("cms", "/data/RAW#0", link.destination))
    server.replicas[link.destination] = {"/data/RAW#1/0"}
    backend.submit([injection(items[2], link)])
    candidates = [Candidate(item.name, link) for item in items[:3]]
    sights = backend.look(candidates)
    there = [(sights[c].destination_bytes, sights[c].destination_locked) for c in candidates]
    assert there == [(0, False), (2 * GB, False), (0, True)]


def test_the_source_is_safe_until_the_last_rule_that_holds_it_ends(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    soon, later = (server.clock.now() + timedelta(hours=h) for h in (1, 2))
    server.add("cms:/data/RAW#x", link.source, expires=soon)
    candidate = Candidate("cms:/data/RAW#x", link)
    assert backend.look([candidate])[candidate].source_until == soon
    server.add("cms:/data/RAW#x", link.source, expires=later)
    assert backend.look([candidate])[candidate].source_until == later
    server.add("cms:/data/RAW#x", link.source)
    assert backend.look([candidate])[candidate].source_until is None


def test_a_holding_rule_that_should_have_expired_is_asked_for_again(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#x", link.source, expires=server.clock.now() + timedelta(hours=1))
    candidate = Candidate("cms:/data/RAW#x", link)
    backend.look([candidate])
    next(r for r in server.rules.values() if r.row["name"].endswith("#x")).row["expires_at"] = None
    server.clock.time += timedelta(hours=2)
    assert backend.look([candidate])[candidate].source_until is None


# ---------------------------------------------------------------------------------------- observe


@pytest.fixture
def entries(backend: RucioBackend, items: list[Item], link: Link) -> list[Entry]:
    injections = [injection(item, link) for item in items[:4]]
    return live(injections, backend.submit(injections))


def arrive(server: FakeRucio, entry: Entry, files: int) -> None:
    rule = server.rules[entry.external_id]
    some = list(rule.files)[:files]
    rule.files |= dict.fromkeys(some, "OK")
    server.replicas.setdefault(rule.row["rse_expression"], set()).update(some)


def test_progress_is_estimated_from_locks_and_completion_is_exact(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    arrive(server, entries[0], 1)
    arrive(server, entries[1], 3)
    seen = backend.observe(entries)
    assert [o.key for o in seen] == [e.injection.key for e in entries]
    told = [(o.status, o.files_done, o.moved, o.exact, o.present) for o in seen]
    assert told[0] == (Status.MOVING, 1, 2 * GB, False, 0)
    assert told[1] == (Status.COMPLETE, 3, 6 * GB, True, 0)
    assert told[2] == (Status.MOVING, 0, 0, False, None)
    assert seen[0].expires_at == server.clock.now() + timedelta(hours=1)


def test_the_exact_look_adds_up_the_files_that_have_arrived(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.add("cms:/data/RAW#mixed", link.source)
    server.datasets["cms", "/data/RAW#mixed"] = {"/data/RAW#mixed/0": 5, "/data/RAW#mixed/1": 7}
    one = [injection(Item("cms:/data/RAW#mixed", 12, 2), link)]
    (entry,) = live(one, backend.submit(one))
    arrive(server, entry, 1)
    (rough,), (exact,) = backend.observe([entry]), backend.observe([entry], exact=True)
    assert (rough.moved, rough.exact) == (6, False)
    assert (exact.moved, exact.exact, exact.status) == (5, True, Status.MOVING)


def test_a_stuck_rule_says_why(backend: RucioBackend, server: FakeRucio, entries: list[Entry]) -> None:
    rule = server.rules[entries[0].external_id]
    rule.files |= {next(iter(rule.files)): "STUCK"}
    rule.row["error"] = "DESTINATION No space left"
    (seen,) = backend.observe(entries[:1])
    assert (seen.status, seen.files_stuck, seen.error) == (Status.STUCK, 1, "DESTINATION No space left")


@pytest.mark.parametrize(
    ("state", "status"),
    [("SUSPENDED", Status.SUSPENDED), ("INJECT", Status.WAITING), ("WAITING_APPROVAL", Status.WAITING)],
)
def test_a_rule_that_has_no_locks_yet_is_not_taken_as_gone(
    backend: RucioBackend,
    server: FakeRucio,
    entries: list[Entry],
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    status: Status,
) -> None:
    rule = server.rules[entries[0].external_id]
    rule.row["state"], rule.files = state, {}
    monkeypatch.setattr(server, "locks", lambda rule: {**FakeRucio.locks(server, rule), "rule_id": "other"})
    (seen,) = backend.observe(entries[:1])
    assert (seen.status, seen.moved) == (status, 0)


def test_a_rule_that_is_gone_is_absent_also_when_asked_twice(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.clock.time += timedelta(hours=2)
    server.clean()
    for _ in range(2):
        assert {o.status for o in backend.observe(entries)} == {Status.ABSENT}


def test_an_intent_in_doubt_that_was_never_carried_out_is_absent(
    backend: RucioBackend, items: list[Item], link: Link
) -> None:
    (seen,) = backend.observe([Entry(injection(items[0], link), State.CALLED)])
    assert (seen.status, seen.external_id) == (Status.ABSENT, "")


def test_a_bounded_number_of_rules_is_looked_at_closely_those_seen_longest_ago_first(
    make: Callable[..., RucioBackend], server: FakeRucio, entries: list[Entry]
) -> None:
    backend = make(estimates=2)
    ages = [5, 1, 9, 3]
    aged = [
        replace(entry, observed_at=server.clock.now() - timedelta(minutes=age), files_done=1)
        for entry, age in zip(entries, ages, strict=True)
    ]
    for entry in aged:
        arrive(server, entry, 2)
    seen = backend.observe(aged)
    assert [o.files_done for o in seen] == [2, 1, 2, 1]
    assert [o.moved is None for o in seen] == [False, True, False, True]
    assert server.called("get_replication_rule") == 2


def test_while_progress_cannot_be_read_what_is_known_is_told(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.faults["get_replication_rule"] = [rucio.DatabaseException("busy")]
    assert {o.status for o in backend.observe(entries)} == {Status.MOVING}
    assert server.called("get_replication_rule") == 1


@pytest.mark.parametrize(("files", "present"), [(1, 2 * GB), (3, 6 * GB)])
def test_files_that_were_there_at_the_birth_of_a_rule_are_told_once(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link, files: int, present: int
) -> None:
    server.replicas[link.destination] = {f"/data/RAW#0/{number}" for number in range(files)}
    one = [injection(items[0], link)]
    (entry,) = live(one, backend.submit(one))
    server.complete()
    (seen,) = backend.observe([entry])
    assert (seen.status, seen.present) == (Status.COMPLETE, present)
    (again,) = backend.observe([replace(entry, files_done=3, present=present)])
    assert again.present is None
    assert server.called("list_replication_rule_full_history") == 1


def test_without_its_history_a_rule_is_observed_all_the_same(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.complete()
    server.faults["list_replication_rule_full_history"] = [rucio.AccessDenied("x")] * 4
    seen = backend.observe(entries)
    assert {(o.status, o.present) for o in seen} == {(Status.COMPLETE, None)}


# ---------------------------------------------------------------------------------------- end


def test_ending_works_at_once_and_what_is_gone_is_a_success(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    assert not any(o.error for o in backend.end(entries))
    assert not any(o.error for o in backend.end(entries))
    server.clean()
    assert not any(o.error for o in backend.end(entries))
    assert {o.status for o in backend.observe(entries)} == {Status.ABSENT}


def test_an_end_that_meets_the_cleaner_is_a_success_and_a_lost_one_is_asked_again(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.losses["update_replication_rule"] = [rucio.RucioException("(http status code: 500)")]
    (outcome,) = backend.end(entries[:1])
    assert isinstance(outcome.error, Temporary)
    assert outcome.error.lost
    server.losses["update_replication_rule"] = [rucio.RucioException("(http status code: 500)")]
    server.losses["get_replication_rule"] = [rucio.RuleNotFound("the cleaner was faster")]
    assert backend.end(entries[:1])[0].error is None


def test_without_the_right_to_end_nothing_is_asked_twice(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    server.may_end = False
    outcomes = backend.end(entries)
    assert all(isinstance(o.error, Permanent) and o.error.hint for o in outcomes)
    assert server.called("update_replication_rule") == 1


def test_ending_never_purges_what_was_there_before(
    backend: RucioBackend, server: FakeRucio, entries: list[Entry]
) -> None:
    backend.end([replace(entries[0], present=2 * GB), entries[1]])
    purges = [server.rules[entry.external_id].row["purge_replicas"] for entry in entries[:2]]
    assert purges == [False, True]


def test_an_entry_in_doubt_is_ended_too(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    one, never = injection(items[0], link), injection(items[1], link)
    backend.submit([one])
    outcomes = backend.end([Entry(one, State.CALLED), Entry(never, State.CALLED)])
    assert [bool(o.external_id) for o in outcomes] == [True, False]
    assert not any(o.error for o in outcomes)


# ---------------------------------------------------------------------------------------- sites


def test_facts_are_read_in_few_calls_and_attributes_only_once(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.rses[link.destination] = FakeRse(space=5 * GB, quota=3 * GB, write=False, kind="TAPE")
    facts = backend.sites([link.source, link.destination, "NOWHERE"])
    told = facts[link.destination]
    assert (told.readable, told.writable, told.tape, told.site) == (True, False, True, "T1_DE_KIT")
    assert (told.free, told.quota_left, dict(told.missing)) == (5 * GB, 3 * GB - 1, {})
    assert facts["NOWHERE"].exists is False
    first = len(server.calls)
    server.clock.time += timedelta(minutes=1)
    backend.sites([link.source, link.destination])
    assert len(server.calls) - first == 3 + 2  # RSEs, quotas, global quotas, and the space of each


def test_the_tightest_quota_counts_and_none_set_is_nothing_left(
    backend: RucioBackend, server: FakeRucio, link: Link
) -> None:
    server.rses["UNSET"] = FakeRse(quota=None)
    server.rses["FREE"] = FakeRse(quota=math.inf)
    server.limits = [{"rse_expression": link.destination, "bytes_remaining": 7}]
    facts = backend.sites(server.rses)
    left = {name: fact.quota_left for name, fact in facts.items()}
    assert left == {link.source: 10**15 - 1, link.destination: 6, "UNSET": 0, "FREE": None}


def test_an_administrator_has_no_quota(backend: RucioBackend, server: FakeRucio, link: Link) -> None:
    server.attributes = [{"key": "admin", "value": True}]
    assert backend.sites([link.source])[link.source].quota_left is None


@pytest.mark.parametrize(
    ("method", "signal"), [("get_rse_usage", "free"), ("get_local_account_usage", "quota_left")]
)
def test_a_signal_that_cannot_be_read_is_missing_and_says_why(
    backend: RucioBackend, server: FakeRucio, link: Link, method: str, signal: str
) -> None:
    server.faults[method] = [rucio.DatabaseException("busy")]
    told = backend.sites([link.source])[link.source]
    assert getattr(told, signal) is None
    assert "busy" in told.missing[signal]
    assert told.writable


def test_a_report_of_space_of_days_ago_is_no_signal(backend: RucioBackend, server: FakeRucio, link: Link) -> None:
    server.rses[link.source].reported = BORN - timedelta(days=2)
    told = backend.sites([link.source])[link.source]
    assert told.free is None
    assert "2027-02-06" in told.missing["free"]


# ---------------------------------------------------------------------------------------- who am I


def test_check_tells_who_we_are(backend: RucioBackend) -> None:
    told = backend.check()
    assert (told.service, told.version, told.vo, told.account) == ("rucio", "41.5.1", "def", "dcops")
    assert (told.address, told.admin, told.may_end) == ("http://rucio.example.org:8080", False, True)
    assert told == backend.check()


def test_the_right_to_end_is_found_out_without_harm(backend: RucioBackend, server: FakeRucio) -> None:
    before = {rule: server.told(found) for rule, found in server.rules.items()}
    server.may_end = False
    assert backend.check().may_end is False
    server.may_end = True
    server.faults["update_replication_rule"] = [rucio.DatabaseException("busy")]
    assert backend.check().may_end is None
    assert before == {rule: server.told(found) for rule, found in server.rules.items()}


@pytest.mark.parametrize("attributes", [[{"key": "admin", "value": True}], [{"key": "admin", "value": "1"}]])
def test_an_administrator_is_recognised(
    backend: RucioBackend, server: FakeRucio, attributes: list[dict[str, object]]
) -> None:
    server.attributes = attributes
    assert backend.check().admin


def test_root_is_an_administrator(backend: RucioBackend, server: FakeRucio) -> None:
    server.account = "root"
    assert backend.check().admin


@pytest.mark.parametrize(
    ("error", "hold"),
    [(rucio.CannotAuthenticate("no"), "credentials"), (rucio.DatabaseException("x"), "api-errors")],
)
def test_at_start_any_trouble_is_fatal_with_address_and_hint(
    backend: RucioBackend, server: FakeRucio, error: Exception, hold: str
) -> None:
    server.faults["whoami"] = [error]
    with pytest.raises(Fatal, match=r"rucio\.example\.org:8080") as caught:
        backend.check()
    assert caught.value.hold == hold
    assert caught.value.hint


def test_expressions_mean_sorted_names_or_are_refused(backend: RucioBackend, link: Link) -> None:
    assert backend.resolve("*") == (link.destination, link.source)
    with pytest.raises(Permanent):
        backend.resolve("tier=17")


@pytest.mark.parametrize("method", ["get_locks_for_dids", "list_rses", "whoami"])
def test_an_answer_of_an_unforeseen_form_is_no_traceback(
    server: FakeRucio, heard: Heard, entries: list[Entry], method: str
) -> None:
    class Odd(FakeClient):
        pass

    setattr(Odd, method, lambda *_: [{"what": "is this?"}])
    backend = RucioBackend(
        campaign="test", clock=server.clock, observer=heard, make=lambda notes, _: Odd(server, notes)
    )
    ask = {
        "get_locks_for_dids": lambda: backend.observe(entries),
        "list_rses": lambda: backend.sites(["X"]),
        "whoami": backend.check,
    }
    with pytest.raises((Temporary, Fatal), match="cannot be understood"):
        ask[method]()


def test_every_call_is_told_to_the_observer(backend: RucioBackend, entries: list[Entry], heard: Heard) -> None:
    assert backend.observe(entries)
    assert {event["name"] for event in heard.events} == {"call"}
    assert all(event["service"] == "rucio" and event["seconds"] >= 0 for event in heard.events)
    assert {event["result"] for event in heard.events} == {"ok"}
