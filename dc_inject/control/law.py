"""The law of control: how many files may be in flight on a link, and at a storage that is overloaded. Pure.

A service takes all rules at once, and shares out what it can carry. The rest waits: then all files take longer,
storages lose connections to files that wait, and what waits too long expires. So this law bounds the files in
flight. It reads nothing of a service but when our own files were asked for, and when they were seen to arrive; so
it works for every account. A dataset that is due goes out as soon as its windows have room for it; what has found
no room when the cycle ends stays in the debt.

Quantities, per link. Times are seconds, T is the length of a cycle, a round is the time between two observations:

    slow  = least time that a file took, for its size (s per byte)
    base  = max(slow x size, one round, min(STILL, 1.5 T)) what a file takes when nothing is in its way
    rate  = files that arrived in max(T, base), over that time;   best = its highest of four hours
    runs  = rate x base                                    files that move (Little's law); other files wait
    x     = lower quartile of (time taken / base) of files that arrived in that time, or are late

The least time doubles in a day without a lower one, since a path may become longer. A file is late when it is on
its way for more than AIM x base, and longer than all files that arrived in that time, since others count once they
arrive. Its age is the time that it has taken so far, and it counts as often as such files come: with
max(T, base) / age. The lower quartile, since a queue slows all files of a link, while a broken source slows some.

A file is overtaken when a file arrives that was asked for a base later. Queues are served in their order, so it
waits in none: it is tried again after a pause, or its source is broken. It counts neither in x nor as in flight.

The window of a link, W, in files, after each observation:

    W = min(r x GAIN x base, s x LIFE x lifetime)
    r = best; s = rate, or its mean of an hour if that is more;   while x <= AIM, r and s are at least the target

so that as many wait as move, since FTS adds transfers only then, and all arrive within their lifetime; there the
highest rate, which may have been chance, would promise too much. W grows by GROW in max(T, base) at most. A new
link begins with FIRST of a cycle's worth, and grows until it is known how long its files take.

The window of a storage, S, for all links from it (or all links to it) together:

    free --(x > OVER over all its files, of two links or more, in an hour fewer than FALLS of the most ran)--> held
    held --(nothing had to wait for S for four hours)--> free
    held --(x > OVER, though S has fallen to FLOOR of the most that ran)--> given up, for four hours

A storage stands while nothing has arrived there for LONG rounds and x > OVER: its transfers fail, or FTS is stuck;
an overloaded one still moves files. Until an hour later none of this is decided and S stays as it was: files have
waited for another reason, and FTS gives transfers back slowly to links whose files failed.

S begins with the most that ran. After each round, of max(T, what files take there), it is multiplied by

    sqrt(AIM / x), at least 1/2      if x > AIM: in a collapse x grows as the square of what is in flight
    UP                               if something had to wait for S

A storage is given up when others fill it: what we leave, they take. Then x is no reason to send less.

Yielding. All links of a storage share FTS's slots there. A slow link takes many of them for few files. It begins
to yield when a link whose files take SLOW times less waits, moves less than FALLS of its target, and has x > OVER:
its own window explains no such queue, so it moves much less than it has moved. While fast links wait, the slow
link's window is what ran at the storage in the last hour, less what the fast links need for their highest rate and
what the others use. A fast link that after TRIAL rounds of it moves no more than before it began to yield waits
for something else: then no link yields to it for four hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

GAIN = 2.2  # FTS's optimizer adds transfers while at least as many files wait as move
LIFE = 0.75  # of a lifetime, in which what is in flight arrives
FIRST = 0.25  # of a cycle's worth: what a new link may have in flight; more hides where a storage collapses
GROW = 2.0  # by which a link's window grows at most in a round
SHY = 1.1  # the same while the link yields
AIM = 1.4  # times base: at which an overloaded storage is kept, (files / knee)^2
OVER = 4.0  # times base: more than the queue that links may have (GAIN), and a dataset
FALLS = 0.9  # of the most that ran, or of a target: less is short of it
FLOOR = 0.7  # of the most that ran when it was overloaded: others may use the rest
UP = 1.05  # by which a storage's window grows
LEAST = 0.1  # of what its target needs: what the window of a link is at least
SLOW = 3.0  # times slower: speeds of equal links differ by less by chance
HOUR = 3600.0
HOURS = 4 * HOUR  # for which the highest rate counts, and what was learnt of a storage or by a trial of yielding
TRIAL = 2  # rounds in which a fast link has to gain by what is left to it
STILL = 80.0  # seconds: the least that a file is taken to need, so that GAIN x STILL bridges a restart of FTS
LONG = 2.5  # rounds in which nothing arrives at a storage that stands
ROUNDS = 5  # observations in a cycle
DAY = 24 * HOUR
Highest = list[tuple[float, float]]  # of each quarter of a span: when it began, and the highest value
Moment = float  # when something was; one that lies ahead is forgotten: a clock leapt there and back
Until = float  # the same of what may lie ahead, by HOURS


@dataclass(frozen=True, slots=True)
class Arrival:
    """Files of a rule that were seen to arrive: when, how many, in which time, of which size."""

    at: float
    files: float
    took: float
    size: float
    is_first: bool = True  # no file that was asked for later had arrived before it


class Flight(NamedTuple):
    """Files of one rule that are on their way: how many, for how long, and their size in bytes."""

    files: float
    age: float
    size: float


@dataclass(slots=True)
class LinkState:
    """What is known of a link: bytes per file, seconds, files, files per second. All of it is kept."""

    name: str = ""
    place: str = ""  # source and destination, which links of several scenarios may share
    acts: bool = False  # the menu has `act`
    target: float = 0.0  # bytes per second
    lifetime: float = 0.0
    size: float = 0.0  # bytes of a mean file
    slow: float | None = None  # seconds per byte
    least: float = 0.0  # seconds between two observations: nothing is seen to be faster
    passed: Moment = 0.0  # files on their way that were asked for before it were overtaken
    files: float = 0.0  # in flight, as last seen, with what was released since
    rate: float = 0.0
    lately: float = 0.0  # the mean rate of about an hour
    window: float = 0.0
    is_slowed: bool = False  # its files take much longer than they need
    shy: bool = False  # it yields, or has just yielded
    renewed: Moment = 0.0  # when the window was set
    began: Moment = 0.0  # when its first rule was released
    refused: Moment = 0.0  # when something last had to wait
    refused_by: str = ""  # the storage whose window had no room then; empty if it was the link's own
    yields: Moment = 0.0  # when its present trial of yielding began
    yielded: Moment = 0.0  # when it last yielded
    alone: Until = 0.0  # until when no link yields to it
    freed: Until = 0.0  # until when its storage is given up
    then: dict[str, float] = field(default_factory=dict)  # what links moved when it began to yield to them
    best: Highest = field(default_factory=list)
    is_seen: bool = False  # since the window was set
    fresh: list[Arrival] = field(default_factory=list)  # since the window was set
    arrived: list[Arrival] = field(default_factory=list)
    ratios: list[tuple[float, float]] = field(default_factory=list)  # files, and their time / base

    def takes(self, size: float) -> float:
        """Return how long a file of so many bytes takes when nothing is in its way; 0 while that is not known."""
        still = min(STILL, 1.5 * ROUNDS * self.least)
        return max(self.slow * size, self.least, still) if self.slow else 0.0

    @property
    def base(self) -> float:
        """How long a mean file takes when nothing is in its way."""
        return self.takes(self.size)

    @property
    def aim(self) -> float:
        """The target in files per second."""
        return self.target / self.size if self.size else 0.0

    @property
    def allowed(self) -> float:
        """The window; FIRST of a cycle's worth before the first observation, and 0 before the first release."""
        return self.window or (FIRST * ROUNDS * self.least * self.aim if self.began else 0.0)

    @property
    def able(self) -> float:
        """The rate that it has shown, or while it is not slowed its target if that is more."""
        return max(highest(self.best), 0.0 if self.is_slowed else self.aim)

    @property
    def runs(self) -> float:
        """How many files move."""
        return self.rate * self.base

    @property
    def waits(self) -> bool:
        """Whether it is below its target, though files wait; a quarter of an hour would be noise."""
        return bool(self.slow) and self.lately < FALLS * self.aim and self.files > 1.2 * self.lately * self.base


@dataclass(slots=True)
class StorageState:
    """What is known of a storage as the source, or as the destination, of links; files. All of it is kept."""

    window: float | None = None
    floor: float = 0.0  # below which it never falls
    decided: Moment = 0.0
    refused: Moment = 0.0
    lately: float = 0.0  # the mean of about an hour
    renewed: Moment = 0.0
    most: Highest = field(default_factory=list)
    moved: Moment = 0.0  # when anything last arrived
    stood: Moment = 0.0  # when it last stood


def renew_link(link: LinkState, flights: Sequence[Flight], now: float, cycle: float) -> None:
    """Set the window of a link after an observation, from what has arrived and what is on its way."""
    link.is_seen, away = False, max(now - (link.renewed or link.began or now), 0.0)
    forget_future(link, now + cycle)  # a plan's moment may be earlier than what went on while services were asked
    link.began = link.began if 0 < link.began <= now else now - link.least  # one round has been seen
    for arrival in link.fresh:
        took = max(arrival.took - link.least / 2, 1.0)  # it was seen half a round later, in the mean
        link.slow = min(took / max(arrival.size, 1.0), link.slow or float("inf"))
        link.arrived.append(replace(arrival, took=took, is_first=arrival.at - arrival.took >= link.passed))
    link.passed = max([link.passed, *(a.at - a.took - max(link.base, link.least) for a in link.fresh)])
    link.fresh, flights = [], [f for f in flights if now - f.age >= link.passed]
    link.files = sum(f.files for f in flights)
    if link.files:
        mean = sum(f.files * f.size for f in flights) / link.files
        link.size = 0.7 * link.size + 0.3 * mean if link.size else mean
    over = max(cycle, link.base)
    link.arrived = [arrival for arrival in link.arrived if abs(now - arrival.at) < over]
    link.rate = sum(a.files for a in link.arrived) / min(over, max(now - link.began, cycle / ROUNDS))
    link.best = _with_highest(link.best, now, link.rate, max(HOURS, 2 * over))
    if link.slow:
        link.slow *= 2 ** min(away / DAY, 1.0)
    link.lately = _mean(link.lately, link.rate, away)
    link.ratios = [(a.files, a.took / link.takes(a.size)) for a in link.arrived if link.slow and a.is_first]
    longest = max([AIM, *(ratio for _, ratio in link.ratios)])
    late = [f for f in flights if f.age > longest * link.takes(f.size) > 0]
    link.ratios += [(f.files * min(1.0, over / f.age), f.age / link.takes(f.size)) for f in late]
    link.is_slowed = slowness(link.ratios) > AIM and link.freed < now
    queue = link.able * (GAIN * link.base if link.slow else link.lifetime)
    sure = max(link.lately, link.rate, 0.0 if link.is_slowed else link.aim)
    link.shy = link.shy and now - link.yielded <= HOURS
    grown = link.allowed * (SHY if link.shy else GROW) ** min(away / over, 10)
    link.window = max(min(queue, LIFE * link.lifetime * sure, grown), LEAST * link.aim * over, 1.0)
    link.renewed = now


def renew_storage(storage: StorageState, links: Sequence[LinkState], now: float, cycle: float) -> None:
    """Set the window of a storage after links of it were observed; links that are idle do not count."""
    links = [link for link in links if link.slow and -cycle <= now - link.renewed <= 2 * max(link.base, cycle)]
    if len({link.place for link in links}) < 2:
        return
    forget_future(storage, now + cycle)
    run = sum(link.runs for link in links)
    storage.most = _with_highest(storage.most, now, run, HOURS)
    storage.lately = _mean(storage.lately, run, now - storage.renewed if storage.renewed else 0.0)
    storage.renewed = now
    most, slower = highest(storage.most), slowness(ratio for link in links for ratio in link.ratios)
    if storage.moved and now - storage.moved > LONG * cycle / ROUNDS and slower > OVER:
        storage.stood = now
    storage.moved = max((arrival.at for link in links for arrival in link.arrived), default=storage.moved)
    if now - storage.stood <= HOUR:
        return
    if storage.window is None:
        slowed = {link.place for link in links if link.ratios and link.freed < now}
        if len(slowed) > 1 and slower > OVER and storage.lately < FALLS * most:
            storage.window, storage.decided, storage.refused = most, now, now
            storage.floor = FLOOR * most
    elif now - storage.decided >= max(cycle, slower * run / max(sum(link.rate for link in links), 1e-9)):
        if slower > OVER and storage.window <= storage.floor:
            storage.window = None
            for link in links:
                link.freed = now + HOURS
        elif slower > AIM:
            storage.window = max(storage.window * max((AIM / slower) ** 0.5, 0.5), storage.floor)
        elif storage.refused >= storage.decided:
            storage.window *= UP
        elif now - storage.refused > HOURS:
            storage.window = None
        storage.decided = now


def forget_future(state: LinkState | StorageState, now: float) -> None:
    """Forget moments that lie ahead, since a clock leapt there and back."""
    for name, kind in type(state).__annotations__.items():
        if kind in {"Moment", "Until"} and getattr(state, name) > now + HOURS * (kind == "Until"):
            setattr(state, name, 0.0)


Place = tuple[StorageState, Sequence[LinkState], Sequence[LinkState]]  # its links, those that wait


def yield_to_fast(own: LinkState, places: Sequence[Place], now: float, cycle: float) -> None:
    """Let a link leave transfers to links that are much faster and wait, at its source and its destination."""
    base = own.base
    fast = {id(x): x for _, _, waiting in places for x in waiting if base >= SLOW * x.base and x.alone < now}
    if not (fast if own.shy else any(slowness(x.ratios) > OVER for x in fast.values())):
        own.yields = 0.0
        return
    if not own.yields:
        own.yields, own.then = now, own.then if own.shy else {}
    own.then = {x.name: x.lately for x in fast.values()} | own.then
    if now - own.yields > TRIAL * max(own.base, cycle):
        lost = [x for x in fast.values() if max(x.lately, x.rate) < 1.2 * own.then[x.name]]
        own.shy = own.shy and len(lost) < len(fast)
        for x in lost:
            x.alone = now + HOURS
            del own.then[x.name]
        own.yields = 0.0
        return
    for storage, links, _ in places:
        here = [x for x in links if id(x) in fast]
        kept = sum(highest(x.best) * x.base for x in here)
        others = sum(x.runs for x in links if x is not own and id(x) not in fast)
        if here:
            own.window = min(own.window, max(storage.lately - kept - others, LEAST * own.aim * own.base, 1.0))
            own.shy, own.yielded = True, now


def slowness(ratios: Iterable[tuple[float, float]]) -> float:
    """Return x: the lower quartile of time / base of files, each with its weight; 1 if there are none."""
    ordered = sorted(ratios, key=lambda ratio: ratio[1])
    left = sum(weight for weight, _ in ordered) / 4
    for weight, ratio in ordered:
        left -= weight
        if left <= 0:
            return ratio
    return 1.0


def highest(values: Highest) -> float:
    """Return the highest of what `_with_highest` kept."""
    return max((value for _, value in values), default=0.0)


def _with_highest(kept: Highest, now: float, value: float, span: float) -> Highest:
    """Return the highest value of each quarter of a span, with this one; older quarters are forgotten."""
    *before, last = [one for one in kept if now - one[0] > -span] or [(now, value)]
    before += [(last[0], max(last[1], value))] if now - last[0] < span / 4 else [last, (now, value)]
    return [one for one in before if now - one[0] <= span]


def _mean(before: float, value: float, passed: float) -> float:
    """Return the mean of about an hour; it begins with the first value that is not 0."""
    return before + (value - before) * min(max(passed / HOUR, 0.0), 1.0) if before else value
