"""Holds: why a link got less than it was due.

Each row of a cycle that got less than its due has exactly one hold, the leading one, with the numbers behind it.
docs/reference/holds.md explains these numbers to users. All else that is known of a hold is in its definition:
its texts for tables and for whoever is on call, and its traits. `held.py` has a hold with its numbers.

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

from dataclasses import dataclass
from enum import Flag, StrEnum, auto

from dc_inject.model.errors import LedgerError
from dc_inject.model.on_call import CHANGE_THE_MENU, OnCall


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


class Fault(StrEnum):
    """Whose fault it is that a link gets less than its due, as verdicts name it; a service has its own name."""

    SERVICE = "service"
    SOURCE = "source"
    DESTINATION = "destination"
    MENU = "the menu"
    CREDENTIALS = "credentials"
    MACHINE = "this machine"
    OPERATOR = "the campaign's operator"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Definition:
    """All that is known of a hold but its numbers; `Hold` explains the fields."""

    name: str
    short: str
    fault: Fault
    words: str = ""
    traits: Trait = Trait.NONE
    on_call: OnCall


class Hold(StrEnum):
    """The holds; of limits that cut equally many bytes the first one leads.

    `too-coarse` is not named `grain`, which is the menu's word for how large a dataset may be before smaller ones
    are preferred: the hold compares the smallest dataset with the budget, whatever the grain.

    `short` is what it means, for tables; `fault` is whose fault it is, if its numbers do not show another
    (`held.py`: `find_fault`); `words` are those of the sentence about a step of a mini-challenge that
    was held; `on_call` is for whoever is on call.
    """

    short: str
    fault: Fault
    words: str
    traits: Trait
    on_call: OnCall

    def __new__(cls, known: str | _Definition) -> Hold:
        """Make a member of its definition; who asks for a hold by its name gets that member."""
        assert isinstance(known, _Definition)
        member = str.__new__(cls, known.name)
        member._value_, member.short, member.words = known.name, known.short, known.words
        member.fault, member.traits, member.on_call = known.fault, known.traits, known.on_call
        return member

    PAUSED = _Definition(
        name="paused",
        short="stopped by hand",
        fault=Fault.OPERATOR,
        words="it was paused by hand",
        traits=Trait.OUTRANKS,
        on_call=OnCall(
            see="the campaign was stopped by an operator",
            means="Nothing is due meanwhile, and nothing is made up later.",
            do="`dc-inject resume CAMPAIGN` when the reason is gone.",
            call="the person that the line names",
        ),
    )
    OUTSIDE_WINDOW = _Definition(
        name="outside-window",
        short="outside its window in the menu",
        fault=Fault.MENU,
        words="its time was over",
        traits=Trait.HARMLESS | Trait.OUTRANKS,
        on_call=OnCall(
            see="a link is outside its window",
            means="The menu asks for nothing now.",
            do="Nothing.",
            call="no one",
            needs_action=False,
        ),
    )
    EXCLUDED = _Definition(
        name="excluded",
        short="an exclusion of the menu",
        fault=Fault.MENU,
        words="the menu excludes it",
        traits=Trait.HARMLESS | Trait.HOPELESS | Trait.OUTRANKS,
        on_call=OnCall(
            see="the menu excludes a link now",
            means="Nothing is due.",
            do="Nothing, or change `exclude` in the menu.",
            call="no one",
            needs_action=False,
        ),
    )
    NOT_RUNNING = _Definition(
        name="not-running",
        short="no injector ran",
        fault=Fault.MACHINE,
        words="no injector ran",
        traits=Trait.OUTAGE | Trait.OUTRANKS | Trait.NO_LIMIT,
        on_call=OnCall(
            see="no injector ran",
            means="What was due in those cycles is made up as far as two cycles' worth; the rest is forgiven.",
            do="Start `dc-inject run MENUS` again with the same menus, or its service: it learns what happened.",
            call="the campaign's operator",
            alerts=("DcInjectGone", "DcInjectNoCycle"),
            here="`dc-inject health CAMPAIGN` names a full disk; the log, `journalctl`, and whether the machine "
            "ran out of memory.",
        ),
    )
    CREDENTIALS = _Definition(
        name="credentials",
        short="refused or expired",
        fault=Fault.CREDENTIALS,
        words="the credentials were refused",
        traits=Trait.OUTAGE | Trait.OUTRANKS,
        on_call=OnCall(
            see="credentials are refused, or end soon",
            means="The service, or a storage behind FTS, does not accept the proxy, token or password. All links "
            "of that service are held.",
            do="Put the right one in its place: injection continues within a minute, without a restart. "
            "`dc-inject ping MENUS` shows which one is used.",
            call="the campaign's operator",
            alerts=("DcInjectCredentialsEnd",),
            here="Its file and its end: `voms-proxy-info`, or the token's `exp`. An administrator's account is "
            "refused, too.",
        ),
    )
    LOCAL = _Definition(
        name="local",
        short="this machine or its configuration",
        fault=Fault.MACHINE,
        words="this machine or its configuration did not work",
        traits=Trait.OUTAGE | Trait.OUTRANKS,
        on_call=OnCall(
            see="a call fails at this machine",
            means="Nothing is known to be wrong with the service: it is an HTTP proxy, rucio.cfg, an address, "
            "the authorities' certificates, the clock, a disk, or too many open files.",
            do="Follow the message. No restart is needed, except to raise a limit (`ulimit -n`) or to change an "
            "environment variable.",
            call="the campaign's operator",
            here="The last lines of the log; `timedatectl`; `df`; `ulimit -n`.",
        ),
    )
    SOURCE_UNAVAILABLE = _Definition(
        name="source-unavailable",
        short="the source is down or closed",
        fault=Fault.SOURCE,
        words="the source was not available",
        traits=Trait.OUTAGE | Trait.LEAVES | Trait.CONTROL | Trait.AT_SOURCE,
        on_call=OnCall(
            see="a source is down or closed",
            means="The site has closed the RSE for reading, or its storage does not answer, or FTS has banned it.",
            do="Ask the site. The link continues by itself in the next cycle.",
            call="{source}",
            rucio="`rucio rse show RSE`: `availability_read`.",
            fts="Its list of banned storages.",
            network="Does the storage answer from here? `dc-inject check --online MENUS`.",
        ),
    )
    DESTINATION_UNAVAILABLE = _Definition(
        name="destination-unavailable",
        short="the destination is down or closed",
        fault=Fault.DESTINATION,
        words="the destination was not available",
        traits=Trait.OUTAGE | Trait.LEAVES | Trait.CONTROL | Trait.AT_DESTINATION,
        on_call=OnCall(
            see="a destination is down or closed",
            means="The site has closed the RSE for writing, or its storage does not answer, or FTS has banned it.",
            do="Ask the site. The link continues by itself in the next cycle.",
            call="{destination}",
            rucio="`rucio rse show RSE`: `availability_write`.",
            fts="Its list of banned storages.",
            network="Does the storage answer from here? `dc-inject check --online MENUS`.",
        ),
    )
    QUARANTINED = _Definition(
        name="quarantined",
        short="the service refuses what was chosen",
        fault=Fault.SERVICE,
        words="the service refuses what was chosen",
        traits=Trait.HOPELESS | Trait.ITEMS,
        on_call=OnCall(
            see="a service refuses a link, or its datasets",
            means="It works for other links. The message is its answer, and it would refuse the same again.",
            do="Read the message: an unknown activity or job size is the menu's, a missing right is for the "
            "service's operators.",
            call="{operators}, if the menu is right",
        ),
    )
    FAILING = _Definition(
        name="failing",
        short="most transfers fail",
        fault=Fault.UNKNOWN,
        traits=Trait.LINK | Trait.LEAVES | Trait.CONTROL,
        on_call=OnCall(
            see="most transfers of a link fail, or Rucio's rules are stuck",
            means="More than half of what came to an end in the last cycles failed in all attempts. The line has "
            "the class of most of the files that failed of late. Through Rucio, such files are stuck locks: the "
            "rules stay, and nothing more arrives until Rucio's judge repairs them or their lifetime ends.",
            do="Read one error. If it names one end, ask that site. If all links of a service fail in the same "
            "way (tokens, certificates, CAs), ask its operators. dc_inject goes on with a tenth of the rate, and "
            "returns to the full rate by itself.",
            call="the sites or services that the line names",
            alerts=("DcInjectFilesFail",),
            rucio="`rucio rule show ID` of a rule in STUCK: its error, and the errors of its locks. If the "
            "transfers work again, and rules stay stuck, the judge-repairer is late.",
            fts="The reason of the last failed transfers of the link. `dc-inject status CAMPAIGN --summary` "
            "counts files by class of error.",
            network="Only for timeouts and refused connections: can one end reach the other?",
        ),
    )
    BACKLOG = _Definition(
        name="backlog",
        short="enough is in flight already",
        fault=Fault.UNKNOWN,
        traits=Trait.LINK | Trait.LEAVES | Trait.CONTROL,
        on_call=OnCall(
            see="enough is in flight on a link already",
            means="What is on its way would take longer than its lifetime at the rate of the last cycles; more "
            "would only be cancelled. With `control: act`, a window of the link or of a storage is full.",
            do="Find out why the link is slow: see silent. `dc-inject status CAMPAIGN --decisions 8` shows which "
            "windows are full.",
            call="the services and sites that the line names",
            fts="Is there a queue on the link, or at the storage?",
        ),
    )
    DELETION_LAG = _Definition(
        name="deletion-lag",
        short="files are deleted late there, or not at all",
        fault=Fault.DESTINATION,
        words="the destination does not delete the data of ended rules in time",
        traits=Trait.HOPELESS | Trait.LEAVES | Trait.CONTROL | Trait.AT_DESTINATION,
        on_call=OnCall(
            see="files are deleted too slowly at a destination, or not at all",
            means="What was ended is still there, so there is no room for more: injecting would only fill the "
            "disk.",
            do="Ask the site why deletions are slow, and Rucio's operators whether the reaper runs for this RSE. "
            "Lower the link's rate to what deletions allow: `dc-inject set CAMPAIGN SRC DST rate VALUE`.",
            call="{destination}, then Rucio's operators",
            rucio="`availability_delete` of the RSE; the reaper's log for it.",
            deletions="Seconds per deletion, and how many run in parallel: files per second that arrive, times "
            "seconds per deletion, must stay below that number. DC24 saw 1 s a file become 20 s.",
        ),
    )
    DESTINATION_FULL = _Definition(
        name="destination-full",
        short="no space, or too little for the rates",
        fault=Fault.DESTINATION,
        words="the destination has too little space (or --space is too small)",
        traits=Trait.HOPELESS | Trait.LEAVES | Trait.CONTROL | Trait.AT_DESTINATION,
        on_call=OnCall(
            see="a destination has no space, or too little for the rates",
            means="The space that we may use is full, or does not hold what the rates bring in the time that "
            "data stay. With a message about rates, the disk itself may be nearly empty: what would not fit is "
            "never injected.",
            do="If `message` is about the rates, no call is needed: change the menu: more `space`, a shorter "
            "`lifetime`, or a lower rate. Else ask the site whether deletions keep up.",
            call="{destination}",
            rucio="`rucio rse show RSE`: its used and free space, and how old that report is.",
            deletions="Is what has ended gone? `resident` in the metrics, and the reaper's backlog at the site.",
        ),
    )
    QUOTA = _Definition(
        name="quota",
        short="the account's quota is used up",
        fault=Fault.SERVICE,
        words="the account's quota at the destination is used up",
        traits=Trait.HOPELESS | Trait.LEAVES | Trait.AT_DESTINATION,
        on_call=OnCall(
            see="the account's quota at a destination is used up",
            means="Rucio lets the account write no more bytes there.",
            do="Ask for more quota, or let rules end sooner.",
            call="Rucio's operators",
            rucio="`rucio account limit list ACCOUNT`.",
        ),
    )
    SITE_LIMIT = _Definition(
        name="site-limit",
        short="the menu's own limit on a site",
        fault=Fault.MENU,
        words="a limit of the menu applied",
        traits=Trait.HOPELESS,
        on_call=OnCall(
            see="the menu's own limit on a site applies",
            means="dc_inject keeps to it by itself: neither the site nor a service refused anything.",
            do="Raise `max_ingress`, `max_egress`, `wan` or `per_site` if you mean it.",
            call=CHANGE_THE_MENU,
            needs_action=False,
        ),
    )
    CAMPAIGN_LIMIT = _Definition(
        name="campaign-limit",
        short="the menu's own limit on the campaign",
        fault=Fault.MENU,
        words="a limit of the menu applied",
        traits=Trait.HOPELESS,
        on_call=OnCall(
            see="the menu's own limit on the campaign applies",
            means="It is the total rate, the rules an hour, or the files in flight; `limit` names it.",
            do="Raise it in `limits` if you mean it, or use larger datasets.",
            call=CHANGE_THE_MENU,
            needs_action=False,
        ),
    )
    FTS_QUEUE = _Definition(
        name="fts-queue",
        short="the queue in FTS is too long (0.1.0)",
        fault=Fault.SERVICE,
        traits=Trait.LINK | Trait.LEAVES | Trait.CONTROL,
        on_call=OnCall(
            see="files wait in FTS (ledgers of early versions only)",
            means="Files waited in FTS for longer than half of their lifetime.",
            do="Nothing: newer versions do not hold links for it.",
            call="FTS's operators",
        ),
    )
    POOL_DRY = _Definition(
        name="pool-dry",
        short="nothing left to inject",
        fault=Fault.SOURCE,
        words="the source has no datasets or files left",
        traits=Trait.HOPELESS | Trait.ITEMS | Trait.LEAVES | Trait.AT_SOURCE,
        on_call=OnCall(
            see="nothing is left to inject at a source",
            means="Every dataset of the filter is at the destination, on its way there, set aside or incomplete; "
            "or the pool is too small for the rates.",
            do="Widen the filter in the menu (`did`, `files`, `mean_file`), or let data go sooner.",
            call=CHANGE_THE_MENU,
            needs_action=False,
            rucio="`dc-inject check --online MENUS` counts what is there, and names the bounds that nothing is "
            "within.",
        ),
    )
    API_ERRORS = _Definition(
        name="api-errors",
        short="the service fails or does not answer",
        fault=Fault.SERVICE,
        words="{service} did not answer, or refused calls",
        traits=Trait.OUTAGE,
        on_call=OnCall(
            see="a service does not answer, or answers with errors",
            means="Nothing new is injected through it, and what is under way is not seen. What was injected goes "
            "on.",
            do="Nothing at first: dc_inject tries one call at a time, continues by itself, makes up two cycles' "
            "worth and forgives the rest. If it lasts, send the message to the service's operators.",
            call="{operators}",
            alerts=("DcInjectServiceDown",),
            rucio="`dc-inject ping MENUS`, or `rucio ping`. A status of 500 or more, or a database error, only "
            "the operators can explain.",
            fts="`dc-inject ping MENUS`; FTS's own status page.",
        ),
    )
    OVERLOAD = _Definition(
        name="overload",
        short="no time for all calls",
        fault=Fault.SERVICE,
        words="{service} did not take all calls in time",
        traits=Trait.OUTAGE,
        on_call=OnCall(
            see="there is no time for all calls of a cycle",
            means="The service answers too slowly for so many rules or jobs, or too many are due at once.",
            do="Use larger datasets or more files a job, longer cycles, or fewer links.",
            call="the campaign's operator, then {operators}",
        ),
    )
    TOO_COARSE = _Definition(
        name="too-coarse",
        short="the next dataset is too large for what is left",
        fault=Fault.MENU,
        traits=Trait.HARMLESS | Trait.ITEMS | Trait.NO_LIMIT,
        on_call=OnCall(
            see="the next dataset is larger than what is due",
            means="It waits until enough is due; over some cycles the link gets all of its due.",
            do="Nothing. For more even traffic use smaller datasets, or slices.",
            call="no one",
            needs_action=False,
        ),
    )

    @classmethod
    def _missing_(cls, value: object) -> Hold:
        """Refuse a name that is no hold: none but a ledger has one."""
        raise LedgerError(
            f"the ledger has a hold that is unknown here: {value!r:.60}", "use the dc_inject that wrote it"
        )

    @property
    def harmless(self) -> bool:
        """Whether no action is needed."""
        return Trait.HARMLESS in self.traits
