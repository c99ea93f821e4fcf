"""A campaign through FTS and its storages: files that fail, second hops, expiry, deletion, drain and end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.backends.fts.service import FakeFts
from tests.backends.support import fts3_or_skip

from . import fts
from .compare import check
from .test_rucio_campaign import Campaign
from .wire import Answer, HttpTransport
from .world import World, here, rows

GB = 10**9
FTS = "fts.example.org:8446"
HOSTS = {name: f"{name}.example.org:8443" for name in ("cern", "kit", "pic", "pisa", "slow")}
MENU = """\
menu: 1
campaign: golden-fts
contact: golden@example.org
start: 2027-02-08 10:00
end: 2027-02-08 11:30
fts: {endpoint: "https://fts.example.org:8446"}
limits: {total: 60 Gb/s, per_site: 40 Gb/s, rules_per_hour: 400, files_in_flight: 2000}
defaults:
  through: fts
  cycle: 15 min
  dwell: 5 min
  overhead: 5 %
  lifetime: {min: 30 min, max: 50 min}
  files: {list: sources.csv, size: 1..20 GB}
  jobs: {files: 4, retry: 2, verify: source, scitag: 65, longest_transfer: 10 min}
sites:
  KIT: {wan: 100 Gb/s, rses: {"davs://kit.example.org:8443/dc": {space: 5 TB}}}
scenarios:
  export:
    from: davs://cern.example.org:8443/data
    to: {KIT: 3, "davs://pic.example.org:8443/dc": 1}
    rate: 0.4 Gb/s
    shape: {steps: [50 %, 100 %], hold: 30 min}
  landing:
    from: davs://cern.example.org:8443/data
    to: KIT
    files: {folder: more, pattern: "*.root"}
    volume: 60 GB
    rate: 0.2 Gb/s
    priority: 5
    lifetime: {min: 30 min, max: 2 h}
    then: {to: "davs://pisa.example.org:8443/dc", rate: 0.2 Gb/s}
  stuck:
    from: davs://cern.example.org:8443/data
    to: davs://slow.example.org:8443/dc
    rate: 0.05 Gb/s
"""
STATUS = ["status golden-fts", "status golden-fts --summary", "ledger check golden-fts"]


def storages() -> fts.Storages:
    """A source with two folders of files, and destinations with nothing in them."""
    made = fts.Storages()
    for number in range(20):
        made.store.put(f"davs://{HOSTS['cern']}/data/some/{number:03}.root", (3 + number % 4) * GB)
        made.store.put(f"davs://{HOSTS['cern']}/data/more/{number:03}.root", (2 + number % 3) * GB)
    for host in HOSTS.values():
        made.store.folders |= {f"davs://{host}", f"davs://{host}/dc"}
    return made


def sources(made: fts.Storages) -> str:
    """Return the list of the files of the first folder; some have no checksum."""
    lines = ["url,size,checksum"]
    for number, (url, size) in enumerate(made.store.files.items()):
        if "/some/" in url:
            lines.append(f"{url},{size},{f'adler32:{number:08x}' if number % 3 else ''}")
    return "\n".join(lines) + "\n"


def fails(file: dict[str, Any]) -> str:
    """Files to one place fail at first; one is broken wherever it goes."""
    if file["source_surl"].endswith("some/007.root"):
        return "SOURCE [5] checksum mismatch"
    if HOSTS["pic"] in file["dest_surl"] and file["source_surl"].endswith(("2.root", "5.root")):
        return "TRANSFER [110] connection timed out"
    return ""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The campaign, once for all tests of this file."""
    fts3_or_skip()
    folder = tmp_path_factory.mktemp("golden")
    world, made = World(folder), storages()
    service = fts.Service(FakeFts(made.store), world.now, fails)
    (folder / "menu.yaml").write_text(MENU)
    (folder / "sources.csv").write_text(sources(made))
    token = folder / "token"
    token.write_text("opaque-token-0123456789-abcdefghij-secret")
    token.chmod(0o600)
    services = {FTS: service.answer, **dict.fromkeys(HOSTS.values(), made.answer)}
    wire = HttpTransport(services, world.stamp, lambda _: False, f"https://{FTS}")
    trusted = " ".join(["fts.example.org", *(host.partition(":")[0] for host in HOSTS.values())])
    with here(world, wire, BEARER_TOKEN_FILE=str(token), DC_INJECT_TRUST=trusted):
        happen(world, wire, service)
    return Campaign(world, wire, world.plain(rows(folder / "state" / "dc_inject" / "golden-fts.sqlite")))


def happen(world: World, wire: HttpTransport, service: fts.Service) -> None:
    """Let all of it happen."""
    menu = world.folder / "menu.yaml"

    def show() -> None:
        for words in STATUS:
            world.run(*words.split(), "--format", "json")

    world.at("10:05", lambda: wire.fail_next("POST", "/jobs", Answer(500, b"lost"), done=True))
    world.at("10:20", lambda: world.run("set", "golden-fts", "stuck", "scale", "0.5", "--why", "a test"))
    world.at("10:32", lambda: setattr(service, "minutes", 90))
    world.at("10:50", show)
    world.at(
        "11:00",
        lambda: world.run("pause", "golden-fts", f"davs://{HOSTS['cern']}/data->davs://{HOSTS['pic']}/dc"),
    )
    world.at("11:20", lambda: setattr(service, "minutes", 9))
    world.run("ping", menu, "--format", "json")
    world.run("check", "--online", menu, "--format", "json")
    world.run("run", menu, "--until", "2027-02-08T11:25Z", "--no-drain")
    show()
    world.run("end", "golden-fts", "stuck", "--cancel", "--yes")
    world.run("run", menu)
    world.run("end", "golden-fts", "--yes")
    for words in STATUS:
        world.run(*words.split(), "--format", "json")
        world.run(*words.split(), "--format", "csv")


def test_requests(campaign: Campaign) -> None:
    check("fts/requests.txt", campaign.wire.log())


def test_ledger(campaign: Campaign) -> None:
    check("fts/ledger.txt", campaign.ledger)


def test_outputs(campaign: Campaign) -> None:
    check("fts/outputs.txt", "\n".join(campaign.world.said))
