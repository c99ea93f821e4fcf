"""Budgets: how many bytes of its debt each line may make up in this cycle, and what is forgiven.

    debt    = due x (1 + overhead) - forgiven - injected - in doubt          (totals of the account)
    limited = what lasting limits (rates, space, pool) do not let through of this cycle's due: forgiven at once
    cap     = max(2 x largest due of the last three cycles x (1 + overhead), smallest free dataset)
    budget  = clamp(debt - limited, 0, cap) - what others get of what is scarce now

What is beyond the cap is forgiven as well. Where control acts, a cycle makes up 1.5 cycles' worth at most, and
what is forgiven is what is beyond `catch_up`.
Lasting limits take from what is due and not from the debt, so that a link with coarse datasets, whose debt grows
over many cycles, keeps to its part of a limit in the long run, and still gets a dataset out when half of it is
covered. Where control acts, failures bound also what is chosen (`limits.py`): what was saved up for a
dataset lets none out then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dc_inject.model import Mode
from dc_inject.planning import limits
from dc_inject.planning.limits import Constraint
from dc_inject.planning.link_plan import LinkPlan, with_overhead

CAP = 2  # cycles' worth of debt that a cycle may make up
MOST = 1.5  # the same where control acts


def set_budgets(lines: Sequence[LinkPlan], constraints: Sequence[Constraint]) -> None:
    """Turn debts into budgets, and share what is scarce by priority, then in proportion."""
    claims = [line.claim for line in lines]
    dues = [0 if line.demand.held else line.due for line in lines]
    let_through, lasting = limits.cut(dues, claims, [c for c in constraints if c.lasting])
    for line, due, part in zip(lines, dues, let_through, strict=True):
        line.limited = due - part
        cap(line)
    wants = [_claimed(line, part) for line, part in zip(lines, let_through, strict=True)]
    parts, now = limits.cut(wants, claims, [c for c in constraints if not c.of_dues])
    for i, (line, want, part) in enumerate(zip(lines, wants, parts, strict=True)):
        line.shared = want - part
        line.forgone = lasting.get(i, [])
        # Beside this cycle's due the budget makes up for debt, which lasting limits do not bound.
        line.cuts = [replace(cut, alone=max(cut.alone, want)) for cut in line.forgone] + now.get(i, [])
        cap(line)


def cap(line: LinkPlan) -> None:
    """Set what a line is forgiven and its budget, by the smallest dataset that is free at this moment."""
    demand, rest = line.demand, line.want - line.limited
    worth, most, keep = with_overhead(demand.recent_due, demand.flow), float(CAP), float(CAP)
    kept = worth
    if demand.flow.control.mode is Mode.ACT:
        most, keep = MOST, max(demand.flow.control.catch_up / line.cycle, MOST)
        rate = demand.flow.rate if demand.flow.goal is None else 0.0  # a pause is no reason to forgive the debt
        kept = max(worth, with_overhead(round(rate * line.cycle.total_seconds()), demand.flow))
    # It may have been saved up for half of the dataset that was the smallest then, and a smaller one has come
    # free since: that is no reason to forgive it.
    least = max(line.smallest, min(rest, demand.saved + line.due if demand.saved else 0))
    line.cap = max(round(most * worth), least)
    # With no pool to look at nobody knows what a debt waits for: then nothing is forgiven.
    beyond = max(0, rest - max(round(keep * kept), least))
    line.forgiven = line.limited + (beyond if line.pool is not None else 0)
    line.budget = 0 if demand.held else max(0, min(rest, line.cap) - line.shared)
    line.unspent = line.budget - demand.intended


def _claimed(line: LinkPlan, part_of_due: int) -> int:
    """Return what a budget may use up of limits in this cycle.

    The debt of a coarse link grows until half a dataset is covered: that part of it is not asked of a limit in
    every cycle anew, just what is due now, and what is to be made up.
    """
    catching_up = min(line.budget - line.smallest // 2, CAP * line.due)
    return min(line.budget, max(part_of_due, catching_up))
