"""What tests of back ends need: injections, entries, and an observer that keeps what it hears."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dc_inject.model import Cycle, DatasetFilter, Entry, Injection, Item, Link, State, naming
from dc_inject.model.events import Event, RequestMade
from dc_inject.model.ports import Outcome

CYCLE = Cycle.at(datetime(2027, 2, 8, 10, 0, tzinfo=UTC), timedelta(minutes=15))
ANYTHING = DatasetFilter(("*:*",), files=(1, 10**6), mean_file=(1, 10**15))


@dataclass
class Heard:
    """An observer that keeps what it hears."""

    events: list[Event] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def requests(self) -> list[RequestMade]:
        """The calls to the service."""
        return [event for event in self.events if isinstance(event, RequestMade)]

    def results(self, method: str) -> list[str]:
        """The results of the calls of a method."""
        return [request.result for request in self.requests if request.method == method]


def injection(
    item: Item, link: Link, *, campaign: str = "test", scenario: str = "s", cycle: Cycle = CYCLE, **more: Any
) -> Injection:
    """An injection with its true key."""
    values: dict[str, Any] = {
        "release": cycle.start,
        "lifetime": timedelta(hours=1),
        "activity": "Data Challenge",
        "service_priority": 3,
        "contact": "me@example.org",
        **more,
    }
    key = naming.key(campaign, scenario, cycle.start, link, item.name)
    return Injection(key, campaign, cycle, scenario, link, item, **values)


def live(injections: Sequence[Injection], outcomes: Sequence[Outcome]) -> list[Entry]:
    """The entries of accepted injections."""
    assert [outcome.key for outcome in outcomes] == [injection.key for injection in injections]
    assert not [outcome.error for outcome in outcomes if outcome.error]
    return [
        Entry(
            injection,
            State.LIVE,
            outcome.external_id,
            accepted_at=CYCLE.start,
            expires_at=CYCLE.start + injection.lifetime,
        )
        for injection, outcome in zip(injections, outcomes, strict=True)
    ]


def fts3_or_skip() -> None:
    """Skip a test where FTS's client is not installed; in CI it fails there."""
    if not os.environ.get("CI"):
        pytest.importorskip("fts3", reason="needs the extra `fts`: apt install gcc libssl-dev python3-dev")
