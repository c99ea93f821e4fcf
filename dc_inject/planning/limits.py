"""Limits and the holds they make: what may go out in a cycle, and who gets it when it is not enough.

The limits are those of links (`failing`, `backlog`), of pools (`pool-dry`), of destinations (`destination-full`,
`deletion-lag`, `quota`), of sites (with their tapes) and of the campaign.

A constraint has members (flows) and a capacity for one cycle:

    sum over its members of weight x bytes <= capacity

`weight` is 1 where bytes are counted, and horizon / cycle where they stay: bytes per cycle x horizon / cycle are
what is resident in the steady state. What is scarce is shared by priority, then in proportion to the amounts.

Of limits that hold one link the tightest leads: the one that lets something out if it alone is lifted. Those that
would hold the link nearly as much without it are named too (`also`). A lack of space has two causes, too
small a space or deletions that are late, and `Destination` distinguishes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeVar

from dc_inject.model import Held, Hold, Limits, Link, Numbers, PoolKey, Site, Tape, urls
from dc_inject.model.groups import grouped, summed
from dc_inject.model.held import name_others

HOUR = timedelta(hours=1)
TOLERANCE = 1e-6  # part of a limit by which amounts may be above it: every due is rounded to a byte, and rates are
# written with few digits, so what a menu asks for sums to its limits only about
CURE = ": let data go sooner, give more space, or lower a rate"
_T = TypeVar("_T", bound=Hashable)
_ORDER = {hold: place for place, hold in enumerate(Hold)}


@dataclass(frozen=True, slots=True)
class Deletions:
    """What is known of deletions at a destination, in bytes: by that a lack of space is their fault or not.

    `needed` is what the rates fill in the steady state if deletions come in time, `overdue` ours that are there
    and should have been gone for a cycle, `lag` how long deletions take (None: not measured), and `late` means
    that this is too long, or that some are overdue.
    """

    needed: int
    overdue: int = 0
    lag: timedelta | None = None
    late: bool = False

    @property
    def numbers(self) -> Numbers:
        """What is overdue, and the lag where it is known, as numbers of holds."""
        lag = {"lag": round(self.lag.total_seconds())} if self.lag else {}
        return {"overdue": self.overdue, **lag}


@dataclass(frozen=True, slots=True)
class Destination:
    """What is known of a destination RSE, in bytes; None where a signal is missing (then it does not hold).

    `space` is all that we may fill in the steady state; `free` what can be written right now, less what is on
    its way there; `quota_left` what the account may still put there. `going` is what will be
    deleted there in the course of the cycle: what is chosen counts on it, and is released when there is room.
    `age` is the age of the reported space in seconds. `measured` is false where data may go before their shortest
    lifetime is over, and it is not known yet how soon.

    `guarded` is what links that control acts on may use of it, where that is less; other links keep their volume.
    """

    space: int | None = None
    free: int | None = None
    quota_left: int | None = None
    deletion_lag: timedelta = timedelta(0)
    going: int = 0
    age: int | None = None
    deletions: Deletions | None = None
    measured: bool = True
    guarded: Destination | None = None

    @property
    def age_numbers(self) -> Numbers:
        """The age of its space for the numbers of a hold; empty if that is not known."""
        return {} if self.age is None else {"age": self.age}

    def explain_lack_of_space(self, of_rates: float) -> Held:
        """Return why the space lets too little through; `of_rates` is what they fill with its deletion lag."""
        space, deletions = max(self.space or 0, 0), self.deletions
        late = deletions.numbers if deletions is not None and deletions.late else {}
        if deletions is not None and late and deletions.needed <= space:
            return Held(Hold.DELETION_LAG, {**late, "needed": deletions.needed})
        return Held(Hold.DESTINATION_FULL, {**late, "message": self._too_small(space, of_rates)})

    def explain_lack_now(self, missing: float) -> Held:
        """Return why so many bytes find no room now.

        It is `deletion-lag` if half of them had room without what is overdue, and the space holds what is needed.
        """
        full, space, deletions = Held(Hold.DESTINATION_FULL), max(self.space or 0, 0), self.deletions
        if deletions is None or self.space is None:
            return full
        is_late, suffices = 0 < missing <= 2 * deletions.overdue, deletions.needed <= space
        overdue = deletions.numbers if deletions.overdue else {}
        if is_late and suffices:
            return Held(Hold.DELETION_LAG, overdue)
        message: Numbers = {} if suffices else {"message": self._too_small(space, deletions.needed)}
        return name_others(Held(full.hold, {**overdue, **message}), [Hold.DELETION_LAG] if is_late else [])

    def _too_small(self, space: int, needed: float) -> str:
        if needed <= space * (1 + TOLERANCE):
            return "the space holds what the rates need, but not the debt as well"
        held, cure = f"{min(int(100 * space / needed), 99)} %", CURE
        if not self.measured:  # it may well suffice
            cure = " if data stay for the shortest lifetime: how soon they can go is not measured yet"
        return f"the space holds {held} of what the rates need{cure}"

    def less(self, size: int) -> Destination:
        """Return it as it is when so many bytes more are on their way there."""
        return replace(
            self,
            free=None if self.free is None else self.free - size,
            quota_left=None if self.quota_left is None else self.quota_left - size,
            guarded=None if self.guarded is None else self.guarded.less(size),
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """What constraints need to know of a flow: its link, priority, pool, and for how long its bytes stay.

    `guarded` is whether control acts on it.
    """

    link: Link
    priority: int
    pool: PoolKey
    pool_bytes: int | None  # all of the pool, also what is at the destination now; None: not known
    horizon: timedelta
    due: int = 0  # in this cycle, with overhead
    probe: int | None = None  # bytes that a link whose transfers fail is still given; None: they do not fail
    failed: float | None = None  # the part of what came to its end of late that failed; None: not known
    deliverable_bytes: int | None = None  # bytes more that would arrive within their lifetime; None: not known
    backlog: Numbers = field(default_factory=dict)  # on what that rests
    guarded: bool = False
    coming: int = 0  # bytes on their way


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """One limit: `members` are indices of claims, `capacity` is for one cycle.

    A `lasting` one lets through the same in every cycle: what is due beyond it never comes. `of_dues` means that
    it bounds nothing else: what was too little in one cycle may be made up in another. `room` are bytes that may
    not be exceeded by what is chosen, whatever the sizes of datasets (None: no such bound). `space_of` is the
    destination whose space it is, which names the hold, and `of_rates` what is due to its members, weighed: what
    they want has their debt as well.
    """

    hold: Hold
    members: tuple[int, ...]
    capacity: float
    lasting: bool
    numbers: Numbers = field(default_factory=dict)
    weights: tuple[float, ...] = ()  # all 1 when empty
    room: int | None = None
    of_dues: bool = False
    space_of: Destination | None = None
    of_rates: float = 0.0

    def held(self, wanted: float, budget: int, missing: float) -> Held:
        """Return its hold with both sides: its own, what its members wanted, and what is left for one of them.

        `missing` is by how much they wanted too much.
        """
        numbers = {**self.numbers, "wanted": round(wanted), "budget": budget}
        if self.space_of is None:
            return Held(self.hold, numbers)
        space = self.space_of
        lack = space.explain_lack_of_space(self.of_rates) if self.lasting else space.explain_lack_now(missing)
        return Held(lack.hold, {**numbers, **lack.numbers})


@dataclass(frozen=True, slots=True)
class Cut:
    """What one constraint did to an amount, which wanted so many bytes before all constraints.

    `bytes` is what it took of what those before it had left, `alone` what it would have left as the only one.
    """

    wanted: int
    bytes: int
    alone: int
    held: Held


def cut(
    amounts: Sequence[int], claims: Sequence[Claim], constraints: Iterable[Constraint]
) -> tuple[list[int], dict[int, list[Cut]]]:
    """Return the amounts cut to what all constraints let through, and for each one that is held, by which.

    Constraints are applied one after the other, the local ones first, so that what a full destination leaves
    over of a site's limit is there for others.
    """
    left = list(amounts)
    cuts: dict[int, list[Cut]] = defaultdict(list)
    for constraint in constraints:
        weights = constraint.weights or (1.0,) * len(constraint.members)
        wanted = sum(left[i] * weight for i, weight in zip(constraint.members, weights, strict=True))
        most = constraint.capacity * (1 + TOLERANCE)
        shares = _shares(constraint, weights, left, claims)
        for i, weight in zip(constraint.members, weights, strict=True):
            taken = (amounts[i] - left[i]) * weight  # by those before it
            if wanted + taken <= most:
                continue
            room, asked = shares[claims[i].priority]
            allowed = int(left[i] * _part(room, asked)) if wanted > most else left[i]
            alone = int(amounts[i] * _part(room, asked + taken))
            if alone < amounts[i]:
                held = constraint.held(wanted, allowed, wanted - constraint.capacity)
                cuts[i].append(Cut(amounts[i], left[i] - allowed, alone, held))
            left[i] = allowed
    return left, cuts


def leading(cuts: Sequence[Cut]) -> Held | None:
    """Return the hold of the tightest limit, with the holds that would take half as much without it.

    A backlog on a failing link is reported after its failures: what fails is tried again, and does not arrive.
    """
    tightest = min(cuts, key=lambda cut: (cut.alone, _ORDER[cut.held.hold]), default=None)
    if tightest is None:
        return None
    wanted = max(cut.wanted for cut in cuts)
    tight = {cut.held.hold: cut for cut in cuts if 2 * (wanted - cut.alone) >= wanted - tightest.alone}
    lead = tight.get(Hold.FAILING, tightest) if tightest.held.hold is Hold.BACKLOG else tightest
    return name_others(lead.held, tight)


def _part(room: float, wanted: float) -> float:
    return min(1.0, room / wanted) if wanted else 1.0


def _shares(
    constraint: Constraint, weights: Sequence[float], amounts: Sequence[int], claims: Sequence[Claim]
) -> dict[int, tuple[float, float]]:
    """Return for each priority, the highest first, what there is room for, and what its members want."""
    wanted: dict[int, float] = defaultdict(float)
    for i, weight in zip(constraint.members, weights, strict=True):
        wanted[claims[i].priority] += amounts[i] * weight
    left, shares = max(constraint.capacity, 0.0), {}
    for priority in sorted(wanted, reverse=True):
        shares[priority] = left, wanted[priority]
        left = max(0.0, left - wanted[priority])
    return shares


# --------------------------------------------------------------------------- which constraints there are


def constraints(
    claims: Sequence[Claim],
    length: timedelta,
    destinations: Mapping[str, Destination],
    sites: Iterable[Site],
    site_of: Mapping[str, str],
    limits: Limits,
    last_hour: Mapping[Link, int],
    intended: Mapping[Link, int] | None = None,
) -> list[Constraint]:
    """Return all constraints on these claims for one cycle, the local ones first.

    `last_hour` are the bytes that links got in the hour that ends with this cycle; with it no hour's sum exceeds a
    rate limit, whatever the sizes of datasets. `intended` are those of this cycle, which are not on their way yet.
    """
    result = _failing(claims) + _backlogs(claims) + _pools(claims, length)
    result += _destinations(claims, length, destinations)
    strict = strictest(sites)
    for direction in ("in", "out"):

        def name_end(link: Link, direction: str = direction) -> str:
            return place_of(link.destination if direction == "in" else link.source, site_of)

        used = summed((name_end(link), amount) for link, amount in last_hour.items())
        groups = _grouped([name_end(claim.link) for claim in claims])
        for name, members in groups.items():
            limit = site_limit(strict.get(name), direction, limits)
            numbers = {"site": name, "direction": direction}
            result.append(_rate(Hold.SITE_LIMIT, members, limit, length, used[name], numbers))
    for site in strict.values():
        if site.tape is not None:
            result += _recalls(claims, length, site.name, site.tape, last_hour, intended or {})
    everyone = tuple(range(len(claims)))
    spent = sum(last_hour.values())
    result.append(_rate(Hold.CAMPAIGN_LIMIT, everyone, limits.total, length, spent, {"limit": "total"}))
    return result


def place_of(end: str, site_of: Mapping[str, str]) -> str:
    """Return where an end of a link is, as limits of sites count: its site, or else its host or RSE itself."""
    return site_of.get(end) or urls.host_of(end)


def site_limit(site: Site | None, direction: str, limits: Limits) -> float:
    """Return what may go in or out of a site, in bytes per second: its or the campaign's limit, within its WAN."""
    own = None if site is None else site.max_ingress if direction == "in" else site.max_egress
    limit = limits.per_site if own is None else own
    return limit if site is None or site.wan is None else min(limit, site.wan)


def strictest(sites: Iterable[Site]) -> dict[str, Site]:
    """Return sites by name; where several menus have one, the lowest of each limit."""
    result: dict[str, Site] = {}
    for site in sites:
        strict = result.get(site.name, site)
        result[site.name] = replace(
            strict,
            wan=_lower(strict.wan, site.wan),
            max_ingress=_lower(strict.max_ingress, site.max_ingress),
            max_egress=_lower(strict.max_egress, site.max_egress),
            tape=site.tape.together(strict.tape) if site.tape else strict.tape,
        )
    return result


def _lower(limit: float | None, other: float | None) -> float | None:
    return min((value for value in (limit, other) if value is not None), default=None)


def _recalls(
    claims: Sequence[Claim], length: timedelta, site: str, tape: Tape, *given: Mapping[Link, int]
) -> list[Constraint]:
    """What drives read in a cycle may be recalled, and what is on its way has to fit into the buffer."""
    members = tuple(i for i, claim in enumerate(claims) if claim.link.source in tape.ends)
    last_hour, intended = (sum(n for link, n in of.items() if link.source in tape.ends) for of in given)
    coming = sum(claims[i].coming for i in members) + intended
    room, numbers = max(tape.buffer - coming, 0), {"coming": coming, "buffer": tape.buffer}
    drives = _rate(Hold.SITE_LIMIT, members, tape.rate, length, last_hour, {"site": site, "direction": "tape"})
    return [drives, Constraint(Hold.BACKLOG, members, room, False, {"site": site, **numbers}, room=room)]


def _grouped(places: Sequence[_T]) -> dict[_T, tuple[int, ...]]:
    """Return the indices of equal places."""
    groups = grouped((place, i) for i, place in enumerate(places))
    return {name: tuple(members) for name, members in groups.items()}


def _failing(claims: Sequence[Claim]) -> list[Constraint]:
    """Where most transfers fail, a link gets just enough to see when they do not any more.

    Where control acts it bounds what is chosen: what waits in the debt for a dataset is no reason for another one.
    """
    return [
        Constraint(
            Hold.FAILING,
            (i,),
            claim.probe,
            False,
            {**({} if claim.failed is None else {"failed": round(claim.failed, 3)}), "probe": claim.probe},
            room=claim.probe if claim.guarded else None,
        )
        for i, claim in enumerate(claims)
        if claim.probe is not None
    ]


def _backlogs(claims: Sequence[Claim]) -> list[Constraint]:
    """What is on its way has to arrive within its lifetime: more would only be cancelled."""
    return [
        Constraint(Hold.BACKLOG, (i,), claim.deliverable_bytes, False, claim.backlog)
        for i, claim in enumerate(claims)
        if claim.deliverable_bytes is not None
    ]


def _pools(claims: Sequence[Claim], length: timedelta) -> list[Constraint]:
    """A dataset can go to one destination only once per horizon: pools are paced at pool / (r + lag)."""
    result = []
    for members in _grouped([(claim.pool, claim.link.destination) for claim in claims]).values():
        pool_bytes = claims[members[0]].pool_bytes
        if pool_bytes is not None:
            numbers = {"pool_bytes": pool_bytes}
            weights = tuple(claims[i].horizon / length for i in members)
            result.append(Constraint(Hold.POOL_DRY, members, pool_bytes, True, numbers, weights))
    return result


def _destinations(
    claims: Sequence[Claim], length: timedelta, destinations: Mapping[str, Destination]
) -> list[Constraint]:
    """What may come to each destination: to guarded links alone first, so they take nothing from others."""
    result = []
    for name, members in _grouped([claim.link.destination for claim in claims]).items():
        destination = destinations.get(name, Destination())
        guarded = () if destination.guarded is None else tuple(i for i in members if claims[i].guarded)
        if destination.guarded is not None and guarded:
            result += _constrain_destination(claims, length, guarded, destination.guarded, waits_for_room=True)
        if guarded != members:
            result += _constrain_destination(claims, length, members, destination)
    return result


def _constrain_destination(
    claims: Sequence[Claim],
    length: timedelta,
    members: tuple[int, ...],
    destination: Destination,
    *,
    waits_for_room: bool = False,
) -> list[Constraint]:
    result = []
    of_dues = waits_for_room and destination.free is not None
    if destination.space is not None:
        weights = tuple(claims[i].horizon / length for i in members)
        capacity, numbers = max(destination.space, 0), {"space": destination.space, **destination.age_numbers}
        lasting = Constraint(Hold.DESTINATION_FULL, members, capacity, True, numbers, weights)
        of_rates = sum(claims[i].due * weight for i, weight in zip(members, weights, strict=True))
        result.append(replace(lasting, of_dues=of_dues, space_of=destination, of_rates=of_rates))
    if destination.free is not None:
        room = max(destination.free + destination.going, 0)
        numbers = {"free": destination.free, **destination.age_numbers}
        result.append(
            Constraint(Hold.DESTINATION_FULL, members, room, False, numbers, room=room, space_of=destination)
        )
    if destination.quota_left is not None:
        # Rucio refuses a dataset unless what is left is larger than it.
        room, numbers = max(destination.quota_left - 1, 0), {"quota_left": destination.quota_left}
        result.append(Constraint(Hold.QUOTA, members, room, False, numbers, room=room))
    return result


def _rate(
    hold: Hold, members: tuple[int, ...], limit: float, length: timedelta, spent: int, numbers: Numbers
) -> Constraint:
    """A limit in bytes per second: even over cycles, and never exceeded over an hour of whole cycles."""
    allowed = limit * length.total_seconds()
    room = int(limit * max(HOUR, length).total_seconds() * (1 + TOLERANCE)) - spent
    numbers = {**numbers, "most": round(limit), "allowed": int(allowed)}
    return Constraint(hold, members, allowed, True, numbers, room=max(room, 0))
