"""What the tests of the sandbox do with rules, as an ordinary account."""

from __future__ import annotations

import time
from collections.abc import Callable

from rucio.client import Client
from rucio.common.exception import RuleNotFound


def until(done: Callable[[], object], patience: float = 30.0) -> None:
    """Wait for something that has to happen, but not for ever."""
    deadline = time.monotonic() + patience
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def inject(client: Client, scope: str, name: str, source: str, destination: str) -> str:
    """Make a rule as the injector does; returns its id."""
    rules = client.add_replication_rule(
        [{"scope": scope, "name": name}],
        1,
        destination,
        lifetime=3600,
        source_replica_expression=source,
        activity="Data Challenge",
        purge_replicas=True,
    )
    return str(rules[0])


def state(client: Client, rule: str) -> str:
    """The rule's state, GONE when there is none."""
    try:
        return str(client.get_replication_rule(rule)["state"])
    except RuleNotFound:
        return "GONE"


def locks(client: Client, rule: str) -> tuple[int, int, int]:
    """OK, replicating, stuck."""
    return standing(client, rule)[1]


def standing(client: Client, rule: str) -> tuple[str, tuple[int, int, int]]:
    """The state of a rule with its locks, of one moment: what is stuck is soon tried again."""
    told = client.get_replication_rule(rule)
    return told["state"], (told["locks_ok_cnt"], told["locks_replicating_cnt"], told["locks_stuck_cnt"])
