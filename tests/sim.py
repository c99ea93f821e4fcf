"""A simulated service for tests: what the one of `plan` does, at a speed, with limits, faults and lost answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dc_inject.backends import sim
from dc_inject.model import Bundle, DatasetFilter, Entry, File, FileFilter, Injection, Item, Link, ports, units
from dc_inject.model.errors import Permanent


@dataclass
class SimBackend(sim.SimBackend):
    """Moves bytes by arithmetic, at `speed` bytes per second a link, first come first served.

    `fault(method, subject)` is asked before every call and may raise a ServiceError; `answer` after it, when
    the call was carried out: raising there loses the answer.
    """

    speed: Callable[[Link], float] = lambda _link: 1e15
    deletion_lag: timedelta = timedelta(0)
    summary_lag: timedelta = timedelta(0)  # before the summary of a copy that was made here says that it is whole
    space: Mapping[str, int] = field(default_factory=dict)
    quota: Mapping[str, int] = field(default_factory=dict)
    served_at: Mapping[str, Sequence[ports.Endpoint]] = field(default_factory=dict)
    queued: Mapping[Link, ports.LinkQueue | ports.Missing] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    unwritable: set[str] = field(default_factory=set)
    undeleting: set[str] = field(default_factory=set)
    may_end: bool | None = True
    fault: Callable[[str, object], None] = lambda _method, _subject: None
    answer: Callable[[str, object], None] = lambda _method, _subject: None
    failing: Callable[[File], bool] = lambda _file: False  # which files of a bundle fail
    tells_unfit: bool = False  # whether those are said to fail again
    calls: dict[str, int] = field(default_factory=dict)
    _seen: datetime | None = None

    def check(self) -> ports.Identity:
        self._call("check", None)
        return replace(super().check(), may_end=self.may_end)

    def resolve(self, expression: str) -> tuple[str, ...]:
        self._call("resolve", expression)
        return super().resolve(expression)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: ports.Note | None = None
    ) -> Iterator[Item]:
        self._call("inventory", source)
        return super().inventory(source, datasets, note)

    def check_replicas(
        self, candidates: Sequence[ports.Candidate]
    ) -> Mapping[ports.Candidate, ports.ReplicaStatus]:
        self._call("check_replicas", candidates)
        return super().check_replicas(candidates)

    def submit(self, injections: Sequence[Injection]) -> list[ports.Outcome]:
        self._call("submit", injections)
        outcomes = super().submit(injections)
        self.answer("submit", injections)
        return outcomes

    def observe(self, entries: Sequence[Entry], *, exact: bool = False) -> list[ports.Observation]:
        self._call("observe", entries)
        return super().observe(entries, exact=exact)

    def end(self, entries: Sequence[Entry]) -> list[ports.Outcome]:
        self._call("end", entries)
        if self.may_end is False and entries:
            self._advance()
            denied = Permanent("the account may not end rules")
            return [ports.Outcome(entry.injection.key, error=denied) for entry in entries]
        outcomes = super().end(entries)
        self.answer("end", entries)
        return outcomes

    def remove(self, entries: Sequence[Entry]) -> list[ports.Removal]:
        self._call("remove", entries)
        removals = super().remove(entries)
        self.answer("remove", entries)
        return removals

    def sites(self, rses: Iterable[str]) -> Mapping[str, ports.RseFacts]:
        names = sorted(rses)
        self._call("sites", names)
        self._advance()
        used: dict[str, float] = dict.fromkeys(names, 0.0)
        locked: dict[str, int] = dict.fromkeys(names, 0)
        for rule in self._there.values():
            destination = rule.injection.link.destination
            if destination in used:
                used[destination] += rule.moved
            if rule.ended is None and destination in locked:
                locked[destination] += rule.injection.item.bytes
        return {
            name: ports.RseFacts(
                name,
                readable=name not in self.unreadable,
                writable=name not in self.unwritable,
                deletable=name not in self.undeleting,
                closed={"writable": "closed by its site"} if name in self.unwritable else {},
                free=max(self.space[name] - int(used[name]), 0) if name in self.space else None,
                quota_left=self.quota[name] - locked[name] if name in self.quota else None,
            )
            for name in names
        }

    def endpoints(self, rse: str) -> list[ports.Endpoint]:
        return list(self.served_at.get(rse, ()))

    def queues(self, links: Sequence[Link]) -> Mapping[Link, ports.LinkQueue | ports.Missing]:
        self._call("queues", links)
        return {link: self.queued[link] for link in links if link in self.queued}

    def _call(self, method: str, subject: object) -> None:
        self.calls[method] = self.calls.get(method, 0) + 1
        self.fault(method, subject)

    def _replica_status(self, candidate: ports.Candidate) -> ports.ReplicaStatus:
        status, first = (
            super()._replica_status(candidate),
            self._there.get((candidate.item, candidate.link.source)),
        )
        listed = candidate.item in self._named.get(candidate.link.source, {})
        if listed or first is None or first.completed is None or first.ended is not None:
            return status
        whole = first.completed + self.summary_lag <= self.clock.now()
        return replace(status, source_complete=status.source_complete and whole)

    def _observation(self, entry: Entry) -> ports.Observation:
        key, item = entry.injection.key, entry.injection.item
        rule = self.rules.get(key)
        if rule is None or (rule.ended is not None and self._cleans_up):
            return ports.Observation(key, ports.Status.ABSENT)
        done = rule.completed is not None
        members = rule.injection.item.members if isinstance(rule.injection.item, Bundle) else ()
        failed = [file for file in members if self.failing(file)] if done else []
        lost = sum(file.bytes for file in failed)
        return ports.Observation(
            key,
            ports.Status.ABSENT if rule.ended else ports.Status.COMPLETE if done else ports.Status.MOVING,
            f"sim-{key}",
            files_done=item.files - len(failed) if done else int(item.files * rule.moved / item.bytes),
            files_stuck=len(failed),
            moved=item.bytes - lost if done else int(rule.moved),
            exact=True,
            failed=lost,
            reasons={"source-missing": len(failed)} if failed else {},
            undone=tuple(file.name for file in (failed if done else members if rule.ended else ())),
            unfit=tuple(sorted({file.name for file in failed})) if self.tells_unfit else (),
            error=f"{len(failed)} of {units.counted(item.files, 'files')} failed" if failed else "",
            expires_at=rule.expires,
        )

    def _advance(self) -> None:
        """Move bytes for the time since the last look, link by link, in the order of creation."""
        now = self.clock.now()
        since = self._seen or now
        self._seen = now
        room: dict[Link, float] = {}
        for pair, rule in tuple(self._there.items()):
            link, size = rule.injection.link, rule.injection.item.bytes
            if rule.ended is None and rule.completed is None:
                left = room.setdefault(link, self.speed(link) * (now - since).total_seconds())
                step = min(left, size - rule.moved)
                room[link] = left - step
                rule.moved += step
                if rule.moved >= size and (size or rule.created < now):
                    rule.completed = now
            if not self._cleans_up:
                continue
            if rule.ended is None and rule.expires <= now:
                rule.ended = rule.expires
            deletes = rule.injection.link.destination not in self.undeleting
            if rule.ended is not None and deletes and rule.ended + self.deletion_lag <= now:
                rule.deleted = rule.ended + self.deletion_lag
                del self._there[pair]
