"""Windows: the Governor that controls. It feeds the law (`law.py`) from the ledger, and keeps its state there.

The state of each link, storage and service is a signal of the ledger, as JSON, written with each observation: a
restart changes nothing. Where the mode is `advise` the windows are computed just so, but
nothing waits for them.
"""

from __future__ import annotations

import json
import logging
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from dc_inject.control import law
from dc_inject.control.governor import Governor
from dc_inject.control.law import LinkState, StorageState
from dc_inject.ledger import ControlDecision, Ledger
from dc_inject.model import Entry, FlowKey, Held, Hold, Link, Mode, State
from dc_inject.model.ports import Observation, Status
from dc_inject.planning.link_plan import with_overhead
from dc_inject.planning.release import CALLS
from dc_inject.planning.situation import Demand, Situation

log = logging.getLogger(__name__)

NAME = "windows"  # of the signals that keep the state
FINE = 1 / 5  # of a window: datasets are not larger, if the menu's rules an hour and the calls suffice
SPARE = 0.8  # of the menu's rules an hour: what small datasets may use


@cache
def kinds() -> Mapping[str, Any]:
    """Return what reads and writes states, by the first word of their names; `name` reads the rest of a link's."""
    from pydantic import ConfigDict, TypeAdapter, with_config  # noqa: PLC0415  not for commands that inject nothing

    strictly = with_config(ConfigDict(strict=True, allow_inf_nan=False))
    strictly(law.Arrival)
    of = {"link": LinkState, "from": StorageState, "to": StorageState}
    return {"name": TypeAdapter(tuple[str, str, str, str])} | {n: TypeAdapter(strictly(k)) for n, k in of.items()}


class Windows(Governor):
    """What each link, and each storage that is overloaded, may have in flight."""

    def __init__(self, ledger: Ledger) -> None:
        """Take up the state that the ledger keeps."""
        self._ledger = ledger
        self._links: dict[FlowKey, LinkState] = {}
        self._storages: defaultdict[str, StorageState] = defaultdict(StorageState)
        self._members: defaultdict[str, list[FlowKey]] = defaultdict(list)  # of storages, sorted
        self._taken: Counter[FlowKey] = Counter()  # files that may go out at this moment
        self._released: Counter[FlowKey] = Counter()  # files that went out since their windows were set
        self._read()

    # ------------------------------------------------------------------ the plan

    def govern(self, situation: Situation) -> Situation:
        """Take up what links are due, record what is decided, and bound the plan of links that have to wait."""
        now, cycle = situation.now.timestamp(), situation.cycle.length.total_seconds()
        self.turn(situation.now)  # what went out of the last one is in flight
        live = {entry.injection.flow for entry in self._ledger.entries(State.CALLED, State.LIVE)}
        for key, link in self._links.items():
            link.acts, link.target = False, 0.0  # unless it is in this plan
            if key not in live:  # the last rule of the link may have ended without an observation
                link.files, self._released[key] = 0.0, 0
        due = sum(with_overhead(demand.recent_due, demand.flow) for demand in situation.demands)
        # There are no more rules and calls for smaller datasets.
        smallest = due * max(3600 / cycle / (SPARE * situation.limits.rules_per_hour), 1 / CALLS)
        governed, decisions = [], []
        for demand in situation.demands:
            flow, mode = demand.flow, demand.flow.control.mode
            if mode is Mode.OFF:
                governed.append(demand)
                continue
            link = self._links.get(flow.key) or self._know(flow.key, LinkState())
            link.acts, link.least = mode is Mode.ACT, cycle / law.ROUNDS
            link.target = with_overhead(demand.recent_due, flow) / cycle
            link.lifetime = flow.lifetime_max.total_seconds()
            inside, full = self._inside([flow.key], now), self._full(flow.key, 0, now)
            held = link.refused > now - cycle if link.acts else full is not None
            if held and full is None and (storage := self._storages.get(link.refused_by)) and storage.window:
                full = link.refused_by, storage.window, self._inside(self._members[link.refused_by], now)
            numbers = self._numbers(*(full or ("", link.allowed, inside)), link.size)
            numbers["arrives"] = round(link.rate * cycle * link.size)
            hold, room = (Hold.BACKLOG, max(link.allowed - inside, 0.0)) if held else (None, None)
            decisions.append(ControlDecision(situation.cycle, flow.key, mode.value, hold, link.target, numbers))
            governed.append(_bounded(demand, link, room, smallest, numbers) if link.acts else demand)
        self._ledger.record_decisions(decisions)
        self._write(situation.now, self._links, self._storages)
        return replace(situation, demands=tuple(governed))

    # ------------------------------------------------------------------ the gate

    def withheld(self, entry: Entry, now: datetime) -> Held | None:
        """Return which window has no room for an intent; an empty one takes anything."""
        key, files = entry.injection.flow, entry.injection.item.files
        link = self._links.get(key)
        if link is None or not link.acts:
            return None
        link.size = link.size or _size(entry)
        full = self._full(key, files, now.timestamp())
        if full is None:
            self._taken[key] += files
            return None
        link.refused_by, storages = full[0], [name for name in full[:1] if name]
        states: list[LinkState | StorageState] = [link, *(self._storages[name] for name in storages)]
        if any(state.refused <= state.renewed for state in states):  # it is kept once in a round
            for state in states:
                state.refused = now.timestamp()
            self._write(now, [key], storages)
        return Held(Hold.BACKLOG, self._numbers(*full, link.size))

    def _numbers(self, storage: str, window: float, inside: float, size: float) -> dict[str, int | float | str]:
        """Return a window and what is in flight in it, in bytes; of a storage, the same for all of its links."""
        members = [link for key in self._members.get(storage, ()) if (link := self._links[key]).size]
        if files := sum(1 + link.files for link in members):
            size = sum((1 + link.files) * link.size for link in members) / files
        of = {"storage": storage} if storage else {}
        return {**of, "window": round(window * size), "in_flight": round(inside * size)}

    def _full(self, key: FlowKey, files: int, now: float) -> tuple[str, float, float] | None:
        """Return which window has no room for files, of a storage or (empty) of the link, and what is inside."""
        bounds: list[tuple[str, Sequence[FlowKey], float | None, float]]
        bounds = [("", [key], self._links[key].allowed, files / 4)]
        bounds += [(n, self._members[n], self._storages[n].window, files / 2) for n in _storages(key)]
        for storage, keys, window, part in bounds:
            if window:
                inside = self._inside(keys, now)
                if inside and inside + part > window:
                    return storage, window, inside
        return None

    def _inside(self, keys: Iterable[FlowKey], now: float) -> float:
        """Return the files in flight on links: as seen, less what has arrived since if it goes on as before."""
        seen = 0.0
        for key in keys:
            link = self._links[key]
            age = min(max(now - link.renewed, 0.0), link.least)
            seen += max(link.files + self._released[key] - age * link.rate, 0.0) + self._taken[key]
        return seen

    # ------------------------------------------------------------------ what is seen

    def released(self, entries: Iterable[Entry], now: datetime) -> None:
        """Count what was asked of a service as in flight."""
        for entry in entries:
            key = entry.injection.flow
            if link := self._links.get(key):
                link.size, link.began = link.size or _size(entry), link.began or now.timestamp()
                self._released[key] += entry.injection.item.files

    def returned(self, entry: Entry) -> None:
        """Take back what a service did not take."""
        self._released -= Counter({entry.injection.flow: entry.injection.item.files})

    def observed(self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime) -> None:
        """Take in what has arrived; windows are set at the next turn, when all answers of the moment are known."""
        for seen in observations:
            entry = before[seen.key]
            if (link := self._links.get(entry.injection.flow)) is None or seen.silent:
                continue
            link.is_seen, item = True, entry.injection.item
            failed, there = (round(item.files * (of or 0) / item.bytes) for of in (seen.failed, seen.present))
            done = item.files - failed if seen.status is Status.COMPLETE else seen.files_done
            new = done - max(entry.files_done, there)
            if new > 0 and seen.status is not Status.ABSENT and entry.state is not State.COMPLETE:
                link.fresh.append(law.Arrival(now.timestamp(), new, _age(entry, now), _size(entry)))
        self._write(now, {before[seen.key].injection.flow for seen in observations} & self._links.keys())

    def turn(self, moment: datetime) -> None:
        """Begin a moment of release: set the windows of links that were observed, and of their storages."""
        self._taken.clear()
        now = moment.timestamp()
        # Answers come in parts: with the first ones alone, those that are late would be too many.
        keys = [k for k, own in self._links.items() if own.is_seen and not 0 <= now - own.renewed < own.least / 4]
        if not keys:
            return
        flights: defaultdict[FlowKey, list[law.Flight]] = defaultdict(list)
        for entry in self._ledger.entries(State.CALLED, State.LIVE):
            if left := max(entry.injection.item.files - entry.files_done - entry.files_stuck, 0):
                flights[entry.injection.flow].append(law.Flight(left, _age(entry, moment), _size(entry)))
        cycle = law.ROUNDS * max(self._links[key].least for key in keys)
        for key in keys:
            law.renew_link(self._links[key], flights[key], now, cycle)
            self._released.pop(key, None)
        names = sorted({name for key in keys for name in _storages(key)})
        places = {name: (self._storages[name], [self._links[k] for k in self._members[name]]) for name in names}
        for storage, links in places.values():
            law.renew_storage(storage, links, now, cycle)
        waiting = {name: [link for link in links if link.waits] for name, (_, links) in places.items()}
        for key in sorted(keys):
            there = [(*places[name], waiting[name]) for name in _storages(key)]
            law.yield_to_fast(self._links[key], there, now, cycle)
        others = [(key, self._links[key]) for name in names for key in self._members[name]]
        self._write(moment, {key for key, x in others if max(x.freed, x.alone) > now}.union(keys), names)

    # ------------------------------------------------------------------ what is kept

    def _know(self, key: FlowKey, link: LinkState) -> LinkState:
        self._links[key] = link
        link.name, link.place = subject_of(key), f"{key.link.source} {key.link.destination}"
        for name in _storages(key):
            insort(self._members[name], key)
        return link

    def _write(self, now: datetime, links: Iterable[FlowKey], storages: Iterable[str] = ()) -> None:
        if not self._ledger.is_continued:
            return
        states: dict[str, object] = {subject_of(key): self._links[key] for key in links}
        states |= {name: self._storages[name] for name in storages}
        readings = [(NAME, name, text_of(name, state), "") for name, state in states.items()]
        self._ledger.record_signals(readings, now)

    def _read(self) -> None:
        """Take up what is kept; what cannot be read is learnt again."""
        for signal in self._ledger.signals(NAME):
            kind, _, name = signal.subject.partition(" ")
            if kind not in kinds():
                continue  # of an earlier version
            try:
                state = kinds()[kind].validate_json(str(signal.value))
                if kind == "link":
                    scenario, *link = kinds()["name"].validate_json(name)
                    self._know(FlowKey(scenario, Link(*link)), state)
                else:
                    self._storages[signal.subject] = state
            except ValueError:
                log.warning("the state of control of %s cannot be read, and is learnt again", signal.subject)
        for entry in self._ledger.entries(State.CALLED, State.LIVE):
            since, known = entry.called_at or entry.accepted_at, self._links.get(entry.injection.flow)
            if known is not None and since is not None and since.timestamp() >= known.renewed:
                self.released([entry], since)


def _bounded(
    demand: Demand, link: LinkState, room: float | None, smallest: float, numbers: Mapping[str, int | float | str]
) -> Demand:
    """Return a demand with small datasets, and bounded by the room in its window if it had to wait (files).

    A link that cannot move takes nothing of the menu's limits from others.
    """
    flow, cycle = demand.flow, law.ROUNDS * link.least
    if link.slow and link.target:
        part = max(FINE * link.window * link.size, smallest) / (link.target * cycle)
        flow = replace(flow, grain=min(flow.grain, part))
    releasable = None if room is None else round(link.size * (room + link.able * cycle))
    return replace(demand, flow=flow, releasable=releasable, window=numbers)


def _storages(key: FlowKey) -> tuple[str, str]:
    return f"from {key.link.source}", f"to {key.link.destination}"


def _size(entry: Entry) -> float:
    return entry.injection.item.bytes / entry.injection.item.files


def _age(entry: Entry, now: datetime) -> float:
    return (now - (entry.called_at or entry.accepted_at or now)).total_seconds()


def subject_of(key: FlowKey) -> str:
    """Return under which name the state of a link is kept."""
    return f"link {json.dumps([key.scenario, *key.link])}"


def text_of(name: str, state: object) -> str:
    """Return what is kept of a state of this name."""
    return str(kinds()[name.partition(" ")[0]].dump_json(state), "utf-8")
