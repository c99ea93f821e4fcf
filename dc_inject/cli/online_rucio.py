"""What `check --online` asks a Rucio: RSEs and links, quotas and spaces, activities, what sources have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dc_inject import lint, units
from dc_inject.cli.answers import Answers, Use, uses
from dc_inject.engine import admit
from dc_inject.errors import Fatal, MenuError, Problem, ServiceError
from dc_inject.goal import Onward
from dc_inject.lint import Stock
from dc_inject.menu import MenuDraft
from dc_inject.model import PoolKey
from dc_inject.ports import RseFacts

if TYPE_CHECKING:
    from dc_inject.backends.rucio import RucioBackend, Survey


def ask(told: Answers, drafts: Sequence[MenuDraft], rucio: RucioBackend) -> None:
    """Ask about all that links through Rucio need; what cannot be told is said, and stops nothing else."""
    unresolved = {expression for draft in drafts for _, expression in draft.expressions}
    some = uses(told.campaign, "rucio")
    names = {name for _, flow in some for name in flow.link[:2]} - unresolved
    try:
        known = dict(rucio.sites(sorted(names)))
        _rses(told, some, known)
        there = [use for use in some if all(name in known and known[name].exists for name in use[1].link[:2])]
        survey = rucio.survey({use[1].link[:2] for use in there})
        _links(told, there, survey)
        _activities(told, there, survey)
        _rooms(told, there, known, survey)
        _pools(told, there, rucio)
    except ServiceError as error:
        told.problems.append(Problem(drafts[0].name, 0, error.message, error.hint or ""))
        told.service_failed = told.service_failed or isinstance(error, Fatal)


def _rses(told: Answers, some: Iterable[Use], known: Mapping[str, RseFacts]) -> None:
    """Find out whether RSEs exist and are available, and which are tape."""

    def facts(service: str, ends: Iterable[str]) -> Mapping[str, RseFacts]:
        return {name: known[name] if service == "rucio" and name in known else RseFacts(name) for name in ends}

    try:
        admit.ends(told.campaign, facts)
    except MenuError as error:
        told.problems += error.problems
    seen = set()
    for use in some:
        link = use[1].link
        for name, right in ((link.source, "readable"), (link.destination, "writable")):
            fact = known.get(name)
            if fact is not None and getattr(fact, right) is False and (name, right) not in seen:
                seen.add((name, right))
                told.find(use, "storage-unreachable", f"Rucio says that {name} is not {right} now", "ask its site")


def _links(told: Answers, some: Iterable[Use], survey: Survey) -> None:
    """Find links that Rucio has no way for: no distance, or no protocols for copies by third party."""
    seen = set()
    for use in some:
        source, destination = pair = use[1].link[:2]
        if pair in seen:
            continue
        seen.add(pair)
        if pair in survey.distances and survey.distances[pair] is None:
            what = f"Rucio has no distance from {source} to {destination}: it will move nothing there"
            told.find(use, "no-distance", what, "ask Rucio's operators to set one")
        if survey.can_copy(source, destination) is False:
            reads, writes = survey.protocols[source].reads, survey.protocols[destination].writes
            what = (
                f"{source} and {destination} have no protocols for third-party copy that go together: "
                f"the one is read by {_words(reads)}, the other written by {_words(writes)}"
            )
            told.find(use, "no-third-party-copy", what, "ask the sites, or Rucio's operators, for one")
    for signal, why in survey.missing.items():
        told.said.append(f"signal missing: {signal} of RSEs or links: {why}")


def _words(schemes: Collection[str]) -> str:
    return " or ".join(sorted(schemes)) or "none"


def _activities(told: Answers, some: Iterable[Use], survey: Survey) -> None:
    """Find activities that the client's schema does not have: the server has its own, which nobody can ask for."""
    seen: set[str] = set()
    for use in some:
        activity = use[1].activity
        if survey.activities is not None and activity not in survey.activities and activity not in seen:
            seen.add(activity)
            what = f"the activity {activity!r} is not in the schema of this Rucio client; its server's may differ"
            near = ", ".join(sorted(survey.activities))
            told.find(use, "unknown-activity", what, f"known: {near}; if the server knows it, accept the code")


def _rooms(told: Answers, some: Iterable[Use], known: Mapping[str, RseFacts], survey: Survey) -> None:
    """Compare what destinations and quotas have room for with what the menus need."""
    facts = {name: known[name] for name in sorted({use[1].link.destination for use in some})}
    free = {name: fact.free for name, fact in facts.items() if fact.free is not None}
    quota = {name: fact.quota_left for name, fact in facts.items() if fact.quota_left is not None}
    told.take(lint.rooms(told.campaign, free, quota, survey.expired))
    for signal in ("free", "quota_left"):
        missing = [name for name, fact in facts.items() if signal in fact.missing]
        if missing:
            names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            told.said.append(f"signal missing: {signal} of {names}: {facts[missing[0]].missing[signal]}")


def _pools(told: Answers, some: Iterable[Use], rucio: RucioBackend) -> None:
    """Add up what each source has for each filter, and compare it with what its links need."""
    stocks: dict[PoolKey, Stock] = {}
    for pool in dict.fromkeys(flow.pool for _, flow in some if not isinstance(flow.goal, Onward)):
        try:
            stocks[pool] = stock = Stock.of(rucio.inventory(*pool))
        except ServiceError as error:
            told.said.append(f"the datasets of {pool.source} cannot be told: {error.message}")
        else:
            told.said.append(
                f"{pool.source}: {units.counted(stock.datasets, 'datasets')}, {units.format_size(stock.bytes)}"
            )
    identity = told.identities.get("rucio")
    told.take(lint.pools(told.campaign, stocks, may_end=identity is not None and identity.may_end is True))
