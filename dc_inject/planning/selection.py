"""Budgets of all lines in a cycle, and the items that go out for them within the limits.

    debt    = due x (1 + overhead) - forgiven - injected - in doubt          (totals of the account)
    limited = the part of this cycle's due above lasting limits (rates, space, pool): forgiven at once
    cap     = max(2 x largest due of the last three cycles x (1 + overhead), smallest free dataset)
    budget  = clamp(debt - limited, 0, cap) - the part of scarce resources that other lines get

Debt beyond the cap is forgiven as well. Where control acts, a cycle makes up at most 1.5 cycles' worth, and only
debt beyond `catch_up` is forgiven.
Lasting limits cut the due and not the debt. So a link with coarse datasets, whose debt grows over many cycles,
keeps to its part of a limit in the long run, and still gets a dataset once half of it is covered. Where control
acts, failures bound the choice too (`limits.py`): then debt saved up for a dataset lets none out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from dc_inject.model import Bundle, File, Held, Hold, Injection, Item, Mode, Numbers
from dc_inject.model.goals import Recycle, SecondHop
from dc_inject.model.held import name_others
from dc_inject.model.holds import Trait
from dc_inject.model.items import blocked, bundled
from dc_inject.planning import limits
from dc_inject.planning.limits import HOUR, Constraint, leading
from dc_inject.planning.link_plan import LinkPlan, with_overhead
from dc_inject.planning.pool import Pool, SelectionPolicy
from dc_inject.planning.situation import Situation
from dc_inject.planning.slices import TakenRanges, cut

SLACK = 0.2  # of a cycle's due, by which a cycle may inject more than its budget
QUARTER = timedelta(minutes=15)
MOST_FILES = 100_000  # that one link is given in one cycle, however small they are


def choose(
    lines: Sequence[LinkPlan],
    constraints: Sequence[Constraint],
    leaving: Mapping[str, set[str]],
    jobs: int,
    *,
    budgets_stand: bool = False,
) -> None:
    """Take items for every line with something left: by priority, and of equals the poorest pool first.

    A pool with few bytes for each byte of budget is poor. Links that their service refuses come last.
    `leaving` are the items that leave a source now. With `budgets_stand`, the rest of a budget is not capped again
    by what other lines have taken. `jobs` is how many the limits let through: files are bundled so that every line
    has its part of them.

    An item may exceed what is left of a budget, but not by bytes of a limit that other lines of its priority need
    for their budgets: else the lines that choose last would get nothing where a limit is no more than the sum of
    budgets.
    """
    rooms = {constraint: constraint.room for constraint in constraints if constraint.room is not None}
    bounds: list[list[Constraint]] = [[] for _ in lines]
    for constraint in rooms:
        for i in constraint.members:
            bounds[i].append(constraint)
    ready = [i for i, line in enumerate(lines) if line.unspent > 0 and line.pool is not None]
    ready.sort(
        key=lambda i: (
            -lines[i].claim.priority, lines[i].demand.refused, lines[i].free_bytes / lines[i].unspent, i
        )
    )  # fmt: skip
    reserved: dict[tuple[Constraint, int], int] = defaultdict(int)  # by priority: what later choosers need
    for i in ready:
        for constraint in bounds[i]:
            reserved[constraint, lines[i].claim.priority] += _needed(lines[i])
    for i in ready:
        line = lines[i]
        for constraint in bounds[i]:
            reserved[constraint, line.claim.priority] -= _needed(line)
        if not budgets_stand:
            _look_again(line)
        free = {c: _part(line, rooms[c], reserved[c, line.claim.priority]) for c in bounds[i]}
        tightest = min(bounds[i], key=free.__getitem__)
        size = _take(line, tightest, free[tightest], leaving[line.claim.link.source], jobs // len(ready))
        for constraint in bounds[i]:
            rooms[constraint] -= size


def _needed(line: LinkPlan) -> int:
    """Return the bytes that a limit should have left for a line: its budget, or an item of which half is in it."""
    return max(line.unspent, line.smallest) if 2 * line.unspent >= line.smallest else 0


def _part(line: LinkPlan, room: int, reserved: int) -> int:
    """Return the bytes that a line may have of a limit: what others do not need, and at least its own budget."""
    own = line.unspent if line.unspent >= line.smallest else 2 * line.unspent  # half of an item may be enough
    return min(room, max(room - reserved, own))


def _look_again(line: LinkPlan) -> None:
    """Cap the budget by what lines before this one have left over: it may have to save up for a larger item."""
    smallest = line.next_size
    if smallest is not None and smallest != line.smallest:
        line.smallest = smallest
        cap(line)


def _take(line: LinkPlan, tightest: Constraint, room: int, leaving: set[str], jobs: int) -> int:
    """Choose the items of one line, note by what it was stopped, and return their bytes."""
    flow, pool = line.demand.flow, line.pool
    if pool is None:
        return 0
    slack = 0 if flow.once else int(SLACK * line.demand.due)  # of a volume no more than is left of it
    policy = SelectionPolicy(flow.order, int(flow.grain * line.due), line.seed)
    if line.ranges is not None:
        line.items = _take_whole_and_cut(line, pool, line.ranges, policy, room, leaving, jobs)
    elif flow.job is None or isinstance(flow.goal, SecondHop):  # what goes on has been bundled
        line.items = pool.take(line.unspent, slack, policy, room=room, taken=line.taken, leaving=leaving)
        names = {item.name for item in line.items}
        line.taken.update(names)
        leaving |= names
    else:
        files = _copies(pool, line, slack, policy, room)
        # A cycle with little due may make up for one with much: its jobs are not the smaller for it.
        worth = int(flow.grain * max(line.due, with_overhead(line.demand.recent_due, flow)))
        if flow.job.reading and flow.rate:  # one reader has as much as it can read in a cycle
            worth = min(worth, int(flow.job.reading.rate * line.due / flow.rate))
        if flow.once:
            line.taken.update(file.name for file in files)
        whole = sum(file.bytes for file in files)
        at_most = max(worth, -(-whole // max(jobs, 1)))
        line.items = list(_bundles(files, flow.job.files, at_most, apart=line.goes_on))
    size = sum(item.bytes for item in line.items)
    line.unspent -= size
    if line.unspent > 0:
        next_one = line.next_size
        if next_one and room - size < next_one <= line.unspent + max(slack, line.unspent):
            line.stopped = tightest.held(next_one, room - size, next_one - (room - size))
    return size


def _take_whole_and_cut(
    line: LinkPlan,
    pool: Pool,
    ranges: TakenRanges,
    policy: SelectionPolicy,
    room: int,
    leaving: set[str],
    jobs: int,
) -> list[Item]:
    """Take the datasets that fit a budget, and slices of others for what is left of it; return both."""
    items = pool.take(line.unspent, 0, policy, room=room, taken=line.taken, leaving=leaving, over=False)
    names = {item.name for item in items}
    line.taken.update(names)
    size = sum(item.bytes for item in items)
    left, slices = line.unspent - size, line.demand.flow.slices
    at_most = (slices.at_most if slices else 0) or max(policy.preferred, -(-left // max(jobs, 1)))
    items += cut(pool, ranges, left=left, room=room - size, at_most=at_most, seed=line.seed, leaving=leaving)
    leaving |= {name for item in items for name in blocked(item.id)}
    return items


def _copies(pool: Pool, line: LinkPlan, slack: int, policy: SelectionPolicy, room: int) -> list[File]:
    """Return the files to copy for a budget; when a pool has too few, they go out more than once.

    Every copy has a name of its own at the destination. Files go out again only as long as all of them fit: what
    is too little for the larger ones is saved up for them, and not filled up with small ones.
    """
    files: list[File] = []
    left = line.unspent
    while left > 0 and len(files) < MOST_FILES and (not files or pool.largest <= min(left + slack, room)):
        more = pool.take(left, slack, policy, room=room, taken=line.taken)
        if not more:
            break
        files += (item for item in more if isinstance(item, File))
        size = sum(file.bytes for file in more)
        left, room = left - size, room - size
        if line.demand.flow.once:
            break
    return files[:MOST_FILES]


def _bundles(files: Sequence[File], files_at_most: int, at_most: int, *, apart: bool) -> Iterator[Bundle]:
    """Yield bundles of at most `files_at_most` files and, of more than one, `at_most` bytes; labels come later.

    With `apart` no bundle has a file twice: the name of the file then shows which copy of it has arrived.
    """
    members: list[File] = []
    names: set[str] = set()
    size = 0
    for file in files:
        full = len(members) == files_at_most or size + file.bytes > at_most or (apart and file.name in names)
        if members and full:
            yield bundled(members)
            members, size = [], 0
            names.clear()
        members.append(file)
        names.add(file.name)
        size += file.bytes
    if members:
        yield bundled(members)


def drop_beyond_limits(
    situation: Situation, lines: Sequence[LinkPlan], standing: Sequence[Injection] = ()
) -> None:
    """Drop items beyond the campaign's limits on rules and files: by priority, then evenly among the lines.

    Items that a service cannot take within the cycle are dropped, too. There, lines have their turns as a whole,
    since one call submits all items of a line, which is less work for the service. `standing` are the injections
    that this cycle already has. The items of a line that were chosen last are dropped first. The order of the
    lines is drawn again in each cycle, so that a line with one item has its turn as often as a line with many.
    """
    limits, chosen = situation.limits, Counter(injection.link.through for injection in standing)
    submits = {service: count - chosen[service] for service, count in situation.submits.items()}
    rules = count_rules_left(situation, len(standing))
    in_flight = situation.files_in_flight + sum(injection.item.files for injection in standing)
    files = max(0, limits.files_in_flight - in_flight)
    order = sorted(
        (-line.claim.priority, _turn(line, index, submits), line.seed, i, index)
        for i, line in enumerate(lines)
        for index in range(len(line.items))
    )
    kept_items: dict[int, set[int]] = defaultdict(set)
    rules_left, files_left, time_for = rules, files, dict(submits)
    for _, _, _, i, index in order:
        line = lines[i]
        count, service = line.items[index].files, line.claim.link.through
        if time_for.get(service, 1) < 1:
            numbers = {"time_for": max(submits[service], 0), "wanted": len(order)}
            line.stopped = Held(Hold.OVERLOAD, numbers)
        elif rules_left >= 1 and files_left >= count:
            rules_left, files_left = rules_left - 1, files_left - count
            if service in time_for:
                time_for[service] -= 1
            kept_items[i].add(index)
        else:
            limit, left = ("rules_per_hour", rules) if rules_left < 1 else ("files_in_flight", files)
            over: Numbers = {"limit": limit, "most": getattr(limits, limit), "left": left, "wanted": len(order)}
            line.stopped = Held(Hold.CAMPAIGN_LIMIT, over)
    for i, line in enumerate(lines):
        line.items = [item for index, item in enumerate(line.items) if index in kept_items[i]]


def _turn(line: LinkPlan, index: int, submits: Mapping[str, int]) -> float:
    """Return when it is an item's turn, from 0 to 1: drawn for the line, and by its place in the line."""
    drawn = line.seed / 2**128
    return drawn if line.claim.link.through in submits else (index + drawn) / len(line.items)


def count_rules_left(situation: Situation, chosen: int = 0) -> int:
    """Return how many rules and jobs may still be made in a cycle that has `chosen` some, by those of an hour.

    Pacing by the cycle keeps the hour even; short cycles may take a quarter of an hour's worth at once. Of what is
    chosen control withholds about as much as in the last cycle, so that much more is chosen, at most a quarter;
    but not in cycles that do not divide the hour, which could exceed its limit.
    """
    in_an_hour = situation.limits.rules_per_hour
    paced = -(-in_an_hour * max(situation.cycle.length, QUARTER) // HOUR)
    if not HOUR % situation.cycle.length:
        paced += min(situation.withheld, paced // 4)
    return max(0, min(in_an_hour - situation.rules_last_hour, paced) - chosen)


def why(line: LinkPlan) -> Held | None:
    """Return the leading hold: why a line gets less than its due, or why some of its debt is forgiven."""
    demand = line.demand
    if demand.held is not None:
        return demand.held
    short = demand.due - demand.intended - sum(item.bytes for item in line.items)
    if short <= 0 and line.forgiven == 0:
        return _starved(line)
    beyond_cap = line.forgiven - line.limited
    numbers = {"debt": line.want, "cap": line.cap, "forgiven": line.forgiven}
    before = None if demand.made_up else demand.before
    if before and Trait.OUTAGE in before.traits and beyond_cap > max(short, line.limited):
        return Held(before, numbers)  # the debt is of the outage, whatever slows down making it up
    only_forgiven = short <= 0 and 2 * line.limited >= line.forgiven
    limit = leading(line.forgone if only_forgiven else line.cuts)
    # Debts wander by a dataset, so a limit that is just reached cuts a little now and then: not the reason.
    if limit is not None and 2 * max(cut.bytes for cut in line.cuts) >= short:
        nothing_goes_out = not line.items and not demand.intended  # then what stops the rest leads
        if nothing_goes_out and line.unspent > 0 and line.next_size is None and limit.hold is not Hold.POOL_DRY:
            return _explain_lack(line)
        if line.stopped is None or not nothing_goes_out or _first(limit, line.stopped):
            return limit
        return name_others(line.stopped, [limit.hold])
    if line.stopped is not None:
        return line.stopped
    if short <= 0:
        if demand.flow.goal is not None and demand.before is None:
            return _explain_lack(line)
        return Held(demand.before or Hold.NOT_RUNNING, numbers)
    return _explain_lack(line)


def _first(limit: Held, stopped: Held) -> bool:
    """Whether a limit leads before the one that stopped the choice: it is the same one, or makes the backlog."""
    return limit.hold is stopped.hold or (limit.hold, stopped.hold) == (Hold.FAILING, Hold.BACKLOG)


def _explain_lack(line: LinkPlan) -> Held:
    """Return why nothing more was chosen for a budget: nothing is free, or all that is free is too large."""
    next_one = line.next_size
    if next_one is None:
        resident = line.pool.bytes - line.free_bytes if line.pool else 0
        numbers = {"pool_items": line.free_items, "pool_bytes": line.free_bytes, "resident": resident}
        return Held(Hold.POOL_DRY, numbers)
    return Held(Hold.TOO_COARSE, {"budget": line.budget, "left": max(line.unspent, 0), "smallest": next_one})


def _starved(line: LinkPlan) -> Held | None:
    """Return why a link that was due nothing more stays short of its goal, if it does.

    What it is short of was due before. Of a volume the rest may be less than half a dataset: then it is done.
    """
    goal = line.demand.flow.goal
    if goal is None or isinstance(goal, Recycle) or line.unspent <= 0 or line.items:
        return None
    lacks = _explain_lack(line)
    if goal.once and line.pool is not None:
        smallest = line.pool.smallest(line.taken) or line.pool.smallest(frozenset())
        return lacks if smallest is None or line.unspent * 2 >= smallest.bytes else None
    return None if lacks.hold is Hold.TOO_COARSE and line.demand.coming > 0 else lacks


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
        # On top of this cycle's due the budget makes up for debt, which lasting limits do not bound.
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
    # With no pool to look at it is unknown what a debt waits for: then nothing is forgiven.
    beyond = max(0, rest - max(round(keep * kept), least))
    line.forgiven = line.limited + (beyond if line.pool is not None else 0)
    line.budget = 0 if demand.held else max(0, min(rest, line.cap) - line.shared)
    line.unspent = line.budget - demand.intended


def _claimed(line: LinkPlan, part_of_due: int) -> int:
    """Return what a budget may use up of limits in this cycle.

    The debt of a coarse link grows until half a dataset is covered: that part of it is not asked of a limit in
    every cycle again, only this cycle's due and what is to be made up.
    """
    catching_up = min(line.budget - line.smallest // 2, CAP * line.due)
    return min(line.budget, max(part_of_due, catching_up))
