"""What processes of a sandbox get to know of the one that starts them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dc_inject.sandbox import processes
from dc_inject.sandbox.services import Services
from dc_inject.sandbox.state import State

SECRETS = (
    "BEARER_TOKEN", "BEARER_TOKEN_FILE", "X509_USER_PROXY", "RUCIO_PASSWORD", "RUCIO_CONFIG_SECRET", "FTS_TOKEN",
    "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DC_INJECT_FTS_ENDPOINT",
)  # fmt: skip


@pytest.mark.parametrize("name", [*SECRETS, "PYTHONSTARTUP", "https_proxy", "NEWS_OF_TOMORROW"])
def test_a_server_has_nothing_of_the_caller_but_what_every_program_needs(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "said")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    made = processes.environment("m", "storage-XRD1", Path("/s"), Path("/l"))
    assert "said" not in made.values()
    assert made["LC_ALL"] == "C.UTF-8"
    assert {"PATH", processes.MARKER, processes.ROLE, "RUCIO_CONFIG", "PYTHONPATH"} <= made.keys()


@pytest.mark.parametrize("name", SECRETS)
def test_programs_that_fetch_and_install_get_no_credentials_of_the_grid(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for kept in ("https_proxy", "PIP_INDEX_URL"):
        monkeypatch.setenv(kept, "kept")
    monkeypatch.setenv(name, "said")
    made = processes.without_credentials()
    assert "said" not in made.values()
    assert made["https_proxy"] == made["PIP_INDEX_URL"] == "kept"


def test_a_server_leaves_bytecode_only_in_an_environment_of_its_own_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    services = Services(tmp_path, State("m", 1, str(tmp_path), "generic", "dcops", 1), print)
    assert "PYTHONDONTWRITEBYTECODE" not in services._environment("server")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert services._environment("server")["PYTHONDONTWRITEBYTECODE"]
