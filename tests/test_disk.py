"""Only regular files are read, and nobody waits for a pipe."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from dc_inject.backends.rucio.connection import credentials_until, refuse_odd_configuration
from dc_inject.backends.sim import SimClock
from dc_inject.credentials import Credentials
from dc_inject.model.errors import MenuError, NeedsOperator
from dc_inject.system import disk, files

MENU = """menu: 1
campaign: a
contact: a@example.org
start: 2027-02-08 10:00
end: 2027-02-09 10:00
{more}
scenarios:
  s:
    {links}
"""


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_what_is_no_regular_file_is_refused(tmp_path, pipe, wording):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
        for odd in (pipe, tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(OSError) as refused:
                disk.read(odd, 10)
            wording(refused.value)
    with pytest.raises(IsADirectoryError):
        disk.read(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        disk.read(tmp_path / "none", 10)


def test_a_file_is_read_up_to_a_size_and_a_link_only_where_it_may_be(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"0123456789")
    link.symlink_to(file)
    assert disk.read(link, 4) == b"0123"
    with pytest.raises(OSError, match="link"):
        disk.opened(link, follow=False)


@pytest.mark.parametrize(
    ("more", "links"),
    [
        ("include: pipe", "links: [{from: A, to: B, rate: 1 Gb/s}]"),
        ("", "links: {file: pipe}"),
        ("defaults: {datasets: {file: pipe}}", "links: [{from: A, to: B, rate: 1 Gb/s}]"),
    ],
)
def test_a_pipe_in_a_menu_is_a_problem_of_the_menu(tmp_path, pipe, more, links, wording):
    """It held `check`, and all cycles of `run`."""
    file = tmp_path / "menu.yaml"
    file.write_text(MENU.format(more=more, links=links))
    with pytest.raises(MenuError) as refused:
        files.read_menus([file])
    wording(refused.value)
    with pytest.raises(MenuError) as refused_2:
        files.read_menus([pipe])
    wording(refused_2.value)


def test_a_pipe_is_no_configuration_of_rucio(pipe, monkeypatch, wording):
    monkeypatch.setenv("RUCIO_CONFIG", str(pipe))
    with pytest.raises(NeedsOperator) as refused:
        refuse_odd_configuration()
    wording(refused.value)


@pytest.mark.parametrize("variable", ["BEARER_TOKEN_FILE", "DC_INJECT_FTS_TOKEN_FILE", "X509_USER_PROXY"])
def test_a_pipe_is_no_credential(tmp_path, pipe, variable, wording):
    clock = SimClock(datetime(2027, 2, 8, tzinfo=UTC))
    with pytest.raises(NeedsOperator) as refused:
        Credentials({variable: str(pipe)}, clock, shared=tmp_path).access("fts")
    wording(refused.value)
    client = SimpleNamespace(auth_type="x509", creds={"client_cert": str(pipe)})
    assert credentials_until(client) is None
