"""Who acts on this machine."""

from __future__ import annotations

import getpass
import os

from dc_inject.model.redaction import scrub


def who() -> str:
    """Return who acts, for the ledger's record of changes: an account without a name goes by its number."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # as in many containers
        name = str(os.getuid())
    return scrub(f"{name}@{os.uname().nodename}")
