"""Lint: what can work in a campaign, but looks wrong; each finding has a code, which a menu may accept.

`findings` are those from menus alone. `find_late_starts` needs the time. The others need
answers of services: `pool_findings`, `space_findings` and `transfer_findings`.
"""

from __future__ import annotations

from collections.abc import Collection

from dc_inject.analysis.lint.capacity import PoolSize, capacity_findings, pool_findings, space_findings
from dc_inject.analysis.lint.menus import (
    date_findings,
    exclusion_findings,
    find_late_starts,
    limit_findings,
    list_exceeded_limits,
    outlier_findings,
    source_findings,
)
from dc_inject.analysis.lint.transfers import slot_findings, transfer_findings
from dc_inject.model import Campaign
from dc_inject.model.errors import Problem
from dc_inject.model.transfers import FILE_SPEED


def findings(
    campaign: Campaign, file_speed: float = FILE_SPEED, services_with_limits: Collection[str] = ()
) -> tuple[Problem, ...]:
    """Return all findings that need no service, but for those that their menu accepts.

    `file_speed` is how fast one file moves, in bytes per second. The transfers of
    `services_with_limits` (`fts`), whose real limits are known, are left to `transfer_findings`.
    """
    all_findings = [
        *limit_findings(campaign),
        *outlier_findings(campaign),
        *source_findings(campaign),
        *capacity_findings(campaign),
        *slot_findings(campaign, file_speed, services_with_limits),
        *date_findings(campaign),
        *exclusion_findings(campaign),
    ]
    return tuple(sorted({problem for menu, problem in all_findings if problem.code not in menu.accept}))
