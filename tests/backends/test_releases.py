"""Releases of Rucio's client: what differs, and which ones are refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dc_inject.backends.rucio import connection
from dc_inject.model.errors import NeedsOperator


def test_the_releases_that_are_accepted_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert f"rucio-clients>={connection.OLDEST},<{connection.NEWEST + 1}" in project["dependencies"]


@pytest.mark.parametrize("installed", ["38.6.4", "39.4.2", "40.4.2", "41.5.1"])
def test_a_release_that_works_is_accepted(installed: str) -> None:
    connection.check_client(installed)


@pytest.mark.parametrize("installed", ["35.9.2", "42.0.0", "1.31.7", "unknown"])
def test_another_release_is_named_with_what_fits(installed: str) -> None:
    with pytest.raises(NeedsOperator) as caught:
        connection.check_client(installed)
    assert f"rucio-clients {installed} is installed" in caught.value.message
    assert "rucio-clients>=38,<42" in (caught.value.hint or "")


def test_schemes_that_go_together_are_known_with_every_release() -> None:
    assert "davs" in connection.SCHEME_MAP["https"]
