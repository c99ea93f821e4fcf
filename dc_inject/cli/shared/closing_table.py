"""The closing table: what each link was due, got and moved since its campaign began, and all of them together.

`dc-inject status --summary` shows it at any time, `run` at its end, and `simulate` for its forecast. It comes from
the running totals of the ledger, not from single cycles. Holds are counted in cycles, the harmless ones in a
column of their own. In tables, `~` marks bytes that are partly an estimate. `not moved` are bytes that were
injected and had not arrived when their rule or job ended (`model/losses.py`). Where control has redistributed
anything, a column says what links were due for others that were held (`+`), and what held ones left to them (`-`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dc_inject.cli.shared import tables
from dc_inject.engine import control_records
from dc_inject.engine.control_records import ForOthers
from dc_inject.ledger import SummaryLine
from dc_inject.ledger.reading import Reader
from dc_inject.model import FlowKey, units


class Estimate(int):
    """A number of bytes of which a part is an estimate."""


def size(value: int) -> str:
    """Return a size for people, with `~` where it is an estimate."""
    return ("~" if isinstance(value, Estimate) else "") + units.format_size(value)


def _holds(held: Mapping[str, int]) -> str:
    return ", ".join(f"{units.grouped(cycles)} {hold}" for hold, cycles in held.items())


def _goal(goal: Mapping[str, int]) -> str:
    """Say a goal, and how far it is reached: `volume 2 PB, 53.0 % moved`."""
    if "volume" in goal:
        part = goal["moved"] / goal["volume"] if goal["volume"] else 1.0
        return f"volume {size(goal['volume'])}, {tables.percent(part)} moved"
    if "again" in goal:
        return "again when complete"
    if "then" in goal:
        return "second hop"
    return f"keep {size(goal['keep'])}, {size(goal['on_its_way'])} on its way" if goal else ""


LINK = (
    tables.Column("scenario", "scenario", name=True, heading=True),
    tables.Column("source", "source", name=True),
    tables.Column("destination", "destination", name=True),
    tables.Column("service", "service", quiet=True),
)


def _redistributed(shared: Mapping[str, int]) -> str:
    """Say what a link was due for others, and what it left to them: `+1.2 TB, -300 GB`."""
    signs = {"for_others": "+", "to_others": "-"}
    return ", ".join(f"{signs[name]}{size(amount)}" for name, amount in shared.items() if amount)


GOAL = tables.Column("goal", "goal", _goal, spare=3)
SUMMARY = (
    *LINK,
    tables.Column("due", "due", size, right=True),
    tables.Column("injected", "injected", size, right=True, spare=2),
    tables.Column("injected_ratio", "inj/due", tables.percent, right=True),
    tables.Column("moved", "moved", size, right=True),
    tables.Column("moved_estimated", "estimated", size, quiet=True),
    tables.Column("moved_ratio", "moved/inj", tables.percent, right=True, spare=1),
    tables.Column("on_its_way", "on its way", size, quiet=True),
    tables.Column("not_moved", "not moved", size, right=True, spare=1, rare=True),
    tables.Column("not_moved_failed", "of these failed", size, quiet=True),
    tables.Column("failed", "failed", size, quiet=True),
    tables.Column("rules", "rules/jobs", right=True, spare=5),
    tables.Column("forgiven", "forgiven", size, right=True, spare=4),
    tables.Column("cycles", "cycles", quiet=True),
    tables.Column("held", "held (cycles)", _holds),
    tables.Column("harmless", "harmless (cycles)", _holds, spare=6),
    tables.Column("failed_files", "failed files", _holds, spare=3),
    GOAL,
)
REDISTRIBUTED = tables.Column("redistributed", "redistributed", _redistributed, spare=2)


def columns(rows: Sequence[Mapping[str, Any]]) -> tuple[tables.Column, ...]:
    """Return the columns of these rows: one more where control has redistributed anything."""
    return (*SUMMARY, REDISTRIBUTED) if any(row.get("redistributed") for row in rows) else SUMMARY


def lost(closing: Mapping[str, Any]) -> str:
    """Return a line for below the table, in which a narrow terminal leaves no room for it; empty if nothing is."""
    amount, failed = (closing["total"][name] for name in ("not_moved", "not_moved_failed"))
    of_it = f", {size(failed)} of it failed in all attempts" if failed else ""
    words = f"had not moved when their rules or jobs ended{of_it}"
    return f"{size(amount)} {words}: see `dc-inject report {closing['campaign']}`" if amount else ""


def totals(campaign: str, view: Reader) -> dict[str, Any]:
    """Return the closing table; the keys are an interface, described in docs/reference/status.md.

    What failed is looked up only where anything had not moved: it reads all rules and jobs.
    """
    lines, failures, goals = view.summary(), view.failures(), goals_of(view)
    failed = view.not_moved_failed() if any(line.totals.not_moved for line in lines) else {}
    shared = control_records.redistributed(view)
    return {
        "campaign": campaign,
        "ledger": str(view.path),
        "links": [
            {
                **line.key.names(),
                **_sums([line], failures, failed),
                **_shared([shared.get(line.key)] if shared else []),
                "goal": goals.get(line.key, {}),
            }
            for line in lines
        ],
        "total": {
            "scenario": "total",
            "source": "",
            "destination": "",
            "service": "",
            **_sums(lines, failures, failed),
            **_shared(list(shared.values())),
            "goal": {},
        },
    }


def goals_of(view: Reader) -> dict[FlowKey, dict[str, int]]:
    """Return what links are to reach beside their rate, and where they stand."""
    accounts = view.accounts()
    return {
        key: {"volume": size, "moved": accounts[key].moved}
        if kind == "volume"
        else {kind: size if kind == "keep" else 1, "on_its_way": accounts[key].coming}
        for key, (kind, size) in view.goals().items()
    }


def about(value: int, estimated: int) -> int:
    """Return bytes so that `size` marks them where so many of them are an estimate."""
    return Estimate(value) if estimated > 0 else value


def _sums(
    lines: Sequence[SummaryLine],
    failures: Mapping[FlowKey, Mapping[str, int]],
    not_moved_failed: Mapping[FlowKey, int],
) -> dict[str, Any]:
    """Add up links; of ratios, those of the sums. Cycles are those in which any of them was due something."""
    due, injected = sum(line.due for line in lines), sum(line.injected for line in lines)
    moved, estimated = sum(line.moved for line in lines), sum(line.estimated for line in lines)
    held: Counter[str] = Counter()
    harmless: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for line in lines:
        failed.update(failures.get(line.key, {}))
        for hold, cycles in line.holds.items():
            (harmless if hold.harmless else held)[hold.value] += cycles
    return {
        "due": due,
        "injected": injected,
        "injected_ratio": _ratio(injected, due),
        "moved": about(moved, estimated),
        "moved_estimated": estimated,
        "moved_ratio": _ratio(moved, injected),
        "on_its_way": sum(line.totals.on_its_way for line in lines),
        "not_moved": sum(line.totals.not_moved for line in lines),
        "not_moved_failed": sum(not_moved_failed.get(line.key, 0) for line in lines),
        "failed": sum(line.totals.failed for line in lines),
        "rules": sum(line.rules for line in lines),
        "forgiven": sum(line.forgiven for line in lines),
        "cycles": max((line.cycles for line in lines), default=0),
        "held": dict(held.most_common()),
        "harmless": dict(harmless.most_common()),
        "failed_files": dict(failed.most_common()),
    }


def _shared(amounts: Sequence[ForOthers | None]) -> dict[str, dict[str, int]]:
    """Return the bytes that links were due for others and left to others; empty where control moved none."""
    recorded = [amount for amount in amounts if amount is not None]
    received, left = sum(amount.received for amount in recorded), sum(amount.left for amount in recorded)
    both = {"for_others": received, "to_others": left} if recorded else {}
    return {"redistributed": both} if amounts else {}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
