"""Releases of Rucio's client: which ones this tool works with, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

from rucio.common import constants

from dc_inject.model.errors import NeedsOperator

OLDEST, NEWEST = 38, 41  # tested; pyproject.toml says the same

# Schemes that go together in a copy by third party. Releases before 41 have the table under another name.
SCHEME_MAP: Mapping[str, list[str]] = getattr(constants, "SCHEME_MAP", None) or constants.BASE_SCHEME_MAP

# The plugin with Rucio's own columns, to be named: clients before 41 ask for another one unless told, which a
# server of release 41 answers with an error (SQLite), or with names alone (PostgreSQL).
METADATA_PLUGIN = "DID_COLUMN"


def check_client(installed: str = "") -> None:
    """Raise NeedsOperator unless the installed rucio-clients is of a release that this tool works with."""
    installed = installed or version("rucio-clients")
    release = installed.partition(".")[0]
    if not (release.isdigit() and OLDEST <= int(release) <= NEWEST):
        raise NeedsOperator(
            f"rucio-clients {installed} is installed; dc-inject works with releases {OLDEST} to {NEWEST}",
            f"pip install 'rucio-clients>={OLDEST},<{NEWEST + 1}'",
        )
