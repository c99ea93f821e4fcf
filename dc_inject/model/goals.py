"""Goals limit a link's due in addition to its rate: a volume, bytes to keep in flight, or a pool to repeat.

    left of a volume  =  volume - moved - on its way - debt
    left of a keep    =  keep - on its way - debt
    left of an again  =  what of the pool is not at the destination - debt

The debt was due and is not injected (yet): what is known to have failed is debt again, with a goal or without
(`failed_files.py`). What expired before it had arrived is in none of the three, so with a goal it is
due again by itself; without a goal it stays injected and does not come back. A cycle is due its rate's integral,
but no more than what is left. `control.py` may also bound what is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class GoalAccount:
    """How an account stands when a cycle begins, in bytes; `debt` may be negative when it is ahead."""

    moved: int = 0
    coming: int = 0
    debt: int = 0
    free: int | None = None  # of its pool, and not at the destination; None: not known, or not needed


@dataclass(frozen=True, slots=True)
class Volume:
    """So many bytes in all, each dataset or file once in its scenario.

    `steady`: without a rate of its own, so that what is left is spread over what is left of the window.
    """

    bytes: int
    steady: bool = False
    kind: ClassVar[str] = "volume"
    once: ClassVar[bool] = True

    def due(self, wanted: int, ahead: int, at: GoalAccount) -> int:
        """Return what a cycle is due whose rate asks for `wanted`, and for `ahead` until its window ends."""
        left = max(self.bytes - at.moved - at.coming - at.debt, 0)
        if not self.steady:
            return min(wanted, left)
        return min(-(-left * wanted // ahead), left) if ahead > 0 else 0

    def scaled(self, part: float) -> Volume:
        """Return a part of it."""
        return Volume(round(self.bytes * part), self.steady)


@dataclass(frozen=True, slots=True)
class Keep:
    """So many bytes on their way at any time, refilled in every cycle."""

    bytes: int
    kind: ClassVar[str] = "keep"
    once: ClassVar[bool] = False

    def due(self, wanted: int, ahead: int, at: GoalAccount) -> int:
        """Return what a cycle is due whose rate allows `wanted`."""
        del ahead
        return min(wanted, max(self.bytes - at.coming - at.debt, 0))

    def scaled(self, part: float) -> Keep:
        """Return a part of it."""
        return Keep(round(self.bytes * part))


@dataclass(frozen=True, slots=True)
class Recycle:
    """The datasets of the pool go round: each is due again as soon as its last rule is complete and gone."""

    bytes: int = 0
    kind: ClassVar[str] = "again"
    once: ClassVar[bool] = False

    def due(self, wanted: int, ahead: int, at: GoalAccount) -> int:
        """Return what a cycle is due whose rate allows `wanted`."""
        del ahead
        return wanted if at.free is None else min(wanted, max(at.free - at.debt, 0))

    def scaled(self, part: float) -> Recycle:
        """Return what it is with a part of its rate: the same."""
        del part
        return self


@dataclass(frozen=True, slots=True)
class SecondHop(Recycle):
    """A second hop: what has landed goes on. Its pool is what is complete at the source and has not gone on yet.

    It is due (`due`, as for `Recycle`) no more than that. Files that failed on their way on are in it again.
    """

    kind: ClassVar[str] = "then"


Goal = Volume | Keep | Recycle
