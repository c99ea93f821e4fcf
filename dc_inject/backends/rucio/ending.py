"""Ending rules of ours before their lifetime is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rucio.common.exception import AccessDenied, RuleNotFound

from dc_inject.backends.rucio.connection import Connection
from dc_inject.backends.rucio.rules import Rules
from dc_inject.backends.rucio.slices import Slices
from dc_inject.errors import Permanent, ServiceError, Temporary
from dc_inject.model import Entry
from dc_inject.ports import Outcome

log = logging.getLogger(__name__)

_NO_RIGHT = "rules end with their lifetime; ask for the right to update rules of this account"


@dataclass(frozen=True, slots=True)
class Ending:
    """Ends rules, one call for each: Rucio has none for many."""

    connection: Connection
    rules: Rules
    slices: Slices

    def end(self, entries: Sequence[Entry]) -> list[Outcome]:
        """End each rule now; one that is gone is a success. The first trouble that all share ends the asking."""
        outcomes: list[Outcome] = []
        for number, entry in enumerate(entries):
            try:
                outcomes.append(Outcome(entry.injection.key, self._end(entry)))
            except ServiceError as error:
                failed = _told(error)
                outcomes += [Outcome(other.injection.key, error=failed) for other in entries[number:]]
                break
        return outcomes

    def _end(self, entry: Entry) -> str:
        rule = entry.external_id or self._rule_of(entry)
        if not rule:
            return ""
        try:
            if entry.present:
                # Files were there before us: ending with purge would delete somebody's cache.
                self.connection.call("delete_replication_rule", rule, purge_replicas=False, writes=True)
            self.connection.call("update_replication_rule", rule, {"lifetime": 0}, writes=True)
        except ServiceError as error:
            if not _is_gone(error) and not self._has_gone(rule, error):
                raise
        trouble = self.slices.ended(entry.injection.item.name)
        if trouble is not None:
            log.debug("the dataset of %s stays for its lifetime: %s", entry.injection.item.name, trouble.message)
        return rule

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
        found, _ = self.rules.find(entry.injection.item.name, entry.injection.link.destination)
        return found.external_id if found is not None and found.key == entry.injection.key else ""


def _is_gone(error: ServiceError) -> bool:
    return isinstance(error.__cause__, RuleNotFound)


def _told(error: ServiceError) -> ServiceError:
    if isinstance(error.__cause__, AccessDenied):
        return Permanent("the account may not end rules", _NO_RIGHT)
    return error
