"""What `check --online` asks a Rucio: RSEs and links, quotas and spaces, activities, what sources have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.analysis.lint import PoolSize
from dc_inject.apps.preview.online_report import Answers, Use, uses
from dc_inject.engine import admission, preflight
from dc_inject.model import DatasetFilter, Item, PoolKey, units
from dc_inject.model.errors import MenuError, NeedsOperator, Problem, ServiceError
from dc_inject.model.goals import SecondHop
from dc_inject.model.ports import Candidate, ReplicaStatus, RseFacts
from dc_inject.planning.pool import Coverage, unmatched

if TYPE_CHECKING:
    from dc_inject.backends.rucio import RucioBackend, Survey

MOST_NAMED = 10  # entries that a finding names
LOOKED_AT = 10  # datasets of a source, in one bulk call


def ask(answers: Answers, drafts: Sequence[menu.MenuDraft], rucio: RucioBackend) -> None:
    """Ask about all that links through Rucio need; an unanswered question is reported, and stops nothing else."""
    unresolved = {expression for draft in drafts for _, expression in draft.expressions}
    ours = uses(answers.campaign, rucio.name)
    names = {name for _, flow in ours for name in flow.link.ends} - unresolved
    try:
        facts = dict(rucio.sites(sorted(names)))
        _rses(answers, ours, facts)
        existing = [use for use in ours if all(name in facts and facts[name].exists for name in use[1].link.ends)]
        survey = rucio.survey({use[1].link.ends for use in existing})
        _links(answers, existing, survey)
        _activities(answers, existing, survey)
        _rooms(answers, existing, facts, survey)
        _pools(answers, existing, rucio)
    except ServiceError as error:
        answers.problems.append(Problem(drafts[0].name, 0, error.message, error.hint or ""))
        answers.service_failed = answers.service_failed or isinstance(error, NeedsOperator)


def _rses(answers: Answers, ours: Iterable[Use], facts_of: Mapping[str, RseFacts]) -> None:
    """Find out whether RSEs exist and are available, and which are tape."""

    def facts(_service: str, ends: Iterable[str]) -> Mapping[str, RseFacts]:
        return {name: facts_of[name] if name in facts_of else RseFacts(name) for name in ends}

    try:
        admission.ends(answers.campaign, facts)
    except MenuError as error:
        answers.problems += error.problems
    reported = set()
    for use in ours:
        link = use[1].link
        for name, right in ((link.source, "readable"), (link.destination, "writable")):
            fact = facts_of.get(name)
            if fact is not None and getattr(fact, right) is False and (name, right) not in reported:
                reported.add((name, right))
                answers.find(use, "storage-unreachable", f"in Rucio, {name} is not {right} now", "ask its site")
        fact = facts_of.get(link.source)
        if fact is not None and fact.tape and (fact.name, "tape") not in reported:
            reported.add((fact.name, "tape"))
            answers.sentences.append(f"{fact.name} is tape (nearline): Rucio has FTS stage its files first")
        fact = facts_of.get(link.destination)
        if fact is not None and fact.deletable is False and (fact.name, "deletable") not in reported:
            reported.add((fact.name, "deletable"))
            message = f"Rucio deletes nothing at {fact.name}: the space of ended rules does not come back"
            answers.find(use, "deletions-off", message, "ask its site to set availability_delete")


def _links(answers: Answers, ours: Iterable[Use], survey: Survey) -> None:
    """Find links that Rucio has no way for: no distance, or no protocols for copies by third party."""
    reported = set()
    for use in ours:
        source, destination = pair = use[1].link.ends
        if pair in reported:
            continue
        reported.add(pair)
        if pair in survey.distances and survey.distances[pair] is None:
            message = f"Rucio has no distance from {source} to {destination}: it will move nothing there"
            answers.find(use, "no-distance", message, "ask Rucio's operators to set one")
        if survey.can_copy(source, destination) is False:
            reads, writes = survey.protocols[source].reads, survey.protocols[destination].writes
            message = (
                f"{source} and {destination} have no protocols for third-party copy that go together: "
                f"the one is read by {_words(reads)}, the other written by {_words(writes)}"
            )
            answers.find(use, "no-third-party-copy", message, "ask the sites, or Rucio's operators, for one")
    for signal, why in survey.missing.items():
        answers.sentences.append(f"signal missing: {signal} of RSEs or links: {why}")


def _words(schemes: Collection[str]) -> str:
    return " or ".join(sorted(schemes)) or "none"


def _activities(answers: Answers, ours: Iterable[Use], survey: Survey) -> None:
    """Find activities that the client's schema does not have: the server has its own, which cannot be queried."""
    reported: set[str] = set()
    for use in ours:
        activity = use[1].activity
        if survey.activities is not None and activity not in survey.activities and activity not in reported:
            reported.add(activity)
            message = (
                f"the activity {activity!r} is not in the schema of this Rucio client; its server's may differ"
            )
            near = ", ".join(sorted(survey.activities))
            answers.find(
                use, "unknown-activity", message, f"known: {near}; if the server knows it, accept the code"
            )


def _rooms(answers: Answers, ours: Iterable[Use], known_facts: Mapping[str, RseFacts], survey: Survey) -> None:
    """Compare what destinations and quotas have room for with what the menus need."""
    facts = {name: known_facts[name] for name in sorted({use[1].link.destination for use in ours})}
    free = {name: fact.free for name, fact in facts.items() if fact.free is not None}
    quota = {name: fact.quota_left for name, fact in facts.items() if fact.quota_left is not None}
    answers.take(lint.space_findings(answers.campaign, free, quota, survey.expired))
    closed = {
        use[1].link.destination: use for use in ours if "quota_left" in facts[use[1].link.destination].closed
    }
    for name, use in list(closed.items())[:1]:
        answers.find(use, "account-limit", facts[name].closed["quota_left"], "ask Rucio's operators to remove it")
    for signal in ("free", "quota_left"):
        missing = [name for name, fact in facts.items() if signal in fact.missing]
        if missing:
            names = units.some(missing, 5)
            answers.sentences.append(f"signal missing: {signal} of {names}: {facts[missing[0]].missing[signal]}")


def _pools(answers: Answers, ours: Iterable[Use], rucio: RucioBackend) -> None:
    """Add up what each source has for each filter, and compare it with what its links need."""
    sizes: dict[PoolKey, PoolSize] = {}
    samples: dict[PoolKey, list[Item]] = {}
    coverages: dict[PoolKey, Coverage] = {}
    for pool in dict.fromkeys(flow.pool for _, flow in ours if not isinstance(flow.goal, SecondHop)):
        coverage = Coverage(pool.datasets) if isinstance(pool.datasets, DatasetFilter) else None
        try:
            found = rucio.inventory(*pool, coverage.note if coverage else None)
            size = PoolSize.of(_sampled(found, samples.setdefault(pool, [])))
            if coverage:
                size, coverages[pool] = size._replace(named=coverage.named), coverage
            sizes[pool] = size
        except ServiceError as error:
            answers.sentences.append(f"the datasets of {pool.source} are unknown: {error.message}")
        else:
            answers.sentences.append(
                f"{pool.source}: {units.counted(size.datasets, 'datasets')}, {units.format_size(size.bytes)}"
            )
    identity = answers.identities.get(rucio.name)
    answers.pool_sizes |= sizes
    _unmatched(answers, ours, coverages, rucio)
    may_end = identity is not None and identity.may_end is True
    answers.take(lint.pool_findings(answers.campaign, sizes, may_end=may_end))
    _last_check(answers, ours, samples, rucio)


def _unmatched(
    answers: Answers, ours: Iterable[Use], coverages: Mapping[PoolKey, Coverage], rucio: RucioBackend
) -> None:
    """Report entries of selections that match nothing at any of their sources; one of `exclude` is an error.

    Where a source could not be read nothing is known of its selection.
    """
    users: dict[DatasetFilter, dict[PoolKey, Use]] = {}
    for use in ours:
        datasets = use[1].pool.datasets
        if isinstance(datasets, DatasetFilter) and not isinstance(use[1].goal, SecondHop):
            users.setdefault(datasets, {}).setdefault(use[1].pool, use)
    for datasets, pools in users.items():
        if not all(pool in coverages for pool in pools):
            continue
        covered, use = [coverages[pool] for pool in pools], next(iter(pools.values()))
        dids, exclude = unmatched(covered)
        if exclude:
            message = (
                f"nothing at any source is kept out by {units.some(sorted(exclude), MOST_NAMED)} of `exclude`"
            )
            answers.find(use, "unmatched-exclude", message, "check the names; what is meant by them may go out")
        there = set().union(*(coverage.in_containers for coverage in covered))
        try:
            asked = dids or datasets.containers
            whys = rucio.explain(sorted(dids), datasets.containers, there) if asked else {}
        except ServiceError as error:
            answers.sentences.append(f"it is unknown why entries of `datasets` match nothing: {error.message}")
            continue
        if whys:
            named = units.some([f"{entry} ({why})" for entry, why in whys.items()], MOST_NAMED)
            count = units.counted(len(whys), "entries of `datasets` match", "entry of `datasets` matches")
            message = f"{count} nothing at any source: {named}"
            answers.find(use, "unmatched-datasets", message, "correct them, or take them out")


def _sampled(items: Iterable[Item], sample: list[Item]) -> Iterator[Item]:
    """Pass items on, and keep a few, each with the same chance: neighbours are often of one kind."""
    dice = random.Random(LOOKED_AT)  # noqa: S311 (a sample is no secret, and is to be the same each time)
    for number, item in enumerate(items):
        place = number if number < LOOKED_AT else dice.randrange(number + 1)
        if place < LOOKED_AT:
            sample[place : place + 1] = [item]
        yield item


def _last_check(
    answers: Answers, ours: Iterable[Use], samples: Mapping[PoolKey, Sequence[Item]], rucio: RucioBackend
) -> None:
    """Look at a few datasets of each source as `run` does just before it injects: report why none is usable.

    A look that fails is an error, and the last one: `run` would inject nothing, and others would fail alike.
    """
    firsts: dict[PoolKey, Use] = {}
    for use in ours:
        if samples.get(use[1].pool):
            firsts.setdefault(use[1].pool, use)
    for pool, use in firsts.items():
        flow, items = use[1], samples[pool]
        try:
            statuses = rucio.check_replicas([Candidate(item.id, flow.link) for item in items])
        except ServiceError as error:
            message = f"datasets of {pool.source} cannot be looked at: {error.message}"
            answers.problems.append(Problem(flow.menu, flow.line, message, error.hint or ""))
            answers.service_failed = True
            return
        _judge(answers, use, items, statuses)


def _judge(answers: Answers, use: Use, items: Sequence[Item], statuses: Mapping[Candidate, ReplicaStatus]) -> None:
    """Find a source of which nothing is usable; what is at the destination already is no fault of the source."""
    link, ends_at = use[1].link, use[1].start + use[1].lifetime_min  # of what is injected at the beginning
    whys = (preflight.why_not(statuses.get(Candidate(item.id, link)), item, ends_at) for item in items)
    reasons = Counter("" if why in preflight.OF_DESTINATION else why for why in whys)
    if not reasons[""]:
        why = ", ".join(f"{count} x {reason}" for reason, count in reasons.most_common())
        message = f"of {units.counted(len(items), 'datasets')} at {link.source} that were looked at "
        message += f"none can be injected: {why}"
        answers.find(use, "nothing-usable", message, "name other datasets, or ask Rucio's operators")
