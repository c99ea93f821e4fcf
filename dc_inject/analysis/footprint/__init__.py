"""The footprint of menus: what they mean for each site, each scenario and in total; no service is needed."""

from __future__ import annotations

from dc_inject.analysis.footprint.adding import footprint
from dc_inject.analysis.footprint.load import (
    KINDS,
    MEAN_FILE,
    Assumptions,
    Footprint,
    FootprintRow,
    Group,
    Load,
    known_items,
)

__all__ = [
    "KINDS",
    "MEAN_FILE",
    "Assumptions",
    "Footprint",
    "FootprintRow",
    "Group",
    "Load",
    "footprint",
    "known_items",
]
