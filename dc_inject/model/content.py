"""Content of test files: cheap to make, the same for the same seed, and nothing that compresses.

Bytes of a cryptographic generator would cost more than the network that they are for. So a block of 4 MiB is made
of such bytes once, and each piece of a file is a window of it at a place that follows from seed and number, behind
32 bytes that no other piece has. So zlib, which looks 32 KiB back, finds nothing twice, and neither does a storage
that keeps equal blocks once.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

PIECE = 1 << 18  # bytes; a slow storage takes one within the time that a send may take
_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Content:
    """A file's content: `size` bytes that follow from the seed alone; each iteration gives the same pieces."""

    seed: str
    size: int

    def __len__(self) -> int:
        """Return the size, so that HTTP clients announce it."""
        return self.size

    def __iter__(self) -> Iterator[bytes]:
        block = _block()
        for number, start in enumerate(range(0, self.size, PIECE)):
            head = hashlib.sha256(f"{self.seed}\n{number}".encode()).digest()
            where = int.from_bytes(head[:4], "big") % (_BLOCK - PIECE)
            piece = head + block[where : where + PIECE - len(head)]
            yield piece[: self.size - start]

    def adler32(self) -> str:
        """Return its checksum as grid software writes it, in eight hexadecimal digits."""
        checksum = 1
        for piece in self:
            checksum = zlib.adler32(piece, checksum)
        return f"{checksum:08x}"


@cache
def _block() -> bytes:
    return hashlib.shake_128(b"dc_inject test data").digest(_BLOCK)
