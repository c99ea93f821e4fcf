"""Windows: the Governor that controls. It feeds the law (`law.py`) from the ledger, and keeps its state there.

The state of each link, storage and service is a signal of the ledger, as JSON, written with each observation: a
restart changes nothing. Where the mode is `advise` the windows are computed just so, but
nothing waits for them.
"""

from __future__ import annotations

import logging
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from dc_inject.control.governor import Governor
from dc_inject.control.kept import Service, key_of, read_state, subject_of, text_of
from dc_inject.control.law import (
    AIM,
    DAY,
    OVER,
    ROUNDS,
    Arrival,
    Flight,
    LinkState,
    StorageState,
    highest,
    renew_link,
    renew_storage,
    slowness,
    yield_to_fast,
)
from dc_inject.ledger import ControlDecision, Ledger
from dc_inject.ledger.inventory import Reading
from dc_inject.model import Entry, FlowKey, Held, Hold, Link, Mode, State
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.link_plan import with_overhead
from dc_inject.planning.release import CALLS
from dc_inject.planning.situation import Demand, Situation

log = logging.getLogger(__name__)

NAME = "windows"  # of the signals that keep the state
FINE = 1 / 5  # of a window: datasets are not larger, if the menu's rules an hour and the calls suffice
SPARE = 0.8  # of the menu's rules an hour: what small datasets may use
SEEN = 0.2  # of a rule's files: so many together show how long they take
BATCHES = 0.25  # of a round: its answers come in parts
LONG = 2.5  # rounds without news of a service, or without any arrival: silence


class Windows(Governor):
    """What each link, and each storage that is overloaded, may have in flight."""

    def __init__(self, ledger: Ledger) -> None:
        """Take up the state that the ledger keeps."""
        self._ledger = ledger
        self._links: dict[FlowKey, LinkState] = {}
        self._storages: dict[str, StorageState] = {}
        self._services: dict[str, Service] = {}
        self._members: defaultdict[str, list[FlowKey]] = defaultdict(list)  # sorted
        self._taken: Counter[FlowKey] = Counter()  # files that may go out at this moment
        self._released: Counter[FlowKey] = Counter()  # files that went out since their windows were set
        self._read()

    # ------------------------------------------------------------------ the plan

    def govern(self, situation: Situation) -> Situation:
        """Take up what links are due, record what is decided, and bound the plan of links that have to wait."""
        now, cycle = situation.now.timestamp(), situation.cycle.length.total_seconds()
        self._taken.clear()  # what went out of it is in flight
        self._renew(now)
        self._forget_ended()
        before = set(self._links)
        for demand in situation.demands:
            if demand.flow.control.mode is not Mode.OFF:
                link = self._link(demand.flow.key)
                link.acts, link.least = demand.flow.control.mode is Mode.ACT, cycle / ROUNDS
                link.target = with_overhead(demand.recent_due, demand.flow) / cycle
                link.lifetime = demand.flow.lifetime_max.total_seconds()
                before.discard(demand.flow.key)
        for key in before:  # not in this plan
            self._links[key].acts, self._links[key].target = False, 0.0
            if not self._links[key].files and not self._released[key]:
                del self._links[key]
                for name in _storages(key):
                    self._members[name].remove(key)
        hourly = sum(with_overhead(one.recent_due, one.flow) for one in situation.demands) * 3600 / cycle
        smallest = max(hourly / (SPARE * situation.limits.rules_per_hour), hourly / 3600 * cycle / CALLS)
        governed, decisions = [], []
        for demand in situation.demands:
            known = self._links.get(demand.flow.key)
            if known is None or demand.flow.control.mode is Mode.OFF:
                governed.append(demand)
                continue
            inside = self._inside([demand.flow.key], now)
            numbers, hold = self._standing(demand.flow.key, inside, now, cycle)
            decisions.append(
                ControlDecision(
                    situation.cycle, demand.flow.key, demand.flow.control.mode.value, hold, known.target, numbers
                )
            )
            room = None if hold is None else max(known.window - inside, 0.0)
            bounded = replace(_bounded(demand, known, room, smallest, cycle), window=numbers)
            governed.append(bounded if known.acts else demand)
        self._ledger.record_decisions(decisions)
        self._write(self._links, self._storages, (), situation.now)
        return replace(situation, demands=tuple(governed))

    def _standing(
        self, key: FlowKey, inside: float, now: float, cycle: float
    ) -> tuple[dict[str, int | float | str], Hold | None]:
        """Return window and files in flight of a link, in bytes, or those of its storage where that is full."""
        link, full = self._links[key], self._full(key, 0, now)
        is_held = link.refused > now - cycle if link.acts else full is not None
        numbers = self._numbers(*(full or (key.link, link.window, inside)), link)
        return {**numbers, "arrives": round(link.rate * cycle * link.size)}, Hold.BACKLOG if is_held else None

    # ------------------------------------------------------------------ the gate

    def turn(self, ready: Iterable[FlowKey], now: datetime) -> list[FlowKey]:
        """Begin a moment of release: where storages are held, links with least in flight first."""
        self._taken.clear()
        self._renew(now.timestamp())
        flows = list(ready)
        if not any(storage.window is not None for storage in self._storages.values()):
            return flows

        def inside(key: FlowKey) -> float:
            link = self._links.get(key)
            return (link.files + self._released[key]) / link.aim if link is not None and link.aim else 0.0

        return sorted(flows, key=inside)

    def withheld(self, entry: Entry, now: datetime) -> Held | None:
        """Return which window has no room for an intent; an empty one takes anything."""
        key, files, moment = entry.injection.flow, entry.injection.item.files, now.timestamp()
        link = self._links.get(key)
        if link is None or not link.acts:
            return None
        link.size = link.size or _size(entry)
        full = self._full(key, files, moment)
        if full is not None:
            storage = self._storages.get(str(full[0]))
            refused = [state for state in (link, storage) if state is not None and state.refused <= state.renewed]
            for state in refused:  # once in a round
                state.refused = moment
            if refused:
                self._write([key], () if storage is None else [str(full[0])], (), now)
            return Held(Hold.BACKLOG, self._numbers(*full, link))
        self._taken[key] += files
        return None

    def _full(self, key: FlowKey, files: int, now: float) -> tuple[Link | str, float, float] | None:
        """Return the link or storage whose window has no room for files, with the window and what is inside."""
        link = self._links[key]
        inside = self._inside([key], now)
        if link.window and inside and inside + files / 4 > link.window:
            return key.link, link.window, inside
        for name in _storages(key):
            window = self._storages[name].window if name in self._storages else None
            if window is not None:
                inside = self._inside(self._members[name], now)
                if inside and inside + files / 2 > window:
                    return name, window, inside
        return None

    def _inside(self, keys: Iterable[FlowKey], now: float) -> float:
        """Return the files in flight on links: as seen, less what has arrived since if it goes on as before."""
        seen = 0.0
        for key in keys:
            link = self._links[key]
            age = min(max(now - link.renewed, 0.0), link.least)
            seen += max(link.files + self._released[key] - age * link.rate, 0.0) + self._taken[key]
        return seen

    def _numbers(
        self, subject: Link | str, window: float, inside: float, link: LinkState
    ) -> dict[str, int | float | str]:
        size = link.size
        of = {"storage": subject} if isinstance(subject, str) else {}
        return {**of, "window": round(window * size), "in_flight": round(inside * size)}

    # ------------------------------------------------------------------ what is seen

    def released(self, entries: Iterable[Entry], now: datetime) -> None:
        """Count what was asked of a service as in flight."""
        for entry in entries:
            if entry.injection.flow in self._links:
                self._count(entry, now.timestamp())

    def returned(self, entry: Entry) -> None:
        """Take back what a service did not take."""
        key = entry.injection.flow
        self._released[key] = max(self._released[key] - entry.injection.item.files, 0)

    def _forget_ended(self) -> None:
        """Take links for empty of which nothing is on its way: it may have ended without an observation."""
        live = {entry.injection.flow for entry in self._ledger.entries(State.CALLED, State.LIVE)}
        for key in self._links.keys() - live:
            self._links[key].files = 0.0
            del self._released[key]

    def _count(self, entry: Entry, moment: float) -> None:
        link = self._links[entry.injection.flow]
        link.size = link.size or _size(entry)
        link.began = link.began or moment
        self._released[entry.injection.flow] += entry.injection.item.files
        if not link.window:
            renew_link(link, [], moment, ROUNDS * link.least)

    def observed(self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime) -> None:
        """Take in what has arrived; windows are set at the next turn, when all answers of the moment are known."""
        services: dict[str, Service] = {}
        for seen in observations:
            entry = before[seen.key]
            key, item = entry.injection.flow, entry.injection.item
            if key not in self._links or seen.silent:
                continue
            service = services[key.link.through] = self._services.setdefault(key.link.through, Service())
            subject = subject_of(key)
            if subject not in service.seen:
                service.seen.append(subject)
            whole = round(item.files * (1 - (seen.failed + (seen.present or 0)) / item.bytes))
            new = (whole if seen.status is Status.COMPLETE else seen.files_done) - entry.files_done
            if new > 0 and seen.status is not Status.ABSENT and entry.state is not State.COMPLETE:
                took = now.timestamp() - _since(entry, now.timestamp())
                service.fresh.append(
                    (subject, new, took, _size(entry), new >= SEEN * item.files and not seen.present)
                )
        self._write(
            {before[seen.key].injection.flow for seen in observations} & self._links.keys(), (), services, now
        )

    def _renew(self, now: float) -> None:
        """Set the windows of links that were observed, and of their storages."""
        services = {
            name: one
            for name, one in sorted(self._services.items())
            if one.seen and not 0 <= now - one.looked < self._pause(one)
        }
        if not services:
            return
        seen = {key_of(subject): None for service in services.values() for subject in sorted(service.seen)}
        live: defaultdict[FlowKey, list[Entry]] = defaultdict(list)
        for entry in self._ledger.entries(State.CALLED, State.LIVE):
            if entry.injection.flow in seen:
                live[entry.injection.flow].append(entry)
        cycle = ROUNDS * max(self._links[key].least for key in seen)
        for name, service in services.items():
            self._listen(service, [key for key in seen if key.link.through == name], live, now, cycle / ROUNDS)
            for subject, new, took, size, is_telling in service.fresh:
                self._arrived(self._links[key_of(subject)], service, new, took, size, now, is_telling=is_telling)
            service.seen, service.fresh = [], []
        for key in seen:
            self._released.pop(key, None)
            link, service = self._links[key], self._services[key.link.through]
            ages = ((entry, now - _since(entry, now)) for entry in live[key] if _left(entry))
            flights = [Flight(_left(e), age - service.silent(now - age, now), _size(e)) for e, age in ages]
            if flights:
                mean = sum(f.files * f.size for f in flights) / sum(f.files for f in flights)
                link.size = 0.7 * link.size + 0.3 * mean if link.size else mean
            renew_link(link, flights, now, cycle)
        names = sorted({name for key in seen for name in _storages(key)})
        places = {name: self._place(name) for name in names}
        for storage, links in places.values():
            renew_storage(storage, links, now, cycle)
        for key in seen:
            yield_to_fast(self._links[key], [places[name] for name in _storages(key)], now, cycle)
        # A fast link may be alone now, and links of a storage be freed.
        changed = sorted({key for name in names for key in self._members[name]})
        self._write(changed, names, services, datetime.fromtimestamp(now, UTC))

    def _pause(self, service: Service) -> float:
        """Return for how long the answers of a round are waited for, so that a link is taken in as a whole."""
        return BATCHES * max(self._links[key_of(subject)].least for subject in service.seen)

    def _place(self, name: str) -> tuple[StorageState, list[LinkState]]:
        links = [self._links[key] for key in self._members[name]]
        return self._storages.setdefault(name, StorageState()), links

    def _listen(
        self,
        service: Service,
        keys: Sequence[FlowKey],
        live: Mapping[FlowKey, Sequence[Entry]],
        now: float,
        every: float,
    ) -> None:
        """Note whether a service was silent until now, or stands: it answers, but nothing arrives anywhere."""
        service.silences = [span for span in service.silences if now - span[1] < DAY]
        asked = [_since(entry, now) for key in keys for entry in live[key]]
        asked += [now - took for _, _, took, _, _ in service.fresh]
        heard = max(service.looked, min(asked, default=now))  # nothing was to be heard before
        if service.looked and now - heard > LONG * every:
            service.silences.append([heard, now])
        service.looked = now
        if service.fresh:
            if service.stands:
                service.silences.append([service.moved, now])
            service.moved, service.stands = now, False
        elif service.moved and now - service.moved > LONG * every and not service.stands:
            waiting = [
                any(_left(e) and now - _since(e, now) > OVER * self._links[key].base > 0 for e in live[key])
                for key in keys
            ]
            service.stands = sum(waiting) > 1

    def _arrived(
        self,
        link: LinkState,
        service: Service,
        new: float,
        took: float,
        size: float,
        now: float,
        *,
        is_telling: bool,
    ) -> None:
        is_silent = service.silent(now - took, now) > 0
        took = max(took - link.least / 2, 1.0)  # it was seen half a round later, in the mean
        if not is_silent and is_telling:
            link.slow = min(link.slow or took / size, took / size)
        link.arrived.append(Arrival(now, new, None if is_silent else took, size))
        link.arrived_at = now

    # ------------------------------------------------------------------ what is kept

    def _link(self, key: FlowKey) -> LinkState:
        if key not in self._links:
            self._know(key, LinkState())
        return self._links[key]

    def _know(self, key: FlowKey, link: LinkState) -> None:
        self._links[key] = link
        link.place = f"{key.link.source} {key.link.destination}"
        for name in _storages(key):
            insort(self._members[name], key)

    def _write(
        self, links: Iterable[FlowKey], storages: Iterable[str], services: Iterable[str], now: datetime
    ) -> None:
        readings: list[Reading] = [(NAME, subject_of(key), text_of(self._links[key]), "") for key in links]
        readings += [(NAME, name, text_of(self._storages[name]), "") for name in storages]
        readings += [(NAME, f"service {name}", text_of(self._services[name]), "") for name in services]
        self._ledger.record_signals(readings, now)

    def _read(self) -> None:
        """Take up what is kept; what cannot be read is learnt again."""
        for signal in self._ledger.signals(NAME):
            kind, _, name = signal.subject.partition(" ")
            try:
                if kind == "link":
                    state = read_state(LinkState, str(signal.value))
                    state.arrived = [Arrival(*arrival) for arrival in state.arrived]
                    self._know(key_of(signal.subject), state)
                elif kind == "service":
                    self._services[name] = read_state(Service, str(signal.value))
                else:
                    self._storages[signal.subject] = read_state(StorageState, str(signal.value))
            except (ValueError, TypeError) as error:
                log.warning(
                    "the state of control of %s cannot be read, and is learnt again: %s", signal.subject, error
                )
        for service in self._services.values():
            service.seen = [subject for subject in service.seen if key_of(subject) in self._links]
            service.fresh = [fresh for fresh in service.fresh if key_of(fresh[0]) in self._links]
        self._forget_ended()
        # Until its first observation the window is that of its first release.
        seen = {key: link.renewed if link.renewed > link.began else 0.0 for key, link in self._links.items()}
        for entry in self._ledger.entries(State.CALLED, State.LIVE):
            since = _since(entry, 0.0)
            if since > seen.get(entry.injection.flow, since):
                self._count(entry, since)


def _bounded(demand: Demand, link: LinkState, room: float | None, smallest: float, cycle: float) -> Demand:
    """Return a demand with small datasets, and bounded by the room in its window if it had to wait (files).

    A link that cannot move takes nothing of the menu's limits from others.
    """
    flow, releasable = demand.flow, None
    if link.slow and link.target:
        part = max(FINE * link.window * link.size, smallest) / (link.target * cycle)
        flow = replace(flow, grain=min(flow.grain, part))
    if room is not None:
        rate = highest(link.best) if slowness(link.ratios) > AIM else max(highest(link.best), link.aim)
        releasable = round(link.size * (room + rate * cycle))
    return replace(demand, flow=flow, releasable=releasable)


def _storages(key: FlowKey) -> tuple[str, str]:
    return f"from {key.link.source}", f"to {key.link.destination}"


def _size(entry: Entry) -> float:
    return entry.injection.item.bytes / entry.injection.item.files


def _left(entry: Entry) -> int:
    return max(entry.injection.item.files - entry.files_done - entry.files_stuck, 0)


def _since(entry: Entry, now: float) -> float:
    since = entry.called_at or entry.accepted_at
    return now if since is None else since.timestamp()
