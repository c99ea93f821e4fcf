"""Files through FTS while the service, a storage and the credentials go away and come back: the run goes on."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dc_inject.model import Cycle, Hold, State
from dc_inject.sandbox import Sandbox
from dc_inject.sandbox.state import write_private
from tests.backends.support import fts3_or_skip
from tests.e2e.files import Storages
from tests.e2e.tool import Tool, until

pytestmark = pytest.mark.sandbox

MB = 10**6
CYCLE = 6
SECRETS = [
    ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    for parts in (
        [{"alg": "none"}, {"exp": round(time.time()) + 3000, "jti": "first-token-of-the-test"}, "signature"],
        [{"alg": "none"}, {"exp": round(time.time()) + 90000, "jti": "second-token-of-the-test"}, "signature"],
    )
]  # the first one ends within the hour


@pytest.fixture
def tokens(storage_grid: Sandbox) -> Iterator[Any]:
    """Let FTS know nobody but who has the token that was set last."""
    folder = storage_grid.folder / "fts"

    def write(name: str, content: dict[str, Any]) -> None:
        write_private(folder / name, json.dumps(content))

    def good(token: str | None) -> None:
        write("tokens.json", {token: {"vo": "sandbox", "user": "/CN=tester"}} if token else {})

    write("settings.json", {"anonymous": False})
    yield good
    write("settings.json", {})
    write("tokens.json", {})


@pytest.fixture
def tool(storage_grid: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    fts3_or_skip()
    made = Tool(
        tmp_path,
        storage_grid.config,
        {"DC_INJECT_FTS_ENDPOINT": storage_grid.fts_url, "DC_INJECT_FTS_TOKEN_FILE": str(tmp_path / "token")},
    )
    try:
        yield made
    finally:
        made.kill()


def holds(tool: Tool, campaign: str, link: str = "") -> set[Hold]:
    """The holds of cycles that are over, of all links or of those to or from a storage."""
    return {
        row.held.hold
        for row in tool.rows(campaign)
        if row.closed and row.held is not None and link in str(row.key.link)
    }


def test_it_holds_while_something_is_away_goes_on_by_itself_and_leaves_nothing(tool, storage_grid, tokens, label):
    """Each trouble is named in the rows; links that it does not touch go on; no token is ever told."""
    storages = Storages(storage_grid, label.lower())
    storages.fill(6, 2 * MB)
    token = tool.state / "token"
    token.write_text(SECRETS[0])
    tokens(SECRETS[0])
    one, other = ("XRD1", "XRD2"), ("XRD1", "XRD3")
    campaign = f"trouble-{label}"
    start = Cycle.at(datetime.now(UTC) + timedelta(seconds=4), timedelta(seconds=CYCLE)).next.start
    menu = storages.menu(
        tool, campaign, {one: "16 Mb/s", other: "16 Mb/s"}, start=start, cycle=CYCLE, cycles=100, lifetime=60
    )
    run = tool.start("run", menu, "--timeout", 5)
    run.says("the credentials for fts: they end at")
    third = storages.destination("XRD3", "XRD1")

    def injected() -> int:
        return sum(row.injected for row in tool.rows(campaign))

    until(lambda: tool.entries(campaign) and injected() > 0, "the first jobs")

    assert [trouble["of"] for trouble in tool.status(campaign)["troubles"]] == ["fts"]
    assert "trouble: the credentials for fts end soon" in tool.run("status", campaign).out

    storage_grid.stop_storage("XRD3")
    try:
        until(lambda: Hold.DESTINATION_UNAVAILABLE in holds(tool, campaign, third), "a hold of the link to it")
        second = storages.destination("XRD2", "XRD1")
        assert Hold.DESTINATION_UNAVAILABLE not in holds(tool, campaign, second)
    finally:
        storage_grid.start_storage("XRD3")

    tokens(SECRETS[1])  # the old one is refused from now on
    until(lambda: Hold.CREDENTIALS in holds(tool, campaign), "a hold for the token")
    assert any(trouble["what"] == "service" for trouble in tool.status(campaign)["troubles"])
    token.write_text(SECRETS[1])
    run.says("fts works again")
    assert not any(trouble["what"] == "credentials" for trouble in tool.status(campaign)["troubles"])

    storage_grid.stop_fts()
    try:
        until(lambda: Hold.API_ERRORS in holds(tool, campaign), "a hold while FTS is away")
    finally:
        storage_grid.start_fts()
    before, cycles = injected(), len({row.cycle for row in tool.rows(campaign)})
    until(
        lambda: injected() > before and len({row.cycle for row in tool.rows(campaign)}) > cycles + 1, "more jobs"
    )

    menu.write_text(menu.read_text().replace(_end(menu), f"end: {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"))
    run.ends()
    assert {e.state for e in tool.entries(campaign)} <= {State.GONE, State.WITHDRAWN, State.REFUSED}
    assert storages.left() == []
    told = "".join(
        file.read_text(errors="replace") for file in tool.state.rglob("*") if file.is_file() and file != token
    )
    assert not any(secret in told for secret in SECRETS)


def _end(menu: Path) -> str:
    return next(line for line in menu.read_text().splitlines() if line.startswith("end: "))
