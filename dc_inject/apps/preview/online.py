"""What `check --online` asks the services and storages of menus; nothing is changed there."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dc_inject import ledger, menu
from dc_inject.analysis import lint
from dc_inject.apps.preview import online_rucio
from dc_inject.apps.preview.online_report import Answers, Use, uses
from dc_inject.engine import admission, another_injector
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model import Campaign, FileFilter, Flow, Item, PoolKey, units
from dc_inject.model.errors import LedgerError, MenuError, Permanent, Problem, ServiceError, Temporary
from dc_inject.model.goals import SecondHop
from dc_inject.model.ports import Backend, Identity, Listing
from dc_inject.model.services import FTS, READS, RUCIO, describe_right
from dc_inject.model.transfers import LIMITS_OF, LINK_LIMIT, STORAGE_LIMIT
from dc_inject.planning import clocks
from dc_inject.storage.types import NotFound, OnTape
from dc_inject.system.clock import SystemClock

if TYPE_CHECKING:
    from dc_inject.backends.fts import FtsBackend, StorageEnd
    from dc_inject.backends.rucio import RucioBackend

ENOUGH = 100_000  # files of a source that are counted
FEW = 20  # files of a list that are looked at

LIMITS = {
    "config": "from its configuration",
    "optimizer": "from its optimizer, as they are just now",
    "default": f"not readable, so that the defaults of {LIMITS_OF} are assumed: {LINK_LIMIT} transfers at "
    f"a time on a link, {STORAGE_LIMIT} into and out of a storage",
}


def get_fts(backends: Mapping[str, Backend]) -> FtsBackend | None:
    """Return the back end of FTS, which can be asked more than others, if it is there."""
    return cast("FtsBackend | None", backends.get(FTS.name))


def ask(
    drafts: Sequence[menu.MenuDraft],
    campaign: Campaign,
    backends: Mapping[str, Backend],
    file_speed: float,
    narrowed: Callable[[Campaign], Campaign] = lambda campaign: campaign,
) -> Answers:
    """Ask the services that menus need: who we are there, the ends of links, source files, limits.

    `campaign` is that of the drafts' previews; the answers have it with its RSE expressions resolved. Each
    service and storage is asked, whatever became of the others. `file_speed` is in bytes per second.
    `narrowed` takes from the complete campaign what is asked about.
    """
    answers = Answers(campaign)
    alive = {service: backend for service, backend in backends.items() if _lets_us_in(answers, drafts, backend)}
    _compare_clocks(answers)
    answers.campaign = _resolved(answers, drafts, alive, narrowed)
    _ask_who_injects(answers, campaign, alive)
    if RUCIO.name in alive:
        online_rucio.ask(answers, drafts, cast("RucioBackend", alive[RUCIO.name]))
    if READS.name in alive:
        _ask_files(answers, uses(answers.campaign, READS.name), alive[READS.name])
    fts = get_fts(backends)
    if fts is not None:
        of_fts = uses(answers.campaign, fts.name)
        _ask_files(answers, of_fts, fts, _ask_storages(answers, of_fts, fts))
        _ask_space(answers, of_fts, fts)
        if fts.name in alive:
            _ask_limits(answers, of_fts, fts, file_speed)
    return answers


def _lets_us_in(answers: Answers, drafts: Sequence[menu.MenuDraft], backend: Backend) -> bool:
    try:
        identity = backend.check()
    except ServiceError as error:
        name = next(draft.name for draft in drafts if backend.name in draft.services)
        answers.problems.append(Problem(name, 0, error.message, error.hint or ""))
        answers.service_failed = True
        return False
    answers.sentences.append(_account_line(identity))
    answers.identities[backend.name] = identity
    _credentials(answers, identity)
    return True


def _credentials(answers: Answers, identity: Identity) -> None:
    """Find credentials that expire while the campaign runs."""
    until, affected = identity.credentials_until, uses(answers.campaign, identity.service)
    if until is not None and affected and until < answers.campaign.end:
        message = (
            f"the credentials for {identity.service} expire at {units.format_time(until)}, before the menus end, "
        )
        message += f"{units.format_time(answers.campaign.end)}"
        answers.find(
            affected[0], "credentials-expire", message, "have them renewed in time; `run` reads them again"
        )


def _compare_clocks(answers: Answers) -> None:
    """Find a clock of this machine that differs from the services': an error where `run` refuses it."""
    ahead = admission.clocks_ahead(answers.identities.values(), SystemClock().now())
    if not clocks.differ(ahead):
        return
    menu_, flow = uses(answers.campaign, min(ahead))[0]
    if admission.is_clock_too_far(ahead, menu_.cycle):
        answers.problems.append(Problem(flow.menu, 0, clocks.sentence(ahead), clocks.HINT))
    else:
        answers.find((menu_, flow), "clock-differs", clocks.sentence(ahead), clocks.HINT)


def _account_line(identity: Identity) -> str:
    sentence = (
        f"{identity.service} at {identity.address}: {identity.account}{identity.vo and f' of {identity.vo}'}, "
    )
    sentence += describe_right(identity.service, identity.may_end)
    if identity.admin:
        sentence += "; an administrator's account, which needs --allow-admin"
    if identity.credentials_until is not None:
        sentence += f"; credentials until {units.format_time(identity.credentials_until)}"
    return sentence


def _ask_who_injects(answers: Answers, campaign: Campaign, alive: Mapping[str, Backend]) -> None:
    """Find rules and jobs of the campaign that no ledger in its default place has made."""
    with contextlib.ExitStack() as stack:
        try:
            files = ledger.files(ledger_files.file_of(None, campaign.name))
            views = [stack.enter_context(LedgerView.open(file)) for file in files]
        except LedgerError as error:
            answers.sentences.append(f"it is unknown whether another injector is at work: {error.message}")
            return
        since = min((another_injector.since(view, campaign.start) for view in views), default=campaign.start)
        for service, backend in alive.items():
            if not isinstance(backend, Listing):
                continue
            try:
                others = another_injector.listed(backend, campaign.name, since)
            except ServiceError as error:
                answers.sentences.append(f"it is unknown whether another injector is at work: {error.message}")
                continue
            for view in views:
                others = another_injector.unknown(view, others)
            if others and (affected := uses(campaign, service)):
                message = another_injector.described(service, others, "no ledger here has")
                hint = (
                    f"`run` refuses to start until `dc-inject ledger rebuild {campaign.name} MENUS --adopt` has "
                    "taken them up"
                )
                answers.find(affected[0], "another-injector", message, hint)


def _resolved(
    answers: Answers,
    drafts: Sequence[menu.MenuDraft],
    alive: Mapping[str, Backend],
    narrowed: Callable[[Campaign], Campaign],
) -> Campaign:
    """Return the campaign with the RSEs that its expressions mean, as far as they could be found out."""
    menus = []
    for draft in drafts:
        names = {}
        for through, expression in draft.expressions:
            try:
                if through in alive:
                    names[expression] = alive[through].resolve(expression)
            except ServiceError as error:
                answers.problems.append(draft.wrong(expression, error))
        try:
            complete = len(names) == len({expression for _, expression in draft.expressions})
            menus.append(draft.resolve(names) if complete else draft.preview)
        except MenuError as error:
            answers.problems += error.problems
            menus.append(draft.preview)
    try:
        return narrowed(menu.campaign(menus))
    except MenuError as error:
        answers.problems += error.problems
        return answers.campaign


# --------------------------------------------------------------------------- FTS


def _ask_storages(answers: Answers, uses: Sequence[Use], fts: FtsBackend) -> set[str]:
    """Find out whether storages answer and allow what is needed; return the sources that can be asked more."""
    ends = fts.storages({flow.link.source for _, flow in uses}, {flow.link.destination for _, flow in uses})
    for end in ends:
        use = next(use for use in uses if getattr(use[1].link, end.role) == end.prefix)
        if end.reachable is False and end.error is not None:
            message = f"the {end.role} {end.prefix} cannot be reached: {end.error.message}"
            hint = end.error.hint or "check that the storage is up, and the port"
            answers.find(use, "storage-unreachable", message, hint)
        elif end.role == "destination":
            _check_destination(answers, use, end)
    return {end.prefix for end in ends if end.role == "source" and end.reachable is not False}


def _ask_space(answers: Answers, fts_uses: Sequence[Use], fts: FtsBackend) -> None:
    """Compare the free space of destinations, as far as their storages report it, with what the menus need."""
    facts = fts.sites({flow.link.destination for _, flow in fts_uses})
    free = {prefix: fact.free for prefix, fact in facts.items() if fact.free is not None}
    answers.take(lint.space_findings(answers.campaign, free, {}, {}))


def _check_destination(answers: Answers, use: Use, end: StorageEnd) -> None:
    where = f"the destination {end.prefix}"
    if end.error is not None:
        message = f"{where} does not let us look, so perhaps not delete either: {end.error.message}"
        answers.find(use, "storage-verbs", message, end.error.hint)
    for verb, cost in (("DELETE", "copies could not be deleted"), ("COPY", "FTS cannot make it fetch files")):
        if end.verbs.get(verb) is False:
            message = f"{where} does not allow {verb}: {cost}"
            answers.find(
                use, "storage-verbs", message, "ask the storage for the right, or take another destination"
            )


def _listed_by_storage(flow: Flow) -> bool:
    return isinstance(flow.datasets, FileFilter) and flow.datasets.folder is not None


def _recalls(flow: Flow) -> bool:
    return flow.job is not None and flow.job.recalls


def _ask_files(
    answers: Answers, uses: Sequence[Use], backend: Backend, sources: Collection[str] | None = None
) -> None:
    """Find out how many files each source has for its filter, and whether the first that were listed are there."""
    pools: dict[PoolKey, Use] = {}
    for use in uses:
        if (sources is None or use[1].link.source in sources) and not isinstance(use[1].goal, SecondHop):
            pools.setdefault(use[1].pool, use)
    for pool, use in pools.items():
        try:
            count, size, sample = _counted(backend.inventory(pool.source, pool.datasets))
        except ServiceError as error:
            _report_no_inventory(answers, use, error)
        else:
            _judge_files(answers, use, backend, count, size, sample)


def _report_no_inventory(answers: Answers, use: Use, error: ServiceError) -> None:
    """Report why there is no inventory: the storage did not give it, or Rucio where it knows the replicas."""
    flow = use[1]
    message = f"the files of {flow.link.source} are unknown: {error.message}"
    if isinstance(error, OnTape):
        answers.on_tape.add(flow.link.source)
    if not isinstance(flow.datasets, FileFilter) or flow.datasets.datasets is None:
        answers.find(use, _code(error), message, error.hint)
    elif isinstance(error, Permanent) and not flow.link.service.reads:
        answers.find(use, "no-source-files", message, error.hint)
    else:  # of reads it is a name that Rucio does not know, as with links through Rucio
        answers.problems.append(Problem(flow.menu, flow.line, message, error.hint or ""))
        answers.service_failed = answers.service_failed or not isinstance(error, Permanent)


def _code(error: ServiceError) -> str:
    """Return the code of what stands in the way of source files."""
    if isinstance(error, NotFound):
        return "no-source-files"
    return "storage-unreachable" if isinstance(error, Temporary) else "storage-verbs"


def _counted(items: Iterator[Item]) -> tuple[int, int, list[Item]]:
    """Return the number of files, their bytes, and the first of them."""
    count, size = 0, 0
    sample: list[Item] = []
    for item in items:
        count, size = count + 1, size + item.bytes
        if count <= FEW:
            sample.append(item)
        if count == ENOUGH:
            break
    return count, size, sample


def _judge_files(
    answers: Answers, use: Use, backend: Backend, count: int, size: int, sample: Sequence[Item]
) -> None:
    source = use[1].link.source
    if not count:
        hint = "check the menu's list or folder, pattern, size; if files come later: `accept: [no-source-files]`"
        answers.find(use, "no-source-files", f"{source} has no file that the menu takes", hint)
        return
    answers.pool_sizes[use[1].pool] = lint.PoolSize(count, size, min(file.bytes for file in sample))
    most = " or more" if count == ENOUGH else ""
    answers.sentences.append(f"{source}: {units.counted(count, 'files')}{most}, {units.format_size(size)}")
    fts = get_fts({backend.name: backend})
    if fts is not None and (not _listed_by_storage(use[1]) or _recalls(use[1])):  # else they have just been seen
        _look_at(answers, use, fts, sample)


def _look_at(answers: Answers, use: Use, fts: FtsBackend, files: Sequence[Item]) -> None:
    """Look at files that others have listed; of each kind of trouble the first is named."""
    by_code: dict[str, list[tuple[str, str | None]]] = {}
    on_tape, first = 0, units.counted(len(files), "files")
    for file, file_status in zip(files, fts.stat_sources([file.name for file in files]), strict=True):
        if isinstance(file_status, ServiceError):
            message = f"a source file cannot be looked at: {file_status.message}"
            by_code.setdefault(_code(file_status), []).append((message, file_status.hint))
        elif not file_status.exists:
            hint = "check whether the list is old, or for another source"
            by_code.setdefault("no-source-files", []).append((f"{file.name} is listed, but does not exist", hint))
        elif file_status.bytes not in {None, file.bytes}:
            message = f"{file.name} is listed with {file.bytes} bytes, but has {file_status.bytes}"
            by_code.setdefault("wrong-size", []).append(
                (message, "FTS copies what is there, and plans count what is listed: correct the list")
            )
        if not isinstance(file_status, ServiceError) and file_status.nearline:
            on_tape += 1
            hint = "have it staged, take a source on disk, or recall it: describe the site's `tape` in the menu"
            by_code.setdefault("source-on-tape", []).append((f"{file.name} is on tape (nearline)", hint))
    if _recalls(use[1]):
        by_code.pop("source-on-tape", None)
        answers.sentences.append(
            f"{use[1].link.source}: {on_tape} of the first {first} on tape (nearline), to be staged"
        )
    for code, problems in by_code.items():
        wrong, advice = problems[0]
        more = f", and {len(problems) - 1} more of the first {len(files)}" if problems[1:] else ""
        answers.find(use, code, wrong + more, advice)


def _ask_limits(answers: Answers, uses: Sequence[Use], fts: FtsBackend, file_speed: float) -> None:
    try:
        limits = fts.limits({flow.link for _, flow in uses})
    except ServiceError as error:
        answers.sentences.append(f"FTS's limits are unknown: {error.message}")
        return
    answers.limits.add(fts.name)
    answers.take(lint.transfer_findings(answers.campaign, limits, file_speed))
    kinds = Counter(limit.origin for limit in limits)
    counts = ", ".join(f"{number} {LIMITS[kind]}" for kind, number in kinds.items())
    answers.sentences.append(f"FTS's limits of links and storages: {counts}")
