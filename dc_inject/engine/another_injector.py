"""Is another injector at work for this campaign, with a ledger of its own? One question of `run` and `check`.

Two copies of a ledger, two homes, a ledger that was lost, an old backup: each injector is within its own account,
and together they make twice the traffic. What shows it are rules and jobs of the campaign that this ledger did not
make. Each one has a key, and the random id of the start of the injector that made it; both must be in the ledger.
What an older version has made has no such id, and is judged by its key.

Services are asked at the start, for what was made since the last closed cycle (with a new ledger: since the menus
begin), in the next cycle, and then once an hour in another thread: Rucio has no index for this question, so that
each listing reads many rules. A service that does not answer is asked again in the next cycle.
The injector that finds another one ends: so the second that starts never injects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from dc_inject.engine.calls import Calls
from dc_inject.ledger import Reader
from dc_inject.model import Cycle, Entry, units
from dc_inject.model.errors import LedgerError, ServiceError
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Backend, Listing, Made, Outcome
from dc_inject.model.services import SERVICES

log = logging.getLogger(__name__)

MOST = 100_000  # rules or jobs of one listing
AGAIN = timedelta(hours=1)  # how long a good answer counts


class AnotherInjector(LedgerError):
    """Rules or jobs of this campaign were made with another ledger."""


def since(reader: Reader, start: datetime) -> datetime:
    """Return from when on a ledger should know all rules and jobs; `start` is that of the menus."""
    last = reader.last_closed()
    return start if last is None else last.start


def listed(backend: Listing, campaign: str, since: datetime) -> list[Made]:
    """Ask a service who made the rules or jobs of a campaign since then; raises ServiceError."""
    return list(islice(backend.made(campaign, since=since), MOST))


def unknown(reader: Reader, made: Sequence[Made]) -> list[Made]:
    """Return what was not made with this ledger."""
    asked_for, starts = reader.asked_for([one.key for one in made]), reader.starts()
    return [one for one in made if one.key not in asked_for or (one.origin and one.origin.start not in starts)]


def described(service: str, others: Sequence[Made], not_made: str = "this ledger did not make") -> str:
    """Return in words what others have made: how many, when, and by whom."""
    newest = max(others, key=lambda one: one.at.timestamp() if one.at else 0)
    when = f" at {newest.at:%Y-%m-%d %H:%M:%SZ}" if newest.at else ""
    who = f" by {newest.origin.who}" if newest.origin and newest.origin.who else ""
    last = f", the newest made{when}{who}" if when or who else ""
    kind = SERVICES[service].injections
    return f"{SERVICES[service].title} has {units.counted(len(others), kind)} that {not_made}{last}"


@dataclass(slots=True)
class Alone:
    """Asks services for what others have made, and raises AnotherInjector where there is any.

    `origin` is this start, and `hint` what a person can do about another one.
    """

    campaign: str
    origin: Origin
    hint: str
    _begin: datetime | None = None  # since when this ledger should know everything, as it was at the start
    _asked: dict[str, datetime] = field(default_factory=dict)  # when services last named none
    _repeated: set[str] = field(default_factory=set)  # services that were asked once more after the start

    def refuse_others(
        self, ledger: Reader, backends: Mapping[str, Backend], start: datetime, now: datetime
    ) -> None:
        """Ask all services before anything is injected; `start` is that of the menus."""
        self._begin = since(ledger, start)
        for backend in backends.values():
            if isinstance(backend, Listing):
                try:
                    made = listed(backend, self.campaign, self._begin)
                except ServiceError as error:
                    self._warn(backend.name, error)
                else:
                    self._judge(ledger, backend.name, made, now)

    def ask(
        self, ledger: Reader, backends: Mapping[str, Backend], calls: Calls, cycle: Cycle, start: datetime
    ) -> None:
        """Ask all services in other threads, where it is time."""
        self._begin = self._begin or since(ledger, start)
        for backend in backends.values():
            before = self._asked.get(backend.name)
            if isinstance(backend, Listing) and self._is_due(backend.name, before, cycle.start):
                begin = max(self._begin, before - 2 * cycle.length) if before else self._begin
                calls.start(
                    partial(listed, backend, self.campaign, begin),
                    partial(self._heard, ledger, backend.name, cycle.start),
                    backend.name,
                )

    def _is_due(self, service: str, before: datetime | None, now: datetime) -> bool:
        """Whether to ask a service: once more in the cycle after the start, and then when an hour is over.

        Two injectors that start at one time find nothing of each other then, and something a cycle later.
        """
        if before is None or now - before >= AGAIN:
            return True
        if before < now and service not in self._repeated:
            self._repeated.add(service)
            return True
        return False

    def refuse_adopted(self, ledger: Reader, entries: Mapping[str, Entry], outcomes: Iterable[Outcome]) -> None:
        """Raise AnotherInjector if what a service had already was made by another injector.

        An earlier start with this ledger may have made it only if it was called for before.
        """
        adopted = [one for one in outcomes if one.adopted and one.origin and one.origin.start != self.origin.start]
        if not adopted:
            return
        starts = ledger.starts()
        for one in adopted:
            entry, origin = entries[one.key], one.origin
            if origin and (entry.attempt <= 1 or origin.start not in starts):
                self._refuse(entry.injection.link.through, [Made(one.key, origin, None)])

    def _heard(
        self, ledger: Reader, service: str, at: datetime, made: list[Made] | None, error: ServiceError | None
    ) -> None:
        if error is None:
            self._judge(ledger, service, made or [], at)
        else:
            self._warn(service, error)

    def _judge(self, ledger: Reader, service: str, made: Sequence[Made], now: datetime) -> None:
        self._asked[service] = now
        if others := unknown(ledger, [one for one in made if not self._of_another_shard(one.origin)]):
            self._refuse(service, others)

    def _of_another_shard(self, origin: Origin | None) -> bool:
        """Whether another shard of ours made it; in shards also what an older version made, which names none."""
        if not self.origin.shard or origin is None:
            return bool(self.origin.shard)
        (ours, count), (theirs, _, of) = self.origin.shard.split("/"), origin.shard.partition("/")
        return count == of and ours != theirs

    def _refuse(self, service: str, others: Sequence[Made]) -> None:
        message = f"another injector works for {self.campaign}: {described(service, others)}"
        raise AnotherInjector(message, self.hint)

    def _warn(self, service: str, error: ServiceError) -> None:
        log.warning(
            "%s does not show whether another injector works for %s; it is asked again in the next cycle: %s",
            SERVICES[service].title, self.campaign, error.message,
        )  # fmt: skip
