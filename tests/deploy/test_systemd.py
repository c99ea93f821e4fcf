"""The units of systemd are valid, closed to what they do not need, and start what there is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from dc_inject.cli.root import root
from dc_inject.cli.shared import defaults
from dc_inject.system.clock import SystemClock
from dc_inject.system.executor import ThreadExecutor
from dc_inject.system.service_manager import ServiceManager

UNITS = Path(__file__).parents[2] / "docs" / "deploy" / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
PROGRAM = "/opt/dc-inject/bin/dc-inject"
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 15  # of 100, as systemd rates it; a service without any option has 96


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with a program that is here in the place of ours."""
    if ANALYZE is None:
        if os.environ.get("CI") == "true":
            pytest.fail("systemd-analyze is missing")
        pytest.skip("systemd-analyze is missing")
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, sys.executable))
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ANALYZE), *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("name", sorted(path.name for path in UNITS.iterdir()))
def test_systemd_takes_the_unit_as_it_is(units: Path, name: str) -> None:
    done = analyze("verify", str(units / name))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", [path.name for path in SERVICES])
def test_a_service_may_do_little(units: Path, name: str) -> None:
    done = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", str(units / name))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_the_command_of_a_service_is_one_of_ours(path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.+)$", path.read_text(), re.MULTILINE)
    program, name, *arguments = shlex.split(line)
    assert program == PROGRAM
    command = root.get_command(click.Context(root), name)
    assert command is not None
    command.make_context(name, arguments)  # raises for an option that is not there


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_what_a_unit_sets_is_an_option_of_its_command(path: Path) -> None:
    text = path.read_text()
    (name,) = re.findall(r"^ExecStart=\S+ (\S+)", text, re.MULTILINE)
    command = root.get_command(click.Context(root), name)
    assert command is not None
    defaults.from_environment(command, name)
    named = {option.envvar for option in command.params if isinstance(option, click.Option)}
    assert {word.partition("=")[0] for word in re.findall(r"DC_INJECT_\S+", text)} <= named


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_all_services_are_closed_alike(path: Path) -> None:
    """What hardens one hardens the other."""

    def hardening(unit: Path) -> str:
        return re.search(r"^NoNewPrivileges.+?(?=\n\n|\Z)", unit.read_text().rstrip(), re.MULTILINE | re.DOTALL)[0]

    assert hardening(path) == hardening(SERVICES[0])


def test_the_manager_hears_that_we_are_ready_and_alive(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address)
        channel.settimeout(60)
        manager = ServiceManager({"NOTIFY_SOCKET": address})
        manager.ready()
        assert channel.recv(100) == b"READY=1"
        executor = ThreadExecutor(SystemClock(), heartbeat=manager.alive)
        try:
            executor.wait(datetime.now(UTC) + timedelta(milliseconds=1))
        finally:
            executor.close()
        assert channel.recv(100) == b"WATCHDOG=1"


def test_the_manager_may_have_an_abstract_address() -> None:
    name = f"dc-inject-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}")
        channel.settimeout(60)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert channel.recv(100) == b"READY=1"


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_without_a_manager_nothing_happens(environ: dict[str, str]) -> None:
    ServiceManager(environ).ready()
    ServiceManager(environ).alive()
