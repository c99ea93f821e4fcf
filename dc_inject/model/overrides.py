"""Overrides as nouns: what a person sets while a campaign runs, and the subject that it is for.

A subject is `*` (the campaign), a scenario, or a link `SRC:DST`; pauses have subjects too. What overrides make of
the flows of a menu is decided in `planning/overrides.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dc_inject.model import units, urls
from dc_inject.model.types import FlowKey

EVERYTHING = "*"


class Kind(StrEnum):
    """What an override does: `rate` replaces (bytes per second), `scale` multiplies."""

    RATE = "rate"
    SCALE = "scale"


@dataclass(frozen=True, slots=True)
class Override:
    """Since when what holds for a subject, by whom, and why; of one subject and kind there is one at a time."""

    subject: str
    kind: Kind
    value: float
    who: str
    why: str
    since: datetime

    @property
    def words(self) -> str:
        """What it does, in words."""
        return describe(self.kind, self.value)


def describe(kind: Kind, value: float) -> str:
    """Return in words what an override does: `rate 40 Gb/s` (`value` in bytes per second), `scale 0.5`."""
    return f"{kind} {units.format_rate(value) if kind is Kind.RATE else f'{value:g}'}"


def shown(subject: str, everything: str = "all of it") -> str:
    """Return a subject for people."""
    return everything if subject == EVERYTHING else urls.arrow(subject)


def covers(subject: str, flow: FlowKey) -> bool:
    """Return whether a flow is of a subject: everything, its scenario, or its link."""
    return subject in {EVERYTHING, flow.scenario, str(flow.link)}
