"""Each released version's ledger is opened by the present code, read, and gone on with; nothing of it is lost."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dc_inject.cli.root import root
from dc_inject.ledger import Ledger
from dc_inject.ledger.check import check
from dc_inject.model import State
from tests.engine.world import CYCLE, GB
from tests.ledger import released
from tests.ledger.world import opened

from .world import totals_from_rows

CHANGELOG = Path(__file__).resolve().parents[2] / "docs" / "changelog.md"
READING = (
    ["status"], ["status", "--decisions", "5"], ["status", "--summary"], ["report"],
    ["export"], ["ledger", "check"],
)  # fmt: skip


def asked(path: Path, *words: str) -> str:
    """What a command says of a ledger, as JSON."""
    command, *more = words if words[0] != "ledger" else (" ".join(words),)
    formats = () if command == "export" else ("--format", "json")
    done = CliRunner().invoke(root, [*command.split(), str(path), *more, *formats])
    assert done.exit_code == 0, done.output
    return done.stdout


def schema(path: Path) -> list[tuple[str, ...]]:
    """The tables, indexes and triggers of a ledger, as statements."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def same_or_more(was: Any, now: Any, place: str = "") -> None:
    """What was said is still said, in the same words; there may be new keys."""
    if isinstance(was, dict):
        for key, value in was.items():
            assert key in now, f"{place}.{key}"
            same_or_more(value, now[key], f"{place}.{key}")
    elif isinstance(was, list):
        assert len(was) == len(now), place
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            same_or_more(one, other, f"{place}[{number}]")
    else:
        assert was == now, place


def test_each_version_of_the_changelog_has_a_ledger():
    listed = re.findall(r"^## (\d+\.\d+\.\d+) ", CHANGELOG.read_text(), re.MULTILINE)
    dated = re.findall(r"^## (\d+\.\d+\.\d+) \(\d", CHANGELOG.read_text(), re.MULTILINE)
    assert set(dated) <= set(released.versions()) <= set(listed)


@pytest.mark.parametrize("version", released.versions())
def test_it_is_read_as_the_version_that_wrote_it_read_it(version, tmp_path):
    path = released.restored(version, tmp_path)
    said = json.loads(asked(path, "status", "--summary"))
    same_or_more(released.recorded(version)["summary"], said)
    for words in READING:
        assert asked(path, *words)


@pytest.mark.parametrize("version", released.versions())
def test_once_opened_it_has_the_schema_of_a_new_one(version, tmp_path):
    """Until its version is released, `make released-ledger` writes it anew; later it has to be converted."""
    path = released.restored(version, tmp_path)
    Ledger.open(path).close()
    with opened(tmp_path) as new:
        pass
    assert schema(path) == schema(new.path)


@pytest.mark.parametrize("version", released.versions())
def test_a_run_goes_on_with_it(version, tmp_path):
    """The call in doubt is cleared up, what was asked for stays, and each account grows by what is due."""
    released.restored(version, tmp_path)
    one = released.resumed(tmp_path, datetime.fromisoformat(released.recorded(version)["at"]))
    before, there = one.ledger.accounts(), set(one.backend.rules)
    rows = [row for row in one.ledger.rows() if row.cycle.end <= one.clock.now()]
    entries = {entry.injection.key: entry for entry in one.ledger.entries()}
    in_doubt = [key for key, entry in entries.items() if entry.state is State.CALLED]
    assert in_doubt
    one.run(cycles=4)
    after = one.ledger.accounts()
    assert one.ledger.accounts() == totals_from_rows(one.ledger)
    assert [found for found in check(one.ledger.path) if not found.note] == []
    assert list(one.ledger.rows()[: len(rows)]) == rows, "what is closed stays as it was"
    now = {entry.injection.key: entry for entry in one.ledger.entries()}
    assert now.keys() >= entries.keys()
    assert {now[key].state for key in in_doubt} & {State.CALLED, State.INTENDED} == set()
    assert there <= set(one.backend.rules)
    (plain,) = (flow.key for flow in released.flows() if str(flow.link) == "A:B")
    due = after[plain].due - before[plain].due
    assert due == 4 * int(CYCLE.total_seconds() * 1e9 / 8), "half of 2 Gb/s is set"
    assert abs(after[plain].due - after[plain].injected) <= 50 * GB
