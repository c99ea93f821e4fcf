"""Events: what an observer hears of once it has been done and, if it was to be, written to the ledger.

Metrics count them, tests break the program there. Adding an event takes its class here and one `report` where it
happens; whoever wants to hear of it matches on its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dc_inject.model.holds import Hold
from dc_inject.model.ports import Observation, Outcome
from dc_inject.model.types import Cycle, FlowKey


class Event:
    """Something that has just been done."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class KeysEvent(Event):
    """Something that has just been done with the injections of these keys."""

    keys: Sequence[str]


class Observer(Protocol):
    """Receives events: metrics, or a test that breaks the program there."""

    def event(self, event: Event) -> None:
        """Receive one event; back ends send theirs from any thread."""


# --------------------------------------------------------------------------- cycles


@dataclass(frozen=True, slots=True)
class CycleOpened(Event):
    """A cycle has begun: what is due in it is written."""

    cycle: Cycle


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """A cycle has its plan, `seconds` after planning began."""

    cycle: Cycle
    seconds: float


@dataclass(frozen=True, slots=True)
class CycleClosed(Event):
    """The rows of a cycle are written for good, `seconds` after its end."""

    cycle: Cycle
    seconds: float


@dataclass(frozen=True, slots=True)
class MenusRefused(Event):
    """Changed menus were not taken up."""

    message: str


# --------------------------------------------------------------------------- submitting


class Intended(KeysEvent):
    """Intents of a cycle are written."""


@dataclass(frozen=True, slots=True)
class SetAside(Event):
    """The last check found a chosen item to be of no use."""

    item: str
    destination: str
    why: str


class Calling(KeysEvent):
    """It is written that a service is about to be asked for these."""


class Called(KeysEvent):
    """A call has come back, and nothing of it is written yet."""


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """What a service answered to a call is written."""

    service: str
    outcomes: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """A service refused an injection: `kind` is that of the error (`ServiceError.kind`)."""

    service: str
    kind: str


# --------------------------------------------------------------------------- observing, ending, deleting


@dataclass(frozen=True, slots=True)
class Observed(Event):
    """How entries stand is written, and what follows on it is under way."""

    observations: Sequence[Observation]


class EndRequested(KeysEvent):
    """It is written that a service is about to be asked to end these."""


class EndCalled(KeysEvent):
    """A call to end these has come back."""


class Ended(KeysEvent):
    """A service has accepted to end these."""


class Removing(KeysEvent):
    """The files of these are about to be deleted."""


class RemoveCalled(KeysEvent):
    """A call that deletes, or asks whether the bytes of these are gone, has come back."""


class Removed(KeysEvent):
    """It is written that the bytes of these are gone."""


# --------------------------------------------------------------------------- trouble


@dataclass(frozen=True, slots=True)
class RequestMade(Event):
    """A back end has called its service; `answered` also where the service refused."""

    service: str
    method: str
    seconds: float
    result: str
    answered: bool


@dataclass(frozen=True, slots=True)
class ServiceFailed(Event):
    """A service answered with an error; `kind` is that of the error (`ServiceError.kind`)."""

    service: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class LinkTroubled(Event):
    """A flow gets less than its due for a reason that arose within the cycle."""

    flow: FlowKey
    hold: Hold


@dataclass(frozen=True, slots=True)
class BreakerSwitched(Event):
    """A service is asked by one call at a time from now on (`open`), or by all calls again."""

    service: str
    open: bool


@dataclass(frozen=True, slots=True)
class ObservationLost(Event):
    """Nothing has been seen of what a service has for some rounds (`lost`), or it is seen again."""

    service: str
    lost: bool


@dataclass(frozen=True, slots=True)
class UnexpectedError(Event):
    """An unexpected error; its trace is in the ledger's notes."""

    kind: str


class Silent:
    """An observer that hears nothing."""

    def event(self, event: Event) -> None:
        """Let it pass."""
