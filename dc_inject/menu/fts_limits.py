"""Transfers at a time: what rates need of them, and what FTS allows between storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dc_inject.model import Campaign, Flow, Menu, rates, units, urls
from dc_inject.model.errors import Problem

FILE_SPEED = (
    6e6  # bytes per second of one file: CERN to RAL in DC24, 4.74 GB/s on 766 transfers (Final Report, 3.2.2)
)
LINK_LIMIT = 130  # transfers at a time that FTS allows on a link, where it does not tell
STORAGE_LIMIT = 200  # and out of a storage, or into one
LIMITS_OF = "FTS 3.14, schema 10"  # whose defaults these are; in DC24 it was 200 a link
ROUNDING = 1e-6
_TOLD = {
    "config": "by its configuration",
    "optimizer": "by its optimizer, just now",
    "default": f"the default of {LIMITS_OF}: it does not tell",
}
_OPTIMIZER = "the optimizer allows more while transfers succeed; "
_HINT = "ask FTS's operators for more, lower the rates, or tell how fast files are there with --file-speed"


@dataclass(frozen=True, slots=True)
class TransferLimit:
    """The most transfers at a time that FTS allows on a link of two storages, out of one, or into one.

    Storages are as FTS has them, `davs://host` without a port; an empty one stands for any. `told` says who
    told: `config`, `optimizer` (what FTS allows just now, which it changes) or `default` (nobody).
    """

    source: str
    destination: str
    most: int
    told: str

    def __str__(self) -> str:
        if self.source and self.destination:
            return f"{self.source} -> {self.destination}"
        return f"into {self.destination}" if self.destination else f"out of {self.source}"

    def holds(self, flow: Flow) -> bool:
        """Whether the transfers of a flow count against it."""
        return self.source in {"", urls.host_key(flow.link.source)} and self.destination in {
            "",
            urls.host_key(flow.link.destination),
        }


def needed(rate: float, file_speed: float) -> float:
    """Return the transfers at a time that a rate needs: rate / speed of one file, both in bytes per second.

    130 files at 6 MB/s are 6.24 Gb/s: a link with FTS's default limit carries about 6 Gb/s.
    """
    return rate / file_speed


def throttled(
    campaign: Campaign, limits: Iterable[TransferLimit], file_speed: float = FILE_SPEED
) -> tuple[Problem, ...]:
    """Return a finding for each limit of FTS that is below what the menus need at some time.

    The rates of all flows between the same storages count together, as they do for FTS.
    """
    flows = [(menu, flow) for menu in campaign.menus for flow in menu.flows if flow.link.service.ends_are_urls]
    return tuple(sorted({finding for limit in limits for finding in _finding(flows, limit, file_speed)}))


def _finding(flows: list[tuple[Menu, Flow]], limit: TransferLimit, file_speed: float) -> Iterator[Problem]:
    menu_of = {id(flow): menu for menu, flow in flows if limit.holds(flow)}
    rate, largest = rates.peak(flow for _, flow in flows if id(flow) in menu_of)
    need = needed(rate, file_speed)
    code = "fts-link-limit" if limit.source and limit.destination else "fts-storage-limit"
    if largest is None or need <= limit.most * (1 + ROUNDING) or code in menu_of[id(largest)].accept:
        return
    speed, carried = f"{units.format_size(file_speed)}/s", units.format_rate(limit.most * file_speed)
    message = (
        f"{limit}: {units.format_rate(rate)} need {need:.0f} transfers at a time, and FTS allows {limit.most} "
        f"({_TOLD[limit.told]}); {limit.most} files at {speed} are {carried}"
    )
    hint = (_OPTIMIZER if limit.told == "optimizer" else "") + _HINT
    yield Problem(largest.menu, largest.line, message, hint, code)
