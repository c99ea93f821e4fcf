"""A question to Rucio that is not answered is asked again at once; nothing that changes something is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import requests
from rucio.common import exception as rucio

from dc_inject.backends.rucio import RucioBackend, connection
from dc_inject.backends.rucio.connection import ASK, DOWN_AFTER
from dc_inject.model import Item, Link
from dc_inject.model.errors import NeedsOperator, Temporary

from .fake import FakeClient, FakeRucio
from .support import injection


def test_a_question_is_asked_again_until_it_is_answered(backend: RucioBackend, server: FakeRucio) -> None:
    server.faults["whoami"] = [rucio.DatabaseException("busy"), ValueError("<html>")]
    assert backend.check().account == server.account


def test_it_is_not_asked_for_ever(backend: RucioBackend, server: FakeRucio) -> None:
    server.faults["whoami"] = [rucio.DatabaseException("busy")] * 100
    with pytest.raises(NeedsOperator):
        backend.check()
    assert server.called("whoami") == ASK


def test_what_makes_a_rule_is_asked_for_once(
    backend: RucioBackend, server: FakeRucio, items: list[Item], link: Link
) -> None:
    server.faults["add_replication_rule"] = [rucio.DatabaseException("busy")]
    (outcome,) = backend.submit([injection(items[0], link)])
    assert isinstance(outcome.error, Temporary)
    assert server.called("add_replication_rule") == 1


def test_credentials_that_are_refused_are_not_tried_again_here(backend: RucioBackend, server: FakeRucio) -> None:
    server.faults["whoami"] = [rucio.CannotAuthenticate("no")]
    with pytest.raises(NeedsOperator):
        backend.check()


def test_when_nothing_works_each_question_is_asked_once(backend: RucioBackend, server: FakeRucio) -> None:
    server.faults["whoami"] = [rucio.DatabaseException("busy")] * 100
    for _ in range(10):
        with pytest.raises(NeedsOperator):
            backend.check()
    # `check` begins with a ping, which works: the counting begins anew with each.
    assert server.called("whoami") == 10 * ASK
    server.faults["ping"] = [rucio.DatabaseException("busy")] * 100
    for _ in range(10):
        with pytest.raises(NeedsOperator):
            backend.check()
    assert server.called("ping") <= 10 + 10 + DOWN_AFTER


def test_one_that_took_long_to_fail_is_not_asked_again(
    make: Callable[..., RucioBackend], server: FakeRucio, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = make(timeout=10.0)

    def slow(_self: FakeClient) -> None:
        server.clock.time += timedelta(seconds=10)
        raise requests.ReadTimeout("read timed out")

    monkeypatch.setattr(FakeClient, "whoami", slow)
    with pytest.raises(NeedsOperator, match="in time"):
        backend.check()
    assert server.called("whoami") == 1


def test_an_answer_of_rows_without_end_is_given_up(backend: RucioBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept in memory is bounded by rows: each takes many times the bytes that came."""
    monkeypatch.setattr(connection, "MOST_ROWS", 1000)
    given = 0

    def rows(*_: object, **__: object) -> Iterator[dict[str, str]]:
        nonlocal given
        for _ in range(10_000):  # so that it fails, and does not hang, where nothing bounds them
            given += 1
            yield {"scope": "cms", "name": "x"}

    monkeypatch.setattr(FakeClient, "list_content", rows, raising=False)
    with pytest.raises(Temporary, match="more than 1,000 rows"):
        backend.connection.call("list_content", "cms", "x")
    assert given <= ASK * 1001
