"""A real Prometheus: the system's, else Debian's package, unpacked once."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dc_inject.sandbox import debian
from dc_inject.sandbox.locking import locked

RULES = Path(__file__).parents[2] / "docs" / "reference" / "prometheus-rules.yaml"
PATIENCE = 90.0  # seconds that anything may take on a machine that is busy with other things

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: dc_inject
    static_configs: [{{targets: ["{target}"]}}]
"""


def programs() -> Path:
    """Return the folder with prometheus and promtool; raises ServiceError where they cannot be had."""
    if found := shutil.which("promtool"):
        return Path(found).parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dc_inject"
    folder = Path(os.environ.get("DC_INJECT_TEST_PROMETHEUS") or cache / f"prometheus-{debian.release()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, lambda line: None):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            debian.unpack(folder, ["prometheus"])
            (folder / "complete").touch()
    return folder / "usr" / "bin"


class Prometheus:
    """One that runs, asked over HTTP."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **words: str) -> Any:
        query = urllib.parse.urlencode(words)
        with urllib.request.urlopen(f"http://{self._address}{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire, as (name, campaign)."""
        alerts = self.get("/api/v1/alerts")["alerts"]
        return {
            (one["labels"]["alertname"], one["labels"].get("campaign", ""))
            for one in alerts
            if one["state"] == "firing"
        }


def until(done: Callable[[], object], what: str) -> None:
    """Wait for something that has to come, but not for ever."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if done():
                return
        except OSError:
            pass  # it is not up yet
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)


@contextmanager
def running(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus with our rules, scraping a page each second; it is gone afterwards."""
    folder.mkdir()
    (folder / "prometheus.yaml").write_text(CONFIG.format(rules=RULES, target=target))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        str(programs() / "prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(address)
        until(lambda: prometheus.get("/api/v1/query", query="up") is not None, (folder / "log").read_text())
        yield prometheus
    finally:
        process.kill()
        process.wait(30)
