"""The pictures of terminals in the pages are what the program shows now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import DOCS

pytest.importorskip("textual")

from tests.apps.report import campaigns_to_watch as watching
from tests.cli.ledgers import run
from tests.cli.screens import text
from tests.docs import screens


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watching.campaign(tmp_path_factory.mktemp("screens") / "dc27.sqlite")


@pytest.mark.parametrize("name", screens.SCREENS)
def test_a_picture_has_the_text_of_the_present_code(ledger: Path, name: str) -> None:
    """Its colours and shapes may differ: another version of Textual may draw the same text otherwise."""
    picture = (DOCS / name).read_text()
    shown = text(picture)
    assert shown == text(screens.SCREENS[name](ledger)), "run `make docs`"
    assert max(map(len, shown)) <= int(name.rpartition("-")[2].removesuffix(".svg"))


@pytest.mark.parametrize("name", screens.SCREENS)
def test_a_picture_fetches_nothing_and_is_on_a_page(name: str) -> None:
    picture = (DOCS / name).read_text()
    assert not re.search(r"url\((?!['\"]?#)|@import|<image|@font-face", picture)
    assert f"({Path(name).name})" in (DOCS / "how-to" / "watch-a-campaign.md").read_text()


def test_the_status_on_the_page_about_a_day_is_that_of_the_present_code(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dc_inject.system.clock.SystemClock.now", lambda _: watching.NOW)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = tmp_path / "dc_inject" / "dc27-rehearsal.sqlite"
    place.parent.mkdir()
    place.write_bytes(ledger.read_bytes())
    page = (DOCS / "how-to" / "run-a-day.md").read_text()
    (block,) = re.findall(r"^```console\n\$ dc-inject status \S+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert run("status", "dc27-rehearsal").stdout.startswith(block)
