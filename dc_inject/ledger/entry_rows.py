"""Entries as rows of the table of injections: what is read of them, and what is written when they change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

from dc_inject.ledger.database import cycle_of, duration, moment, read_json, read_object, stored, stored_or_none
from dc_inject.model import (
    Bundle,
    Entry,
    File,
    Injection,
    JobOptions,
    Link,
    ReadOptions,
    State,
    Verify,
    items,
    transitions,
)

# Columns of an injection that are called as the attributes of its entry: those that are times, and the others.
_TIMES = (
    *("not_before", "called_at", "accepted_at", "expires_at", "completed_at", "end_asked_at", "ended_at"),
    *("gone_at", "observed_at"),
)
_PLAIN = ("external_id", "attempt", "present", "failed", "moved", "files_done", "files_stuck", "error")
_KEPT = (
    *("key", "cycle", "campaign", "item", "bytes", "files", "release", "lifetime", "activity", "service_priority"),
    *("contact", "state", "job", "keeps_files", "undone", "moved_exact", *_PLAIN, *_TIMES),
)
_COLUMNS = f"{', '.join(f'injection.{name}' for name in _KEPT)}, scenario, source, destination, through, length"
_NAMED = (*_PLAIN, *_TIMES)
_AFTER = len(_KEPT)  # columns of other tables
_PLAINS = slice(_KEPT.index(_PLAIN[0]), _KEPT.index(_PLAIN[0]) + len(_PLAIN))
_MOMENTS = slice(_KEPT.index(_TIMES[0]), _KEPT.index(_TIMES[0]) + len(_TIMES))
_link = lru_cache(maxsize=1 << 14)(Link)
STATE_OF = {str(state): state for state in State}
_FROM = "FROM injection JOIN account ON account.id = injection.account JOIN cycle ON cycle.start = injection.cycle"
WITH_FILES = f"SELECT {_COLUMNS}, members {_FROM}"
# There may be millions of files, of which most readers want to know nothing.
PLAINLY = f"SELECT {_COLUMNS}, iif(state IN ('intended', 'called'), members, NULL) AS members {_FROM}"
_DROPPED = frozenset({State.REFUSED, State.WITHDRAWN})
_HERE = frozenset({State.LIVE, State.COMPLETE})

_GIVEN = (
    *("bytes", "files", "release", "lifetime", "activity", "service_priority", "contact", "intended_at", "job"),
    *("keeps_files", "members"),
)
_BECOME = ("state", "moved_exact", "undone", "dropped_at", *_PLAIN, *_TIMES)  # what follows from all that happened
_ALL = ("key", "account", "cycle", "campaign", "item", *_GIVEN, *_BECOME)
INTEND = (
    f"INSERT INTO injection ({', '.join(_ALL)}) VALUES ({', '.join('?' * len(_ALL))}) "  # noqa: S608  our own words
    f"ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in ('state', *_GIVEN))}, "
    "not_before = NULL, dropped_at = NULL, error = '' WHERE state IN ('refused', 'withdrawn')"
)
_WITH_STATE = ("undone", "members", "dropped_at")  # columns that depend on the state
_SPECIAL = {
    "members": "iif(?, members, NULL)",
    "dropped_at": "coalesce(dropped_at, ?)",
}  # what is not just written


def intended(
    intent: Entry, account: int, now: datetime, later: tuple[Entry, datetime] | None = None
) -> tuple[object, ...]:
    """Return what INTEND writes of a new intent, or of what it has become `later`, and when."""
    injection, item = intent.injection, intent.injection.item
    entry, became = later or (intent, now)
    return (
        injection.key,
        account,
        stored(injection.cycle.start),
        injection.campaign,
        item.name,
        entry.injection.item.bytes,
        item.files,
        stored(injection.release),
        stored(injection.lifetime),
        injection.activity,
        injection.service_priority,
        injection.contact,
        stored(now),
        None if injection.job is None else _job_text(injection.job),
        int(injection.keeps_files),
        json.dumps([[m.name, m.bytes, m.checksum] for m in item.members])
        if isinstance(item, Bundle) and _keeps_members(entry, became)
        else None,
        *written(entry, _BECOME, became),
    )


def differing(before: Entry, entry: Entry) -> tuple[str, ...]:
    """Return the columns in which an entry differs from what it was: only those are written.

    Indexes, checks and triggers of other columns are left alone then, and most looks change few.
    """
    # Most values are the same objects, as `changed` leaves them, and all are in the order of the class.
    pairs = zip(before.__dict__.items(), entry.__dict__.values(), strict=True)
    names = [name for (name, old), new in pairs if new is not old and new != old and name != "injection"]
    if entry.injection.item.bytes != before.injection.item.bytes:  # a service may know better than what was listed
        names.append("bytes")
    if entry.state is not before.state:
        names += [name for name in _WITH_STATE if name not in names]
    return tuple(names)


@lru_cache(maxsize=256)  # few things change together
def update(names: tuple[str, ...], *, several: bool) -> str:
    """Return the statement that writes these columns of an injection, or the same values into several ones.

    Its last value is the key; of several ones a JSON list of the keys.
    """
    steps = ", ".join(f"{name} = {_SPECIAL.get(name, '?')}" for name in names)
    which = "IN (SELECT value FROM json_each(?))" if several else "= ?"
    return f"UPDATE injection SET {steps} WHERE key {which}"  # noqa: S608  our own words


def written(entry: Entry, names: Sequence[str], now: datetime) -> tuple[object, ...]:
    """Return what is written into these columns."""
    return tuple([_WRITTEN[name](entry, now) for name in names])


def _time(name: str) -> Callable[[Entry, datetime], object]:
    value = attrgetter(name)
    return lambda entry, _: stored_or_none(value(entry))


def _plain(name: str) -> Callable[[Entry, datetime], object]:
    value = attrgetter(name)
    return lambda entry, _: value(entry)


def _keeps_members(entry: Entry, _: datetime) -> object:
    """Whether members are kept: for the call that names them, and for a second hop.

    Whatever else follows finds its files by their key and number.
    """
    return entry.state in transitions.UNASKED or (entry.injection.keeps_files and entry.state in _HERE)


_WRITTEN: Mapping[str, Callable[[Entry, datetime], object]] = {  # into each column
    **{name: _plain(name) for name in ("moved_exact", *_PLAIN)},
    **{name: _time(name) for name in _TIMES},
    "state": lambda entry, _: str(entry.state),
    "bytes": lambda entry, _: entry.injection.item.bytes,
    "undone": lambda entry, _: json.dumps(entry.undone) if entry.undone and entry.state in _HERE else None,
    "members": _keeps_members,
    "dropped_at": lambda entry, now: stored(now) if entry.state in _DROPPED else None,
}


def entry_of(row: sqlite3.Row) -> Entry:
    """Return the entry of a row, whose columns are those of `_COLUMNS` and the members.

    A start may read hundreds of thousands: columns are taken by their place, since a row's lookup by name costs
    thirty times as much.
    """
    (key, start, campaign, item, size, files, release, lifetime, activity, priority) = row[:10]
    (contact, state, job, keeps_files, undone, moved_exact) = row[10:16]
    (scenario, source, destination, through, length, members) = row[_AFTER:]
    injection = Injection(
        key=key,
        campaign=campaign,
        cycle=cycle_of(start, length),
        scenario=scenario,
        link=_link(source, destination, through),
        item=items.read(item, size, files)
        if job is None
        else items.read_bundle(item, size, files, tuple(File(*m) for m in read_json(members or "[]", kind=list))),
        release=moment(release),
        lifetime=duration(lifetime),
        activity=activity,
        service_priority=priority,
        contact=contact,
        job=None if job is None else _job(job),
        keeps_files=bool(keeps_files),
    )
    times = [None if number is None else moment(number) for number in row[_MOMENTS]]
    values: dict[str, Any] = dict(zip(_NAMED, (*row[_PLAINS], *times), strict=True))
    return Entry(
        injection=injection,
        state=STATE_OF[state],
        moved_exact=bool(moved_exact),
        undone=() if undone is None else tuple(read_json(undone, kind=list)),
        **values,
    )


_OPTIONAL = frozenset({"reading", "recalls", "archives"})  # options that few jobs have


def _job_text(job: JobOptions) -> str:
    values = asdict(job) | {"longest_transfer": stored(job.longest_transfer)}
    return json.dumps({name: value for name, value in values.items() if value or name not in _OPTIONAL})


@lru_cache(maxsize=256)  # a campaign has a few of them, an observation thousands of entries
def _job(text: str) -> JobOptions:
    options = read_object(text)
    more: dict[str, Any] = {
        "verify": Verify(options["verify"]),
        "longest_transfer": duration(options["longest_transfer"]),
    }
    if reading := options.get("reading"):
        more["reading"] = ReadOptions(**reading)
    return JobOptions(**options | more)
