"""The account of the link of a mini-challenge at one moment: by readings its steps are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dc_inject.model import Held


@dataclass(frozen=True, slots=True)
class Reading:
    """The account of the link at a moment: bytes that moved, were injected and failed since the begin.

    `completion` is the median time from a rule to its completion lately, if anything was completed. `coming` are
    bytes on their way, `classes` failed files by class since the begin, `dataset` and `file` the mean bytes of
    what was injected of late (0: not known). `held` and `service` are those of the last cycle. `silent` tells that
    something is on its way and the service has told nothing of it since the reading before. `fresh` is the first
    reading after a start: what was before it is not part of its step. `down` names what did not answer.
    """

    at: datetime
    moved: int = 0
    injected: int = 0
    failed: int = 0
    completion: timedelta | None = None
    held: Held | None = None
    coming: int | None = None
    classes: Mapping[str, int] = field(default_factory=dict)
    dataset: int = 0
    file: int = 0
    counted_by: int = 0
    silent: bool = False
    fresh: bool = False
    down: str = ""
    service: str = ""

    @property
    def waiting(self) -> int:
        """Bytes that are on their way."""
        return self.injected - self.moved - self.failed if self.coming is None else self.coming
