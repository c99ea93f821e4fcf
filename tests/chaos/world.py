"""A campaign in a world of its own: RSEs, datasets, other people's data, a proxy, and lives of the tool."""

from __future__ import annotations

import configparser
import contextlib
import io
import json
import os
import random
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dc_inject.ledger import LedgerView, Row
from dc_inject.model import Cycle, Entry
from dc_inject.model.errors import LedgerError
from dc_inject.sandbox import Dataset, Rse, Sandbox
from dc_inject.sandbox.state import write_private
from tests.chaos import driver
from tests.chaos.lives import PATIENCE, Life
from tests.chaos.proxy import Proxy
from tests.conftest import client_for
from tests.e2e.nursery import Process
from tests.e2e.tool import Done, until

GB = 10**9
FOREIGN = "production"
BETWEEN = 0.05  # seconds from a death to the next start, as a supervisor has them
DONE, LEDGER, SERVICE, KILLED = 0, 3, 4, -9
ALL = "cms:*"
STAMP = "%Y-%m-%dT%H:%M:%SZ"

MENU = """\
menu: 1
campaign: {campaign}
contact: chaos@example.org
timezone: UTC
start: {start}
end: {end}
limits: {{total: 10000 Gb/s, per_site: 10000 Gb/s, rules_per_hour: 1000000, files_in_flight: 1000000}}
accept: [rate-outlier]
defaults:
  control: act
  cycle: {cycle} s
  lifetime: {{min: {lifetime} s, max: {lifetime} s}}
  datasets: {{did: ["{did}"], files: 1..100, mean_file: 0.1..20 GB}}
scenarios:
  test:
    links:
"""


@dataclass
class World:
    """What a campaign needs, and what it left behind; `folder` holds state and output, nobody else's."""

    sandbox: Sandbox
    folder: Path
    label: str
    proxy: Proxy
    cycle: int = 4  # seconds
    links: int = 2  # from one source
    timeout: int = 2  # seconds of a call; three times as much and a request counts as never made
    rate: str = ""  # of each link
    did: str = ALL  # datasets that are taken
    number: int = 0  # of the campaign: a world may see several, one after the other
    lives: list[Life] = field(default_factory=list)  # of this campaign
    codes: Counter[int] = field(default_factory=Counter)  # of all
    more: Mapping[str, str] = field(default_factory=dict)  # for the tool's environment
    service: str = "rucio"
    patience: float = PATIENCE
    over: bool = False  # whether somebody has stopped it all
    secrets: set[str] = field(default_factory=set)  # that it was given, beside its first password
    places: str = ""  # the label in the names of places and datasets, which two worlds may share
    harmed: bool = False  # whether the machine itself fails: then a life may end in any way
    on_death: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        """Make the folder, and a rucio.cfg that leads to the proxy."""
        self.places = self.places or self.label
        self.folder.mkdir(parents=True, mode=0o700)
        config = self.sandbox.config.read_text().replace(self.sandbox.url, self.proxy.url)
        token = self.sandbox.config.parent  # every client has its token file there: ours must not be shared
        config = config.replace(f"auth_token_file_path = {token}", f"auth_token_file_path = {self.folder}")
        (self.folder / "secret").mkdir(mode=0o700)
        self.config = self.folder / "secret" / "rucio.cfg"
        self.config.write_text(config.replace(f"{self.folder}/token", f"{self.folder}/secret/token"))
        self.config.chmod(0o600)

    # ------------------------------------------------------------------ names

    @property
    def campaign(self) -> str:
        return f"chaos-{self.label}-{self.number}"

    def next_campaign(self) -> None:
        """Begin anew, with the same places and data; what was before has to be drained."""
        self.number += 1
        self.lives = []

    @property
    def source(self) -> str:
        return f"T2_{self.places}_From"

    @property
    def destinations(self) -> list[str]:
        return [f"T2_{self.places}_To{number}" for number in range(1, self.links + 1)]

    @property
    def landings(self) -> list[str]:
        """Those that get what is at the source: all of them here."""
        return self.destinations

    @property
    def menu(self) -> Path:
        return self.folder / f"{self.campaign}.yaml"

    @property
    def ledger(self) -> Path:
        return self.folder / "dc_inject" / f"{self.campaign}.sqlite"

    def entries(self) -> list[Entry]:
        """Return all that this campaign's ledger has, and nothing before it is one."""
        with contextlib.suppress(LedgerError), LedgerView.open(self.ledger) as view:
            return view.entries()
        return []

    def rows(self) -> Sequence[Row]:
        """Return its rows; nothing before it is a ledger."""
        with contextlib.suppress(LedgerError), LedgerView.open(self.ledger) as view:
            return view.rows()
        return ()

    # ------------------------------------------------------------------ the grid

    def furnish(self, count: int, size: int = GB) -> None:
        """Make the RSEs, `count` datasets at the source, and what other people have at our destinations."""
        dice = random.Random(self.places)
        names = [f"/Chaos_{self.places}/v1/RAW#{number:03}" for number in range(count)]
        sizes = [[round(size * dice.uniform(0.4, 0.6)) for _ in range(dice.choice((1, 2)))] for _ in names]
        datasets = [Dataset("cms", name, tuple(some)) for name, some in zip(names, sizes, strict=True)]
        rses = [Rse(self.source, 10**16), *(Rse(name, 10**16) for name in self.destinations)]
        self.sandbox.add(rses, {self.source: datasets})
        root = client_for(self.sandbox.root_config)
        for number, destination in enumerate(self.destinations):  # datasets that we could have taken
            root.add_replication_rule(
                dids=[{"scope": "cms", "name": names[number]}], copies=1, rse_expression=destination,
                account=FOREIGN, comment="of others", lifetime=86400,
            )  # fmt: skip
        until(
            lambda: all(rule["state"] == "OK" for rule in root.list_replication_rules({"account": FOREIGN})),
            "other people's data are where they want them",
        )

    def control(self, destination: str) -> str:
        """Return whether control acts on a link: on about half of them, by chance, in each campaign anew."""
        return random.Random(f"{self.campaign} {destination}").choice(("act", "act", "advise", "off"))

    def close(self, destination: str, *, closed: bool) -> None:
        """Let a site close an end for writing, or open it again."""
        root = client_for(self.sandbox.root_config)
        root.update_rse(destination, {"availability_write": not closed})

    def write_menu(self, rate: str, cycles: int, *, lifetime: int = 600, grace: int = 0) -> datetime:
        """Write a menu whose links have this rate from the next cycle on; returns its end.

        In `grace` more cycles next to nothing is due, and what was not injected before can be made up.
        """
        length = timedelta(seconds=self.cycle)
        start = Cycle.at(datetime.now(UTC), length).next.start
        end, stamp = start + cycles * length, STAMP
        last = end + grace * length
        head = MENU.format(
            campaign=self.campaign, start=start.strftime(stamp), end=last.strftime(stamp), cycle=self.cycle,
            lifetime=lifetime, did=self.did,
        )  # fmt: skip
        parts = [f"rate: {rate}, end: {end.strftime(stamp)}"]
        parts += [f"rate: 1 kb/s, start: {end.strftime(stamp)}"] * bool(grace)
        links = [
            f"from: {self.source}, to: {to}, control: {self.control(to)}, {part}"
            for to in self.destinations
            for part in parts
        ]
        self.menu.write_text(head + "".join(f"      - {{{link}}}\n" for link in links))
        return last

    # ------------------------------------------------------------------ who the tool is

    def identify(self) -> None:
        """Put a new name and password of the account into the tool's file; those of before end."""
        settings = self._settings()
        client = settings["client"]
        self._end_tokens(client["username"])
        client["username"] = f"{self.label}-{len(self.secrets)}"
        client["password"] = secrets.token_urlsafe(24)
        client_for(self.sandbox.root_config).add_identity(
            client["account"], client["username"], "USERPASS", "chaos@example.org", password=client["password"]
        )
        self.secrets.add(client["password"])
        text = io.StringIO()
        settings.write(text)
        write_private(self.config, text.getvalue())

    def revoke(self) -> None:
        """Let Rucio know the name in the tool's file no more, nor any token that it had.

        Rucio remembers tokens in its memory: that they have ended is what the proxy says.
        """
        client = self._settings()["client"]
        client_for(self.sandbox.root_config).del_identity(client["account"], client["username"], "USERPASS")
        self._end_tokens(client["username"])

    def _settings(self) -> configparser.ConfigParser:
        settings = configparser.ConfigParser()
        settings.read(self.config)
        return settings

    def _end_tokens(self, name: str) -> None:
        self.proxy.refused += (f"{self._settings()['client']['account']}-{name}-",)  # as Rucio makes them

    # ------------------------------------------------------------------ lives of the tool

    def start(self, *arguments: object, wish: Mapping[str, Any] | None = None) -> Life:
        """Start the tool; `wish` is for the driver."""
        if self.over:
            raise InterruptedError
        known = {k: v for k, v in os.environ.items() if not k.startswith(("RUCIO_", "DC_INJECT_FTS"))}
        environ = {**known, "RUCIO_CONFIG": str(self.config), "XDG_STATE_HOME": str(self.folder)}
        environ |= self.more | {"CHAOS": json.dumps(wish or {})}
        number = len(self.lives)
        place = self.folder / f"{self.campaign}-life-{number:04}"
        out, err = place.with_suffix(".out"), place.with_suffix(".err")
        process = Process(driver.live, [str(argument) for argument in arguments], environ, out, err)
        self.lives.append(Life(process, out, err))
        return self.lives[-1]

    def live(self, *arguments: object, wish: Mapping[str, Any] | None = None) -> Done:
        """Start the tool and wait for its end, however that comes about."""
        life = self.start(*arguments, wish=wish)
        try:
            done = life.ended(self.patience)
        except subprocess.TimeoutExpired:
            life.process.kill()
            life.process.wait()
            raise AssertionError(
                f"a process of {self.campaign} did not end within {self.patience:.0f} s"
            ) from None
        self.codes[done.code] += 1
        return done

    def start_run(self, wish: Mapping[str, Any] | None = None, *more: object) -> Life:
        """Start `dc-inject run`."""
        return self.start("run", self.menu, "--timeout", self.timeout, *more, wish=wish)

    def run(self, wish: Mapping[str, Any] | None = None, *more: object) -> Done:
        """Live once as `dc-inject run`."""
        return self.live("run", self.menu, "--timeout", self.timeout, *more, wish=wish)

    def run_until_drained(self, wishes: Iterable[Mapping[str, Any]] = (), patience: float = PATIENCE) -> None:
        """Live with one wish after the other, then without, until the tool itself says that it is done."""
        deadline, pending = time.monotonic() + patience, iter(wishes)
        while self.run(next(pending, {})).code != DONE:
            self.died(deadline)

    def drain(self, patience: float = PATIENCE) -> None:
        """Inject no more, though the menu wants it, and live until the tool itself says that it is done."""
        deadline, now = time.monotonic() + patience, datetime.now(UTC).strftime(STAMP)
        while self.run(None, "--until", now).code != DONE:
            self.died(deadline)

    def died(self, deadline: float) -> None:
        """Do what is to be done between two lives."""
        assert time.monotonic() < deadline, f"{self.campaign} is not drained in time"
        self.on_death()
        time.sleep(BETWEEN)

    def freeze(self, cycles: int) -> Done:
        """Live once, and be frozen for so many cycles after the first answer."""
        journal = self.folder / f"{self.campaign}-frozen"
        life = self.start_run({"journal": str(journal)})
        until(
            lambda: (
                life.process.poll() is not None or (journal.exists() and "answered 1\n" in journal.read_text())
            ),
            "an answer",
        )
        life.process.send_signal(signal.SIGSTOP)
        time.sleep(cycles * self.cycle)
        life.process.send_signal(signal.SIGCONT)
        done = life.ended()
        self.codes[done.code] += 1
        return done

    def kill(self) -> None:
        """End what is left, and start nothing more; only processes that we started."""
        self.over = True
        for life in self.lives:
            if life.process.poll() is None:
                life.process.kill()
                life.process.wait()
