"""What `check --online` asks a Rucio: RSEs and links, quotas and spaces, activities, what sources have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dc_inject.analysis import lint
from dc_inject.analysis.lint import PoolSize
from dc_inject.cli.online_report import Answers, Use, uses
from dc_inject.engine import admission, preflight
from dc_inject.menu import MenuDraft
from dc_inject.model import Cycle, Injection, Item, PoolKey, units
from dc_inject.model.errors import MenuError, NeedsOperator, Problem, ServiceError
from dc_inject.model.goals import SecondHop
from dc_inject.model.ports import Candidate, ReplicaStatus, RseFacts

if TYPE_CHECKING:
    from dc_inject.backends.rucio import RucioBackend, Survey

LOOKED_AT = 10  # datasets of a source, in one bulk call


def ask(told: Answers, drafts: Sequence[MenuDraft], rucio: RucioBackend) -> None:
    """Ask about all that links through Rucio need; what cannot be told is said, and stops nothing else."""
    unresolved = {expression for draft in drafts for _, expression in draft.expressions}
    some = uses(told.campaign, rucio.name)
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
        told.service_failed = told.service_failed or isinstance(error, NeedsOperator)


def _rses(told: Answers, some: Iterable[Use], known: Mapping[str, RseFacts]) -> None:
    """Find out whether RSEs exist and are available, and which are tape."""

    def facts(_service: str, ends: Iterable[str]) -> Mapping[str, RseFacts]:
        return {name: known[name] if name in known else RseFacts(name) for name in ends}

    try:
        admission.ends(told.campaign, facts)
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
            names = units.some(missing, 5)
            told.said.append(f"signal missing: {signal} of {names}: {facts[missing[0]].missing[signal]}")


def _pools(told: Answers, some: Iterable[Use], rucio: RucioBackend) -> None:
    """Add up what each source has for each filter, and compare it with what its links need."""
    sizes: dict[PoolKey, PoolSize] = {}
    samples: dict[PoolKey, list[Item]] = {}
    for pool in dict.fromkeys(flow.pool for _, flow in some if not isinstance(flow.goal, SecondHop)):
        try:
            sizes[pool] = there = PoolSize.of(_sampled(rucio.inventory(*pool), samples.setdefault(pool, [])))
        except ServiceError as error:
            told.said.append(f"the datasets of {pool.source} cannot be told: {error.message}")
        else:
            told.said.append(
                f"{pool.source}: {units.counted(there.datasets, 'datasets')}, {units.format_size(there.bytes)}"
            )
    identity = told.identities.get(rucio.name)
    told.pool_sizes |= sizes
    told.take(lint.pools(told.campaign, sizes, may_end=identity is not None and identity.may_end is True))
    _last_look(told, some, samples, rucio)


def _sampled(items: Iterable[Item], sample: list[Item]) -> Iterator[Item]:
    """Pass items on, and keep a few, each with the same chance: neighbours are often of one kind."""
    dice = random.Random(LOOKED_AT)  # noqa: S311 (a sample is no secret, and is to be the same each time)
    for number, item in enumerate(items):
        place = number if number < LOOKED_AT else dice.randrange(number + 1)
        if place < LOOKED_AT:
            sample[place : place + 1] = [item]
        yield item


def _last_look(
    told: Answers, some: Iterable[Use], samples: Mapping[PoolKey, Sequence[Item]], rucio: RucioBackend
) -> None:
    """Look at a few datasets of each source as `run` does just before it injects: where none is usable say why.

    A look that fails is an error, and the last one: `run` would inject nothing, and others would fail alike.
    """
    firsts: dict[PoolKey, Use] = {}
    for use in some:
        if samples.get(use[1].pool):
            firsts.setdefault(use[1].pool, use)
    for pool, use in firsts.items():
        flow, items = use[1], samples[pool]
        try:
            statuses = rucio.look([Candidate(item.id, flow.link) for item in items])
        except ServiceError as error:
            what = f"datasets of {pool.source} cannot be looked at: {error.message}"
            told.problems.append(Problem(flow.menu, flow.line, what, error.hint or ""))
            told.service_failed = True
            return
        _judge(told, use, items, statuses)


def _judge(told: Answers, use: Use, items: Sequence[Item], statuses: Mapping[Candidate, ReplicaStatus]) -> None:
    """Find a source of which nothing is usable; what is at the destination already is no fault of the source."""
    link = use[1].link
    whys = (preflight.why_not(statuses.get(Candidate(item.id, link)), _tried(use, item)) for item in items)
    reasons = Counter("" if why == preflight.THERE else why for why in whys)
    if not reasons[""]:
        why = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        what = f"of {units.counted(len(items), 'datasets')} at {link.source} that were looked at "
        what += f"none can be injected: {why}"
        told.find(use, "nothing-usable", what, "name other datasets, or ask Rucio's operators")


def _tried(use: Use, item: Item) -> Injection:
    """Return an item as it would be injected at the beginning of a flow."""
    menu_, flow = use
    cycle = Cycle.at(flow.start, menu_.cycle)
    return Injection(
        key="", campaign=menu_.campaign, cycle=cycle, scenario=flow.scenario, link=flow.link, item=item,
        release=flow.start, lifetime=flow.lifetime_min, activity=flow.activity,
        service_priority=flow.service_priority, contact=menu_.contact,
    )  # fmt: skip
