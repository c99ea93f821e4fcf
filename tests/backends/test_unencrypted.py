"""A Rucio that is spoken to without TLS over a network is told of: password and token can be read on the way."""

from __future__ import annotations

import logging
from pathlib import Path

import click
import pytest

from dc_inject.backends.rucio import RucioBackend
from dc_inject.backends.sim import SimClock
from dc_inject.cli.shared import common
from dc_inject.model.events import Silent
from tests.cli.ledgers import START
from tests.conftest import rucio_config


def config_of(folder: Path, host: str, auth: str) -> Path:
    config = folder / "rucio.cfg"
    config.write_text(f"[client]\nrucio_host = {host}\nauth_host = {auth}\nauth_type = userpass\n")
    return config


def backends() -> RucioBackend:
    made = common.backends({"rucio"}, campaign="test", clock=SimClock(START), observer=Silent(), timeout=1.0)[
        "rucio"
    ]
    assert isinstance(made, RucioBackend)
    return made


@pytest.mark.parametrize(
    ("host", "auth", "named"),
    [
        ("http://rucio.example.org", "https://rucio.example.org", "rucio.example.org"),
        ("https://rucio.example.org", "HTTP://auth.example.org:8080/x?token=hunter2", "auth.example.org"),
        ("http://192.0.2.7:80", "http://192.0.2.7:80", "192.0.2.7"),
        ("https://rucio.example.org", "https://rucio.example.org", None),
        ("http://127.0.0.1:1", "http://localhost:1", None),
        ("http://[::1]:1", "http://[::1]:1", None),
        ("http://[::1", "rubbish", None),
    ],
)
def test_plain_http_to_another_machine_is_said_once_in_a_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, auth: str, named: str | None
) -> None:
    """What is no address at all is an error later, where it is used."""
    caplog.set_level(logging.WARNING)
    command = click.Command("run")
    with rucio_config(config_of(tmp_path, host, auth)), click.Context(command, info_name="run"):
        backends()
        backends()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (1 if named else 0)
    if named:
        assert f"http://{named}" in said[0]
        assert "not encrypted" in said[0]
        assert "https" in said[0]
        assert "hunter2" not in said[0]


def test_without_a_configuration_nothing_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rucio_config(tmp_path / "none.cfg"):
        backends()
    assert caplog.records == []
