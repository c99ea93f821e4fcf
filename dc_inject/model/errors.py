"""The errors of dc_inject: the class is what has to happen next, the message what a person can do.

Two families: what ends a command (with its exit code), and what a service answered (which gives the
engine's loop what to do with one injection). Foreign exceptions become one of these in their adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from dc_inject.model.causes import Remedy
from dc_inject.model.faults import Fault
from dc_inject.model.findings import ERRORS


class DcInjectError(Exception):
    """An error of dc_inject: a message, a hint or none, and the exit code of a command."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        """Take the message (one sentence, without secrets) and what a person can do about it."""
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DcInjectError):
    """A command was called in a way that cannot work."""

    exit_code = 2


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong in a menu: where it stands, what is wrong, and how to mend it."""

    file: str
    line: int  # 1-based; 0 where there is no line, as for an empty folder
    message: str
    hint: str = ""
    code: str = ""  # of a lint finding; empty for an error
    needs_accepting: bool = False  # a finding that `run` wants accepted by its code
    column: int = 0  # 1-based, in characters; 0 where only the line is known
    sheet: str = ""  # of a workbook, where line and column are those of a cell

    @property
    def is_error(self) -> bool:
        """Whether it has to be mended; anything else is a warning."""
        return not self.code or self.code in ERRORS

    def __str__(self) -> str:
        place = ":".join((self.file, *(str(number) for number in (self.line, self.column) if number)))
        if self.sheet:
            cell = f"!{column_letters(self.column)}{self.line}" if self.column else ""
            place = f"{self.file}:{self.sheet}{cell}"
        code = f" [{self.code}]" if self.code else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.message}{code}{hint}"


def column_letters(column: int) -> str:
    """Return how a spreadsheet calls a column: A for 1, AA for 27; nothing for 0."""
    return "" if column == 0 else column_letters((column - 1) // 26) + chr(65 + (column - 1) % 26)


class MenuError(DcInjectError):
    """A menu, or a folder of them, that cannot be used; carries every problem, not just the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Take all problems found, in the order of their places."""
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.file, problem.sheet, problem)))
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[MenuError], tuple[tuple[Problem, ...]]]:
        return MenuError, (self.problems,)  # so it passes from process to process as it is


class LedgerError(DcInjectError):
    """The ledger cannot be read or written, is locked, or belongs to another account."""

    exit_code = 3


class LedgerBroken(LedgerError):
    """The file of the ledger, its database or its disk failed, as when the disk is full."""


class NumberTooLarge(LedgerError):
    """A number is beyond the integers of 64 bits that a ledger keeps."""


class ThresholdMissed(DcInjectError):
    """The work was done, but a threshold that the command was asked to check was missed."""

    exit_code = 5


class ServiceError(DcInjectError):
    """A service (Rucio, FTS) refused or failed; the subclasses are what to do next.

    `kind` is the word for it in metrics, `fault` whose fault it is, where that was judged.
    """

    exit_code = 4
    kind = "temporary"
    fault: Fault | None = None

    @property
    def outage(self) -> bool:
        """Whether the service itself is unwell: no answer, one that makes no sense, 5xx, or too many calls."""
        return getattr(self, "hold", "") == "api-errors"


E = TypeVar("E", bound=ServiceError)


class Temporary(ServiceError):
    """Again later, with a jittered back-off; `lost` means that the request may have been carried out.

    `hold` is the hold to show for a link that gets less because of it.
    """

    def __init__(
        self, message: str, hint: str | None = None, *, lost: bool = False, hold: str = "api-errors"
    ) -> None:
        """Take the message, whether the answer was lost (then the injection is in doubt), and the hold."""
        super().__init__(message, hint)
        self.lost = lost
        self.hold = hold


class LinkRefused(Temporary):
    """The service works, and refuses whatever is asked for this link: the link waits, the others go on.

    It does not show a fault of the service, so no breaker counts it.
    """

    def __init__(self, message: str, hint: str | None = None, *, hold: str = "quarantined") -> None:
        """Take the message, the hint, and the hold to show for the link."""
        super().__init__(message, hint, hold=hold)


class TryOtherItem(ServiceError):
    """The item cannot go to this destination now: it waits, and the next one is taken in the same cycle."""

    kind = "another-now"


class Permanent(ServiceError):
    """The item will never go to this destination: quarantined, with the reason."""

    kind = "permanent"


class NoSlices(Permanent):
    """No part of a dataset can be made for this link: it uses whole datasets."""


class NeedsOperator(ServiceError):
    """Nothing works with this service until a person acts: at start the run ends, later all its links hold.

    `hold` is the hold that the service's links get meanwhile: `credentials`, `local` or `api-errors`. `passing` is
    true where waiting may help (a service that does not answer), so that a start tries again for a while.
    """

    kind = "fatal"

    def __init__(
        self, message: str, hint: str | None = None, *, hold: str = "api-errors", passing: bool = False
    ) -> None:
        """Take the message, the hint, the hold to show while it lasts, and whether it may pass by itself."""
        super().__init__(message, hint)
        self.hold = hold
        self.passing = passing


def make_service_error(fault: Fault, message: str, *, hint: str | None = None, lost: bool = False) -> ServiceError:
    """Return the error for a fault, whose class is what has to happen next; `lost` as in Temporary."""
    hint = hint or fault.hint
    match fault.cause.remedy:
        case Remedy.AGAIN:
            return blame(Temporary(message, hint, lost=lost, hold=fault.cause.hold), fault)
        case Remedy.LINK:
            return blame(LinkRefused(message, hint, hold=fault.cause.hold), fault)
        case Remedy.OTHER_ITEM:
            return blame(TryOtherItem(message, hint), fault)
        case Remedy.NO_ITEM:
            return blame(Permanent(message, hint), fault)
        case Remedy.PERSON:
            return blame(NeedsOperator(message, hint, hold=fault.cause.hold), fault)
    raise AssertionError(fault)


def blame(error: E, fault: Fault | None) -> E:
    """Return an error with whose fault it is."""
    error.fault = fault
    return error
