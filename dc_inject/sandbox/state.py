"""What a sandbox has on disk before its first process lives, so that whoever comes after a crash finds all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

from dc_inject.model.errors import ServiceError

from .environment import RELEASES
from .grid import Rse

STATE = "state.json"


@dataclass(frozen=True)
class State:
    """The marker of its processes, where they listen, and what they were started with."""

    marker: str
    port: int
    env: str
    policy: str
    account: str
    quota: int
    up: bool = False
    storages: Mapping[str, str] = field(default_factory=dict)  # name -> host:port
    tapes: Mapping[str, str] = field(default_factory=dict)  # the same of tape systems in front of storages
    real: Mapping[str, str] = field(default_factory=dict)  # RSE -> the storage on which its files lie
    xrootd: str | None = None  # the program
    library: str | None = None  # the folder of its libraries, unless the system knows them
    fts: int | None = None  # port of the FTS service, plain http
    fts_tls: int | None = None  # and with TLS
    db: str = "sqlite"  # where Rucio's catalogue is, or "postgres"
    rucio: str = RELEASES[0]  # the release of the server

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read it; raises ServiceError where there is none."""
        try:
            return cls(**json.loads((folder / STATE).read_text()))
        except (OSError, ValueError, TypeError):
            raise ServiceError(f"there is no sandbox in {folder}", "dc-inject sandbox up") from None

    def write(self, folder: Path) -> None:
        """Write it in one step."""
        write_private(folder / STATE, json.dumps(asdict(self)))

    def with_rses(self, rses: Iterable[Rse]) -> Self:
        """The same, with more RSEs on storages."""
        return replace(self, real={**self.real, **{rse.name: rse.on for rse in rses if rse.on is not None}})

    @property
    def url(self) -> str:
        """Address of the Rucio server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def fts_url(self) -> str | None:
        """Address of the FTS service."""
        return f"http://127.0.0.1:{self.fts}" if self.fts else None


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read, in one step."""
    new = file.with_name(f"{file.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    new.replace(file)
