"""`dc-inject plan` where there is nothing to plan, or nobody to ask."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dc_inject.model.errors import MenuError, ServiceError, UsageError
from tests.cli.ledgers import run
from tests.menu.texts import LIST, RIGHT, fts, text


@pytest.fixture
def menu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A menu of February 2027, and an inventory, on a machine that knows no Rucio."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("RUCIO_CONFIG", "RUCIO_HOME", "VIRTUAL_ENV", "DC_INJECT_FTS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUCIO_HOME", str(tmp_path))
    (tmp_path / "stock.csv").write_text("source,name,bytes,files\nA,a:one,5000000000,10\n")
    path = tmp_path / "m.yaml"
    path.write_text(text())
    return path


def test_outside_every_window_only_a_sentence_is_printed(menu: Path, wording) -> None:
    """No empty table; for programs there are no rows."""
    plan = ("plan", menu, "--inventory", menu.with_name("stock.csv"), "--at", "2020-01-01T00:00Z")
    done = run(*plan)
    assert done.exit_code == 0, done.exception
    assert done.stdout == ""
    wording(done.stderr)
    assert done.stderr.count("\n") == 1
    assert run(*plan, "--datasets").stdout == ""
    assert json.loads(run(*plan, "--format", "json").stdout) == []
    assert run(*plan, "--format", "csv").stdout.startswith("cycle,")


def test_without_a_rucio_the_hint_names_what_works_without_one(menu: Path) -> None:
    """An inventory, and the footprint."""
    error = run("plan", menu).exception
    assert isinstance(error, ServiceError), error
    assert "rucio.cfg" in str(error.hint)
    assert "--inventory" in str(error.hint)
    assert "dc-inject footprint" in str(error.hint)


def test_without_an_fts_too(menu: Path) -> None:
    """Where no menu says where it is."""
    menu.write_text(fts(RIGHT))
    for name, content in LIST.items():
        menu.with_name(name).write_text(content)
    error = run("plan", menu).exception
    assert isinstance(error, UsageError), error
    assert "--inventory" in str(error.hint)


def test_an_inventory_is_a_regular_file_of_bounded_size(
    menu: Path, monkeypatch: pytest.MonkeyPatch, wording
) -> None:
    """A pipe is refused at once, and no more is read than may be there."""
    pipe = menu.with_name("pipe.csv")
    os.mkfifo(pipe)
    error = run("plan", menu, "--inventory", pipe).exception
    assert isinstance(error, MenuError)
    wording(str(error.problems[0]))
    monkeypatch.setattr("dc_inject.apps.preview.inventory_file.LARGEST", 40)
    large = menu.with_name("large.csv")
    large.write_text("source,name,bytes,files\n" + "A,cms:one,1,1\n" * 10)
    error = run("plan", menu, "--inventory", large).exception
    assert isinstance(error, MenuError)
    assert "larger than" in str(error.problems[0])
    for wrong in ("source,name,bytes,files,site\n", "source,name,bytes,files\nA,cms:1,1,1,KIT\n"):
        large.write_text(wrong)
        assert isinstance(run("plan", menu, "--inventory", large).exception, MenuError)
    large.write_bytes(b"source,name,bytes,files\n\xff\n")
    error = run("plan", menu, "--inventory", large).exception
    assert isinstance(error, MenuError)
    assert "UTF-8" in str(error.problems[0])
