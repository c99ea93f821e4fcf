"""What the tests of the sandbox do with rules, as an ordinary account, and in the server's environment."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from rucio.client import Client
from rucio.common.exception import RuleNotFound

from dc_inject.sandbox import Sandbox
from dc_inject.sandbox.environment import python_of

REST_AND_WAKE = """
import threading, uuid
from rucio.db.sqla.session import get_engine
from sandbox_server import rest
from sqlalchemy import text

looks = 0

def write():
    with get_engine().begin() as connection:
        connection.execute(text(f"UPDATE accounts SET email = '{uuid.uuid4()}' WHERE account = 'root'"))

def look():
    global looks
    looks += 1
    if looks == 3:
        write()
    return False

rest.LONGEST, rest.GROWTH = 3600.0, 1e9
idle = rest.Rest(0.01, look)
while looks != 3:  # others may write meanwhile
    looks = 0
    idle.wait(threading.Event(), idle=True)

def look_in_a_hurry():
    global looks
    looks += 1
    write()
    return looks == 2

looks = 0
rest.Rest(3600.0, look_in_a_hurry).wait(threading.Event(), idle=False)
print(looks)
"""


def until(done: Callable[[], object], patience: float = 300.0) -> None:
    """Wait for something that has to happen, but not for ever."""
    deadline = time.monotonic() + patience
    while not done():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.2)


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


def run_in_server(grid: Sandbox, code: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a process of a sandbox's server."""
    words = [str(python_of(Path(grid._state().env))), "-c", code]
    environment = grid._services()._environment("test")
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)


def rest_and_wake(grid: Sandbox) -> None:
    """Rest for an hour, which a write ends, then for two looks for somebody in a hurry, which it does not."""
    done = run_in_server(grid, REST_AND_WAKE)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
