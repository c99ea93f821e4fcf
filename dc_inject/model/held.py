"""Links that are held: a hold with the numbers behind it, as rows of cycles have it, and its words for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from dc_inject.model import units
from dc_inject.model.holds import Fault, Hold, Trait

Numbers = Mapping[str, int | float | str]

_COUNTED = frozenset({"rules_per_hour", "files_in_flight"})  # limits whose numbers are no bytes
_SIZES = frozenset({  # numbers that are bytes
    "allowed", "arrives", "budget", "buffer", "bytes", "cap", "coming", "debt", "deleted", "deliverable",
    "delivered", "failed_bytes", "for_others", "forgiven", "free", "in_flight", "injected", "left", "needed",
    "overdue", "pool_bytes", "probe", "quota_left", "resident", "smallest", "space", "to_others", "unanswered",
    "wanted", "window", "withdrawn",
})  # fmt: skip
_DURATIONS = frozenset({"age", "completion", "lag", "oldest", "transfers_age", "waits"})  # that are seconds
_OF_WINDOW = frozenset({"window", "in_flight", "arrives"})
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


def find_fault(held: Held) -> Fault:
    """Return whose fault a hold is, by its numbers where these show more than the hold alone."""
    numbers = held.numbers
    if held.hold is Hold.DESTINATION_FULL and "message" in numbers and not numbers.get("overdue"):
        return Fault.MENU  # its space does not hold what its rates bring
    if held.hold is Hold.POOL_DRY and "wanted" in numbers:
        return Fault.MENU  # its rates want more than it lets the source give
    inventory = str(numbers.get("inventory", ""))
    if (held.hold is Hold.QUARANTINED and inventory) or (held.hold is Hold.API_ERRORS and "://" in inventory):
        return Fault.SOURCE  # its folder or list, for example; a URL is read without the service
    return held.hold.fault


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


def format_numbers(numbers: Numbers) -> str:
    """Return the numbers of a hold for people: a window in words, sizes with their units, counts as they are."""
    counts = {"wanted", "left"} if numbers.get("limit") in _COUNTED or "time_for" in numbers else set()

    def shown(name: str, value: float | str) -> str:
        if name == "most":
            return _most(numbers).replace(" ", "")
        if name in _DURATIONS and isinstance(value, int):
            return units.format_duration(timedelta(seconds=value)).replace(" ", "")
        return units.format_size(value) if name in _SIZES - counts and isinstance(value, int) else str(value)

    words = []
    if {"window", "in_flight"} <= numbers.keys():
        sizes = {name: units.format_size(int(numbers[name])) for name in _OF_WINDOW & numbers.keys()}
        window = f"window {sizes['window']}"
        words = [f"{sizes['in_flight']} in flight {numbers.get('storage', 'on the link')}, {window}"]
        words += [f"{sizes['arrives']} arrive in a cycle"] if "arrives" in sizes else []
        numbers = {name: value for name, value in numbers.items() if name not in {*sizes, "storage"}}
    others = " ".join(f"{name}={shown(name, value)}" for name, value in numbers.items())
    return "; ".join(filter(None, [*words, others]))
