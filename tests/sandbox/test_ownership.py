"""A folder that the sandbox did not make is never deleted, whatever it looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dc_inject.ledger import default_path
from dc_inject.model.errors import UsageError
from dc_inject.sandbox import Sandbox, debian, default_folder, environment, ownership, xrootd

THESIS = "years of work"


def quiet(line: str) -> None:
    pass


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would be done after a folder was taken, is not."""

    def never(*_: object) -> None:
        raise AssertionError("the folder was taken")

    monkeypatch.setattr(environment, "_run", never)
    monkeypatch.setattr(debian, "unpack", never)
    monkeypatch.setattr(xrootd, "installed", lambda: None)


def up(folder: Path) -> None:
    Sandbox(folder).up(env=folder.parent / "env")


def down(folder: Path) -> None:
    Sandbox(folder).down()


def environment_in(folder: Path) -> None:
    environment.ensure_environment(folder, quiet)


def xrootd_in(folder: Path) -> None:
    xrootd.ensure_xrootd(folder, quiet)


ALIKE = {
    "a virtual environment": {"pyvenv.cfg": "home = /usr/bin\n"},
    "a folder of apt": {"apt/sources.list": ""},
    "a state of something else": {"state.json": json.dumps({"marker": "x", "version": 4})},
    "a state that is none": {"state.json": "[]"},
    "a half state": {"state.json.new": ""},
    "a marker of something else": {ownership.MARKER: "mine\n"},
    "a marker that is a folder": {f"{ownership.MARKER}/x": ""},
    "a complete thing that is a folder": {".dc_inject-complete/x": ""},
    "anything": {},
}


OPTIONS = {up: "--folder", down: "--folder", environment_in: "--env", xrootd_in: "--xrootd"}


@pytest.mark.parametrize("alike", ALIKE)
@pytest.mark.parametrize("act", [up, down, environment_in, xrootd_in])
def test_what_only_looks_like_ours_is_refused_with_a_hint(tmp_path, act, alike):
    folder = tmp_path / "theirs"
    for name, text in {**ALIKE[alike], "thesis.tex": THESIS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match="something else") as caught:
        act(folder)
    assert f" {OPTIONS[act]}," in caught.value.hint
    assert sorted(folder.rglob("*")) == before
    assert (folder / "thesis.tex").read_text() == THESIS


@pytest.mark.parametrize("act", [up, down, environment_in, xrootd_in])
def test_a_link_to_a_folder_of_ours_is_not_followed(tmp_path, act):
    target, link = tmp_path / "target", tmp_path / "link"
    ownership.claim(target, "--folder")
    (target / "thesis.tex").write_text(THESIS)
    link.symlink_to(target)
    with pytest.raises(UsageError, match="something else"):
        act(link)
    assert (target / "thesis.tex").exists()


def test_a_marker_that_is_a_link_does_not_count(tmp_path):
    ownership.claim(tmp_path / "ours", "--env")
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / ownership.MARKER).symlink_to(tmp_path / "ours" / ownership.MARKER)
    assert not ownership.is_ours(folder)
    with pytest.raises(UsageError):
        ownership.remove(folder, "--env")


def test_only_what_is_empty_can_be_claimed_and_what_was_claimed_can_go(tmp_path):
    folder = tmp_path / "ours"
    for _ in range(2):
        ownership.claim(folder, "--env")
        with pytest.raises(UsageError):
            ownership.claim(folder, "--env")
        (folder / "sub").mkdir()
        ownership.remove(folder, "--env")
        assert not folder.exists()
    folder.mkdir()
    ownership.remove(folder, "--env")
    assert not folder.exists()


def test_what_remains_after_down_is_on_its_page(tmp_path, monkeypatch):
    """Environments, ledgers and menus stay; the page says where."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = {
        "$XDG_CACHE_HOME/dc_inject/sandbox-server-*": environment.default_environment(),
        "$XDG_CACHE_HOME/dc_inject/xrootd-*": xrootd.default_xrootd(),
        "$XDG_STATE_HOME/dc_inject/*.sqlite": default_path("dc27", {"XDG_STATE_HOME": str(tmp_path / "state")}),
        "$XDG_STATE_HOME/dc_inject/links": tmp_path / "state" / "dc_inject" / "links",
    }
    for place in kept.values():
        place.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if path.name not in {"dc_inject", "state", "cache"}}
    ownership.claim(default_folder(), "--folder")
    (default_folder() / "rucio.cfg").write_text("")
    assert Sandbox().down()
    assert {path for path in tmp_path.rglob("*") if path.name not in {"dc_inject", "state", "cache"}} == before
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sandbox.md").read_text()
    for pattern, place in kept.items():
        assert place.match(pattern.partition("/")[2]), "the page's pattern is where it is"
        assert f"| `{pattern}`" in page
