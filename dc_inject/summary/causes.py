"""Causes of a shortage, as the forecast of a simulation tells them: in words, and with figures for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dc_inject.model import FlowKey


class Kind(StrEnum):
    """What a cause is about, and which figures it has."""

    HOLD = "hold"  # of the plan: `hold`, `cycles`, `of_cycles`
    FAILED = "failed"  # files that failed in all attempts: `bytes`
    DISK = "disk"  # how full it was: `storage`, `filled` or `seconds_above_98`
    WAITED = "waited"  # what files waited for: `part` of the cycles with `holds`, or of all cycles
    ON_ITS_WAY = "on-its-way"  # at the end
    INCONCLUSIVE = "inconclusive"  # no cause was found: `bytes` that did not arrive


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a link is short, and how much of that there was, in which seeds differ."""

    what: str
    how_much: str = ""
    kind: Kind = Kind.WAITED
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what} {self.how_much}".rstrip()

    @property
    def row(self) -> dict[str, Any]:
        """The cause for programs."""
        return {"kind": self.kind.value, "what": self.what, **self.figures}


@dataclass(frozen=True, slots=True)
class ShortLink:
    """A link that moves less than 95 % of its due, in bytes, and why."""

    key: FlowKey
    due: int
    moved: int
    causes: tuple[Cause, ...]

    @property
    def row(self) -> dict[str, Any]:
        """The link as a row of the forecast."""
        return {
            "scenario": self.key.scenario,
            "source": self.key.link.source,
            "destination": self.key.link.destination,
            "due": self.due,
            "moved": self.moved,
            "missing": self.due - self.moved,
            "moved_of_due": self.moved / self.due,
            "why": "; ".join(map(str, self.causes)),
            "causes": [cause.row for cause in self.causes],
        }
