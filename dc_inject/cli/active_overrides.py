"""The menus in force, as a ledger keeps them, for what a command says of them beside an injector."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.ledger import Pause
from dc_inject.ledger.reading import Reader
from dc_inject.model import Campaign
from dc_inject.model.errors import MenuError
from dc_inject.model.overrides import Kind, Override, describe, shown
from dc_inject.planning import overrides
from dc_inject.system import files


def standing(view: Reader) -> Iterator[str]:
    """Say what people have stopped and set; it applies to all menus of the campaign until somebody undoes it."""
    for stop in view.pauses():
        yield f"stopped since {_by(stop)}: {shown(stop.subject)}; `dc-inject resume` lifts it"
    for one in view.overrides():
        what = describe(one.kind, one.value)
        yield f"set since {_by(one)}: {shown(one.subject)}: {what}; `dc-inject unset` deletes it"


def _by(one: Pause | Override) -> str:
    return f"{one.since:%Y-%m-%d %H:%M:%SZ} by {one.who}" + (f" ({one.why})" if one.why else "")


def held_by(view: Reader, subject: str, kind: Kind, now: datetime) -> Iterator[str]:
    """Say which limits are exceeded because of what is set for a subject now, or that they cannot be checked.

    All other subjects are taken at their rates in the menus and what is set for them: `run --scale` and `--link`
    are not in the ledger.
    """
    try:
        campaign = _campaign(view, now)
    except MenuError as error:
        yield f"cannot check it against the limits: {error.problems[0]}"
        return
    if campaign is None:
        return
    known = view.overrides()
    others = [one for one in known if (one.subject, one.kind) != (subject, kind)]
    before = lint.over_limits(overrides.overlaid(campaign, others))
    for limit in lint.over_limits(overrides.overlaid(campaign, known)):
        if limit not in before:
            yield limit


def _campaign(view: Reader, now: datetime) -> Campaign | None:
    """Return the menus in force that are not over; None if there are none. Raises MenuError.

    Their texts are in the ledger, and what they include is read from its files.
    """
    drafts = [menu.read(one.text, one.name, files.load) for one in view.menus_in_force()]
    menus = [
        draft.resolve({text: view.resolution(service, text) or (text,) for service, text in draft.expressions})
        for draft in drafts
    ]
    left = [one for one in menus if one.end > now]
    return menu.campaign(left) if left else None
