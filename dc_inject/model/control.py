"""Control: whether the bytes in flight on a link are bounded, by what the link carries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Mode(StrEnum):
    """What is done with the controller's limit for a link."""

    OFF = "off"  # nothing is asked
    ADVISE = "advise"  # views show what would be done
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Control:
    """Whether what a link has in flight is controlled.

    `catch_up` is for how long a debt is kept, to be made up as far as its window has room.
    """

    mode: Mode = Mode.OFF
    catch_up: timedelta = timedelta(hours=3)


UNCONTROLLED = Control()
