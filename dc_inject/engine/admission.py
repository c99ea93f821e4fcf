"""What has to be right before a campaign is injected: account, ends of links, findings, tape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from dc_inject.analysis import lint
from dc_inject.menu import source_lists
from dc_inject.model import Campaign, FileFilter, Flow, units, urls
from dc_inject.model.errors import MenuError, Permanent, Problem, UsageError
from dc_inject.model.ports import Backend, Identity, RseFacts
from dc_inject.planning import clocks
from dc_inject.system import clock as system_clock

ORDINARY = "use an ordinary account, since administrators skip quotas; or confirm with --allow-admin"


def identities(backends: Mapping[str, Backend], *, allow_admin: bool) -> dict[str, Identity]:
    """Ask every service who we are; raises NeedsOperator when one cannot work, UsageError for an admin account."""
    result = {service: backend.check() for service, backend in backends.items()}
    for service, identity in result.items():
        if identity.admin and not allow_admin:
            raise UsageError(
                f"{identity.account} is an administrator's account at {service} ({identity.address})",
                ORDINARY,
            )
    return result


def clocks_ahead(known: Iterable[Identity], shown: datetime) -> dict[str, timedelta]:
    """Return how far a clock that shows this is ahead of the clocks of services, as far as their answers show."""
    leads = {identity.service: system_clock.measure_lead(identity.address, shown) for identity in known}
    return {service: ahead for service, ahead in leads.items() if ahead is not None}


def is_clock_too_far(ahead: Mapping[str, timedelta], cycle: timedelta) -> bool:
    """Return whether `run` refuses to inject by this machine's clock: cycles would be those of another time."""
    return clocks.distance(ahead) > max(cycle, clocks.AGREED)


def refuse_clock(known: Iterable[Identity], shown: datetime, cycle: timedelta) -> None:
    """Raise UsageError for a clock that is too far away from the services' to inject by."""
    ahead = clocks_ahead(known, shown)
    if is_clock_too_far(ahead, cycle):
        raise UsageError(
            clocks.sentence(ahead), f"{clocks.HINT}; or `run` can inject all the same: --accept-clock"
        )


def findings(campaign: Campaign) -> None:
    """Raise MenuError for findings that need accepting and whose code the menu does not accept."""
    accepted = {menu.name: menu.accept for menu in campaign.menus}
    refused = [
        problem
        for problem in lint.findings(campaign)
        if problem.needs_accepting and problem.code not in accepted.get(problem.file, frozenset())
    ]
    if refused:
        raise MenuError(refused)


def ends(campaign: Campaign, facts: Callable[[str, Iterable[str]], Mapping[str, RseFacts]]) -> None:
    """Raise MenuError for links whose ends do not exist, mean other RSEs, or are tape without an agreement.

    Where only storages know the ends they are not asked: they report neither, and one that hangs would block the
    engine.
    """
    names: dict[str, set[str]] = {}
    for flow in campaign.flows:
        if flow.link.service.knows_ends:
            names.setdefault(flow.link.through, set()).update(flow.link.ends)
    facts_of = {
        (service, name): fact
        for service, ends_of_service in names.items()
        for name, fact in facts(service, sorted(ends_of_service)).items()
    }
    unusable: dict[tuple[str, str], list[Problem]] = {}
    tapes = set()  # each has to be agreed to where it stands
    for menu_ in campaign.menus:
        for flow in menu_.flows:
            for rse in flow.link.ends if flow.link.through in names else ():
                fact = facts_of.get((flow.link.through, rse))
                if fact is None or not fact.exists:
                    hint = f"did you mean {fact.near}?" if fact is not None and fact.near else "check its spelling"
                    problem = Problem(flow.menu, flow.line, f"{flow.link.through} knows no RSE {rse}", hint)
                    unusable.setdefault((flow.link.through, rse), []).append(problem)
                elif fact.ambiguity:
                    hint = f"ask its operators: {fact.name} alone must have the attribute {fact.name}; "
                    hint += "or take another RSE"
                    problem = Problem(flow.menu, flow.line, f"{flow.link.through}: {fact.ambiguity}", hint)
                    unusable.setdefault((flow.link.through, rse), []).append(problem)
                elif fact.tape and rse not in menu_.tape_agreed:
                    hint = "name who agreed with `tape_agreed: ...` on the link, or use a disk RSE"
                    tapes.add(Problem(flow.menu, flow.line, f"{rse} is tape, and no agreement is named", hint))
    if unusable or tapes:
        raise MenuError([*map(once, unusable.values()), *tapes])


def storages(campaign: Campaign) -> None:
    """Raise MenuError for storages that this machine cannot list or delete at, for want of a library.

    FTS would copy to them all the same, and the copies would stay: better an error now than a hold in an hour.
    """
    wanted = [
        (flow, end)
        for flow in campaign.flows
        for end in _spoken_to(flow)
        if end.partition("://")[0] in urls.XROOTD
    ]
    if not wanted:
        return
    from dc_inject.storage import xrootd  # noqa: PLC0415  takes a while, and few menus need it

    try:
        xrootd.load()
    except Permanent as error:
        why, hint = error.message, error.hint or ""
        problems = {Problem(flow.menu, flow.line, f"{end}: {why}", hint) for flow, end in wanted}
        raise MenuError(sorted(problems)) from None


def _spoken_to(flow: Flow) -> Iterator[str]:
    """Give the ends of a link through FTS at which something is listed, looked at or deleted by us."""
    files, reads = flow.datasets, flow.link.service.reads
    if isinstance(files, FileFilter):
        if not reads:
            yield flow.link.destination
        unsized = files.listing is not None and source_lists.unsized(files.listing)
        if reads or unsized or files.folder is not None:
            yield flow.link.source


def once(problems: Iterable[Problem]) -> Problem:
    """Return the first of the problems that one RSE makes, with the number of other links that have it."""
    problem, *more = sorted(problems)
    if not more:
        return problem
    return replace(problem, message=f"{problem.message} (and {units.counted(len(more), 'more links')} with it)")
