"""A part of the hostile suite, each mode and service; `make hostile` has all of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from dc_inject.backends.fts import FtsBackend
from dc_inject.backends.rucio import RucioBackend
from dc_inject.credentials import Credentials
from dc_inject.model import Bundle, Cycle, Dataset, Entry, File, Injection, JobOptions, Link, State
from dc_inject.model.deletion import NotOurs
from dc_inject.model.ports import Status
from dc_inject.sandbox import Sandbox
from dc_inject.system.clock import SystemClock
from tests.backends.support import Heard, fts3_or_skip, injection, live
from tests.conftest import client_for, rucio_config
from tests.hostile.lab import CASES, GB, MB, ROLES, Lab, lab, play, stock
from tests.hostile.modes import MODES

pytestmark = pytest.mark.sandbox
CLOCK = SystemClock()

SOME = [  # what takes a second or two each; injecting ones take half a minute, and are in the full suite only
    ("fts", "drip", "ping"),  # as long as such an answer may take
    ("rucio", "endless", "ping"),
    ("fts", "endless-lines", "ping"),
    ("storage", "headers", "data"),
    ("login", "bomb", "ping"),
    ("rucio", "redirect-host", "ping"),
    ("storage", "redirect-path", "data"),
    ("fts", "redirect-loop", "ping"),
    ("rucio", "cut", "data"),
    ("rucio", "ids", "check"),
    ("fts", "unknown", "check"),
    ("rucio", "types", "check"),
    ("fts", "numbers", "check"),
    ("rucio", "duplicates", "data"),
    ("storage", "control", "check"),
    ("storage", "patterns", "data"),
]


@pytest.fixture(scope="module")
def hostile(storage_grid: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    (label,) = stock(storage_grid, 1, 2)
    with lab(storage_grid, tmp_path_factory.mktemp("hostile"), label, forked=True) as made:
        yield made


@pytest.mark.parametrize(("role", "mode", "command"), SOME)
def test_a_hostile_answer_does_no_harm(hostile: Lab, role: str, mode: str, command: str) -> None:
    """Bounded memory, a clear end, no secret to anybody, nothing of others touched."""
    if role == "fts":
        fts3_or_skip()
    play(hostile, role, mode, command)


def test_every_mode_and_service_is_among_them() -> None:
    """A mode that is added is tried."""
    assert {mode for _, mode, _ in SOME} == set(MODES)
    assert {role for role, _, _ in SOME} == set(ROLES)
    assert {(role, command) for role, _, command in SOME} <= set(CASES)


# --------------------------------------------------------------------------- ids of others


def of_now(item: Any, link: Link, **more: Any) -> Injection:
    return injection(item, link, cycle=Cycle.at(CLOCK.now(), timedelta(seconds=15)), **more)


def test_rules_of_others_are_not_counted_and_not_ended(hostile: Lab) -> None:
    """Each answer names the rule that keeps the first dataset at its source, which is complete."""
    root = client_for(hostile.grid.root_config)
    source, destination = hostile.rses
    names = sorted(row["name"] for row in root.list_datasets_per_rse(source))
    (theirs,) = root.list_did_rules("cms", names[0])
    made = [of_now(Dataset(f"cms:{name}", GB, 1), Link(source, destination)) for name in names]
    proxy = hostile.proxies["rucio"]
    proxy.id = theirs["id"]
    with rucio_config(hostile.tool().config):
        backend = RucioBackend(campaign="test", clock=CLOCK, observer=Heard(), batch_rules=1)
        backend.check()
        with hostile.hostile("rucio", "ids"):
            entries = live(made, backend.submit(made))
        assert {entry.external_id for entry in entries} == {theirs["id"]}
        assert all(isinstance(outcome.error, NotOurs) for outcome in backend.end(entries))
        seen = backend.observe(entries)
        rules = [rule for name in names for rule in root.list_did_rules("cms", name)]
        own = {rule["name"]: rule["id"] for rule in rules if rule["rse_expression"] == destination}
        assert [one.external_id for one in seen] == [own[name] for name in names]
        found = [entry.changed(external_id=one.external_id) for entry, one in zip(entries, seen, strict=True)]
        with hostile.hostile("rucio", "unknown"):
            assert {one.status for one in backend.observe(found)} == {Status.UNKNOWN}
        assert not [outcome.error for outcome in backend.end(found) if outcome.error]
    assert root.get_replication_rule(theirs["id"])["expires_at"] == theirs["expires_at"]


def test_jobs_of_others_are_not_counted_and_not_cancelled(hostile: Lab) -> None:
    fts3_or_skip()
    proxy, source, destination = hostile.proxies["fts"], *hostile.ends("fts", "ids")
    backend = FtsBackend(
        proxy.url, campaign="test", clock=CLOCK, observer=Heard(), credentials=Credentials({}, CLOCK, uid=-1)
    )

    def job(number: int, campaign: str) -> Injection:
        file = File(f"{source}/src/{number:03}", MB // 4 + number)
        options = JobOptions(retry=0, longest_transfer=timedelta(seconds=2))
        return of_now(
            Bundle(file.name, file.bytes, 1, members=(file,)), Link(source, destination, "fts"),
            job=options, campaign=campaign,
        )  # fmt: skip

    made, others = job(0, "ours"), job(1, "theirs")
    (theirs,) = live([others], backend.submit([others]))
    proxy.id = theirs.external_id
    with hostile.hostile("fts", "ids"):
        (outcome,) = backend.submit([made])
        doubtful = Entry(made, State.CALLED, called_at=CLOCK.now())
        (seen,) = backend.observe([doubtful])
    assert getattr(outcome.error, "lost", None)
    assert seen.status is Status.UNKNOWN
    (seen,) = backend.observe([doubtful])
    assert seen.external_id not in {"", theirs.external_id}
    assert not backend.end([doubtful.changed(external_id=theirs.external_id)])[0].error
    (seen,) = backend.observe([theirs])
    assert "canceled" not in seen.reasons
