"""Names of files and folders of ours, as tests of storages need them."""

from __future__ import annotations

from dc_inject.model import naming
from dc_inject.model.deletion import CopiedFile, CopyFolder

KEY = "d6a1f9f2-5f6e-5c1c-9d4e-0123456789ab"
JOB = f"/dc_inject/rehearsal/export/20270208T100000Z/{KEY}"  # the folder of a job below a prefix


def path(number: int = 0) -> str:
    """The path of a copy below a prefix."""
    return f"{JOB}/{number:04}-{naming._mark('rehearsal', KEY, number)}"


FILE = path()


def copy(prefix: str, number: int = 0) -> CopiedFile:
    """A copy of ours below a prefix."""
    return CopiedFile(prefix, f"{prefix}{path(number)}", "rehearsal")


def folder(prefix: str, where: str = JOB) -> CopyFolder:
    """A folder of ours below a prefix."""
    return CopyFolder(prefix, f"{prefix}{where}", "rehearsal")
