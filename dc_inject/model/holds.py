"""Holds: why a link got less than it was due.

Each row of a cycle that got less than its due has exactly one hold, the leading one, with the numbers behind it.
docs/reference/holds.md explains each to users; here is what the program needs to know of it.

A hold arises in one of five places, in this order of time:

1. When dues are written (`engine/opening.py`: `dues`). Whoever is paused is due nothing. Of the holds of time
   (`planning/pace.py`: `_due`) the one that took most of the cycle leads; it counts where nothing is left to be
   due. A missed cycle is `not-running` (`engine/engine.py`: `_turn`).
2. Before planning (`engine/opening.py`: `_held`). The first that applies, in the order of that function: a service
   that stands still, an availability that could not be read, a closed end, deletions that do not work, an
   inventory that could not be read.
3. In planning (`planning/selection.py`: `why`). A hold from before stays. Else it is the tightest limit
   (`planning/limits.py`: `leading`), if one takes at least half of what is missing; among equals the one that
   comes first in `Hold`. A lack of space is named by its cause (`Destination`). Else it is what stopped the choice
   of datasets; else that nothing fitted. Where only old debt is forgiven, it is the hold of the cycle before.
4. In the middle of the cycle (`engine/context.py`: `trouble`). The first kind of trouble of a link counts.
5. When the cycle is closed (`engine/closing.py`). Calls for which there was no time are `overload`, and what no
   window had room for is `backlog` (`_troubles`). Trouble replaces the hold of planning if it cost at least half
   of what is missing (`_leading`). A row that is short without a hold gets one (`_why_short`): that of a service
   that stands still, `failing`, `api-errors`, or else `too-coarse`. A cycle that was left open is `not-running`
   (`close`).

The ledger writes them into the rows that got less than their due (`ledger/cycles.py`: `close_cycle`); after that
they never change.

What a service refuses carries its hold in the error (`hold` of `model/errors.py`); the back end sets it where it
translates the error (`errors.py` of each), and `fail` of `engine/context.py` passes it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Flag, StrEnum, auto

from dc_inject.model import units
from dc_inject.model.errors import LedgerError

Numbers = Mapping[str, int | float | str]

_COUNTED = frozenset({"rules_per_hour", "files_in_flight"})  # limits whose numbers are no bytes
_SIZES = frozenset({  # numbers that are bytes
    "allowed", "arrives", "budget", "buffer", "bytes", "cap", "coming", "debt", "deleted", "deliverable",
    "delivered", "failed_bytes", "for_others", "forgiven", "free", "in_flight", "injected", "left", "needed",
    "overdue", "pool_bytes", "probe", "quota_left", "resident", "smallest", "space", "to_others", "unanswered",
    "wanted", "window", "withdrawn",
})  # fmt: skip
_DURATIONS = frozenset({"age", "completion", "lag", "oldest", "transfers_age", "waits"})  # that are seconds


class Trait(Flag):
    """What distinguishes holds for those that have to judge them."""

    NONE = 0
    HARMLESS = auto()  # no action is needed: the menu asks for it, or the next cycles make it up
    HOPELESS = auto()  # nothing can be injected, and no waiting is likely to mend it
    OUTAGE = auto()  # something did not work, so a step of a mini-challenge does not show what the link carries
    LINK = auto()  # it follows from what the link does
    OUTRANKS = auto()  # before a row is closed (`apps/link/records.py`), it counts whatever services report
    ITEMS = auto()  # trouble with single datasets or files, not with calls
    LEAVES = auto()  # it leaves bytes that other links may have: neither we nor everybody is short of something
    NO_LIMIT = auto()  # a link that has it is not limited by anything
    CONTROL = auto()  # `control` holds links by it: its window, or what bounds its plan
    AT_SOURCE = auto()  # all links from there share it
    AT_DESTINATION = auto()  # all links to there share it


class Hold(StrEnum):
    """The holds; of limits that cut equally many bytes the first one leads.

    `too-coarse` is not named `grain`, which is the menu's word for how large a dataset may be before smaller ones
    are preferred: the hold compares the smallest dataset with the budget, whatever the grain.

    `short` is what it means, for tables; `words` are those of the sentence about a step of a mini-challenge that
    was held.
    """

    short: str
    words: str
    traits: Trait

    def __new__(cls, value: str, short: str = "", words: str = "", traits: Trait = Trait.NONE) -> Hold:
        """Make a member of its name, its short text, its words and its traits."""
        member = str.__new__(cls, value)
        member._value_, member.short, member.words, member.traits = value, short, words, traits
        return member

    @classmethod
    def _missing_(cls, value: object) -> Hold:
        """Refuse a name that is no hold: none but a ledger has one."""
        raise LedgerError(
            f"the ledger has a hold that is unknown here: {value!r:.60}", "use the dc_inject that wrote it"
        )

    # fmt: off
    PAUSED = "paused", "stopped by hand", "it was paused by hand", Trait.OUTRANKS
    OUTSIDE_WINDOW = ("outside-window", "outside its window in the menu",
        "its time was over", Trait.HARMLESS | Trait.OUTRANKS)
    EXCLUDED = ("excluded", "an exclusion of the menu",
        "the menu excludes it", Trait.HARMLESS | Trait.HOPELESS | Trait.OUTRANKS)
    NOT_RUNNING = ("not-running", "no injector ran",
        "no injector ran", Trait.OUTAGE | Trait.OUTRANKS | Trait.NO_LIMIT)
    CREDENTIALS = ("credentials", "refused or expired",
        "the credentials were refused", Trait.OUTAGE | Trait.OUTRANKS)
    LOCAL = ("local", "this machine or its configuration",
        "this machine or its configuration did not work", Trait.OUTAGE | Trait.OUTRANKS)
    SOURCE_UNAVAILABLE = ("source-unavailable", "the source is down or closed",
        "the source was not available", Trait.OUTAGE | Trait.LEAVES | Trait.CONTROL | Trait.AT_SOURCE)
    DESTINATION_UNAVAILABLE = ("destination-unavailable", "the destination is down or closed",
        "the destination was not available", Trait.OUTAGE | Trait.LEAVES | Trait.CONTROL | Trait.AT_DESTINATION)
    QUARANTINED = ("quarantined", "the service refuses what was chosen",
        "the service refuses what was chosen", Trait.HOPELESS | Trait.ITEMS)
    FAILING = "failing", "most transfers fail", "", Trait.LINK | Trait.LEAVES | Trait.CONTROL
    BACKLOG = "backlog", "enough is in flight already", "", Trait.LINK | Trait.LEAVES | Trait.CONTROL
    DELETION_LAG = ("deletion-lag", "files are deleted late there, or not at all",
        "the destination does not delete the data of ended rules in time",
        Trait.HOPELESS | Trait.LEAVES | Trait.CONTROL | Trait.AT_DESTINATION)
    DESTINATION_FULL = ("destination-full", "no space, or too little for the rates",
        "the destination has too little space (or --space is too small)",
        Trait.HOPELESS | Trait.LEAVES | Trait.CONTROL | Trait.AT_DESTINATION)
    QUOTA = ("quota", "the account's quota is used up",
        "the account's quota at the destination is used up", Trait.HOPELESS | Trait.LEAVES | Trait.AT_DESTINATION)
    SITE_LIMIT = "site-limit", "the menu's own limit on a site", "a limit of the menu applied", Trait.HOPELESS
    CAMPAIGN_LIMIT = ("campaign-limit", "the menu's own limit on the campaign",
        "a limit of the menu applied", Trait.HOPELESS)
    FTS_QUEUE = "fts-queue", "the queue in FTS is too long (0.1.0)", "", Trait.LINK | Trait.LEAVES | Trait.CONTROL
    POOL_DRY = ("pool-dry", "nothing left to inject",
        "the source has no datasets or files left", Trait.HOPELESS | Trait.ITEMS | Trait.LEAVES | Trait.AT_SOURCE)
    API_ERRORS = ("api-errors", "the service fails or does not answer",
        "{service} did not answer, or refused calls", Trait.OUTAGE)
    OVERLOAD = "overload", "no time for all calls", "{service} did not take all calls in time", Trait.OUTAGE
    TOO_COARSE = ("too-coarse", "the next dataset is too large for what is left",
        "", Trait.HARMLESS | Trait.ITEMS | Trait.NO_LIMIT)
    # fmt: on

    @property
    def harmless(self) -> bool:
        """Whether no action is needed."""
        return Trait.HARMLESS in self.traits


_SMALL_POOL = "the pool is too small for the rates: take more or larger datasets, or let data go sooner"
_EMPTY_POOL = "the source has nothing that the menu's `datasets` or `files` take"
_OF = ("by", "why", "storage", "site", "direction", "limit")  # numbers that are names: whose pause or limit it is
_OF_CAMPAIGN = {  # each limit of a campaign, by its name in the menu, and what to do about it
    "total": "{} in total: raise `total` in its `limits`, or lower rates",
    "rules_per_hour": "{} rules an hour: raise `rules_per_hour` in its `limits`, or take larger datasets",
    "files_in_flight": "{} files in flight: raise `files_in_flight` in its `limits`, or lower rates",
}


@dataclass(frozen=True, slots=True)
class Held:
    """A hold with the numbers behind it, as it is written in a cycle's row."""

    hold: Hold
    numbers: Numbers = field(default_factory=dict)


def read_hold(error: str) -> Held:
    """Return the hold of a failed call by the error of its entry, which names it where the link is refused."""
    name, colon, why = error.partition(": ")
    if colon and name in {hold.value for hold in Hold}:
        return Held(Hold(name), {"message": why})
    return Held(Hold.API_ERRORS, {"message": error})


def choose_control_hold(decided: Hold | None, row: Held | None, *, acts: bool) -> Hold | None:
    """Return the hold by which control holds a link in a cycle, or would hold it.

    Where control acts, it is that of the cycle's row, which names the tightest limit, if it is one of control's.
    Else it is the one that control had `decided` on before the cycle was planned: also where the row only names
    for which hold the debt is that it forgives, which may be over.
    """
    if acts and row is not None and Trait.CONTROL in row.hold.traits and not is_of_earlier_cycles(row):
        return row.hold
    return decided


def is_of_earlier_cycles(held: Held) -> bool:
    """Whether a hold of a cycle's row is that of earlier cycles, of which debt is forgiven."""
    return "forgiven" in held.numbers


def sentence(held: Held) -> str:
    """Return a hold in words without numbers, which differ from cycle to cycle, but with those of its message.

    A limit of the campaign is shown with its value, and without other holds that cost nearly as much: it is one
    limit, whatever else there is.
    """
    message, also = held.numbers.get("message"), held.numbers.get("also")
    if held.hold is Hold.CAMPAIGN_LIMIT and "most" in held.numbers:
        limit = str(held.numbers["limit"])
        return f"the menu allows {_OF_CAMPAIGN[limit].format(_most(held.numbers))}"
    if held.hold is Hold.POOL_DRY and "wanted" in held.numbers:
        message = _SMALL_POOL
    if held.hold is Hold.POOL_DRY and held.numbers.get("pool_items") == held.numbers.get("resident") == 0:
        message = _EMPTY_POOL
    names = [str(held.numbers[name]) for name in _OF if isinstance(held.numbers.get(name), str)]
    names += [_most(held.numbers)] if "most" in held.numbers else []
    words = str(message) if message else held.hold.short + (f" ({', '.join(names)})" if names else "")
    return f"{words}; {also} would hold it nearly as much" if also else words


def _most(numbers: Numbers) -> str:
    """Return the value of a limit: a rate, or a count."""
    most = float(numbers["most"])
    return units.grouped(most) if numbers.get("limit") in _COUNTED else units.format_rate(most)


def name_others(held: Held, others: Iterable[Hold]) -> Held:
    """Return a hold that also names others: lifting the leading one alone would not let everything out."""
    named = [Hold(name) for name in str(held.numbers.get("also", "")).split(", ") if name]
    also = ", ".join(dict.fromkeys(hold.value for hold in (*named, *others) if hold is not held.hold))
    return Held(held.hold, {**held.numbers, "also": also}) if also else held


def describe_window(numbers: Numbers) -> str:
    """Return what is in flight and the window of a link or a storage in words; other numbers as they are."""
    if not {"window", "in_flight"} <= numbers.keys():
        return format_numbers(numbers)
    in_flight, window = (units.format_size(int(numbers[name])) for name in ("in_flight", "window"))
    arrives = f"; {units.format_size(int(numbers['arrives']))} arrive in a cycle" if "arrives" in numbers else ""
    return f"{in_flight} in flight {numbers.get('storage', 'on the link')}, window {window}{arrives}"


def format_numbers(numbers: Numbers) -> str:
    """Return the numbers of a hold for people: sizes with their units, counts as they are."""
    counts = {"wanted", "left"} if numbers.get("limit") in _COUNTED or "time_for" in numbers else set()

    def shown(name: str, value: float | str) -> str:
        if name == "most":
            return _most(numbers).replace(" ", "")
        if name in _DURATIONS and isinstance(value, int):
            return units.format_duration(timedelta(seconds=value)).replace(" ", "")
        return units.format_size(value) if name in _SIZES - counts and isinstance(value, int) else str(value)

    return " ".join(f"{name}={shown(name, value)}" for name, value in numbers.items())
