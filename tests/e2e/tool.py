"""The command line as a user runs it, in processes of its own; a menu; and what Rucio says of the result."""

from __future__ import annotations

import configparser
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from dc_inject.ledger import LedgerView, Row
from dc_inject.model import Cycle, Entry, State
from dc_inject.model.errors import LedgerError
from dc_inject.sandbox import Dataset, Rse, Sandbox
from tests.conftest import client_for
from tests.e2e import driver
from tests.e2e.nursery import HERE, Process

PATIENCE = 300.0  # seconds that anything may take on a machine that is busy with other things
GB = 10**9
# Nobody listens there: services on this machine are reached without a proxy, whatever the environment names.
PROXIES = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9") | {
    "ALL_PROXY": "socks5h://127.0.0.1:9",
    "no_proxy": "",
    "NO_PROXY": "",
}
ACCEPTED = {State.LIVE, State.COMPLETE, State.ENDED, State.GONE}

MENU = """\
menu: 1
campaign: {campaign}
contact: e2e@example.org
timezone: UTC
start: {start}
end: {end}
limits: {{total: 400 Gb/s, per_site: 200 Gb/s}}
defaults:
  cycle: {cycle} s
  dwell: {dwell} s
  datasets: {{did: ["cms:*"], files: 1..100, mean_file: 0.1..20 GB}}
scenarios:
  test:
    links:
"""


def until(done: Callable[[], object], what: str, patience: float = PATIENCE, pause: float = 0.2) -> Any:
    """Wait for something that has to come, but not for ever; returns what it gave.

    What takes long to ask, such as a process, is asked at most a third of the time; `pause` is in seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        asked_at = time.monotonic()
        if found := done():
            return found
        now = time.monotonic()
        assert now < deadline, f"not in time: {what}"
        time.sleep(max(pause, 2 * (now - asked_at)))


@dataclass(frozen=True)
class Done:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Running:
    """A process at work; what it says goes to files, so that it never waits for a reader."""

    def __init__(self, arguments: Iterable[object], environ: Mapping[str, str], place: Path, *, forked: bool):
        self._secrets = [password] if (password := _password(Path(environ["RUCIO_CONFIG"]))) else []
        self._out, self._err = place.with_suffix(".out"), place.with_suffix(".err")
        self.words = [str(argument) for argument in arguments]
        self.process: Process | subprocess.Popen[bytes]
        with self._out.open("w") as out, self._err.open("w") as err:
            if forked:
                self.process = Process(driver.live, self.words, environ, self._out, self._err)
            else:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "dc_inject", *self.words],
                    env=dict(environ), cwd=HERE, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                )  # fmt: skip

    @property
    def err(self) -> str:
        return self._err.read_text()

    def says(self, words: str) -> str:
        """Wait until it says so; returns the line."""

        def said() -> str | None:
            found = next((line for line in self.err.splitlines() if words in line), None)
            assert found or self.process.poll() is None, f"ended without saying {words!r}:\n{self.err}"
            return found

        return str(until(said, words))

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, code: int | None = 0, patience: float = PATIENCE) -> Done:
        """Wait for its end; no traceback and no password may have reached the terminal."""
        done = Done(self.process.wait(patience), self._out.read_text(), self.err)
        assert code is None or done.code == code, f"exit code {done.code}, not {code}:\n{done.err}"
        assert "Traceback" not in done.err, done.err
        assert not any(secret in done.err + done.out for secret in self._secrets)
        return done


def _password(config: Path) -> str:
    parser = configparser.ConfigParser()
    parser.read(config)
    return parser.get("client", "password", fallback="")


@dataclass
class Tool:
    """`dc-inject` with a state folder and a rucio.cfg of its own, and `more` in its environment."""

    state: Path
    config: Path
    more: Mapping[str, str] = field(default_factory=dict)
    forked: bool = True  # else each process is a new one, whose memory is all its own
    running: list[Running] = field(default_factory=list)

    def start(
        self,
        *arguments: object,
        config: Path | None = None,
        now: datetime | None = None,
        speed: float = 1,
        accident: str = "",
        told: Path | None = None,
    ) -> Running:
        """Start it; `now`, `speed` and `accident` are for the driver."""
        environ = {**os.environ, "RUCIO_CONFIG": str(config or self.config), "XDG_STATE_HOME": str(self.state)}
        environ |= PROXIES | self.more
        if now is not None:
            environ |= {"E2E_NOW": now.isoformat(), "E2E_SPEED": str(speed)}
        if accident:
            environ |= {"E2E_ACCIDENT": accident, "E2E_TOLD": str(told)}
        place = self.state / f"run-{len(self.running)}.txt"
        self.running.append(Running(arguments, environ, place, forked=self.forked))
        return self.running[-1]

    def run(self, *arguments: object, code: int | None = 0, **more: Any) -> Done:
        """Start it and wait for its end."""
        return self.start(*arguments, **more).ends(code)

    def ledger(self, campaign: str) -> Path:
        return self.state / "dc_inject" / f"{campaign}.sqlite"

    def entries(self, campaign: str) -> list[Entry]:
        """Everything that the ledger has; nothing before it is one."""
        try:
            with LedgerView.open(self.ledger(campaign)) as view:
                return view.entries()
        except LedgerError:
            return []

    def rows(self, campaign: str) -> list[Row]:
        """The rows of all cycles, in their order."""
        with LedgerView.open(self.ledger(campaign)) as view:
            return sorted(view.rows(), key=lambda row: row.cycle)

    def status(self, campaign: str, *more: str) -> Any:
        return self.run("status", campaign, "--format", "json", *more).json

    def menu(
        self,
        campaign: str,
        links: Mapping[tuple[str, str], str],
        *,
        start: datetime,
        cycles: int = 1,
        cycle: int = 6,
        dwell: int = 0,
    ) -> Path:
        """Write a menu with these links and their rates."""
        path = self.state / f"{campaign}.yaml"
        stamp, end = "%Y-%m-%dT%H:%M:%SZ", start + cycles * timedelta(seconds=cycle)
        head = MENU.format(
            campaign=campaign, start=start.strftime(stamp), end=end.strftime(stamp), cycle=cycle, dwell=dwell
        )
        lines = [f"      - {{from: {a}, to: {b}, rate: {rate}}}\n" for (a, b), rate in links.items()]
        path.write_text(head + "".join(lines))
        return path

    def kill(self) -> None:
        """End what a test that failed has left, only processes that we started; pytest shows what they said."""
        for one in self.running:
            print(f"--- {' '.join(one.words)}", *one.err.splitlines()[-60:], sep="\n")
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait(PATIENCE)


def this_cycle(seconds: int) -> Cycle:
    """The slot of the grid in which we are: a clock that is set into it is wrong by less than its length."""
    return Cycle.at(datetime.now(UTC), timedelta(seconds=seconds))


_client = cache(client_for)  # to make one asks three times


def rules(config: Path, campaign: str) -> list[dict[str, Any]]:
    """The campaign's rules as Rucio has them, asked for as the same account."""
    client = _client(config)
    found = client.list_replication_rules({"account": client.account})
    return [rule for rule in found if (rule["comments"] or "").startswith(f"dc_inject/1 {campaign} ")]


def given(entries: Iterable[Entry]) -> list[tuple[str, str, str]]:
    """Dataset, destination and source of what was accepted."""
    return sorted(
        (e.injection.item.name, e.injection.link.destination, e.injection.link.source)
        for e in entries
        if e.state in ACCEPTED
    )


def asked(some: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Dataset, destination and source of rules."""
    return sorted((f"{r['scope']}:{r['name']}", r["rse_expression"], r["source_replica_expression"]) for r in some)


def stock(source: str, count: int = 12, step: float = 1.2) -> tuple[Dataset, ...]:
    """Datasets of two files, each 20 % larger than the one before: so unlike that no draw decides between them."""
    sizes = [round(GB * step**number) for number in range(count)]
    return tuple(Dataset("cms", f"/E2E_{source}/v1/RAW#{n:03}", (size, size)) for n, size in enumerate(sizes))


def add_stock(
    sandbox: Sandbox, sources: Iterable[str], destinations: Iterable[Rse | str], count: int = 12
) -> None:
    """Add sources with datasets, and empty destinations, all at once."""
    from_ = [Rse(name, 10**16) for name in sources]
    to = [rse if isinstance(rse, Rse) else Rse(rse, 10**15) for rse in destinations]
    sandbox.add([*from_, *to], {rse.name: stock(rse.name, count) for rse in from_})
