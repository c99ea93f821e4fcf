"""Lint: what can work in a campaign, but looks wrong; each finding has a code, which a menu may accept.

What menus alone tell is found by `menu.findings`; here is what their sums over sites, links and days tell.
"""

from __future__ import annotations

from collections.abc import Collection

from dc_inject import menu
from dc_inject.analysis.lint import capacity, dates, exclusions
from dc_inject.analysis.lint.brakes import over_limits
from dc_inject.analysis.lint.pools import PoolSize, pools
from dc_inject.analysis.lint.space import rooms
from dc_inject.model import Campaign
from dc_inject.model.errors import Problem

__all__ = ["PoolSize", "findings", "over_limits", "pools", "rooms"]


def findings(
    campaign: Campaign, file_speed: float = menu.FILE_SPEED, told: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return all findings that need no service, but for those that their menu accepts.

    `file_speed` is how fast one file moves, in bytes per second. `told` are services (`fts`) whose real limits are
    known, so that nothing has to be said of the usual ones.
    """
    found = [
        *capacity.findings(campaign, file_speed, told),
        *dates.findings(campaign),
        *exclusions.findings(campaign),
    ]
    kept = {problem for of, problem in found if problem.code not in of.accept}
    return tuple(sorted({*menu.findings(campaign), *kept}))
