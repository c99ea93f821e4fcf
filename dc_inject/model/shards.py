"""Which shard of a campaign an injector is, in figures as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 10  # shards of a campaign: as many ledgers as SQLite reads at once


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` injectors; `index` counts from 0, as the completion index of a Kubernetes Job does."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def read_shard(text: str) -> Shard:
    """Read `2/4`; raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,3})/([0-9]{1,3})", text)
    shard = Shard(int(match[1]), int(match[2])) if match else Shard(0, 0)
    if not 0 <= shard.index < shard.count:
        raise ValueError(f"{text!r} is not a shard; write INDEX/COUNT, such as 0/4 to 3/4")
    if shard.count > MOST:
        raise ValueError(f"{shard.count} shards are too many; a campaign has at most {MOST}")
    return shard


def shard_name(shard: Shard | None) -> str:
    """Return a shard as ledgers name it; nothing where a campaign has only one injector."""
    return "" if shard is None else str(shard)
