"""Tape systems: what recalls may use of one, and how files stand with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Tape:
    """The tape system of a site: what recalls may use of it.

    `rate` is that of all its drives together, in bytes per second. `buffer` is the disk, in bytes, that files are
    staged to before they are copied. `ends` are the RSEs or URL prefixes of the site that are tape.
    """

    rate: float
    buffer: int
    ends: frozenset[str]

    def together(self, other: Tape | None) -> Tape:
        """Return what several menus allow of one: the lowest of each."""
        if other is None:
            return self
        return Tape(min(self.rate, other.rate), min(self.buffer, other.buffer), self.ends | other.ends)

    def part(self, share: float) -> Tape:
        """Return a part of it, for one shard of a campaign."""
        return Tape(self.rate * share, int(self.buffer * share), self.ends)


class TapeFiles(NamedTuple):
    """How files stand with tape systems: how many are being staged, or have arrived and are being archived.

    `archived` are on tape at their destination. `waits` has, of each file that was staged, the seconds from the
    request to the file on disk.
    """

    staging: int = 0
    archiving: int = 0
    archived: int = 0
    waits: tuple[int, ...] = ()
