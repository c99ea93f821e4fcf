"""Links that are short: which ones moved too little, what they have in common, and who can act on it.

A link is short if it moved less than `ENOUGH` of what it was due in the last `JUDGED` closed cycles (`criteria.py`
has both), whether or not a hold names a reason. A cycle's due arrives later than its beginning, so a link is
measured against the due of those cycles or of the ones a cycle before, whichever is less: a new link is not judged
by its first cycle, and a cut is seen after two.

Short links share a line if they have a cause, and a service or a site, in common. Only what is known counts:

- A hold is the cause where it kept bytes back. It is none where nothing arrives although half of what is due is on
  its way: what holds new bytes back does not stop those. `backlog` is none: it follows from what arrives. But
  links for which the window of a storage has no room share its site, which is named first, while something arrives
  on them. On a link on which nothing does, or attempts fail, a full window only follows from that.
- Without one, a service or a site is suspected if all links through it, from it or into it are short without a
  known cause, or moved less than a third of their due in the last closed cycle. If links have several suspects in
  common, all are named; if they have none, the network between is left.
- Where more than half of what came to an end of late failed, the link is `failing`, held or not, and whom to call
  follows from the class of most failures, if that names an end.
- Where little is on its way and something still arrives, or all of its due moved in the last closed cycle, none is
  suspected at first: links get their rates back slowly. Whom to call if they do not within eight cycles is
  named.
- Where nothing is on its way, nothing can arrive, and none is suspected either.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple

from dc_inject.ledger import Reader, Row, failing
from dc_inject.model import EPOCH, Cycle, FlowKey, Held, Hold, causes, units
from dc_inject.model.held import find_fault, is_of_earlier_cycles, sentence
from dc_inject.model.holds import Fault, Trait
from dc_inject.model.on_call import CHANGE_THE_MENU
from dc_inject.model.services import SERVICES
from dc_inject.planning.link_plan import FAILING
from dc_inject.summary import what_to_do, why
from dc_inject.summary.criteria import CURRENT, ENOUGH, JUDGED, LITTLE, QUEUED, RETURNS, WORKS
from dc_inject.summary.days import list_days
from dc_inject.summary.failed_files import count_failed
from dc_inject.summary.menu_terms import site_of
from dc_inject.summary.ramping import growing
from dc_inject.summary.why import UNEXPLAINED

LOOKED_BACK = timedelta(days=1)  # for the last arrival of a link
FEW, LIMIT, RAMP = "few-bytes", "fts-limit", "fts-ramp"  # causes that are no holds, with UNEXPLAINED
SUSPECTING = frozenset({UNEXPLAINED, Hold.FAILING.value})  # causes that any party may have
FAILS = Held(Hold.FAILING)  # also where the plan did not know it yet
# What also stops bytes that are on their way.
STOPS = frozenset(hold for hold in Hold if Trait.OUTAGE in hold.traits) - {Hold.OVERLOAD} | {Hold.FAILING}

# Before an answer: views cut long lines, and the link is in them already.
CALL = re.compile(r"^[A-Z]+ \w+://\S+: ")

Party = tuple[str, str]  # `service`, `site` or `link`, and its name


class JudgedLink(NamedTuple):
    """What a link was due and moved in the last closed cycles, in bytes, at which sites its ends are, and why.

    `cause` is empty if it is not short; `held` is the hold behind it. `since` is when anything last arrived, if
    nothing has since the last closed cycle began, which ended at `until`. `coming` are bytes on their way,
    `latest` is the part of its due that it moved in the last closed cycle; it `works` if that is a third. `failed`
    counts its files that failed of late, by class, if it is failing; `unclear` is an error without a class. `span`
    is the time judged, `returning` until when it may be returning to its rate, where it moves less; `most` is how
    many transfers FTS allows it, `full` is the site of a storage if its window, which is full, is the cause.
    """

    key: FlowKey
    source: str
    destination: str
    due: int
    moved: int
    since: datetime | None = None
    coming: int = 0
    cause: str = ""
    held: Held | None = None
    latest: float = 1.0
    until: datetime = EPOCH
    failed: Mapping[str, int] = MappingProxyType({})
    unclear: str = ""
    span: timedelta = timedelta(hours=1)
    returning: datetime | None = None
    most: int = 0
    full: str = ""

    @property
    def works(self) -> bool:
        """Whether who carries it works."""
        return self.latest >= WORKS

    @property
    def parties(self) -> tuple[Party, ...]:
        """All who carry its bytes, apart from the network."""
        return (("service", self.key.link.through), *(("site", site) for site in (self.destination, self.source)))


@dataclass(frozen=True, slots=True)
class ShortGroup:
    """Links that are short for one cause, with a service or site in common; `are_all` if no other link has it.

    `call` names whom to call, `needs_action` is whether a person has to act, `count` is how many links of the
    campaign are judged.
    """

    cause: str
    party: Party
    links: Sequence[JudgedLink]
    call: str
    needs_action: bool
    are_all: bool
    count: int

    @property
    def since(self) -> datetime | None:
        """Since when nothing has arrived on any of its links; None if something has."""
        times = [link.since for link in self.links if link.since is not None]
        return max(times) if len(times) == len(self.links) else None

    @property
    def subject(self) -> str:
        """Its links in words: `all 7 links into KIT`."""
        number, first = len(self.links), self.links[0]
        if number == 1:
            is_url = first.key.link.service.ends_are_urls
            return f"{first.source} -> {first.destination}" if is_url else first.key.link.shown
        kind, name = self.party
        words = f"{'all ' if self.are_all else ''}{number:,} links"
        if number == self.count or kind == "link":
            return words
        if kind == "service":
            return f"{words} through {SERVICES[name].title}"
        into = sum(link.destination == name for link in self.links)
        return f"{words} {'into' if into == number else 'from' if not into else 'into and from'} {name}"

    @property
    def line(self) -> str:
        """Its key in the table of what to do, what happens on its links, whom to call, and why if known."""
        first, is_one = self.links[0], len(self.links) == 1
        part = sum(link.moved for link in self.links) / sum(link.due for link in self.links)
        span = units.format_duration(max(link.span for link in self.links))
        moved = f"moved {units.percent(part)} of {'its' if is_one else 'their'} due in {span}"
        if (latest := max(link.latest for link in self.links)) < part / 2:  # as after a cut
            moved += f", in the last cycle {'' if is_one else 'at most '}{units.percent(latest)}"
        what = moved if self.since is None else f"nothing {compute_since(self.since, first.until)}"
        words = {
            UNEXPLAINED: f"{units.format_size(sum(link.coming for link in self.links))} on the way",
            LIMIT: f"FTS runs at most {first.most} transfers at a time there",
        }
        why = words.get(self.cause, what_to_do.entry(self.cause)["see"])
        why = CALL.sub("", sentence(first.held)) if first.held else why
        if full := _find_full(self.links):
            why = f"{why}; " * (self.cause != FEW) + f"control's window of {full} is full"
        failed = _add_failed(self.links)
        for reason, files in failed.most_common(1):
            why += f"; {reason}: {files:,} of {units.counted(failed.total(), 'failed files')}"
            if reason == "other" and (errors := [link.unclear for link in self.links if link.unclear]):
                why += f", such as: {errors[0][:120]}"
        return f"{self.cause}: {self.subject}, {what}: call {self.call}; {why}"

    @property
    def row(self) -> dict[str, Any]:
        """The group for programs; the numbers of its hold are without the message, which the line has."""
        held = self.links[0].held
        return {
            "cause": self.cause,
            "subject": self.subject,
            "links": [link.key.names() for link in self.links],
            "due": sum(link.due for link in self.links),
            "moved": sum(link.moved for link in self.links),
            "nothing_since": units.format_time_or_none(self.since),
            "or_longer": self.since is not None and self.links[0].until - self.since > LOOKED_BACK,
            "line": self.line,
            "numbers": {name: value for name, value in held.numbers.items() if name != "message"} if held else {},
            "failed": _add_failed(self.links),
            "call": self.call,
            "needs_action": self.needs_action,
        }


def compute_since(since: datetime, now: datetime) -> str:
    """Return since when something lasts that is known for a day at most."""
    if now - since > LOOKED_BACK:
        return "for more than a day"
    return f"since {show_time(since, now)}"


def show_time(at: datetime, now: datetime) -> str:
    """Return a time of the day, with its date if it is half a day away or more."""
    return f"{at:{'%H:%MZ' if abs(now - at) < timedelta(hours=12) else '%m-%d %H:%MZ'}}"


# --------------------------------------------------------------------------- from a ledger


def is_current(view: Reader, now: datetime) -> bool:
    """Whether the last closed cycle shows how things stand now."""
    last = view.last_closed()
    return last is not None and now - last.end <= CURRENT * last.length


def judge_links(view: Reader, now: datetime) -> list[JudgedLink]:
    """Return the links that were due anything in the last closed cycles, and why those are short that are.

    None where no cycle has closed of late, or the menus are over: what was short is not so any more.
    """
    last = view.last_closed()
    if last is None or not is_current(view, now) or list_days(view).ended_at(now):
        return []
    by_key: dict[FlowKey, list[Row]] = defaultdict(list)
    for row in view.rows(since=last.start - RETURNS * last.length):
        by_key[row.key].append(row)
    accounts, sites, first = view.accounts(), site_of(view), last.start - (JUDGED - 1) * last.length
    links = []
    for key, rows in by_key.items():
        coming = accounts[key].coming
        closed = [row for row in rows if row.closed]
        dues = {row.cycle.start: row.expected(coming) for row in closed}
        due = min(
            sum(size for at, size in dues.items() if at >= first),
            sum(size for at, size in dues.items() if first - last.length <= at < last.start),
        )
        moved = sum(row.moved for row in closed if row.cycle.start >= first)
        source, destination = (sites.get(end, end) for end in key.link.ends)
        latest = closed[-1] if closed and closed[-1].cycle == last else None
        if due and latest is not None and latest.due:
            part, span = latest.moved / latest.due, last.end - max(first, closed[0].cycle.start)
            one = JudgedLink(key, source, destination, due, moved, None, coming, latest=part, until=last.end)
            links.append(one._replace(span=span, returning=_returns_until(closed)))
    if all(link.moved >= ENOUGH * link.due for link in links):
        return links
    arrived, grows = view.last_arrivals(last.start - LOOKED_BACK), set(growing(view, now))
    signals = view.signals()
    most = {one.subject: int(one.value) for one in view.signals("fts_queue") if isinstance(one.value, int | float)}
    for number, link in enumerate(links):
        if link.moved < ENOUGH * link.due:
            rows = by_key[link.key][-2:]  # of the last closed cycle, and of the open one
            since = (
                None
                if any(row.moved > 0 for row in rows if row.cycle >= last)
                else arrived.get(link.key, last.start)
            )
            holds = (row.held for row in reversed(rows) if row.held and not is_of_earlier_cycles(row.held))
            own = next((held for held in holds if not held.hold.harmless), None)
            held = why.explain_outage(link.key.link.through, signals) or own
            one = link._replace(since=since, held=held, most=most.get(str(link.key.link), 0))
            links[number] = _with_cause(one, grows=link.key in grows)
    return _with_failures(view, last, links, list(chain.from_iterable(by_key.values())))


def _with_failures(
    view: Reader, last: Cycle, links: Sequence[JudgedLink], rows: Sequence[Row]
) -> list[JudgedLink]:
    """Return links with the failures of those of which most of what came to an end of late failed."""
    suspects = [link.key for link in links if link.cause in {UNEXPLAINED, FEW} and not link.works]
    parts = failing.recent_parts(view, last, rows, suspects) if suspects else {}
    fails = {link.key for link in links if link.cause == Hold.FAILING or parts.get(link.key, 0.0) > FAILING}
    counts, other = count_failed(view, last.start - 2 * JUDGED * last.length) if fails else ({}, {})
    return [
        link._replace(
            cause=FAILS.hold, held=link.held or FAILS, failed=counts[link.key], unclear=other[link.key], full=""
        )
        if link.key in fails
        else link
        for link in links
    ]


def _returns_until(closed: Sequence[Row]) -> datetime | None:
    """Return until when a link may be returning to its rate; None if it moved enough in its last closed cycle.

    That counts from the first of the cycles until then in which it moved something, and less than enough.
    """
    slow = [*takewhile(lambda row: 0 < row.moved < ENOUGH * row.due, reversed(closed))]
    return slow[-1].cycle.start + RETURNS * slow[-1].cycle.length if slow else None


def _with_cause(link: JudgedLink, *, grows: bool) -> JudgedLink:
    """Return a short link with its cause: its hold, FTS's limit or growth, or none of them."""
    held, since = link.held, link.since
    stands = since is not None and 2 * link.coming >= link.due
    if held is not None and held.hold is Hold.BACKLOG:
        sites, storage = {"from": link.source, "to": link.destination}, str(held.numbers.get("storage"))
        link, held = link._replace(full=sites.get(storage.partition(" ")[0], "")), None
    if held is not None and stands and held.hold not in STOPS:
        held = None
    is_queued = JUDGED * link.coming >= QUEUED * link.latest * link.due > 0
    is_late = link.returning is not None and link.returning <= link.until
    if held is not None:
        cause = held.hold.value
    elif link.latest >= 1:
        cause = FEW
    elif since is None and is_queued and (link.most or grows):
        cause = LIMIT if link.most else RAMP
    else:
        few = since is None and JUDGED * link.coming < LITTLE * link.due and not is_late
        cause = FEW if few or not link.coming else UNEXPLAINED
    is_by_window = cause == FEW or (cause == UNEXPLAINED and since is None)
    return link._replace(cause=cause, held=held, full=link.full if is_by_window else "")


# --------------------------------------------------------------------------- what they have in common


def grouped(links: Sequence[JudgedLink]) -> list[ShortGroup]:
    """Return the short links by what they have in common.

    First where a person has to act, of those first where a link hardly works now, and of those what lacks most: a
    link that has been at half its rate for hours hides no cut. While nothing arrives anywhere, what most links
    have in common comes first; if that is a service, nothing else needs action.
    """
    healthy = {party for link in links if link.works and link.cause not in SUSPECTING for party in link.parties}
    users: dict[Party, int] = defaultdict(int)
    by_cause: dict[str, list[JudgedLink]] = defaultdict(list)
    for link in links:
        for party in dict.fromkeys(link.parties):
            users[party] += 1
        if link.cause:
            by_cause[link.cause].append(link)
    groups = [
        ShortGroup(
            cause, party, members, *_call(cause, members, healthy), users[party] == len(members), len(links)
        )
        for cause, short in by_cause.items()
        for party, members in _shared(cause, short, healthy)
    ]
    stands = not any(link.latest > 0 for link in links)

    def rank(one: ShortGroup) -> tuple[bool, int, bool, int]:
        lacking = sum(link.moved - link.due for link in one.links)
        return not one.needs_action, -len(one.links) * stands, all(link.works for link in one.links), lacking

    ordered = sorted(groups, key=rank)
    stands = stands and any(one.party[0] == "service" for one in ordered[:1])
    return [
        replace(one, needs_action=one.needs_action and not (stands and number))
        for number, one in enumerate(ordered)
    ]


def _shared(
    cause: str, short: Sequence[JudgedLink], healthy: set[Party]
) -> Iterator[tuple[Party, list[JudgedLink]]]:
    """Yield links of one cause by the party that most of those have in common which are left."""
    by_party: dict[Party, dict[FlowKey, JudgedLink]] = defaultdict(dict)
    parties = {link.key: _candidates(cause, link, healthy) or [("link", str(link.key.link))] for link in short}
    for link in short:
        for party in parties[link.key]:
            by_party[party][link.key] = link
    while any(by_party.values()):
        party = max(by_party, key=lambda party: len(by_party[party]))  # the first of equal ones
        members = by_party.pop(party)
        yield party, list(members.values())
        for key in members:
            for other in parties[key]:
                by_party[other].pop(key, None)


def _candidates(cause: str, link: JudgedLink, healthy: set[Party]) -> list[Party]:
    """Return what a link may share its cause with."""
    traits = link.held.hold.traits if link.held and cause == link.held.hold else Trait.NONE
    if Trait.AT_DESTINATION in traits:
        return [("site", link.destination)]
    if Trait.AT_SOURCE in traits:
        return [("site", link.source)]
    if cause not in {*SUSPECTING, FEW}:
        return [link.parties[0]]
    if link.full:
        return [("site", link.full)]
    suspects = [party for party in dict.fromkeys(link.parties) if party not in healthy]
    return suspects or [*link.parties[1:]] * (cause == FEW)


def _find_full(links: Iterable[JudgedLink]) -> str:
    """Return the site of the storage whose window has no room for links that share a line; empty if none has."""
    return next(filter(None, (link.full for link in links)), "")


def _add_failed(links: Iterable[JudgedLink]) -> Counter[str]:
    return sum((Counter(link.failed) for link in links), Counter[str]())


def _call(cause: str, links: Sequence[JudgedLink], healthy: set[Party]) -> tuple[str, bool]:
    """Return whom to call, and whether a person has to act.

    To call is who the table names, or all whom these links have in common and that carry no other.
    """
    first, entry = links[0], what_to_do.entry(cause)
    service = first.key.link.service
    operators = "whoever runs the workers" if service.reads else f"{service.title}'s operators"
    if cause not in {*SUSPECTING, FEW}:
        names = {"operators": operators, "source": first.source, "destination": first.destination}
        if all(link.held and find_fault(link.held) is Fault.MENU for link in links):
            return CHANGE_THE_MENU, False
        return str(entry["call"]).format_map(names), entry["needs_action"]
    common = set.intersection(*(set(link.parties) for link in links))
    for reason, _ in _add_failed(links).most_common(1):
        about = causes.FILE_CLASSES.get(reason, causes.FILE_CLASSES["other"])
        ends = {getattr(link, about.where) for link in links if about.where in {"source", "destination"}}
        if len(ends) == 1:
            return "the campaign's operator, then " * (about.party is causes.Party.USER) + ends.pop(), True
    operators = operators.replace("Rucio's", "Rucio's and FTS's")  # which moves the bytes
    of = {one: operators if one[0] == "service" else one[1] for one in first.parties if one in common}
    full = _find_full(links)
    suspects = [*dict.fromkeys(name for party, name in of.items() if party not in healthy and name != full)]
    if cause != FEW:
        return ", then ".join(filter(None, [full, " or ".join(suspects)])) or "the network between them", True
    suspects = [full] * bool(full) or suspects or [name for (kind, _), name in of.items() if kind == "site"][:1]
    until = max((link.returning for link in links if link.returning), default=None)
    later = f", {' or '.join(suspects)} if it is no better at {show_time(until, first.until)}" if until else ""
    return f"{entry['call']}{later}", entry["needs_action"]
