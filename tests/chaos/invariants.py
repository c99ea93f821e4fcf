"""What must hold after every run, whatever was broken: the ledger against the service's own database."""

from __future__ import annotations

import configparser
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dc_inject.ledger import LedgerView
from dc_inject.ledger import check as ledger_check
from dc_inject.metrics import Metrics
from dc_inject.model import Bundle, Entry, State
from tests.chaos.truth import Others, Rule, Truth
from tests.chaos.world import DONE, KILLED, SERVICE, World

CLEANING = timedelta(seconds=60)  # that Rucio may take to let go of an expired rule, on a busy machine
EXPECTED = {DONE, KILLED, SERVICE}  # exit codes of lives: a service that is away at the start is no violation
OVER = {State.ENDED, State.GONE, State.WITHDRAWN, State.REFUSED}


@dataclass(frozen=True)
class Violation:
    """One promise that was not kept, and where."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass
class Before:
    """How it was before the first life."""

    others: Others

    @classmethod
    def of(cls, world: World, truth: Truth) -> Before:
        return cls(truth.others(world.places))


def check(world: World, truth: Truth, before: Before, *, drained: bool = True) -> list[Violation]:
    """Return what is violated; `drained` when the tool itself said that it is done."""
    with LedgerView.open(world.ledger) as view:
        entries, notes = view.entries(), view.notes()
    rules = truth.rules(world.campaign)
    found = [*_lives(world, [text for _, text in notes]), *_known(entries, rules), *_existing(entries, rules)]
    found += [*_once(entries, truth.rules(everyone(world)), truth), *_untouched(entries, rules)]
    if drained:
        found += [*_over(entries, rules), *_bytes(world, entries, rules)]
        found += [Violation("drained", told) for told in truth.left()]
    found += [Violation("ledger", str(one)) for one in ledger_check.check(world.ledger) if not one.note]
    found += [*_lifetimes(rules), *_secrets(world, truth), *_others(world, truth, before)]
    return found


def between(world: World, truth: Truth) -> list[Violation]:
    """Return what is violated after a death in the middle of a campaign; for the rest see `check`."""
    with LedgerView.open(world.ledger) as view:
        entries = view.entries()
    rules = truth.rules(world.campaign)
    asked = {_place(entry) for entry in entries if entry.called_at is not None and entry.accepted_at is None}
    # What a dead process asked for may have been made: the ledger knows that it was called.
    answered = {
        key: rule for key, rule in rules.items() if (rule.item, rule.destination, rule.source) not in asked
    }
    found = [*_existing(entries, rules), *_known(entries, answered), *_untouched(entries, rules)]
    found += _once(entries, truth.rules(everyone(world)), truth)
    found += [Violation("ledger", str(one)) for one in ledger_check.check(world.ledger) if not one.note]
    return [*found, *_lifetimes(rules)]


def everyone(world: World) -> str:
    """Name all campaigns that there ever were at a world's places, whoever ran them."""
    return f"chaos-{world.places}*"


def _place(entry: Entry) -> tuple[str, str, str]:
    injection = entry.injection
    item = injection.item
    return "" if isinstance(item, Bundle) else item.name, injection.link.destination, injection.link.source


def _lives(world: World, notes: list[str]) -> Iterator[Violation]:
    """No life ends in a way that nobody foresaw, and none says a traceback."""
    if world.harmed:
        return
    for life in world.lives:
        code, said = life.process.returncode, life.err.read_text()
        if code not in EXPECTED:
            yield Violation("lives", f"exit code {code} of {life.err}: {said[-300:]}")
        if "Traceback" in said or "unexpected" in said:
            yield Violation("lives", f"unexpected error in {life.err}")
    for note in notes:
        yield Violation("lives", f"a note in the ledger: {note[-400:]}")


def _known(entries: list[Entry], rules: dict[str, Rule]) -> Iterator[Violation]:
    """Every rule of ours is in the ledger, as what it is."""
    by_id = {entry.external_id: entry for entry in entries if entry.external_id}
    for rule in rules.values():
        entry = by_id.get(rule.id)
        if entry is None or entry.accepted_at is None:
            yield Violation("known", f"rule {rule.id} for {rule.item} to {rule.destination} is not in the ledger")
            continue
        is_, says = (rule.item, rule.destination, rule.source), entry.injection
        if is_ != (says.item.name if rule.item else "", says.link.destination, says.link.source):
            yield Violation("known", f"rule {rule.id} is for {is_}, the ledger says {says.item.name} {says.link}")
        if rule.ended is None and entry.state in OVER:
            yield Violation("known", f"rule {rule.id} lives, the ledger says {entry.state}")


def _existing(entries: list[Entry], rules: dict[str, Rule]) -> Iterator[Violation]:
    """Every rule that the ledger has exists or existed, and is there once."""
    for entry in entries:
        if entry.accepted_at is not None and entry.external_id not in rules:
            yield Violation("known", f"the ledger has rule {entry.external_id!r}, Rucio never had it")
    ids = [entry.external_id for entry in entries if entry.external_id]
    if len(set(ids)) != len(ids):
        yield Violation("known", "a rule is in the ledger twice")


def _once(entries: list[Entry], rules: dict[str, Rule], truth: Truth) -> Iterator[Violation]:
    """Nothing is given to a destination twice at a time: in the service, and as the ledger tells it."""
    for told in truth.twice(rules):
        yield Violation("once", told)
    lives: dict[tuple[str, str], list[tuple[datetime, datetime | None]]] = defaultdict(list)
    for entry in entries:
        if entry.accepted_at is not None and entry.called_at is not None:
            place = entry.injection.item.name, entry.injection.link.destination
            lives[place].append((entry.called_at, entry.ended_at))
    for (item, destination), some in lives.items():
        for (_, ended), (born, _) in pairwise(sorted(some, key=lambda life: life[0])):
            if ended is None or born < ended:
                yield Violation("once", f"the ledger gave {item} to {destination} at {born} while it was there")


def _untouched(entries: list[Entry], rules: dict[str, Rule]) -> Iterator[Violation]:
    """Nobody but its own injector has ended a rule: another one, with a ledger of its own, least of all."""
    for entry in entries:
        rule = rules.get(entry.external_id)
        if rule is not None and entry.end_asked_at is None and len(set(rule.expiries)) > 1:
            yield Violation("others", f"rule {rule.id} was ended, and not by the ledger that has made it")


def _over(entries: list[Entry], rules: dict[str, Rule]) -> Iterator[Violation]:
    """A drained campaign has nothing left, in the service or in the ledger."""
    for rule in rules.values():
        if rule.ended is None:
            yield Violation("drained", f"rule {rule.id} for {rule.item} to {rule.destination} lives on")
    for entry in entries:
        if entry.state not in OVER:
            yield Violation("drained", f"{entry.injection.item.name} is {entry.state} in the ledger")


def _bytes(world: World, entries: list[Entry], rules: dict[str, Rule]) -> Iterator[Violation]:
    """Injected and moved bytes are equal to the byte in service, ledger, closing table and metrics, by link."""
    for entry in entries:
        rule = rules.get(entry.external_id)
        if rule is not None and entry.completed_at is not None and entry.injected != rule.arrived:
            yield Violation("bytes", f"{entry.injection.item.name}: {rule.arrived} arrived, not {entry.injected}")
    told = _told(world)
    for link in world.destinations:
        service = sum(rule.bytes for rule in rules.values() if rule.destination == link)
        arrived = sum(rule.arrived for rule in rules.values() if rule.destination == link)
        mine = [entry for entry in entries if entry.injection.link.destination == link]
        injected = {
            "service": service - sum(entry.present for entry in mine if entry.accepted_at),
            "ledger": sum(entry.injected for entry in mine),
            **{who: numbers[link, "injected"] for who, numbers in told.items()},
        }
        moved = {
            "service": arrived,
            "ledger": sum(entry.moved for entry in mine if entry.accepted_at),
            **{who: numbers[link, "moved"] for who, numbers in told.items()},
        }
        for what, numbers in (("injected", injected), ("moved", moved)):
            if len(set(numbers.values())) != 1:
                yield Violation("bytes", f"{what} to {link}: {numbers}")


def _told(world: World) -> dict[str, dict[tuple[str, str], int]]:
    """Return what the closing table and the metrics tell of each destination."""
    table: dict[tuple[str, str], int] = {}
    shown: Any = json.loads(world.live("status", world.campaign, "--summary", "--format", "json").out)
    metrics: dict[tuple[str, str], int] = {}
    page = generate_latest(Metrics(world.ledger).registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    for word in ("injected", "moved"):
        for destination in world.destinations:
            table[destination, word] = sum(
                line[word] for line in shown["links"] if line["destination"] == destination
            )
            metrics[destination, word] = round(
                sum(
                    sample.value
                    for sample in families[f"dc_inject_{word}_bytes"].samples
                    if sample.name.endswith("_total") and sample.labels["destination"] == destination
                )
            )
    return {"table": table, "metrics": metrics}


def _lifetimes(rules: dict[str, Rule]) -> Iterator[Violation]:
    """No rule outlives the lifetime that it was born with, by more than the cleaning, and none was prolonged."""
    for rule in rules.values():
        if any(expiry > rule.expiries[0] for expiry in rule.expiries):  # to end it twice is all right
            yield Violation("lifetime", f"rule {rule.id} was prolonged: {rule.expiries}")
        if rule.expiries and rule.ended is not None and rule.ended > rule.expiries[0] + CLEANING:
            yield Violation("lifetime", f"rule {rule.id} ended at {rule.ended}, not at {rule.expiries[0]}")


def _secrets(world: World, truth: Truth) -> Iterator[Violation]:
    """No password and no token is in any file or output of ours."""
    parser = configparser.ConfigParser()
    parser.read(world.config)
    secrets = {parser.get("client", "password"), *world.secrets, *truth.tokens()}
    for file in world.folder.rglob("*"):
        if file.is_file() and world.config.parent not in file.parents and not _clean(file, secrets):
            yield Violation("secrets", f"a credential is in {file}")


def _clean(file: Path, secrets: set[str]) -> bool:
    content = file.read_bytes()
    return not any(secret.encode() in content for secret in secrets)


def _others(world: World, truth: Truth, before: Before) -> Iterator[Violation]:
    """Other people's rules and replicas are as they were."""
    for what, was, now in zip(("rules", "replicas"), before.others, truth.others(world.places), strict=True):
        for one in set(was) - set(now):
            yield Violation("others", f"of other people's {what}, {one} is not as it was")
