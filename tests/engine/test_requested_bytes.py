"""Injected and moved are the bytes for which Rucio made a transfer because of us, to the byte.

What others move, what is at a destination already, and what another dataset of ours brings there, is not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.sim import InlineExecutor
from dc_inject.engine.context import Settings
from dc_inject.engine.engine import Engine
from dc_inject.engine.preflight import SHARED
from dc_inject.ledger import Ledger
from dc_inject.model import Flow, State
from dc_inject.model.errors import Temporary
from dc_inject.model.events import Silent
from dc_inject.model.items import Slicing
from tests.engine.test_calls_a_rule import Server
from tests.engine.world import ALL, CYCLE, GB, START, campaign, flow, items, opened, world

CYCLES = 3
DATA = "Data Challenge"


@pytest.fixture
def server() -> Server:
    """A Rucio whose files arrive after six minutes, with 20 datasets at S0 that share nothing."""
    server = Server(timedelta(minutes=6))
    for number in range(20):
        server.add(f"cms:/own/data#{number:02}", "S0", files=4, size=GB + number)
    return server


def share(server: Server, source: str, names: str, size: int = GB) -> None:
    """Put a dataset of four files on a source for each name; each has one file of its own and three of all."""
    for number, name in enumerate(names):
        did = f"/shared/{source}#{name}"
        server.add(f"cms:{did}", source, files=0)
        server.datasets["cms", did] = {f"/shared/{n}": size + n for n in range(3)} | {f"{did}/0": size + number}
        server.replicas[source] |= set(server.datasets["cms", did])
        rule = server.rules[server.pinned["cms", did, source]]
        rule.files = dict.fromkeys(server.datasets["cms", did], "OK")


def link(source: str = "S0", destination: str = "D0", **more: object) -> Flow:
    """A flow of 12 GB a cycle."""
    return flow(source, destination, 12 * 8 / 900, datasets=ALL, activity=DATA, end=START + CYCLES * CYCLE, **more)


def run(path: Path, server: Server, *flows: Flow) -> Ledger:
    """Run a campaign to its end, and compare its ledger with what Rucio was asked for."""
    made, ledger = campaign(flows), opened(path)
    backend = RucioBackend(
        campaign="test", clock=server, observer=Silent(), make=server.client, sleep=lambda _: None
    )
    identity = backend.check()
    ledger.bind("test", CYCLE, (identity,), server.now())
    before = len(server.requests)
    engine = Engine(
        menus=lambda: made,
        ledger=ledger,
        backends={"rucio": backend},
        identities={"rucio": replace(identity, may_end=True)},
        clock=server,
        executor=InlineExecutor(server),  # type: ignore[arg-type]
        observer=Silent(),
        settings=Settings(poll=CYCLE / 10),
    )
    engine.run()
    requested = Counter[str]()
    for rule, _, _, size in server.requests[before:]:
        requested[rule] += size
    accepted = {entry.external_id: entry for entry in ledger.entries() if entry.accepted_at}
    assert {id_: entry.injected for id_, entry in accepted.items()} == {id_: requested[id_] for id_ in accepted}
    assert {id_: entry.moved for id_, entry in accepted.items()} == {id_: requested[id_] for id_ in accepted}
    return ledger


def given(ledger: Ledger, word: str) -> int:
    """How many datasets with a word in their names went out."""
    return sum(word in entry.injection.item.name for entry in ledger.entries() if entry.accepted_at)


def full(ledger: Ledger, links: int = 1) -> bool:
    """Whether links got all that they were due, but for half a dataset each."""
    due = sum(account.due for account in ledger.accounts().values())
    injected = sum(account.injected for account in ledger.accounts().values())
    return due == 36 * GB * links and abs(due - injected) <= 2.1 * GB * links


def test_datasets_that_share_files_go_out_one_at_a_time_and_others_in_their_place(
    tmp_path: Path, server: Server
) -> None:
    share(server, "S0", "abcde")
    ledger = run(tmp_path, server, link())
    assert full(ledger)
    places = [(file, rse) for _, file, rse, _ in server.requests if rse == "D0"]
    assert max(Counter(places).values()) == 1


def test_datasets_of_two_sources_that_share_files_do_not_go_to_one_destination_at_once(
    tmp_path: Path, server: Server
) -> None:
    """The files of both are looked at in calls of their own."""
    server.datasets.clear()
    server.rules.clear()
    share(server, "S0", "a")
    share(server, "S1", "b")
    ledger = run(tmp_path, server, link(), link("S1"), link("S1", "D1"))
    assert given(ledger, "S0#a") + given(ledger, "S1#b") >= 2
    first = [
        entry.injection for entry in ledger.entries() if entry.accepted_at and entry.injection.cycle.start == START
    ]
    by_destination = Counter(injection.link.destination for injection in first)
    assert by_destination == {"D0": 1, "D1": 1}


def test_what_another_account_is_moving_is_left_to_it(tmp_path: Path, server: Server) -> None:
    """Its rule is for another dataset, with some of the same files: no lock of ours says so."""
    share(server, "S0", "abcde")
    server.add("cms:/theirs", "S0", files=0)
    server.datasets["cms", "/theirs"] = {"/shared/0": GB, "/own/data#07/1": GB + 7}
    server._rule("cms", "/theirs", "D0", "production", {"expires_at": None, "comments": None})
    ledger = run(tmp_path, server, link())
    assert full(ledger)
    assert given(ledger, "shared") == given(ledger, "data#07") == 0
    aside = {item for item, _ in ledger.quarantined(START + CYCLE)}
    assert aside


def test_a_dataset_with_a_file_at_the_destination_is_left_alone(tmp_path: Path, server: Server) -> None:
    """No dataset of it was ever there, so that only a list of files shows it."""
    server.replicas["D0"] = {f"/own/data#{number:02}/0" for number in range(0, 20, 2)}
    ledger = run(tmp_path, server, link())
    assert full(ledger)
    assert given(ledger, "data#") == given(ledger, "data#01") + sum(
        given(ledger, f"data#{number:02}") for number in range(3, 20, 2)
    )
    assert not [entry for entry in ledger.entries() if entry.present]


def test_slices_have_no_files_that_are_on_their_way(tmp_path: Path, server: Server) -> None:
    server.datasets.clear()
    server.rules.clear()
    server.add("cms:/big", "S0", files=40, size=GB)
    server.add("cms:/theirs", "S0", files=0)
    server.datasets["cms", "/theirs"] = {f"/big/{number}": GB for number in range(0, 40, 4)}
    server._rule("cms", "/theirs", "D0", "production", {"expires_at": None, "comments": None})
    ledger = run(tmp_path, server, link(slices=Slicing("user.dcops", at_most=GB)))
    assert sum(entry.injected for entry in ledger.entries() if entry.accepted_at) >= 20 * GB


def test_a_call_in_doubt_of_an_earlier_process_keeps_its_files(tmp_path: Path) -> None:
    """It may yet be carried out: what shares files with it does not go to the same destination meanwhile."""
    stock = items("A", 3, 90 * GB)
    one = world(tmp_path, campaign([flow("A", "B", 0.8)]), {"A": stock})
    one.settings = replace(one.settings, call_grace=timedelta(hours=9))
    one.backend.files = {item.id: frozenset({1}) for item in stock}

    def lose(method: str, _subject: object) -> None:
        if method == "submit":
            raise Temporary("no answer", lost=True)

    one.backend.fault = lose
    one.run(cycles=1)
    one.backend.fault = lambda _method, _subject: None
    one.run(cycles=1)
    assert [entry.state for entry in one.ledger.entries()] == [State.CALLED]
    assert set(one.ledger.quarantined(one.clock.now()).values()) == {SHARED}


def test_a_rule_that_another_account_makes_after_the_look_is_seen_afterwards(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the release of ours: all of it counts as theirs, and comes back to the debt."""
    make, theirs = server.make_rules, []

    def first_they(dids: list[dict[str, str]], **asked: object) -> list[str]:
        for did in dids:
            if did["name"] == "/own/data#01" and not theirs:
                more = {"expires_at": None, "comments": None}
                theirs.append(server._rule("cms", did["name"], "D0", "production", more))
                server.clock.time += timedelta(seconds=1)
        return make(dids, **asked)

    monkeypatch.setattr(server, "make_rules", first_they)
    ledger = run(tmp_path, server, link())
    assert theirs
    (entry,) = (e for e in ledger.entries() if e.accepted_at and e.injection.item.name == "cms:/own/data#01")
    assert (entry.present, entry.injected, entry.moved) == (entry.injection.item.bytes, 0, 0)
    assert full(ledger)
    assert theirs[0].id in server.rules
    assert ("cms:/own/data#01", "D0") in ledger.quarantined(START + CYCLE)
