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

from enum import Flag, StrEnum, auto

from dc_inject.model.errors import LedgerError


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
