"""Processes of the tool: from each start to its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.nursery import Process
from tests.e2e.tool import Done

PATIENCE = 300.0  # seconds without an end, after which a life is a violation


@dataclass
class Life:
    """One process of the tool, from its start to its end."""

    process: Process
    out: Path
    err: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    @property
    def said(self) -> str:
        """What it has said until now; nothing before its output has a file."""
        return self.err.read_text() if self.err.exists() else ""

    def ended(self, patience: float = PATIENCE) -> Done:
        return Done(self.process.wait(patience), self.out.read_text(), self.err.read_text())
