"""The rows of a footprint: one for each site, one for each scenario, and one for all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from dc_inject.analysis.footprint.load import Load

KINDS = ("site", "scenario", "total")


class Group(NamedTuple):
    """What a row is about: `site`, `scenario` or `total`, and its name."""

    by: str
    name: str


TOTAL = Group("total", "total")


@dataclass(frozen=True, slots=True)
class FootprintRow:
    """The footprint of one site, one scenario or of all; rates in bytes per second, sizes in bytes.

    `peak` has the largest value of each quantity at any one time. `volume` is all that arrives while the menus
    last, `written` what arrives in the 24 hours in which most does. `busiest` are the transfers at a time of the
    busiest link.
    `fits` is the lifetime that just fills the space, `pool_lasts` how long the poorest source has data before it
    must use some again. None: nobody told.
    """

    group: Group
    links: int
    peak: Load
    volume: float
    written: float
    busiest: float
    wan: float | None = None
    max_ingress: float | None = None
    max_egress: float | None = None
    space: int | None = None
    fits: timedelta | None = None
    pool_lasts: timedelta | None = None


@dataclass(frozen=True)
class Footprint:
    """The footprint of campaigns: a row for each site, for each scenario, and one for all."""

    rows: tuple[FootprintRow, ...]

    def by(self, kind: str) -> tuple[FootprintRow, ...]:
        """Return the rows of `site`, `scenario` or `total`, by name."""
        return tuple(row for row in self.rows if row.group.by == kind)

    @cached_property
    def total(self) -> FootprintRow:
        """The row for all."""
        return self.by("total")[0]
