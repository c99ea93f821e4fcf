"""Streamed reads on real storages: what workers have read is what XRootD says that it gave, to the byte."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dc_inject.model import Cycle
from dc_inject.sandbox import Sandbox
from tests.e2e.nursery import HERE
from tests.e2e.tool import Tool, until

pytestmark = pytest.mark.sandbox

MB = 10**6
CYCLE = 4  # seconds
FILES, SIZE = 6, 3 * MB
SOURCE = "XRD1"
STAMP = "%Y-%m-%dT%H:%M:%SZ"
MENU = """\
menu: 1
campaign: {campaign}
contact: e2e@example.org
start: {start}
end: {end}
limits: {{rules_per_hour: 100000}}
defaults:
  through: reads
  cycle: {cycle} s
  files: {{folder: .}}
  reads: {{rate: 2 MB/s, block: 100 kB, fraction: 50 %}}
scenarios:
  analysis: {{from: "{source}", to: T2_XX_Workers, rate: 64 Mb/s}}
"""


class Monitoring:
    """What XRootD reports of each read: the bytes that it gave, by its stream of traces."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.given = 0
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        """Add up traces of 16 bytes: of a read, its offset (no other has a first bit of 0), length and file."""
        while packet := self.socket.recv(1 << 16):
            traces = (packet[at : at + 16] for at in range(8, len(packet), 16) if packet[:1] == b"t")
            self.given += sum(struct.unpack_from("!I", trace, 8)[0] for trace in traces if trace[0] < 0x80)

    def close(self) -> None:
        self.socket.sendto(b"", ("127.0.0.1", self.port))
        self.thread.join()
        self.socket.close()


@pytest.fixture
def monitoring(storage_grid: Sandbox) -> Iterator[Monitoring]:
    """XRootD of one storage reports to us meanwhile."""
    heard = Monitoring()
    config = storage_grid.folder / "storage" / SOURCE / "xrootd.cfg"
    before = config.read_text()
    config.write_text(
        f"{before}xrootd.monitor all flush io 1s mbuff 1k window 1s dest io 127.0.0.1:{heard.port}\n"
    )
    storage_grid.stop_storage(SOURCE)
    storage_grid.start_storage(SOURCE)
    try:
        yield heard
    finally:
        storage_grid.stop_storage(SOURCE)
        config.write_text(before)
        storage_grid.start_storage(SOURCE)
        heard.close()


@pytest.fixture
def tool(storage_grid: Sandbox, tmp_path: Path) -> Iterator[Tool]:
    for module in ("distributed", "XRootD.client", "cryptography"):
        pytest.importorskip(module, reason="needs the extra `reads`")
    made = Tool(tmp_path, storage_grid.config, {"PYTHONPATH": str(HERE)}, forked=False)
    try:
        yield made
    finally:
        made.kill()


def workers(injector: int) -> list[int]:
    """The processes that read for an injector."""
    threads = Path(f"/proc/{injector}/task").glob("*/children")
    children = [child for thread in threads for child in thread.read_text().split()]
    command = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return [child for child, words in command.items() if b"spawn_main" in words]


def test_moved_is_what_the_storage_gave_also_when_a_worker_and_the_injector_are_killed(
    tool, storage_grid, monitoring, label
):
    """First a worker dies by kill -9, then the injector, with all of its workers; the next one goes on."""
    for number in range(FILES):
        storage_grid.put(SOURCE, f"/{label}/{number}", SIZE, seed=number)
    source = storage_grid.storages[SOURCE].replace("http://", "root://") + f"//{label}"
    menu, campaign = tool.state / "reads.yaml", f"reads-{label}"

    def write(lasts: timedelta) -> None:
        end = (datetime.now(UTC) + lasts).strftime(STAMP)
        menu.write_text(MENU.format(campaign=campaign, start=start, end=end, cycle=CYCLE, source=source))

    start = Cycle.at(datetime.now(UTC), timedelta(seconds=CYCLE)).start.strftime(STAMP)
    write(timedelta(hours=1))
    first = tool.start("run", menu)

    def moved() -> int:
        return sum(entry.moved for entry in tool.entries(campaign))

    until(moved, "something is read")
    at_work = until(lambda: workers(first.process.pid), "workers")
    os.kill(at_work[0], signal.SIGKILL)
    until(lambda: any(entry.failed for entry in tool.entries(campaign)), "what the dead worker left")
    left = workers(first.process.pid)
    first.send(signal.SIGKILL)
    first.ends(-9)
    until(lambda: not any(Path(f"/proc/{worker}/fd").exists() for worker in left), "workers to end")
    write(timedelta(seconds=6))
    tool.run("run", menu)
    entries = [entry for entry in tool.entries(campaign) if entry.accepted_at]
    (line,) = tool.status(campaign, "--summary")["links"]
    assert line["moved"] == line["injected"] == moved()
    assert line["moved_estimated"] == 0
    assert all(entry.moved + entry.failed == entry.injection.item.bytes for entry in entries)
    killed = [entry for entry in entries if entry.failed]
    assert killed
    until(lambda: monitoring.given >= moved(), "all of XRootD's reports")
    # A reader that was killed had a block under way, which XRootD may have given without anybody counting it.
    assert 0 <= monitoring.given - moved() <= len(killed) * 100_000
