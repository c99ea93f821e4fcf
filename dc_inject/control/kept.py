"""What control keeps in the ledger, as JSON: the states of links, storages and services."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TypeVar

from dc_inject.control.law import LinkState, StorageState
from dc_inject.model import FlowKey, Link

_State = TypeVar("_State", LinkState, StorageState, "Service")


@dataclass(slots=True)
class Service:
    """When a service told nothing, or nothing arrived anywhere; seconds since 1970. All of it is kept."""

    looked: float = 0.0
    moved: float = 0.0  # when anything last arrived
    stands: bool = False  # nothing has arrived since, for long, on two links that had files on their way
    silences: list[list[float]] = field(default_factory=list)  # begin and end
    seen: list[str] = field(default_factory=list)  # links that were observed since their windows were set
    fresh: list[tuple[str, float, float, float, bool]] = field(
        default_factory=list
    )  # link, files, time taken, size, telling

    def silent(self, since: float, now: float) -> float:
        """Return for how long of a time it was silent."""
        silent, heard = 0.0, since
        for begin, end in sorted([*self.silences, [self.moved, now]] if self.stands else self.silences):
            silent += max(min(end, now) - max(begin, heard), 0.0)
            heard = max(heard, min(end, now))
        return silent


@lru_cache(maxsize=1 << 14)  # a campaign has few of them, and asks for them all the time
def subject_of(key: FlowKey) -> str:
    """Return under which name the state of a link is kept."""
    return f"link {json.dumps([key.scenario, *key.link])}"


@lru_cache(maxsize=1 << 14)
def key_of(subject: str) -> FlowKey:
    """Return the link of a name."""
    scenario, source, destination, service = json.loads(subject.partition(" ")[2])
    return FlowKey(scenario, Link(source, destination, service))


def text_of(state: LinkState | StorageState | Service) -> str:
    """Return a state as text."""
    return json.dumps([getattr(state, one.name) for one in fields(state)])


def read_state(kind: type[_State], text: str) -> _State:
    """Return a state with the values that were kept. Raises ValueError for others."""
    values, state = json.loads(text), kind()
    if not isinstance(values, list) or len(values) != len(fields(kind)):
        raise ValueError("it has other values than this version keeps")
    for one, value in zip(fields(kind), values, strict=True):
        kept = getattr(state, one.name)
        if not _is_like(value, kept) and not (value is None and kept is None):
            raise ValueError(f"its `{one.name}` is {value!r:.40}")
        setattr(state, one.name, value)
    return state


def _is_like(value: object, known: object) -> bool:
    """Whether a value is what another one is: text, a number, or a list of lists of text and numbers."""
    if isinstance(known, bool | str):
        return isinstance(value, type(known))
    if isinstance(known, list):
        return isinstance(value, list) and all(
            part is None or isinstance(part, str | bool) or _is_like(part, 0.0)
            for entry in value
            for part in (entry if isinstance(entry, list) else [entry])
        )
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
