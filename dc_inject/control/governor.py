"""The Governor: what planning and the engine ask about what may be in flight. This one lets everything out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from dc_inject.model import Entry, Held
from dc_inject.model.ports import Observation
from dc_inject.planning.situation import Situation


class Governor:
    """No control."""

    def govern(self, situation: Situation) -> Situation:
        """Return the situation of a plan with what each link has room for in its cycle, and why."""
        return situation

    def turn(self, moment: datetime) -> None:
        """Begin a moment of release."""

    def withheld(self, entry: Entry, now: datetime) -> Held | None:
        """Return why an intent has to wait; one that may go out counts as in flight until the next turn."""
        del entry, now
        return None

    def released(self, entries: Iterable[Entry], now: datetime) -> None:
        """Hear what was asked of a service."""

    def returned(self, entry: Entry) -> None:
        """Hear that a service did not take what was asked."""

    def observed(self, before: Mapping[str, Entry], observations: Sequence[Observation], now: datetime) -> None:
        """Hear how entries stand, known `before` by their keys."""
