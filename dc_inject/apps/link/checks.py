"""What is checked at the services before a mini-challenge starts, and hints for what would fail."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.apps.link import hints, mini_challenge
from dc_inject.apps.link.judging import overload, steps
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.apps.link.reachability import Reachability
from dc_inject.apps.preview import online
from dc_inject.apps.preview.online_report import Answers
from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.model import DatasetFilter, Entry, Link, PoolKey, State, units
from dc_inject.model.errors import LedgerError, MenuError, Problem, ServiceError, UsageError
from dc_inject.model.ports import Backend, Endpoint
from dc_inject.model.transfers import FILE_SPEED
from dc_inject.planning import ramp
from dc_inject.system import files

SPACE = 10**12  # bytes that a test may occupy where the free space is unknown
PART = 0.5  # of the free space that a test may occupy without --space
EVERYTHING = DatasetFilter(("*:*",), files=(1, 10**9), mean_file=(0, 10**18))
SHOWN = 3
MADE = "rehearsal"  # what test data is called that a hint speaks of
MOST_MADE = 10**12  # bytes of test data that a hint speaks of
MOST_FILES = 100_000  # of them
WELL_CUT = 20  # files at least, so that steps are not coarse
MANY_SETS = 100  # datasets at most
ENOUGH = 1.25  # of what all steps need
LOOKED_AT = 100_000  # datasets
Warn = Callable[[str], None]
Connect = Callable[[MiniChallenge], Mapping[str, Backend]]

# What makes a mini-challenge senseless, and the options that help; anything else is a warning. `{selection}` are
# the options that choose what is injected.
BLOCKS = {
    "no-source-files": "see {selection}",
    "storage-unreachable": "is the name right, and the storage up?",
    "storage-verbs": "ask the storage for the right, or take another one",
    "no-distance": "ask Rucio's operators to set one, or take another link",
    "no-third-party-copy": "ask the sites, or Rucio's operators, for one",
    "account-limit": "ask for a larger limit there, or for a lower --rate",
    "pool-small": "take more ({selection}), a lower --rate, or a shorter step (--every, --for)",
}
# Reported here, with the numbers of the test.
OURS = frozenset({"fts-ramp", "pool-small", "free-space", "space-overfilled", "coarse-datasets"})


def ready(challenge: MiniChallenge, connect: Connect, warn: Warn) -> tuple[MiniChallenge, Reachability]:
    """Ask the services; return the mini-challenge with the space that it may fill, and its storages.

    `connect` returns the back end of its service, by the service's name, and `warn` is called with each warning.
    Raises UsageError for what cannot be answered, and ServiceError where a service cannot be asked. Nothing is
    written, neither here nor there.
    """
    name = f"the menu of {challenge.campaign}"
    draft = _draft(challenge, name)
    campaign = menu.campaign([draft.preview])
    backends = connect(challenge)
    answers = online.ask([draft], campaign, backends, FILE_SPEED)
    for note in answers.sentences:
        warn(note)
    backend = backends[challenge.link.through]
    problems = [problem for problem in answers.collect_problems(FILE_SPEED) if problem.code not in OURS]
    _refuse(challenge, problems, backend, draft, answers, warn)
    _weigh(challenge, answers, draft, warn)
    storages = Reachability({rse: _endpoints(backend, rse, warn) for rse in challenge.link.ends})
    pool_size = _pool_size(answers, draft)
    return _with_space(challenge, backend, pool_size.smallest if pool_size else 0, warn), storages


def _draft(challenge: MiniChallenge, name: str) -> menu.MenuDraft:
    """Return its menu; raises UsageError for an option that no menu may have, without the menu's lines."""
    try:
        return menu.read(challenge.text(), name, files.load)
    except MenuError as error:
        worst = error.problems[0]
        key = re.match(r"`(\w+)`", worst.message)
        option = f"--{key[1].replace('_', '-')}" if key else ""
        raise UsageError(worst.message.replace(key[0], option, 1) if key else worst.message, worst.hint) from None


def _pool_size(answers: Answers, draft: menu.MenuDraft) -> lint.PoolSize | None:
    """Return what the source has that fits, if a service listed it."""
    return cast("Mapping[PoolKey, lint.PoolSize]", answers.pool_sizes).get(draft.preview.flows[0].pool)


def _endpoints(backend: Backend, rse: str, warn: Warn) -> list[Endpoint]:
    """Return where a storage is served; empty if the service does not answer, which stops nothing."""
    try:
        return backend.endpoints(rse)
    except ServiceError as error:
        warn(f"warning: it is unknown where {rse} is served: {error.message}")
        return []


def _refuse(
    challenge: MiniChallenge,
    problems: Iterable[Problem],
    backend: Backend,
    draft: menu.MenuDraft,
    answers: Answers,
    warn: Warn,
) -> None:
    """Warn of findings, and raise the error of what stands in the way."""
    blocking = []
    for problem in problems:
        if not problem.is_error and problem.code not in BLOCKS:
            warn(f"warning: {problem.message} [{problem.code}] ({_hint(problem, challenge)})")
        else:
            blocking.append(problem)
    if not blocking:
        return
    blocking.sort(key=lambda problem: bool(problem.code))  # an end that is wrong, or tape, before what it lacks
    worst = blocking[0]
    for problem in blocking[1:]:
        warn(f"also: {problem.message} ({_hint(problem, challenge)})")
    if answers.service_failed:
        raise ServiceError(worst.message, worst.hint or None)
    if worst.code == "storage-unreachable":
        raise ServiceError(worst.message, _hint(worst, challenge))
    if worst.code == "no-source-files" and challenge.link.source in answers.on_tape:
        raise UsageError(worst.message, hints.adapt_hint(worst.hint))
    more = _how_to_make(challenge, answers, draft) if worst.code == "no-source-files" else ""
    if worst.code == "no-source-files" and not challenge.link.service.takes_files:
        message, hint = _what_is_there(challenge, backend)
        raise UsageError(message, f"{hint}{more}")
    raise UsageError(worst.message, f"{_hint(worst, challenge)}{more}")


def _hint(problem: Problem, challenge: MiniChallenge) -> str:
    """Return what helps, in options of this command: there is no menu yet that one could edit."""
    if problem.code in BLOCKS:
        return f"{_cure(problem.code, challenge)}; if it is meant: --accept {problem.code}"
    hint = hints.adapt_hint(problem.hint)
    return hint if not problem.code or "--accept" in hint else f"{hint}; if it is meant: --accept {problem.code}"


def _cure(code: str, challenge: MiniChallenge) -> str:
    return BLOCKS[code].format(selection=challenge.selection)


def _what_is_there(challenge: MiniChallenge, backend: Backend) -> tuple[str, str]:
    """Return why nothing at a source fits, with what is there, and the option to look at."""
    source, patterns = challenge.link.source, challenge.patterns
    named = ", ".join(patterns)
    items = list(itertools.islice(backend.inventory(source, replace(EVERYTHING, dids=patterns)), LOOKED_AT))
    if items:
        means = sorted(item.bytes // item.files for item in items)
        have = units.counted(len(items), f"datasets of {named}").replace(
            f"datasets of {named}s", f"datasets of {named}"
        )
        message = (
            f"{source} has {have}, and none fits: their mean files are {units.format_size(means[0])} to "
            f"{units.format_size(means[-1])}, and --mean-file asks for {challenge.options.mean_file}"
        )
        return message, f"--mean-file {_bound(_rounded_down(means[0]))}..{_bound(_rounded_up(means[-1]))}"
    others = list(itertools.islice(backend.inventory(source, EVERYTHING), SHOWN))
    if not others:
        return f"{source} has no dataset at all", "take another source"
    names = ", ".join(item.name for item in others)
    return f"no dataset of {source} matches {named}; there are {names} and others", "name some of them with --did"


def _bound(size: int) -> str:
    return f"{units.exact_size(size)}".replace(" ", "")


def _weigh(challenge: MiniChallenge, answers: Answers, draft: menu.MenuDraft, warn: Warn) -> None:
    """Compare what the source has with what the first step, and all of them, ask for."""
    pool_size = _pool_size(answers, draft)
    if pool_size is None or not pool_size.datasets:
        return
    ladder, source, size = challenge.ladder, challenge.link.source, units.format_size(pool_size.bytes)
    needed = ladder.first * ladder.shortest.total_seconds()
    step = f"{units.format_rate(ladder.first)} for {units.format_duration(ladder.shortest)}"
    service = challenge.link.service
    noun = service.items
    if 2 * ladder.first * ladder.every.total_seconds() < pool_size.smallest:  # planning takes one for half of it
        smallest = units.format_size(pool_size.smallest)
        raise UsageError(
            f"{units.format_rate(ladder.first)} for {units.format_duration(ladder.every)} is less than half of "
            f"one of the {noun} of {source}, of which the smallest has {smallest}: nothing would go out",
            f"raise --rate (10 Mb/s are not 10 Gb/s), make steps longer, or take smaller {noun}"
            f"{_how_to_make(challenge, answers, draft)}",
        )
    if service.unique and pool_size.bytes < needed and "pool-small" not in challenge.options.accept:
        raise UsageError(
            f"{step} needs {units.format_size(needed)}, and {source} has {size} in {pool_size.datasets} {noun} "
            "that fit: a dataset goes out again only when it is deleted at the destination",
            f"{_cure('pool-small', challenge)}; if deletion is quick enough: --accept pool-small"
            f"{_how_to_make(challenge, answers, draft)}",
        )
    if service.unique and pool_size.bytes < challenge.volume:
        warn(
            f"warning: all steps need {units.format_size(challenge.volume)}, and {source} has {size}: datasets "
            "must be deleted at the destination in time, to be used again"
        )
    few = steps.count_in_first_step(ladder, pool_size.datasets, pool_size.bytes)
    if few is not None:
        step = f"{units.format_duration(ladder.every)} at {units.format_rate(ladder.first)}"
        mean = units.format_size(round(pool_size.bytes / pool_size.datasets))
        warn(
            f"warning: a step of {step} holds only {few:.1f} {noun} of {mean}, the mean of what the source has: "
            "one more or less can make it inconclusive (a longer --every or --for, a higher --rate, smaller ones"
            f"{', files through FTS (two URL prefixes), or a menu with slices' if service.has_slices else ''})"
        )
    # A search waits for FTS itself.
    lasting = timedelta(0) if ladder.saturate else challenge.until - challenge.start
    short = ramp.too_short((ladder.every, rate) for rate in ladder.rates(lasting))
    if short is not None and "fts-ramp" not in challenge.options.accept:
        warn(
            f"warning: {units.format_rate(short.rate)} for {units.format_duration(short.lasts)} is shorter than "
            f"FTS needs to grow to the transfers that it takes, {units.format_duration(short.grows)}: what moves "
            "may be FTS's ramp and not the link [fts-ramp] (a longer --every or --for; if it is meant: "
            "--accept fts-ramp)"
        )
    _weigh_rules(challenge, pool_size, draft, warn)


def _weigh_rules(challenge: MiniChallenge, pool_size: lint.PoolSize, draft: menu.MenuDraft, warn: Warn) -> None:
    """Warn where the rules of an hour are too few for the highest rate; jobs are made as large as they must be."""
    limit, service = draft.preview.limits.rules_per_hour, challenge.link.service
    if service.takes_files:
        return
    dataset = pool_size.bytes / pool_size.datasets
    time = min(challenge.until - challenge.start, timedelta(hours=1)).total_seconds()
    most = limit * dataset / time
    if most >= challenge.highest:
        return
    needed = math.ceil(challenge.highest * 3600 / dataset)
    noun = "search" if challenge.ladder.saturate else "test"
    warn(
        f"warning: {units.counted(limit, service.injections)} an hour are at most {units.format_rate(most)} with "
        f"datasets of {units.format_size(round(dataset))}, the mean of {challenge.link.source}: a {noun} that "
        f"asks for {units.format_rate(challenge.highest)} is held by that limit once they are used up (larger "
        f"datasets: {challenge.selection}; or, if the operators of {service.title} agree, "
        f"--rules-per-hour {needed})"
    )


def _how_to_make(challenge: MiniChallenge, answers: Answers, draft: menu.MenuDraft) -> str:
    """Return how datasets or files that fit can be made, as one more hint; nothing where it would be too much."""
    source, volume = challenge.link.source, challenge.volume
    if volume > MOST_MADE or (challenge.link.service.takes_files and challenge.options.datasets):
        return ""
    datasets = draft.preview.flows[0].datasets
    least, most = datasets.mean_file if isinstance(datasets, DatasetFilter) else (1, EVERYTHING.mean_file[1])
    size = min(max(_rounded_up(volume / WELL_CUT), least), most)
    files = max(-(-int(ENOUGH * volume) // size), WELL_CUT)
    if files > MOST_FILES:
        return ""
    command = f"dc-inject data make {source} {MADE} --files {files} --size {_bound(size)}"
    if challenge.link.service.takes_files:
        folder = f"dc_inject-data/{MADE}/{files}x{size}"
        return f"; or make some, if {source} exists and is a disk: `{command}`, then --folder {folder}"
    identity = answers.identities.get(challenge.link.through)
    scope = f"user.{identity.account}" if identity else "SCOPE"
    return (
        f"; or make some: `{command} --dataset-files {-(-files // MANY_SETS)}` (--dry-run writes nothing and "
        f"shows whose the scope is; where your account may not register files, an administrator can make them: "
        f"the same with --scope {scope} --allow-admin)"
    )


def _rounded_up(size: float) -> int:
    """Return bytes with two digits that mean something, no less than `size`."""
    return -_rounded_down(-size)


def _rounded_down(size: float) -> int:
    """Return bytes with two digits that mean something, no more than `size`."""
    unit: int = 10 ** max(len(str(abs(int(size)))) - 2, 0)
    return int(size) // unit * unit


def _slow(challenge: MiniChallenge, space: int) -> str:
    """Return what the highest rate lacks of a space, in words; empty if that is enough."""
    needed = challenge.highest * _stays(challenge).total_seconds()
    if needed <= space or not space:
        return ""
    if not challenge.ladder.saturate:
        return "; at the highest rate it is slowed down when deletions do not keep pace"
    top, most = (units.format_rate(rate) for rate in (challenge.highest, space / needed * challenge.highest))
    return (
        f"\nwarning: that is enough to search up to about {most}; {top} takes {units.format_size(needed)} if "
        f"{challenge.link.service.injections} complete in {units.format_duration(mini_challenge.STAYS)}: up to "
        f"{overload.FOR_FTS} times what is on its way is kept waiting, and what has arrived stays for a while "
        f"(--space {_bound(_rounded_up(needed))}, if the site agrees, or a lower --max)"
    )


def _stays(challenge: MiniChallenge) -> timedelta:
    """Return for how long bytes count as ours at the destination: until they are deleted, and first on their way.

    A search lets as much wait as it may, or all that a trial asks for, where the link takes nothing of that.
    """
    there = max(mini_challenge.STAYS, challenge.cycle) + challenge.cycle
    if not challenge.ladder.saturate:
        return there
    on_its_way = max(overload.FOR_FTS * mini_challenge.STAYS, mini_challenge.STAYS + challenge.ladder.shortest)
    return on_its_way + there


def _with_space(challenge: MiniChallenge, backend: Backend, smallest: int, warn: Warn) -> MiniChallenge:
    """Return it with the most that it may occupy at the destination: --space, or a part of what is free.

    `smallest` are the bytes of the smallest dataset or file at the source (0: not known), for which there has to
    be room.
    """
    place = challenge.link.destination
    try:
        free = backend.sites([place])[place].free
    except ServiceError as error:
        raise ServiceError(f"the free space of {place} is unknown: {error.message}", error.hint) from None
    if challenge.space and free is not None and challenge.space > free:
        raise UsageError(
            f"--space is {units.format_size(challenge.space)}, and {units.format_size(free)} are free at {place}",
            "lower --space, or ask the site for space",
        )
    space = challenge.space or int(SPACE if free is None else PART * free)
    free_in_words = "its free space is unknown" if free is None else f"{units.format_size(free)} are free there"
    warn(
        f"this test may occupy at most {units.format_size(space)} at {place}; {free_in_words}"
        f"{_slow(challenge, space)}"
    )
    if space <= 0:
        raise UsageError(f"{place} has no free space", "ask the site for space, or use another destination")
    if space < smallest:
        noun = "file" if challenge.link.service.takes_files else "dataset"
        limit = "--space is" if challenge.space else "the test may occupy"
        raise UsageError(
            f"{limit} {units.format_size(space)}, and the smallest {noun} of {challenge.link.source} that fits "
            f"has {units.format_size(smallest)}",
            f"raise --space, or take smaller {noun}s ({challenge.selection})",
        )
    return replace(challenge, space=space)


SHARED = "it takes part of what this link carries"


def warnings(campaign: str, link: Link, now: datetime) -> Iterator[str]:
    """Yield a sentence for each other campaign that injects on a link now, or has rules or jobs there.

    Only ledgers on this machine are read: Rucio can search comments only by reading all rules of an account, and
    FTS shows jobs only to those who submitted them.
    """
    for name in ledger_files.campaigns():
        if name == campaign:
            continue
        try:
            with LedgerView.open(ledger_files.file_of(None, name)) as view, view.snapshot():
                use = _describe_use(view, name, link, now)
        except LedgerError as error:
            use = f"it is unknown whether campaign {name} uses this link: {error.message}"
        if use:
            yield use


def _describe_use(view: Reader, name: str, link: Link, now: datetime) -> str:
    """Return what a campaign does on a link, in words; empty if that is nothing, or nothing real."""
    if view.simulated_in is not None or not any(flow.link == link for flow in view.accounts()):
        return ""
    there = sum(e.injection.link == link and _lives(e, now) for e in view.entries(State.CALLED, State.LIVE))
    unfinished = f"{units.counted(there, f'unfinished {link.service.injections}')} on this link, as last seen"
    cycle, holder = view.last_cycle(), view.holder()
    if holder is not None and cycle is not None and any(row.key.link == link for row in view.rows(cycle=cycle)):
        rules = f", and has {unfinished}" if there else ""
        return f"campaign {name} runs now with this link, too ({holder}){rules}: {SHARED}"
    return f"campaign {name} has {unfinished}: {SHARED}, until `dc-inject end {name} --cancel`" if there else ""


def _lives(entry: Entry, now: datetime) -> bool:
    """Whether a rule or job may still be there; one whose answer was lost has no end of its own."""
    begun = entry.called_at or entry.injection.release
    return (entry.expires_at or begun + entry.injection.lifetime) > now
