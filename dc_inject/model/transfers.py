"""Transfers at a time: what a rate needs of them, and what FTS allows on a link of two storages."""

from __future__ import annotations

from dataclasses import dataclass

FILE_SPEED = (
    6e6  # bytes per second of one file: CERN to RAL in DC24, 4.74 GB/s on 766 transfers (Final Report, 3.2.2)
)
LINK_LIMIT = 130  # transfers at a time that FTS allows on a link by default
STORAGE_LIMIT = 200  # and out of a storage, or into one
LIMITS_OF = "FTS 3.14, schema 10"  # whose defaults these are; in DC24 it was 200 a link


@dataclass(frozen=True, slots=True)
class TransferLimit:
    """The most transfers at a time that FTS allows on a link of two storages, out of one, or into one.

    Storages are as FTS has them, `davs://host` without a port; an empty one stands for any. `origin` is where
    `most` is from: `config`, `optimizer` (what FTS allows just now, which it changes) or `default` (not known).
    """

    source: str
    destination: str
    most: int
    origin: str

    def __str__(self) -> str:
        if self.source and self.destination:
            return f"{self.source} -> {self.destination}"
        return f"into {self.destination}" if self.destination else f"out of {self.source}"


def transfers_needed(rate: float, file_speed: float) -> float:
    """Return the transfers at a time that a rate needs: rate / speed of one file, both in bytes per second.

    130 files at 6 MB/s are 6.24 Gb/s: a link with FTS's default limit carries about 6 Gb/s.
    """
    return rate / file_speed
