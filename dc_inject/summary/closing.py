"""The closing table: what each link was due, got and moved since its campaign began, and all of them together.

`dc-inject status --summary` shows it at any time, `run` at its end, and `simulate` for its forecast. It comes from
the running totals of the ledger, not from single cycles. Holds are counted in cycles, the harmless ones apart.
`not moved` are bytes that were injected and had not arrived when their rule or job ended (`model/losses.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dc_inject.ledger import Reader, SummaryLine, Totals
from dc_inject.model import FlowKey
from dc_inject.summary import why


class Estimate(int):
    """A number of bytes of which a part is an estimate; tables mark it with `~`."""


def totals(campaign: str, view: Reader) -> dict[str, Any]:
    """Return the closing table; the keys are an interface, described in docs/reference/status.md.

    What failed is looked up only where anything had not moved: it reads all rules and jobs.
    """
    lines, failures, goals = view.summary(), view.failures(), list_goals(view)
    failed = view.not_moved_failed() if any(line.totals.not_moved for line in lines) else {}
    names = dict.fromkeys(("source", "destination", "service"), "")
    return {
        "campaign": campaign,
        "ledger": str(view.path),
        "links": [
            {**line.key.names(), **_sums([line], failures, failed), "goal": goals.get(line.key, {})}
            for line in lines
        ],
        "total": {"scenario": "total", **names, **_sums(lines, failures, failed), "goal": {}},
    }


def list_goals(view: Reader) -> dict[FlowKey, dict[str, int]]:
    """Return what links are to reach besides their rate, and where they stand."""
    accounts = view.accounts()
    return {
        key: {"volume": size, "moved": accounts[key].moved}
        if kind == "volume"
        else {kind: size if kind == "keep" else 1, "on_its_way": accounts[key].coming}
        for key, (kind, size) in view.goals().items()
    }


def about(value: int, estimated: int) -> int:
    """Return bytes, as an `Estimate` where so many of them are one."""
    return Estimate(value) if estimated > 0 else value


def _sums(
    lines: Sequence[SummaryLine],
    failures: Mapping[FlowKey, Mapping[str, int]],
    not_moved_failed: Mapping[FlowKey, int],
) -> dict[str, Any]:
    """Add up links; of ratios, those of the sums. Cycles are those in which any of them was due something."""
    totals = sum((line.totals for line in lines), Totals())
    failed: Counter[str] = Counter()
    for line in lines:
        failed.update(failures.get(line.key, {}))
    held, harmless = why.count(hold for line in lines for hold in line.holds.items())
    return {
        "due": totals.due,
        "injected": totals.injected,
        "injected_ratio": _ratio(totals.injected, totals.due),
        "moved": about(totals.moved, totals.estimated),
        "moved_estimated": totals.estimated,
        "moved_ratio": _ratio(totals.moved, totals.injected),
        "on_its_way": totals.on_its_way,
        "not_moved": totals.not_moved,
        "not_moved_failed": sum(not_moved_failed.get(line.key, 0) for line in lines),
        "failed": totals.failed,
        "rules": totals.rules,
        "forgiven": totals.forgiven,
        "cycles": max((line.cycles for line in lines), default=0),
        "held": held,
        "harmless": harmless,
        "failed_files": dict(failed.most_common()),
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
