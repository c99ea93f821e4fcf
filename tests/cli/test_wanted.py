"""What back ends are made from: what a command's options name, and one client for all that looks up datasets."""

from __future__ import annotations

import logging
import os
from threading import Thread
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from dc_inject import registry
from dc_inject.backends import build
from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import common
from dc_inject.credentials.trust import Destinations, Wanted
from dc_inject.model.events import Silent
from tests.cli.ledgers import START


@pytest.mark.parametrize(
    ("named", "environment", "workers"),
    [
        ("tls://a:1", "", "tls://a:1"),
        ("", "tls://b:1", "tls://b:1"),
        ("tls://a:1", "tls://b:1", "tls://a:1"),
        ("",) * 3,
    ],
)
def test_workers_are_those_of_the_option_else_of_the_environment(monkeypatch, caplog, named, environment, workers):
    """And a warning is logged once in a command, also from a worker thread, which has no context of click."""
    made: list[Wanted] = []
    monkeypatch.setattr(registry, "load", lambda _name: made.append)
    monkeypatch.setenv("DC_INJECT_WORKERS", environment)

    @click.command()
    @common.WORKERS
    def command() -> None:
        for _ in range(2):
            common.backends(["reads"], campaign="dc", clock=SimClock(START), observer=Silent(), timeout=1.0)
            thread = Thread(target=made[-1].warn, args=(["mend it"],))
            thread.start()
            thread.join()

    caplog.set_level(logging.WARNING)
    CliRunner().invoke(command, ["--workers", named] if named else [], catch_exceptions=False)
    assert [wanted.workers for wanted in made] == [workers] * 2
    assert os.environ["DC_INJECT_WORKERS"] == environment
    assert [record.getMessage() for record in caplog.records] == ["mend it"]


def test_fts_looks_up_datasets_of_all_sources_with_one_rucio(monkeypatch):
    """So that its breaker opens when that Rucio does not work."""
    made, asked = [], []

    def rucio(wanted: Wanted) -> SimpleNamespace:
        made.append(wanted)
        return SimpleNamespace(replicas=lambda source, datasets: asked.append((source, datasets)))

    monkeypatch.setattr(build, "rucio", rucio)
    monkeypatch.setattr("dc_inject.backends.fts.FtsBackend", lambda *_, **options: SimpleNamespace(**options))
    wanted = Wanted("dc", SimClock(START), Silent(), 1.0, "https://fts:8446", None, Destinations(["fts"]), print)
    backend = build.fts(wanted)
    assert made == []
    for source in ("A", "B"):
        backend.replicas(source, ["x:y"])
    assert asked == [("A", ["x:y"]), ("B", ["x:y"])]
    assert made == [wanted]
