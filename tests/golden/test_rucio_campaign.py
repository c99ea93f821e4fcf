"""A campaign of two hours through Rucio, with most of what can happen to one, on a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
from rucio.common.config import clean_cached_config

from tests.backends.fake import FakeClock, FakeRse

from . import rucio
from .compare import check
from .wire import Answer, HttpTransport
from .world import START, World, here, rows

GB = 10**9
HOST = "rucio.example.org"
CLIENT = 41  # of which release the requests are
CONFIG = """\
[client]
rucio_host = https://{host}
auth_host = https://{host}
auth_type = userpass
username = someone
password = a-password
account = dcops
ca_cert = /etc/hosts
auth_token_file_path = {folder}/token
"""
MENU = """\
menu: 1
campaign: golden
contact: golden@example.org
timezone: Europe/Zurich
start: 2027-02-08 11:00
end: 2027-02-08 13:00
limits: {total: 60 Gb/s, per_site: 40 Gb/s, rules_per_hour: 400, files_in_flight: 20000}
defaults:
  cycle: 15 min
  dwell: 5 min
  lifetime: {min: 40 min, max: 1 h}
  datasets: {did: "cms:/golden/*", files: 1..1000, mean_file: 0.1..20 GB}
sites:
  KIT: {wan: 100 Gb/s, max_ingress: 0.2 Gb/s, rses: {T1_DE_KIT_Disk: {space: 300 GB, deletion_lag: 10 min}}}
exclude:
  - {rse: T2_US_MIT, from: 2027-02-08 11:45, to: 2027-02-08 12:00, reason: downtime, redistribute: true}
scenarios:
  export:
    priority: 4
    from: T2_CH_CERN
    to: {T1_US_FNAL_Disk: 40, T1_DE_KIT_Disk: 25, T1_ES_PIC_Disk: 10}
    rate: 1 Gb/s
  mesh:
    mesh: [T2_US_Caltech, T2_US_MIT, T2_US_Nebraska]
    rate: 0.6 Gb/s
    shape: {ramp: 1 h, from: 25 %}
  slow:
    from: T2_CH_CERN
    to: T3_XX_Small
    rate: 0.1 Gb/s
    datasets: {did: "cms:/golden/big*", slices: user.dcops}
  landing:
    from: T2_CH_CERN
    to: T1_IT_CNAF_Disk
    volume: 300 GB
    rate: 0.5 Gb/s
    lifetime: {min: 40 min, max: 3 h}
    then: {to: T2_IT_Pisa, rate: 0.3 Gb/s}
  failing: {from: T2_CH_CERN, to: T2_XX_Stuck, rate: 0.3 Gb/s}
  dry: {from: T2_XX_Poor, to: T2_XX_Rich, rate: 0.5 Gb/s, overhead: 10 %}
"""
EDITED = MENU.replace("rate: 1 Gb/s", "rate: 0.5 Gb/s").replace("    priority: 4\n", "    priority: 2\n")
SOURCES = {"T2_CH_CERN": 60, "T2_US_Caltech": 8, "T2_US_MIT": 8, "T2_US_Nebraska": 8, "T2_XX_Poor": 3}
MINUTES = {
    "T1_US_FNAL_Disk": 12, "T1_DE_KIT_Disk": 22, "T1_ES_PIC_Disk": 33, "T2_US_Caltech": 8,
    "T2_US_MIT": 17, "T2_US_Nebraska": 26, "T3_XX_Small": 9, "T1_IT_CNAF_Disk": 14, "T2_IT_Pisa": 11,
    "T2_XX_Stuck": 0, "T2_XX_Rich": 7,
}  # fmt: skip
STATUS = ["status golden", "status golden --summary", "ledger check golden", "campaigns"]


def grid(clock: FakeClock) -> rucio.Server:
    """A Rucio with datasets of three files, and a few of a hundred, at each source."""
    server = rucio.Server(clock=clock, rses={name: FakeRse() for name in {**SOURCES, **MINUTES}})
    server.minutes = dict(MINUTES)
    for source, count in SOURCES.items():
        for number in range(count):
            size = (8 + 2 * (number % 5)) * GB
            server.add(f"cms:/golden/{source}/{number:03}", source, 1 + number % 4, size)
    for number in range(2):
        server.add(f"cms:/golden/big{number}", "T2_CH_CERN", 60, 5 * GB)
    return server


@dataclass
class Campaign:
    """What came of a campaign."""

    world: World
    wire: HttpTransport
    ledger: str


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The campaign, once for all tests of this file."""
    folder = tmp_path_factory.mktemp("golden")
    world, clock = World(folder), FakeClock()
    clock.now = world.now  # type: ignore[method-assign]
    menu, config = folder / "golden.yaml", folder / "rucio.cfg"
    menu.write_text(MENU)
    config.write_text(CONFIG.format(host=HOST, folder=folder))
    with rucio.counted_ids():
        server = grid(clock)
        wire = HttpTransport(
            {HOST: server.answer},
            world.stamp,
            lambda request: request.path.startswith(rucio.ASKS),
            f"https://{HOST}",
        )
        with here(world, wire, RUCIO_CONFIG=str(config)):
            clean_cached_config()
            happen(world, wire, server, menu)
    clean_cached_config()
    return Campaign(world, wire, world.plain(rows(folder / "state" / "dc_inject" / "golden.sqlite")))


def happen(world: World, wire: HttpTransport, server: rucio.Server, menu: Path) -> None:
    """Let all of it happen."""

    def show() -> None:
        for words in STATUS:
            world.run(*words.split(), "--format", "json")

    world.at("10:05", lambda: wire.fail_next("POST", "/rules/", Answer(500, b"lost"), done=True))
    world.at("10:20", lambda: world.run("set", "golden", "T2_CH_CERN", "T1_US_FNAL_Disk", "rate", "0.3Gb/s"))
    world.at("10:35", lambda: world.run("pause", "golden", "mesh", "--why", "a test"))
    world.at("10:40", show)
    world.at("10:50", lambda: setattr(server.rses["T1_ES_PIC_Disk"], "write", False))
    world.at("11:05", lambda: world.run("resume", "golden", "mesh"))
    world.at("11:10", lambda: menu.write_text(EDITED))
    world.at("11:20", lambda: setattr(server.rses["T1_ES_PIC_Disk"], "write", True))
    world.at("11:25", lambda: server.minutes.update(T2_XX_Stuck=5))
    world.at("11:25", lambda: world.run("set", "golden", "*", "scale", "50%"))
    world.at("11:40", lambda: world.run("unset", "golden", "*"))
    world.at("11:10", lambda: setattr(server.rses["T1_US_FNAL_Disk"], "quota", 1.0))
    world.at("11:25", lambda: setattr(server.rses["T1_US_FNAL_Disk"], "quota", 1e15))
    world.at("11:50", lambda: wire.fail_next("POST", "/rules/", Answer(500, b"lost")))
    world.run("ping", menu, "--format", "json")
    world.run("check", "--online", menu, "--format", "json")
    world.run("run", menu, "--until", "2027-02-08T11:35Z", "--no-drain")
    show()
    world.advance(START + timedelta(hours=1, minutes=42))
    world.run("run", menu, "--once", "--quiet")
    world.run("run", menu)
    world.run("end", "golden", "--yes")
    for words in STATUS:
        world.run(*words.split(), "--format", "json")
        world.run(*words.split(), "--format", "csv")


def test_requests(campaign: Campaign) -> None:
    """Rucio's own client makes them: one that is older than that of the lock may word them in another way."""
    if int(version("rucio-clients").partition(".")[0]) < CLIENT:
        pytest.skip(f"the golden file is that of rucio-clients {CLIENT}")
    check("rucio/requests.txt", campaign.wire.log())


def test_ledger(campaign: Campaign) -> None:
    check("rucio/ledger.txt", campaign.ledger)


def test_outputs(campaign: Campaign) -> None:
    check("rucio/outputs.txt", "\n".join(campaign.world.said))
