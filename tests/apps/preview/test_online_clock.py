"""`check --online` finds a clock that differs from those of the services."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import Result

pytest.importorskip("fts3", reason="needs the extra `fts`: apt install gcc libssl-dev python3-dev")

from dc_inject.apps.preview import online
from dc_inject.backends.sim import SimClock
from tests.apps.preview import test_online

# Its fixtures: FTS and storages by their real clients.
storage, replicas, services, check = (
    test_online.storage, test_online.replicas, test_online.services, test_online.check,
)  # fmt: skip


@pytest.mark.parametrize(
    ("minutes", "severity", "code"), [(5, "warning", "clock-differs"), (-20, "error", None), (0, "", None)]
)
@pytest.mark.usefixtures("services")
def test_a_clock_that_differs_is_found(
    check: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, minutes: int, severity: str, code: str | None
) -> None:
    """From a cycle on it is an error, as `run` refuses it."""
    monkeypatch.setattr(online, "SystemClock", lambda: SimClock(datetime.now(UTC) + timedelta(minutes=minutes)))
    rows = [row for row in json.loads(check("--format", "json").stdout) if "clock" in row["message"]]
    assert [(row["severity"], row["code"]) for row in rows] == ([(severity, code)] if severity else [])
