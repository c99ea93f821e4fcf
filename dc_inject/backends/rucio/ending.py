"""Ending rules of ours before their lifetime is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rucio.common.exception import AccessDenied, RuleNotFound

from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.deletion import end_rule
from dc_inject.backends.rucio.dids import Did
from dc_inject.backends.rucio.identity import account_of
from dc_inject.backends.rucio.replica_check import locks_of
from dc_inject.backends.rucio.rules import Rules, shown_by_lock, shown_by_rule
from dc_inject.backends.rucio.slice_datasets import Slices
from dc_inject.model import Entry
from dc_inject.model.deletion import NotOurs, ObservedRule, Rule
from dc_inject.model.errors import Permanent, ServiceError, Temporary
from dc_inject.model.ports import Outcome

log = logging.getLogger(__name__)

_KEPT = 100_000  # rules of which it is kept that they were ended
_NO_RIGHT = "rules end with their lifetime; ask for the right to update rules of this account"


@dataclass(frozen=True, slots=True)
class RuleEnding:
    """Ends rules, one call for each: Rucio has none for many."""

    connection: Connection
    rules: Rules
    slices: Slices
    ended: set[str] = field(
        default_factory=set
    )  # rules whose end Rucio has accepted: it will not know them any more

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """End each rule now; one that is gone is a success. The first trouble that all share ends the asking.

        Each is looked at first: one call for all that have a lock, one more for each that has none.
        """
        outcomes: list[Outcome] = []
        try:
            locks = self._locks(entries)
        except ServiceError as error:
            return [Outcome(entry.injection.key, error=_refusal(error)) for entry in entries]
        for number, entry in enumerate(entries):
            try:
                outcomes.append(Outcome(entry.injection.key, self._end(entry, locks)))
            except NotOurs as error:
                log.warning("%s", error.message)
                outcomes.append(Outcome(entry.injection.key, error=error))
            except ServiceError as error:
                failed = _refusal(error)
                outcomes += [Outcome(other.injection.key, error=failed) for other in entries[number:]]
                break
        return outcomes

    def _end(self, entry: Entry, locks: Mapping[str, ObservedRule]) -> str:
        rule = entry.external_id or self._rule_of(entry)
        if not rule:
            return ""
        try:
            seen = locks.get(rule) or self._seen(rule, entry)
            proof = Rule(rule, account_of(self.connection), entry.injection, seen)
            end_rule(self.connection, proof, keep_replicas=bool(entry.present))
            if len(self.ended) >= _KEPT:
                self.ended.clear()
            self.ended.add(rule)
        except ServiceError as error:
            if not _is_gone(error) and not self._has_gone(rule, error):
                raise
        trouble = self.slices.ended(entry.injection)
        if trouble is not None:
            log.debug("the dataset of %s stays for its lifetime: %s", entry.injection.item.name, trouble.message)
        return rule

    def _locks(self, entries: Sequence[Entry]) -> dict[str, ObservedRule]:
        """Return what the locks of datasets show of the rules of entries, by rule."""
        by_id = {entry.external_id: entry for entry in entries if entry.external_id}
        dids = [Did.of_item(entry.injection.item.id) for entry in by_id.values()]
        rows = locks_of(self.connection, dids) if dids else []
        return {shown.id: shown for shown in map(shown_by_lock, rows) if shown.id in by_id}

    def _seen(self, rule: str, entry: Entry) -> ObservedRule:
        """Return what a rule shows of itself."""
        return shown_by_rule(self.connection.call("get_replication_rule", rule), entry.injection.link.through)

    def _has_gone(self, rule: str, error: ServiceError) -> bool:
        """Whether a rule whose end was left without an answer is gone.

        Rucio answers an update with a plain 500 when judge-cleaner removes the rule at the same moment.
        """
        if not (isinstance(error, Temporary) and error.lost):
            return False
        try:
            self.connection.call("get_replication_rule", rule)
        except ServiceError as answer:
            return _is_gone(answer)
        return False

    def _rule_of(self, entry: Entry) -> str:
        """Look for the rule of an entry in doubt."""
        rule, _ = self.rules.find(entry.injection.item.id, entry.injection.link.destination)
        return rule.external_id if rule is not None and rule.key == entry.injection.key else ""


def _is_gone(error: ServiceError) -> bool:
    return isinstance(error.__cause__, RuleNotFound)


def _refusal(error: ServiceError) -> ServiceError:
    if isinstance(error.__cause__, AccessDenied):
        return Permanent("the account may not end rules", _NO_RIGHT)
    return error
