"""Services: a table of what each service that moves bytes can do, and what its things are called.

A link names its service (`through:` of a menu). Everything but the service's own back end asks for what it can do
and what its things are called, never which one it is. So another service is one more entry here and a back end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """A service, by the `name` that menus and ledgers have of it, and by its `title` for people.

    `injections` is what it calls what we ask it for, `items` what it takes; both in the plural.
    """

    name: str
    title: str
    injections: str
    items: str
    cleans_up: bool  # ends what has lived its lifetime, and deletes what was ended; else both are ours to do
    unique: bool  # an item can be at a destination once only, whoever brought it; else every copy has its own name
    has_slices: bool  # a part of a dataset can go out as a temporary dataset of its own
    takes_files: bool  # takes files that we bundle; else datasets
    knows_ends: bool  # knows which ends exist, and which of them are tape; so an end may be an expression
    ends_are_urls: bool  # prefixes of URLs, below which credentials of ours are used; else names of RSEs
    reads: bool  # bytes are only read: a destination is the site of the workers, by name, and nothing stays there
    has_quota: bool  # holds each file by a lock, which counts toward the account's quota
    named_by_menus: bool  # a menu may name its host and port: another instance does not have the same jobs


RUCIO = Service(
    name="rucio",
    title="Rucio",
    injections="rules",
    items="datasets",
    cleans_up=True,
    unique=True,
    has_slices=True,
    takes_files=False,
    knows_ends=True,
    ends_are_urls=False,
    reads=False,
    has_quota=True,
    named_by_menus=False,
)
FTS = Service(
    name="fts",
    title="FTS",
    injections="jobs",
    items="files",
    cleans_up=False,
    unique=False,
    has_slices=False,
    takes_files=True,
    knows_ends=False,
    ends_are_urls=True,
    reads=False,
    has_quota=False,
    named_by_menus=True,
)
READS = Service(
    name="reads",
    title="streamed reads",
    injections="readers",
    items="files",
    cleans_up=False,
    unique=False,
    has_slices=False,
    takes_files=True,
    knows_ends=False,
    ends_are_urls=True,
    reads=True,
    has_quota=False,
    named_by_menus=False,
)
SERVICES = {service.name: service for service in (RUCIO, FTS, READS)}
DEFAULT = RUCIO  # where no menu names a service
SIMULATED = "twin://"  # begins the address of a service that is simulated; the name of the grid follows


def by_end(*, is_url: bool) -> Service:
    """Return the service that a link goes through whose ends are URLs, or names of RSEs."""
    return next(service for service in SERVICES.values() if service.ends_are_urls is is_url)


def titles(services: Iterable[Service]) -> str:
    """Return the titles of services, for people: `Rucio`, or `Rucio and FTS`."""
    return " and ".join(service.title for service in services)


def injections(names: Iterable[str]) -> str:
    """Return what these services make of what is injected, for people: `rules`, `jobs`, or `rules and jobs`."""
    named = set(names) & set(SERVICES) or {RUCIO.name, FTS.name}
    return " and ".join(service.injections for service in SERVICES.values() if service.name in named)


def describe_right(service: str, right: bool | None) -> str:
    """Return in words whether this account may end at a service what it began; None: unknown."""
    ends = f"end {SERVICES[service].injections} early"
    unknown = f"it is unknown whether this account may {ends}"
    return unknown if right is None else f"may {'' if right else 'NOT '}{ends}"
