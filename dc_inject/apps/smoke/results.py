"""What a smoke test has found of each link: it passed, it failed and by whose fault, or it has no result.

Results are read from the ledger alone, so those of an earlier test can be read again. Whose fault a failed file is
follows from `FILE_CLASSES` (`model/causes.py`); where nothing was injected, from the link's hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.model import Entry, FlowKey, Held, Hold, State, units
from dc_inject.model.causes import FILE_CLASSES, Party
from dc_inject.model.errors import DcInjectError, ThresholdMissed, UsageError
from dc_inject.model.held import find_fault, read_hold, sentence
from dc_inject.model.holds import Fault, Trait
from dc_inject.summary.failed_files import classify

PASSED, FAILED, OPEN = "passed", "failed", "no result"
_PARTIES = {Party.USER: "credentials", Party.SITE: "storage", Party.UNKNOWN: "unknown"}  # else it is the service
AGAIN = "the same command with --failed repeats the links that did not pass"


class Result(NamedTuple):
    """The result of one link, with the size of its file in bytes.

    `rate` is in bytes per second, from the moment at which the service accepted the rule or job to that at which
    it was seen complete, so it is a lower bound. `fault` names who has to act, `cause` is a hold or a class of
    failed files.
    """

    source: str
    destination: str
    service: str
    outcome: str
    bytes: int = 0
    rate: float | None = None
    fault: str = ""
    cause: str = ""
    reason: str = ""

    @property
    def link(self) -> str:
        """The link as options have it."""
        return f"{self.source}:{self.destination}"


def is_sent(entry: Entry) -> bool:
    """Whether a file has gone out, or may have: then its link gets no other one."""
    return entry.accepted_at is not None or entry.state is State.CALLED


def read(view: Reader, keys: Iterable[FlowKey] = (), least: float = 0.0) -> list[Result]:
    """Return the results of all links, also of `keys` that no cycle had.

    Those that were slower than `least`, in bytes per second, failed.
    """
    entries = {entry.injection.flow: entry for entry in sorted(view.entries(), key=is_sent)}
    rows = [(row.key, row.held) for row in view.rows() if row.held]
    # A service that did not answer shows nothing of a link, so it hides no reason that another cycle found.
    held = dict(sorted(rows, key=lambda row: row[1].hold is not Hold.API_ERRORS))
    held |= {
        key: read_hold(one.error) for key, one in entries.items() if one.state is State.INTENDED and one.error
    }
    classes = view.failures()
    return [
        _sent(key, entries[key], classes.get(key, {}), least)
        if key in entries and is_sent(entries[key])
        else _unsent(key, held.get(key))
        for key in {*view.accounts(), *keys}
    ]


def _sent(key: FlowKey, entry: Entry, classes: Mapping[str, int], least: float) -> Result:
    size, since = entry.injection.item.bytes, entry.accepted_at or entry.injection.release
    if entry.failed or entry.files_stuck or (entry.ended_at and not entry.completed_at):
        cause = max(classes, key=classes.__getitem__, default="") or classify(entry.error)
        about = FILE_CLASSES.get(cause, FILE_CLASSES["other"])
        fault = about.where or _PARTIES.get(about.party, key.link.service.title)
        why = entry.error or about.excuse or "no reason was given"
        return Result(*key.link, FAILED, size, None, fault, cause, why)
    if entry.completed_at is None:
        why = f"neither arrived nor failed since {since:%H:%M:%SZ}"
        return Result(*key.link, OPEN, size, None, "unknown", "no-answer", why)
    seconds = (entry.completed_at - since).total_seconds()
    rate = entry.moved / seconds if seconds else None
    if rate is not None and rate < least:
        why = f"{units.format_rate(rate)}, less than {units.format_rate(least)}: the network or a storage is slow"
        return Result(*key.link, FAILED, size, rate, "network", "slow", why)
    return Result(*key.link, PASSED, size, rate)


def _unsent(key: FlowKey, held: Held | None) -> Result:
    if held is None:
        return Result(*key.link, OPEN, 0, None, "unknown", "not-sent", "it was not its turn yet")
    if held.hold is Hold.OVERLOAD:  # here it is not the service that is too slow
        return Result(*key.link, OPEN, 0, None, "unknown", "not-sent", "the time of the test was over (--within)")
    # Others may be over in time.
    stays = held.hold is Hold.QUARANTINED or Trait.LEAVES in held.hold.traits
    fault = find_fault(held)
    whose = key.link.service.title if fault is Fault.SERVICE else fault.value
    return Result(*key.link, FAILED if stays else OPEN, 0, None, whose, held.hold.value, sentence(held))


def of_campaign(campaign: str, keys: Iterable[FlowKey] = (), least: float = 0.0) -> list[Result]:
    """Return the results of a test by its ledger, sorted by link; `keys` as `read` has them."""
    with LedgerView.open(ledger_files.existing(campaign)) as view, view.snapshot():
        return sorted(read(view, keys, least))


def did_not_pass(campaign: str) -> set[str]:
    """Return the links that did not pass in the last test with results of the same links before `campaign`.

    Raises UsageError when there is none, or all passed.
    """
    for before in reversed(ledger_files.campaigns()):
        if before[:-15] == campaign[:-15] and before < campaign and (found := of_campaign(before)):
            if links := {one.link for one in found if one.outcome != PASSED}:
                return links
            raise UsageError(f"all links passed in {before}", "leave out --failed")
    raise UsageError("there are no results of an earlier test of these links here", "leave out --failed")


def error(campaign: str, found: Sequence[Result], part: float, *, finished: bool) -> DcInjectError | None:
    """Return what the command ends with: 5 if less than this part of the links passed, 2 if it was interrupted."""
    message = f"{campaign}: {words(found)}"
    if not finished and (not found or any(one.outcome == OPEN for one in found)):
        return UsageError(f"{message}: the test was interrupted", AGAIN)
    passed = sum(one.outcome == PASSED for one in found)
    is_missed = passed < part * len(found) or all(one.outcome == OPEN for one in found)
    return ThresholdMissed(message, AGAIN) if is_missed else None


def words(found: Sequence[Result]) -> str:
    """Return how many links passed, failed, and have no result."""
    counts = Counter(one.outcome for one in found)
    parts = (f"{counts[outcome]} {outcome}" for outcome in (PASSED, FAILED, OPEN) if counts[outcome])
    return f"{units.counted(len(found), 'links')}: {', '.join(parts)}"
