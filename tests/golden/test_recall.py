"""A recall of 200 files from a tape system with four drives, from its menu to its report, in simulated time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.backends.fts.service import OVER, FakeFts
from tests.backends.support import fts3_or_skip

from . import fts
from .wire import HttpTransport
from .world import START, World, here

GB, MINUTE = 10**9, timedelta(minutes=1)
FTS, TAPE, DISK = "fts.example.org:8446", "cta.example.org:8443", "disk.example.org:8443"
SOURCE, DESTINATION = f"davs://{TAPE}/dc", f"davs://{DISK}/dc"
FILES, DRIVES, PER_FILE = 200, 4, MINUTE  # a drive reads 3 GB in a minute
MOUNT = 30 * MINUTE  # from a request until its tape is in a drive
FAST = 10  # files that are on disk still: what they take tells nothing of the others
MENU = f"""\
menu: 1
campaign: recall
contact: golden@example.org
start: 2027-02-08 10:00
end: 2027-02-08 11:30
fts: {{endpoint: "https://{FTS}"}}
defaults:
  through: fts
  control: act
  lifetime: {{min: 1 h, max: 2 h}}
  files: {{folder: raw}}
  jobs: {{files: 5}}
  cycle: 15 min
sites:
  CERN: {{rses: {{"{SOURCE}": {{}}}}, tape: {{drives: {DRIVES}, rate: 50 MB/s, buffer: 1 TB}}}}
tape: {{"{SOURCE}": J. Doe}}
scenarios:
  recall: {{from: "{SOURCE}", to: "{DESTINATION}", volume: {FILES * 3} GB, rate: 4 Gb/s}}
"""


@dataclass
class TapeService(fts.Service):
    """FTS in front of a tape system: a drive reads one file after the other, and a file is copied in no time."""

    free: list[datetime] = field(default_factory=lambda: [START] * DRIVES)
    staged: list[datetime] = field(default_factory=list)

    def progress(self) -> None:
        """Do what the drives did since the last request."""
        now = self.now()
        for job in self.fts.jobs.values():
            assert job.body["params"]["bring_online"] > 0, "it is on tape"
            if job.id not in self.born:
                self.born[job.id] = now
                for file in job.files:
                    drive = self.free.index(min(self.free))
                    self.free[drive] = done = max(self.free[drive], now + MOUNT) + PER_FILE
                    self.staged.append(done)
                    if len(self.staged) <= FAST:
                        done = now
                    file |= {"file_state": "STARTED", "staging_start": f"{now:%Y-%m-%dT%H:%M:%S}"}
                    file["done"] = f"{done:%Y-%m-%dT%H:%M:%S}"
            if job.state not in OVER:
                for file in job.files:
                    if file["done"] <= f"{now:%Y-%m-%dT%H:%M:%S}":
                        self.fts.store.copy(file["source_surl"], file["dest_surl"])
                        file |= {"file_state": "FINISHED", "filesize": 3 * GB, "staging_finished": file["done"]}
                states = {file["file_state"] for file in job.files}
                job.state = (
                    "FINISHED" if states == {"FINISHED"} else "ACTIVE" if "FINISHED" in states else "STAGING"
                )


def test_the_drives_are_kept_busy_and_waits_are_shown(tmp_path: Path) -> None:
    """From the mount on, 200 files come at the rate of four drives, 4 a minute, within 5 %."""
    fts3_or_skip()
    world, made = World(tmp_path), fts.Storages()
    for number in range(FILES):
        made.store.put(f"{SOURCE}/raw/{number:03}.root", 3 * GB)
    made.store.folders |= {f"davs://{host}{path}" for host in (TAPE, DISK) for path in ("", "/dc")}
    service = TapeService(FakeFts(made.store), world.now)
    (tmp_path / "menu.yaml").write_text(MENU)
    (tmp_path / "token").write_text("opaque-token-0123456789-abcdefghij-secret")
    (tmp_path / "token").chmod(0o600)
    services = {FTS: service.answer, TAPE: made.answer, DISK: made.answer}
    wire = HttpTransport(services, world.stamp, lambda _: False, f"https://{FTS}")
    trusted = " ".join(host.partition(":")[0] for host in services)
    with here(world, wire, BEARER_TOKEN_FILE=str(tmp_path / "token"), DC_INJECT_TRUST=trusted):
        world.at("10:33", lambda: world.run("status", "recall", "--format", "json"))
        world.run("run", tmp_path / "menu.yaml")
        world.run("status", "recall", "--format", "json")
    rate = len(service.staged) / ((max(service.staged) - START - MOUNT) / MINUTE)
    assert rate == pytest.approx(DRIVES * MINUTE / PER_FILE, rel=0.05)
    (middle,), (last,) = (json.loads(one[one.index("{") :])["tape"] for one in world.said if "status" in one[:60])
    assert middle["staging"] > 0
    assert middle["staging"] + middle["staged"] <= FILES
    assert (last["staging"], last["staged"], last["moved"]) == (0, FILES, FILES * 3 * GB)
    assert (MOUNT + PER_FILE).total_seconds() <= last["wait_median"] <= last["wait_longest"]
