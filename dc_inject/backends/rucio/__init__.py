"""Rucio as a service that moves bytes: rules of an ordinary account, over REST only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from typing import Any

from dc_inject.backends.rucio.connection import Connection, check, quiet_client, understood
from dc_inject.backends.rucio.errors import RucioCallRecord
from dc_inject.backends.rucio.facts import Facts, resolve
from dc_inject.backends.rucio.inventory import explain, inventory, replicas
from dc_inject.backends.rucio.links import NamedFts, Survey, queues, survey_all
from dc_inject.backends.rucio.observing import Observing
from dc_inject.backends.rucio.replica_check import ReplicaCheck
from dc_inject.backends.rucio.rules import RuleEnding, Rules
from dc_inject.backends.rucio.slice_datasets import Slices
from dc_inject.backends.rucio.write_endpoints import endpoints
from dc_inject.model import DatasetFilter, Entry, File, FileFilter, Item, ports
from dc_inject.model.errors import Permanent
from dc_inject.model.events import Observer
from dc_inject.model.naming import Origin
from dc_inject.model.services import RUCIO

__all__ = ["RucioBackend", "Survey"]


class RucioBackend:
    """Implements `ports.Backend` with Rucio's own client, configured as the ecosystem has it.

    What needs no more than an answer that can be understood is handed to the parts of this package as it is.
    """

    name = RUCIO.name

    def __init__(
        self,
        *,
        campaign: str,
        clock: ports.Clock,
        observer: Observer,
        timeout: float = 60.0,
        batch_files: int = ports.FILES_AT_ONCE,
        batch_rules: int = ports.INJECTIONS_AT_ONCE,
        estimates: int = 15,
        make: Callable[[RucioCallRecord, float], Any] = quiet_client,
        sleep: Callable[[float], None] = time.sleep,
        fts: NamedFts | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Take what bounds a call: seconds without an answer, files and rules in a batch.

        `estimates` are rules of one observation that are looked at one by one for their progress. `make` makes
        the client of a thread; `sleep` waits before a question is asked again. `fts` asks the FTS services that
        the person has named. `origin` goes into each rule. Nothing is asked before the first call.
        """
        self.campaign = campaign
        self.connection = Connection(timeout=timeout, clock=clock, observer=observer, make=make, sleep=sleep)
        slices = Slices(self.connection)
        self._rules = Rules(
            self.connection,
            self.name,
            slices,
            batch_files=batch_files,
            batch_rules=batch_rules,
            origin=origin,
        )
        self._replica_check = ReplicaCheck(self.connection, slices)
        observing = Observing(self.connection, self._rules, estimates)
        ending = RuleEnding(self.connection, self._rules, slices, observing.ended)
        asking, changing = understood(), understood(lost=True)
        self.check_replicas = asking(self._replica_check.check)
        self.submit, self.end = changing(self._rules.submit), changing(ending.end)
        self.observe, self.sites = asking(observing.observe), asking(Facts(self.connection).sites)
        self.resolve = asking(partial(resolve, self.connection))
        self.endpoints = asking(partial(endpoints, self.connection))
        self.survey = asking(partial(survey_all, self.connection))
        self.queues = asking(partial(queues, self.connection, fts=fts))

    def warnings(self) -> Iterator[str]:
        """Log what a person should know of the configuration before anything is asked."""
        for server in self.connection.find_unencrypted_servers():
            yield (
                f"Rucio at {server} is not encrypted: who is on the way can read password and token, and act in "
                "our name; write https:// into rucio.cfg if the server has it"
            )

    def check(self) -> ports.Identity:
        """Return who we are and what we may do; configuration and credentials are read again."""
        with understood():
            return check(self.connection, self.name)

    def inventory(
        self, source: str, datasets: DatasetFilter | FileFilter, note: ports.Note | None = None
    ) -> Iterator[Item]:
        """Stream the datasets of a source that pass the filter; `note` is given all that the source has."""
        if not isinstance(datasets, DatasetFilter):
            raise Permanent("Rucio is given datasets, and the menu names files")
        with understood():
            yield from inventory(self.connection, source, datasets, note)

    def explain(self, dids: Iterable[str], containers: Iterable[str], there: AbstractSet[str]) -> dict[str, str]:
        """Return why entries of a selection match nothing; `there` are datasets of containers at sources."""
        with understood():
            return dict(explain(self.connection, dids, containers, there))

    def replicas(self, source: str, datasets: DatasetFilter) -> Iterator[File]:
        """Stream the files of datasets below a storage's URL prefix; for those who copy them by FTS."""
        with understood():
            yield from replicas(self.connection, source, datasets)

    def remove(self, entries: Sequence[Entry]) -> list[ports.Removal]:
        """Return which replicas the reaper has deleted: nothing of them is available at the destination."""
        places = [(ports.Candidate(e.injection.item.id, e.injection.link), e.injection.key) for e in entries]
        with understood():
            left = self._replica_check.left([place for place, _ in places])
        return [ports.Removal(key, gone=left[place] == (0, False), left=left[place][0]) for place, key in places]

    def ours(
        self, campaign: str | None = None, *, since: datetime | None = None
    ) -> Iterator[ports.FoundInjection]:
        """Stream the rules of this campaign (or of another one) that Rucio has, found by their comments."""
        with understood():
            yield from self._rules.ours(campaign or self.campaign, since=since)

    def made(self, campaign: str, *, since: datetime) -> Iterator[ports.Made]:
        """Stream who made the rules of a campaign since then."""
        with understood():
            for rule in self._rules.ours(campaign, since=since):
                yield ports.Made(rule.key, rule.origin, rule.created_at)
