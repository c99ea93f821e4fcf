"""Lint: what can work in a campaign, but looks wrong; each finding has a code, which a menu may accept.

`findings` are those that menus alone tell, one module for each kind. The others need what a service told:
`pools`, `rooms` and `throttled`.
"""

from __future__ import annotations

from collections.abc import Collection

from dc_inject.analysis.lint import capacity, dates, exclusions, limits, outliers, source_files, transfers
from dc_inject.analysis.lint.limits import over_limits
from dc_inject.analysis.lint.pools import PoolSize, pools
from dc_inject.analysis.lint.space import rooms
from dc_inject.analysis.lint.transfers import throttled
from dc_inject.model import Campaign
from dc_inject.model.errors import Problem
from dc_inject.model.transfers import FILE_SPEED

__all__ = ["PoolSize", "findings", "over_limits", "pools", "rooms", "throttled"]


def findings(
    campaign: Campaign, file_speed: float = FILE_SPEED, told: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return all findings that need no service, but for those that their menu accepts.

    `file_speed` is how fast one file moves, in bytes per second. `told` are services (`fts`) whose real limits are
    known, so that nothing has to be said of the usual ones.
    """
    found = [
        *limits.findings(campaign),
        *outliers.findings(campaign),
        *source_files.findings(campaign),
        *capacity.findings(campaign),
        *transfers.findings(campaign, file_speed, told),
        *dates.findings(campaign),
        *exclusions.findings(campaign),
    ]
    return tuple(sorted({problem for menu, problem in found if problem.code not in menu.accept}))
