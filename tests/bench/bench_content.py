"""What test data cost to make, and what compression gains on them: `python -m tests.bench.bench_content`."""

from __future__ import annotations

import random
import time
import zlib

from dc_inject.model.content import PIECE, Content

SIZE = 1_000_000_000
SMALL = 50_000_000  # of what is slow


def main() -> None:
    """Print MB/s and ratios."""
    whole = b"".join(Content("ratio", 16 * PIECE))
    dice = random.Random(1)
    _say("content", SIZE, lambda: sum(len(piece) for piece in Content("speed", SIZE)))
    _say("content and adler32", SIZE, Content("speed", SIZE).adler32)
    _say("random.randbytes, for comparison", SMALL, lambda: dice.randbytes(SMALL))
    print(f"zlib makes {len(zlib.compress(whole, 9)) / len(whole):.4f} of it")


def _say(name: str, size: int, make) -> None:
    Content("warm", 1).adler32()
    began = time.perf_counter()
    make()
    print(f"{name}: {size / 1e6 / (time.perf_counter() - began):.0f} MB/s")


if __name__ == "__main__":
    main()
