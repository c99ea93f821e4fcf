"""Rules of ours: read back from Rucio, made, and ended before their lifetime is over."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rucio.common import exception as rucio
from rucio.common.exception import AccessDenied, RuleNotFound

from dc_inject import __version__
from dc_inject.backends.answers import count, identifier, is_identifier, name, utc
from dc_inject.backends.rucio.connection import Connection, Row, account_of
from dc_inject.backends.rucio.deletion import end_rule
from dc_inject.backends.rucio.dids import Did
from dc_inject.backends.rucio.errors import translate_refusal
from dc_inject.backends.rucio.replica_check import list_locks
from dc_inject.backends.rucio.slice_datasets import Slices
from dc_inject.model import Entry, Injection, Link, Slice, items, naming
from dc_inject.model.deletion import NotOurs, ObservedRule, Rule
from dc_inject.model.errors import NoSlices, Permanent, ServiceError, Temporary, TryOtherItem
from dc_inject.model.groups import grouped
from dc_inject.model.items import ItemId, SliceId
from dc_inject.model.naming import Origin
from dc_inject.model.ports import FoundInjection, Outcome, Status
from dc_inject.model.redaction import scrub
from dc_inject.planning import lifetime

log = logging.getLogger(__name__)

_CONTACT = 200  # characters of a contact that go into a rule's metadata
_OF_THE_SUM = (rucio.InsufficientAccountLimit, rucio.RSEOverQuota)
_DATE = "%a, %d %b %Y %H:%M:%S UTC"
_STATUS = {
    "OK": Status.COMPLETE,
    "REPLICATING": Status.MOVING,
    "STUCK": Status.STUCK,
    "SUSPENDED": Status.SUSPENDED,
    "INJECT": Status.WAITING,
    "WAITING_APPROVAL": Status.WAITING,
}
_KEPT = 100_000  # rules of which it is kept that they were ended
_NO_RIGHT = "rules end with their lifetime; ask for the right to update rules of this account"


def read(row: Row, service: str) -> FoundInjection | None:
    """Return a rule of ours; None when it is not, by its comment."""
    parts = naming.read_comment(row["comments"])
    if parts is None:
        return None
    campaign, scenario, cycle = parts
    source = row["source_replica_expression"]
    link = Link(name(source) if source else "", name(row["rse_expression"]), service)
    item = _item(row)
    created = utc(row["created_at"])
    if created is None:
        raise ValueError("a rule has no time of its birth")
    return FoundInjection(
        key=naming.key(campaign, scenario, cycle, link, str(item)),
        external_id=identifier(row["id"]),
        campaign=campaign,
        scenario=scenario,
        cycle=cycle,
        link=link,
        item=item,
        bytes=None if row.get("bytes") is None else count(row["bytes"]),
        status=status(row),
        done=count(row["locks_ok_cnt"]),
        moving=count(row["locks_replicating_cnt"]),
        stuck=count(row["locks_stuck_cnt"]),
        created_at=created,
        expires_at=utc(row["expires_at"]),
        changed_at=utc(row.get("updated_at")),
        error=scrub(str(row["error"] or "")),
        origin=naming.read_origin(_meta(row)),
    )


def _item(row: Row) -> ItemId:
    """Return the item that a rule is for: the rule of a slice has what is in it in its metadata."""
    did = str(Did.of(row))
    if not naming.is_slice(did):
        return did
    try:
        part = items.read_id(_meta(row)["slice"])
    except (KeyError, TypeError, ValueError):
        return did
    return SliceId(part.range, did) if isinstance(part, SliceId) else did


def read_lock_proof(row: Row) -> ObservedRule:
    """Return what the lock of a dataset shows of the rule that it belongs to: all but its comment."""
    return ObservedRule(str(row["rule_id"]), str(row["account"]), str(Did.of(row)), str(row["rse"]))


def read_rule_proof(row: Row, service: str) -> ObservedRule:
    """Return what a rule shows of itself; the key is empty if its comment is not one of dc_inject."""
    ours = read(row, service)
    key = ours.key if ours is not None else ""
    return ObservedRule(str(row["id"]), str(row["account"]), str(Did.of(row)), str(row["rse_expression"]), key)


def _meta(row: Row) -> dict[str, Any]:
    """Return the metadata of a rule; nothing where there is none of ours."""
    try:
        meta = json.loads(row["meta"])
        if isinstance(meta, str):
            meta = json.loads(meta)  # the server writes as JSON what is JSON already
    except (KeyError, TypeError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def status(row: Row) -> Status:
    """Return what a rule's state means; one that is new to us is taken as not yet at work."""
    return _STATUS.get(row["state"], Status.WAITING)


class Rules:
    """Finds our rules and makes them."""

    def __init__(
        self,
        connection: Connection,
        service: str,
        slices: Slices,
        *,
        batch_files: int,
        batch_rules: int,
        origin: Origin | None,
    ) -> None:
        """Take the bounds of one call: a batch is one transaction behind a front end with little patience.

        `origin` goes into the metadata of each rule.
        """
        self._origin = origin
        self._slices = slices
        self._connection = connection
        self._service = service
        self._batch_files = batch_files
        self._batch_rules = batch_rules

    # ------------------------------------------------------------------ find

    def ours(self, campaign: str | None = None, *, since: datetime | None = None) -> Iterator[FoundInjection]:
        """Stream our account's rules by their comments: of one campaign, or of all.

        Rucio has no index for it: for recovery, and at most once a cycle.
        """
        filters = {"account": account_of(self._connection)}
        if since is not None:
            filters["created_after"] = since.strftime(_DATE)
        for row in self._connection.stream("list_replication_rules", filters):
            rule = read(row, self._service)
            if rule is not None and campaign in {None, rule.campaign}:
                yield rule

    def find(self, item: ItemId, destination: str) -> tuple[FoundInjection | None, int]:
        """Return our rule for a dataset and destination, and how many rules our account has for the two."""
        did = Did.of_item(item)
        filters = {
            "scope": did.scope,
            "name": did.name,
            "account": account_of(self._connection),
            "rse_expression": destination,
        }
        rows = self._connection.call("list_replication_rules", filters)
        return next((rule for row in rows if (rule := read(row, self._service))), None), len(rows)

    # ------------------------------------------------------------------ make

    def submit(self, injections: Sequence[Injection]) -> list[Outcome]:
        """Make a rule for each; one call for as many as can share it, one outcome for each."""
        outcomes = self._made(injections)
        for batch in self._batches([injection for injection in injections if injection.key not in outcomes]):
            outcomes |= {outcome.key: outcome for outcome in self._make(batch)}
        return [outcomes[injection.key] for injection in injections]

    def _made(self, injections: Sequence[Injection]) -> dict[str, Outcome]:
        """Make the datasets of slices; returns the outcomes of those for which there is none."""
        outcomes: dict[str, Outcome] = {}
        refused: ServiceError | None = None  # for a reason that others share
        for injection in injections:
            item = injection.item
            if not isinstance(item, Slice):
                continue
            try:
                if refused is None:
                    self._slices.make(injection, item)
                else:
                    outcomes[injection.key] = Outcome(injection.key, error=refused)
            except ServiceError as error:
                # If it was made after all, so much the better: what counts is the rule, never asked for.
                failure = _unasked(error)
                if isinstance(error, NoSlices) or not isinstance(error, TryOtherItem | Permanent):
                    refused = failure
                outcomes[injection.key] = Outcome(injection.key, error=failure)
        return outcomes

    def _batches(self, injections: Sequence[Injection]) -> Iterator[list[Injection]]:
        """Give those that one call can make: alike in all that a call has only one of, few files together."""
        alike = grouped((tuple(sorted(_call(one, self._origin).items())), one) for one in injections)
        for together in alike.values():
            batch: list[Injection] = []
            for injection in together:
                files = sum(other.item.files for other in batch) + injection.item.files
                if batch and (files > self._batch_files or len(batch) == self._batch_rules):
                    yield batch
                    batch = []
                batch.append(injection)
            yield batch

    def _make(self, batch: Sequence[Injection]) -> list[Outcome]:
        try:
            return self._add(batch)
        except ServiceError as failure:
            error = translate_refusal(failure)
            if len(batch) == 1:
                return [self._refused(batch[0], error)]
            single = isinstance(error, TryOtherItem | Permanent)  # one member may be the reason, or their sum
            if not single and not isinstance(error.__cause__, _OF_THE_SUM):
                return [Outcome(injection.key, error=error) for injection in batch]
        return self._in_halves(batch)

    def _in_halves(self, batch: Sequence[Injection]) -> list[Outcome]:
        """Make a refused batch in two calls, and so on: one bad member of many costs few calls more.

        Once a call fails for a reason that all share, no more is asked for.
        """
        middle = len(batch) // 2
        outcomes = self._make(batch[:middle])
        shared = [o.error for o in outcomes if o.error and not isinstance(o.error, TryOtherItem | Permanent)]
        if not shared:
            return outcomes + self._make(batch[middle:])
        unasked = _unasked(shared[-1])
        return outcomes + [Outcome(other.key, error=unasked) for other in batch[middle:]]

    def _add(self, batch: Sequence[Injection]) -> list[Outcome]:
        rules = self._connection.call(
            "add_replication_rule",
            dids=[Did.of_item(injection.item.id).row() for injection in batch],
            copies=1,
            writes=True,
            **_call(batch[0], self._origin),
        )
        new = {rule for rule in rules if is_identifier(rule)} if isinstance(rules, list) else set()
        if len(new) != len(batch) or len(rules) != len(batch):
            raise Temporary("Rucio's answer cannot be understood (one new rule a dataset expected)", lost=True)
        return [Outcome(injection.key, rule) for injection, rule in zip(batch, rules, strict=True)]

    def _refused(self, injection: Injection, error: ServiceError) -> Outcome:
        if isinstance(error.__cause__, rucio.DuplicateRule):
            return self._duplicate(injection)
        return Outcome(injection.key, error=error)

    def _duplicate(self, injection: Injection) -> Outcome:
        """Return whose rule is in the way: a rule of an earlier call of ours is adopted."""
        item, destination = injection.item.name, injection.link.destination
        try:
            rule, count = self.find(injection.item.id, destination)
        except ServiceError as error:
            # It may be the one that an earlier call has made, so it is in doubt until it is looked up.
            return Outcome(injection.key, error=Temporary(error.message, error.hint, lost=True))
        if rule is not None and rule.key == injection.key:
            return Outcome(injection.key, rule.external_id, adopted=True, origin=rule.origin)
        if rule is not None:
            why = f"an earlier rule of ours ({rule.campaign}, {rule.cycle:%Y-%m-%dT%H:%MZ}) is still resident"
        elif count:
            why = "the account has another rule for this dataset and destination"
        else:
            return Outcome(injection.key, error=Temporary("refused as a duplicate of a rule that has just gone"))
        return Outcome(injection.key, error=TryOtherItem(f"{item} to {destination}: {why}"))


def _call(injection: Injection, origin: Origin | None) -> dict[str, object]:
    """Return what all rules of one call share; that of a slice has what is in it, and is made by itself."""
    item = injection.item
    return {
        "rse_expression": injection.link.destination,
        "source_replica_expression": injection.link.source,
        "priority": injection.service_priority,
        "lifetime": lifetime.seconds(injection.lifetime),
        "activity": injection.activity,
        "grouping": "DATASET",
        "purge_replicas": True,
        "ask_approval": False,
        "asynchronous": False,
        "comment": naming.comment(injection.campaign, injection.scenario, injection.cycle.start),
        "meta": json.dumps(
            {
                "tool": f"dc_inject/{__version__}",
                "campaign": injection.campaign,
                "scenario": injection.scenario,
                "contact": injection.contact[:_CONTACT],
                **(origin.metadata() if origin else {}),
                **({"slice": str(item.range)} if isinstance(item, Slice) else {}),
            }
        ),
    }


def _unasked(error: ServiceError) -> ServiceError:
    """Return the error of those that were not asked for since others met with it: none of them is in doubt."""
    if isinstance(error, Temporary) and error.lost:
        return Temporary(error.message, error.hint, hold=error.hold)
    return error


@dataclass(frozen=True, slots=True)
class RuleEnding:
    """Ends rules, one call for each: Rucio has none for many."""

    connection: Connection
    rules: Rules
    slices: Slices
    ended: set[str] = field(default_factory=set)  # rules whose end Rucio has accepted, and which it will forget

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
        if not (rule := entry.external_id):  # in doubt
            found, _ = self.rules.find(entry.injection.item.id, entry.injection.link.destination)
            if found is None or found.key != entry.injection.key:
                return ""
            rule = found.external_id
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
        rows = list_locks(self.connection, dids) if dids else []
        return {shown.id: shown for shown in map(read_lock_proof, rows) if shown.id in by_id}

    def _seen(self, rule: str, entry: Entry) -> ObservedRule:
        """Return what a rule shows of itself."""
        return read_rule_proof(self.connection.call("get_replication_rule", rule), entry.injection.link.through)

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


def _is_gone(error: ServiceError) -> bool:
    return isinstance(error.__cause__, RuleNotFound)


def _refusal(error: ServiceError) -> ServiceError:
    if isinstance(error.__cause__, AccessDenied):
        return Permanent("the account may not end rules", _NO_RIGHT)
    return error
