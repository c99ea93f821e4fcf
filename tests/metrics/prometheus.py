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

import pytest

from dc_inject.model.errors import ServiceError
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
    return program("prometheus", "promtool").parent


def program(package: str, name: str = "") -> Path:
    """Return a program, the system's or that of Debian's package, which is unpacked; raises ServiceError."""
    name = name or package
    if found := shutil.which(name):
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dc_inject"
    of_all = Path(os.environ.get("DC_INJECT_TEST_PROMETHEUS") or cache / f"prometheus-{debian.release()}")
    folder = of_all.with_name(of_all.name.replace("prometheus", package))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder, lambda line: None):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            debian.unpack(folder, [package])
            (folder / "complete").touch()
    return folder / "usr" / "bin" / name


def needed(package: str, name: str = "") -> Path:
    """Return a program; without it the test is skipped, in CI it fails."""
    try:
        return program(package, name)
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no {package}: {error}")


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


def until(done: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Wait for something that has to come, but not for ever."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if done():
                return
        except OSError:
            pass  # it is not up yet
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.2)


@contextmanager
def running(folder: Path, target: str, *more: str) -> Iterator[Prometheus]:
    """Run Prometheus with our rules, scraping a page each second; it is gone afterwards."""
    folder.mkdir(exist_ok=True)
    (folder / "prometheus.yaml").write_text(CONFIG.format(rules=RULES, target=target))
    address = free_address()
    command = [
        str(programs() / "prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        *more,
    ]
    with serving(command, folder / "log"):
        prometheus = Prometheus(address)
        until(lambda: prometheus.get("/api/v1/query", query="up") is not None, (folder / "log").read_text())
        yield prometheus


def free_address() -> str:
    """Return an address of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def serving(command: list[str], log: Path) -> Iterator[None]:
    """Run a server for as long as the context lasts."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.kill()
        process.wait(30)
