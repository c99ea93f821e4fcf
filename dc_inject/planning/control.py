"""Control: how much a link may have in flight, so that it is kept full and its queue is not.

A fixed rate is blind: a link that carries less than its target gets a queue that grows until rules expire
unsent. A controller of the rate is worse, since what it sees is old: it pushes while the queue hides what it
did. So what is controlled is the amount in flight, as in a sliding window. A queue is filled, not pushed.

    W = min(R (T + C + A), D (7/8 L + A)), at least `floor`
    u = clip(R T (1 + b), 0, min(1.5 R T, W - F))
    b += 0.0125 (1 - moved / due)  only while F < 0.8 W, u is not cut by W, and nothing else limits the link;
    else b *= 0.98

    W  window: the most that may be in flight, in bytes        R  target rate, in bytes per second
    u  what a cycle may give, in bytes                         T  length of a cycle
    F  in flight now: asked for, and not seen to arrive        A  age of the oldest observation
    C  time from release to completion, 90th percentile        L  longest lifetime
    D  rate at which the link carries bytes, at most R         b  bias, from -0.3 to 0.15

The first term of W is Little's law: a link that carries its target has R C on its way, R T more is released in
the cycle that begins, and R A may have arrived unseen. The second says that all of it arrives within its lifetime,
with an eighth to spare, at the rate at which bytes arrive now.

**C is learned while the link keeps up.** Where a link is the bottleneck, C = F / D, whatever its latency is:
with that C the window would grow by its own queue, without end. So C goes down at once, and goes up only after
cycles in which the link moved what it had to move. A link whose latency grows while it does not keep up gets
what W / latency gives, which is less than its target and never a collapse.

**D is measured only where bytes are late**: where there was work all the time, and something is on its way for
longer than C + T + A (or three quarters of its lifetime), and there is more in flight than arrives in that time
at the rate of the last two cycles. Else the link was short of work, or its latency is all there is to see. A
small part of the bytes is left out, since files are tried again. Bytes that expired unsent in the last two cycles
were late, although nothing that is late is left. Then D is the mean of the last four cycles: the best of them
would be the noise of a link that carries little. It is at least a fiftieth of R, so that a link that stood still
is tried. Where nothing is late any more, D grows a little in each cycle, and at once to the lower of the last two
arrivals, as acknowledgements clock a sender. One good cycle of a slow link says nothing of the next one. Where all
files of a dataset arrive together once in C, some cycles have none: then it is the mean of the cycles in C.

While bytes are late, no more goes out than has arrived in the last cycle: what is in flight does not grow.

**While too many transfers fail, D is foreseen.** FTS then takes one transfer away a minute (`ramp.py`). A link
keeps up as long as those that are left suffice, and when they do not it falls within two cycles, which arrivals
show too late. So D is at most what n transfers, one less each minute, carry on average in the time in which what
is in flight has to arrive:

    D <= s / t (integral from 0 to t of max(n - a - x, l) dx)    t = 7/8 L + A

with n transfers that FTS allowed when it told of them, a minutes ago, s the speed of one, and l the fewest that it
runs.

**And hardly a file waits in FTS.** In its more aggressive modes FTS takes no transfer away while less than a tenth
as many files wait as it allows transfers. So W is also at most what six tenths of the transfers hold, with files
of f bytes, and carry in the cycle; a link gives up some of its rate, and keeps its transfers:

    W <= 0.6 max(n - a, l) (f + s (T + A))

Flows of one link share both bounds. Neither applies where others use the link: they take the place that is left
free in the queue, so that transfers are taken away all the same.

**A link of which nothing is known** may have two cycles' worth in flight: one that is given, and one on its
way.

**The bias** makes up for what is lost on the way without being given back to the debt. It is slow on purpose: a
signal that is four cycles old makes gains near 0.5 swing. It stands still where it cannot help: at a limit and
at the window, where an integral would wind up.

What the window holds back stays in the debt up to two cycles' worth and is forgiven beyond it, u is 1.5 cycles'
worth at most, and F counts what is queued: so there is no burst after an outage. While a link makes up for
that, it gets more than its due: then neither C goes up, which would follow its own queue, nor the bias down.

u bounds what is chosen as well as what is wanted, to within half a dataset of W, and to D (L + A) with all of it:
else a dataset that takes much of a lifetime would go out when it cannot arrive in time (`link_plan.py`).

Cycles of which nobody has seen anything, since the service was silent for over four cycles, are left out. After
them, and after a link has stood still, C does not go up until all that it is measured by began later.

Where a signal is missing the law does without it, and the decision says so: without C the window is bounded by
D and the lifetime alone; without A the observation counts as one cycle old. C is not believed in the first four
cycles, in which only what was quick has completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from dc_inject.model import FlowKey, Numbers
from dc_inject.planning import ramp

MOST = 1.5  # cycles' worth that one cycle may give
GAIN = 0.0125  # of the bias, a cycle
DECAY = 0.98  # of the bias, a cycle in which it cannot help
LOWEST, HIGHEST = -0.3, 0.15  # the bias
ROOM = 0.8  # of the window, up to which it does not limit
KEEPS_UP = 0.98  # of what it had to move: what a link moves that keeps up
LEAST = 0.02  # of the target: what D counts as at least
FASTER = 1.05  # what D grows by where nothing is late, a cycle
SPARE = 7 / 8  # of its lifetime, in which what is in flight has to arrive
LATE = 3 / 4  # of its lifetime: what is on its way for longer is late, whatever is usual
BUSY = 0.25  # of what it is due: what a link has in flight that is not short of work
SURE = 2  # cycles of which the lower arrival counts: one good cycle is chance
FIRST = 2  # cycles' worth that a link of which nothing is known may have in flight, and cycles that it may take
CYCLES = 4  # that are looked back at
STANDS = 0.1  # of what it had to move: what a link moves less than that stands still
SETTLED = 9  # cycles after which no completion that C is measured by began in a standstill
USED = 0.6  # of transfers that FTS takes away while files wait: what is used, so that hardly any wait


@dataclass(frozen=True, slots=True)
class Past:
    """A cycle that is over: what the link was due and what arrived in it, in bytes; `in_flight` when it began.

    `due` is all that it was to move: the menu's overhead and what held links left to it included, the bias not.
    `expired` is what came to its end in it without having arrived, and without being owed again.
    """

    due: int
    moved: int
    in_flight: int
    expired: int = 0

    @property
    def busy(self) -> bool:
        """Whether there was work: a good part of what it was due to move was in flight from the start."""
        return self.in_flight >= BUSY * self.due > 0

    @property
    def to_move(self) -> int:
        """What a link that carries its target would have moved at least, of what was in flight from the start."""
        return min(self.due, self.in_flight)


@dataclass(frozen=True, slots=True)
class Transfers:
    """What FTS told of a link from which it takes transfers away, since under 97 % of the attempts succeed.

    `limit` is how many it allows, `least` at how many it stops, `speed` what one of them moves, in bytes per
    second, `file` the bytes of a mean file, `success` the part of the attempts that succeed, and `age` how long
    ago FTS told.
    """

    limit: int
    speed: float
    file: int
    success: float
    age: timedelta
    least: int = ramp.FEWEST

    def part(self, part: float) -> Transfers:
        """Return what a flow has of them that may move such a part of all bytes."""
        return replace(self, speed=self.speed * part, file=round(self.file * part))

    @property
    def left(self) -> float:
        """How many are left, if FTS has taken one away in each of its runs since it told."""
        return max(self.limit - ramp.REMOVED * (self.age / ramp.RUN), self.least)

    def carried(self, within: timedelta) -> float:
        """Return the bytes that they carry at least in a time that begins now, whoever asked for them."""
        return ramp.carried(self.left, self.speed, within, self.least)

    def without_queue(self, within: timedelta) -> float:
        """Return the bytes of which hardly any wait in FTS: a part of what they hold, and carry in a time."""
        return USED * self.left * (self.file + self.speed * within.total_seconds())


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of a link when a cycle begins; None is a signal that is missing.

    `target` is bytes per second; `in_flight` and `floor` are bytes. `past` are the last cycles in which the link
    was due anything, without a gap, the last one at the end. `oldest` is for how long the oldest of what is in
    flight is on its way, but for a small part of its bytes. `transfers` are FTS's, and known only while it takes
    them away. `floor` is what the link needs to have under way in any case: a dataset, or what FTS has transfers
    for. `limited` is whether something else than this controller held the link in the cycle before, `catches_up`
    whether it owed as much from before as a cycle may give on top of its due.
    """

    target: float
    length: timedelta
    lifetime: timedelta
    in_flight: int
    past: Sequence[Past] = ()
    completion: timedelta | None = None
    age: timedelta | None = None
    oldest: timedelta | None = None
    transfers: Transfers | None = None
    floor: int = 0
    limited: bool = False
    catches_up: bool = False

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the signals that are missing."""
        by_name = {"completion": self.completion, "age": self.age, "delivered": self.past or None}
        return tuple(name for name, value in by_name.items() if value is None)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept from cycle to cycle: the bias, C as it was when the link kept up, and D where it is below R.

    None is what is not known, or not needed. `seen` is for how many cycles the service has told of the link
    without a gap, `moving` for how many the link has not stood still besides, each of them up to `SETTLED`.
    """

    bias: float = 0.0
    completion: timedelta | None = None
    delivered: float | None = None
    seen: int = SETTLED
    moving: int = SETTLED


@dataclass(frozen=True, slots=True)
class Decision:
    """What a cycle may give (`allowed`) and the `window` behind it, in bytes.

    `room` is what the window has room for, also if that is more than one cycle may give: a dataset of which half
    fits may go out. `delivered` is D in bytes per second; `memory` is what the next cycle is decided with.
    """

    allowed: int
    room: int
    window: int
    delivered: float
    memory: Memory
    signals: Signals

    @property
    def numbers(self) -> Numbers:
        """On what it rests, for people and rows: bytes, and seconds; a signal that is missing is named."""
        seen = self.signals
        times = {"completion": self.memory.completion, "age": seen.age, "oldest": seen.oldest}
        return {
            "in_flight": seen.in_flight,
            "window": self.window,
            "allowed": self.allowed,
            "delivered": round(self.delivered * seen.length.total_seconds()),
            **{name: round(value.total_seconds()) for name, value in times.items() if value is not None},
            **({} if seen.transfers is None else _of_transfers(seen.transfers)),
            **({"missing": " ".join(seen.missing)} if seen.missing else {}),
        }

    @property
    def in_time(self) -> int:
        """Bytes that may be added and still arrive within the longest lifetime, at the rate of now."""
        lifetime = self.signals.lifetime + _age(self.signals)
        return max(int(self.delivered * lifetime.total_seconds()) - self.signals.in_flight, 0)

    @property
    def worth(self) -> int:
        """What a cycle is worth at the target, in bytes."""
        return round(self.signals.target * self.signals.length.total_seconds())

    @property
    def limits(self) -> bool:
        """Whether what is in flight keeps the link from a whole cycle's worth."""
        return self.allowed < self.worth


def decide(memory: Memory, seen: Signals) -> Decision:
    """Return what a link may be given in the cycle that begins, and what to keep for the next one."""
    known = 0 if _age(seen) > CYCLES * seen.length else min(memory.seen + 1, SETTLED)
    seen = replace(seen, past=seen.past[max(len(seen.past) - known, 0) :])
    stands = known == 0 or _stands_still(memory.completion, seen)
    moving = 0 if stands else min(memory.moving + 1, SETTLED)
    completion = _completion(memory.completion, seen, moving)
    late = _late(completion, seen)
    arriving = _delivered(memory.delivered, completion, seen, late=late)
    limit = window(completion, arriving, seen)
    worth = seen.target * seen.length.total_seconds()
    room = max(limit - seen.in_flight, 0)
    if late:
        room = min(room, seen.past[-1].moved)
    allowed = min(MOST * worth, room)
    if seen.in_flight == 0:  # a dataset of more than a cycle's worth goes out every few cycles
        allowed = max(allowed, seen.floor)
    remembered = Memory(
        _bias(memory.bias, limit, seen), completion, arriving if arriving < seen.target else None, known, moving
    )
    return Decision(int(allowed), int(room), int(limit), arriving, remembered, seen)


def _of_transfers(transfers: Transfers) -> Numbers:
    age = round(transfers.age.total_seconds())
    return {"transfers": transfers.limit, "transfers_age": age, "success": round(transfers.success, 3)}


def foreseen(decision: Decision, memory: Memory, transfers: Transfers) -> Decision:
    """Return what is decided anew once FTS has told of its transfers; the bias of the cycle stays as it was."""
    again = decide(memory, replace(decision.signals, transfers=transfers))
    return replace(again, memory=replace(again.memory, bias=decision.memory.bias))


@dataclass(frozen=True, slots=True)
class LinkShare:
    """A link of a scenario whose links share what held ones leave; bytes.

    `due` is its own due in the cycle that begins, `asked` the same with what is due on top, and `debt` is what it
    owes from before. `left` is what it was short of its due in the cycle before, if others may have that, and
    `written_off` what was forgiven then: what a space or a pool does not let through is never owed.
    `held` is whether anything held it then.
    """

    due: int
    asked: int
    debt: int
    priority: int
    left: int = 0
    written_off: int = 0
    held: bool = False

    @property
    def leaves(self) -> int:
        """What goes to others: what is neither owed any more nor was written off then was made up."""
        return max(min(self.left, max(self.debt, 0) + self.written_off), 0)

    def forgiven_of(self, given: int) -> int:
        """Return what is forgiven of it when others have so much: what it owes goes first."""
        return min(given, max(self.debt, 0))

    @property
    def room(self) -> int:
        """What it may have of others beside all that is due to itself: nothing, if anything holds it."""
        return 0 if self.held else max(int(MOST * self.due) - self.asked - max(self.debt, 0), 0)


def redistributed(links: Mapping[FlowKey, LinkShare]) -> tuple[dict[FlowKey, int], dict[FlowKey, int]]:
    """Return what links are due for others in a cycle, and what of each of those went to others."""
    left = {key: part.leaves for key, part in links.items() if part.leaves}
    rooms = {key: part.room for key, part in links.items() if key not in left}
    given = shared_out(sum(left.values()), rooms, {key: links[key].priority for key in rooms})
    return given, shared_out(sum(given.values()), left, dict.fromkeys(left, 1))


def shared_out(amount: int, rooms: Mapping[FlowKey, int], priorities: Mapping[FlowKey, int]) -> dict[FlowKey, int]:
    """Return how an amount is shared among links with room for it: by priority, then in proportion to the room.

    Nobody gets more than its room; the sum is the amount, or all the room there is.
    """
    shares: dict[FlowKey, int] = {}
    for priority in sorted(set(priorities.values()), reverse=True):
        members = {key: room for key, room in sorted(rooms.items()) if priorities[key] == priority and room > 0}
        whole = sum(members.values())
        part = min(amount, whole)
        amount -= part
        done = given = 0
        for key, room in members.items():
            done += room
            shares[key] = part * done // whole - given
            given += shares[key]
    return shares


def window(completion: timedelta | None, arriving: float, seen: Signals) -> float:
    """Return W in bytes; `completion` is C, `arriving` is D in bytes per second."""
    limit = arriving * _in_time(seen).total_seconds()
    if completion is not None:
        limit = min(limit, seen.target * (seen.length + completion + _age(seen)).total_seconds())
    limit = max(limit, seen.floor)
    if seen.transfers is not None:
        limit = min(limit, seen.transfers.without_queue(seen.length + _age(seen)))
    return limit


def _delivered(before: float | None, completion: timedelta | None, seen: Signals, *, late: bool) -> float:
    """Return D in bytes per second."""
    recent, seconds = seen.past[-SURE:], seen.length.total_seconds()
    late = late or any(past.expired for past in recent)
    if late and all(past.busy for past in recent):
        arriving = sum(past.moved for past in seen.past) / len(seen.past) / seconds
    elif before is None:
        is_new = not seen.past and completion is None
        arriving = seen.target * (FIRST * seen.length / _in_time(seen)) if is_new else seen.target
    else:
        arriving = max(_arrived(completion, seen) / seconds, FASTER * before)
    if seen.transfers is not None:
        within = _in_time(seen)
        arriving = min(arriving, seen.transfers.carried(within) / within.total_seconds())
    return min(max(arriving, LEAST * seen.target), seen.target)


def _arrived(completion: timedelta | None, seen: Signals) -> float:
    """Return the bytes that arrive in a cycle for certain: the lower of the last two, or the mean over C of lumps.

    Where C is longer than a cycle, files of a dataset that move side by side may all arrive together, once in C.
    """
    moved = [past.moved for past in seen.past]
    certain = min(moved[-SURE:], default=0)
    span = 1 if completion is None else -(-max(completion, seen.completion or completion) // seen.length)
    if 1 < span <= CYCLES and 0 in moved[-span:]:
        spans = (part for part in (moved[-span:], moved[-2 * span : -span]) if len(part) == span)
        return max(certain, min((sum(part) / span for part in spans), default=0.0))
    return certain


def _late(completion: timedelta | None, seen: Signals) -> bool:
    """Whether something takes longer than usual, and more is in flight than arrives in the usual time.

    No link has to carry what is in flight faster than at its target, which takes time where one dataset is large.
    """
    recent = seen.past[-SURE:]
    usual = FIRST * seen.length + _age(seen)
    if completion is not None:
        usual = completion + seen.length + _age(seen)
    if seen.in_flight < seen.target * seen.lifetime.total_seconds():
        usual = max(usual, timedelta(seconds=seen.in_flight / seen.target) + _age(seen))
    if completion is not None:
        usual = min(LATE * seen.lifetime + _age(seen), usual)
    if not recent or seen.oldest is None or seen.oldest <= usual:
        return False
    return seen.in_flight > sum(past.moved for past in recent) / len(recent) * (usual / seen.length)


def _in_time(seen: Signals) -> timedelta:
    """Return within which time what is in flight has to arrive."""
    return max(SPARE * seen.lifetime, MOST * seen.length) + _age(seen)


def _age(seen: Signals) -> timedelta:
    return seen.length if seen.age is None else seen.age


def _stands_still(completion: timedelta | None, seen: Signals) -> bool:
    """Whether hardly anything has arrived for longer than it usually takes, though there was work."""
    cycles = FIRST if completion is None else max(-(-completion // seen.length) + 1, FIRST)
    last = seen.past[-cycles:]
    return len(last) == cycles and all(past.moved < STANDS * past.to_move for past in last)


def _completion(before: timedelta | None, seen: Signals, moving: int) -> timedelta | None:
    """Return C: what was measured, but never more than before while the link does not keep up, or just stood."""
    if seen.completion is None or len(seen.past) < CYCLES:
        return before
    had, moved = sum(past.to_move for past in seen.past), sum(past.moved for past in seen.past)
    keeps_up = moved >= KEEPS_UP * had and not seen.catches_up and moving >= SETTLED
    return seen.completion if before is None or keeps_up else min(before, seen.completion)


def _bias(bias: float, limit: float, seen: Signals) -> float:
    """Return b for the next cycle."""
    due, moved = sum(past.due for past in seen.past), sum(past.moved for past in seen.past)
    worth = seen.target * seen.length.total_seconds() * (1 + bias)
    at_window = seen.in_flight >= ROOM * limit or limit - seen.in_flight < worth
    if seen.limited or seen.catches_up or at_window or len(seen.past) < CYCLES or due <= 0:
        return bias * DECAY
    return min(max(bias + GAIN * (1 - moved / due), LOWEST), HIGHEST)
