"""Nothing of a sandbox can be reached from another host: every service listens on a loopback address only."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dc_inject.sandbox import Sandbox, processes
from dc_inject.sandbox.state import State

pytestmark = pytest.mark.sandbox


def services(grid: Sandbox) -> dict[str, tuple[str, int]]:
    """Host and port of everything that a sandbox with storages offers."""
    urls = {"rucio": grid.url, "fts": grid.fts_url, "fts tls": grid.fts_tls_url, **grid.storages}
    return {name: (urlsplit(url).hostname, urlsplit(url).port) for name, url in urls.items()}


def outside() -> list[str]:
    """Addresses by which other hosts know this machine; asking for a route sends nothing."""
    found = []
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((far, 9))
                found.append(probe.getsockname()[0])
        except OSError:
            continue  # no such route
    return [address for address in found if not address.startswith("127.") and address != "::1"]


def listeners(pids: list[int]) -> set[tuple[str, int]]:
    """Addresses and ports on which these processes listen, as the kernel tells."""
    mine = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(entry.readlink())
            except FileNotFoundError:  # closed since the folder was read
                continue
            if target.startswith("socket:["):
                mine.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in mine and (fields[3] == "0A" or table.startswith("udp")):
                address, _, port = fields[1].partition(":")
                readable = socket.inet_ntoa(bytes.fromhex(address)[::-1]) if len(address) == 8 else address
                found.add((readable, int(port, 16)))
    return found


def test_its_processes_listen_where_its_services_are_and_nowhere_else(storage_grid):
    wanted = set(services(storage_grid).values())
    assert listeners(processes.marked(State.read(storage_grid.folder).marker)) == wanted
    assert all(host.startswith("127.0.0.") for host, _ in wanted)


@pytest.mark.parametrize("name", ["rucio", "fts", "fts tls", "XRD1", "XRD2", "XRD3"])
def test_no_service_is_reached_by_the_addresses_that_other_hosts_know(storage_grid, name):
    host, port = services(storage_grid)[name]
    with socket.create_connection((host, port), timeout=60):
        pass  # so the port is the right one
    addresses = outside()
    if not addresses:
        pytest.skip("this machine has no address but loopback")
    for address in addresses:
        with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
            socket.create_connection((address, port), timeout=10)
        connection = http.client.HTTPConnection(address, port, timeout=10)
        with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
            connection.request("GET", "/")


def test_each_storage_has_an_address_of_its_own(storage_grid):
    hosts = [urlsplit(url).hostname for url in storage_grid.storages.values()]
    assert hosts == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
