"""Who we are at services, what we may do there and for how long; and whether the storages of FTS answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from dc_inject.apps.preview import online
from dc_inject.engine import admission
from dc_inject.menu import MenuDraft
from dc_inject.model import FileFilter, Flow, units
from dc_inject.model.errors import ServiceError, Temporary
from dc_inject.model.ports import Backend, Clock
from dc_inject.model.services import SERVICES
from dc_inject.planning import clocks
from dc_inject.storage.types import VERBS, FileStatus

if TYPE_CHECKING:
    from dc_inject.backends.fts import FtsBackend, StorageEnd

VERB_OF = {verb.lower(): verb for verb in VERBS}  # of WebDAV, by the key of its answer
_KEYS = (
    *("service", "address", "version", "vo", "account", "admin", "may_end", "credentials_from"),
    *("credentials_until", "credentials_left", "delegation_needed", "delegated_until", "clock_ahead", "error"),
)


class Answer(NamedTuple):
    """How a service knows us.

    What is unknown in `values` is None; spans of time are in seconds there. `ahead` is how far our clock is ahead
    of its own. `error` is why something is unknown, where the service did not answer.
    """

    values: dict[str, Any]
    ahead: timedelta | None
    error: ServiceError | None


def ask_service(backend: Backend, clock: Clock) -> Answer:
    """Ask a service who we are."""
    values: dict[str, Any] = {**dict.fromkeys(_KEYS), "service": backend.name}
    fts, ahead = online.get_fts({backend.name: backend}), None
    try:
        if fts is not None:
            values["credentials_from"] = fts.credentials_from()
        identity = backend.check()
        now = clock.now()
        until = identity.credentials_until
        values |= {
            "address": identity.address,
            "version": identity.version,
            "vo": identity.vo,
            "account": identity.account,
            "admin": identity.admin,
            "may_end": identity.may_end,
            "credentials_until": until,
            "credentials_left": None if until is None else round((until - now).total_seconds()),
        }
        ahead = admission.clocks_ahead([identity], now).get(backend.name)
        values["clock_ahead"] = None if ahead is None else round(ahead.total_seconds())
        if fts is not None:
            delegation = fts.delegation()
            values |= {"delegation_needed": delegation.needed, "delegated_until": delegation.until}
    except ServiceError as error:  # the others are asked all the same
        return Answer(values | {"error": error.message}, ahead, error)
    return Answer(values, ahead, None)


def describe_clock(seconds: float) -> str:
    """Return in words how far this machine's clock is ahead of a service's."""
    if not differs(seconds):
        return "agrees"
    distance = units.format_duration(timedelta(seconds=abs(seconds)))
    return f"{distance} {'ahead' if seconds > 0 else 'behind'}"


def differs(seconds: float) -> bool:
    """Return whether a clock that is so far ahead counts as different."""
    return clocks.differ({"": timedelta(seconds=seconds)})


def warn_of_clocks(answers: Iterable[Answer]) -> str:
    """Return a warning if this machine's clock differs from the services'; else nothing."""
    ahead = {answer.values["service"]: answer.ahead for answer in answers if answer.ahead is not None}
    return f"{clocks.sentence(ahead)} ({clocks.HINT})" if clocks.differ(ahead) else ""


def ask_storages(drafts: Iterable[MenuDraft], backends: Mapping[str, Backend]) -> list[Mapping[str, Any]]:
    """Ask the storages of links through FTS what they allow, and the sources of reads for their first file."""
    flows = {(f.link.through, f.link.source): f for draft in drafts for f in draft.preview.flows}
    rows = [_reads_source(flow, backends[name]) for (name, _), flow in flows.items() if SERVICES[name].reads]
    fts = online.get_fts(backends)
    if fts is None:
        return rows
    links = {flow.link for draft in drafts for flow in draft.preview.flows if flow.link.through == fts.name}
    ends = fts.storages({link.source for link in links}, {link.destination for link in links})
    of_fts = {source: flow for (name, source), flow in flows.items() if name == fts.name}
    return [*(_storage(end, _is_nearline(end, of_fts, fts)) for end in ends), *rows]


def _reads_source(flow: Flow, backend: Backend) -> Mapping[str, Any]:
    """Return whether a source that workers read, which may be an RSE, has a file for them."""
    row = {**dict.fromkeys((*VERB_OF, "free", "nearline", "error")), "storage": flow.link.source, "end": "source"}
    try:
        first = next(backend.inventory(flow.link.source, flow.datasets), None)
    except ServiceError as error:
        why = f"{error.message} ({error.hint})" if error.hint else error.message
        return {**row, "reachable": False if isinstance(error, Temporary) else None, "exists": None, "error": why}
    return {**row, "reachable": True, "exists": first is not None}


def _is_nearline(end: StorageEnd, flows: Mapping[str, Flow], fts: FtsBackend) -> bool | None:
    """Whether an end, or the first file that is to be recalled from it, is on tape only; None: not known."""
    files = flows[end.prefix].datasets if end.role == "source" else None
    if end.reach is None or not isinstance(files, FileFilter) or not files.recalls:
        return end.reach.nearline if end.reach else None
    try:
        first = next(fts.inventory(end.prefix, files), None)
    except ServiceError:
        return None  # `check --online` shows why
    [file] = fts.stat_sources([first.name]) if first else [None]
    return file.nearline if isinstance(file, FileStatus) else None


def _storage(end: StorageEnd, is_nearline: bool | None) -> Mapping[str, Any]:
    reach = end.reach
    nearline = "on tape (nearline)" if is_nearline else None
    return {
        "storage": end.prefix,
        "end": end.role,
        "reachable": end.reachable,
        "exists": reach.exists if reach else None,
        **{key: end.verbs.get(verb) for key, verb in VERB_OF.items()},
        "free": reach.free if reach else None,
        "nearline": is_nearline,
        "error": end.error.message if end.error else nearline,
    }


def failures(answers: Iterable[Answer], storages: Iterable[Mapping[str, Any]]) -> list[ServiceError]:
    """Return what went wrong: with all storages, if none can be reached, and with each service."""
    reachable = [storage["reachable"] is not False for storage in storages]
    hint = "check the network, and their ports"
    unreached = [Temporary("no storage of these menus can be reached", hint)]
    errors = [answer.error for answer in answers if answer.error is not None]
    return errors if any(reachable) or not reachable else [*unreached, *errors]
