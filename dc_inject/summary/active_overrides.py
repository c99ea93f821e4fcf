"""The menus in force, as a ledger keeps them, for what a command shows of them while an injector runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.ledger import MenuInForce, Pause, Reader
from dc_inject.model import Menu
from dc_inject.model.errors import MenuError
from dc_inject.model.overrides import Kind, Override, shown
from dc_inject.planning import overrides
from dc_inject.system import files


def standing(view: Reader) -> Iterator[str]:
    """Return what people have stopped and set; it applies to all menus of the campaign until it is undone."""
    for stop in view.pauses():
        yield f"stopped since {_by(stop)}: {shown(stop.subject)}; `dc-inject resume CAMPAIGN ...` lifts it"
    for override in view.overrides():
        what = f"{shown(override.subject)}: {override.words}"
        yield f"set since {_by(override)}: {what}; `dc-inject unset CAMPAIGN ...` deletes it"


def _by(action: Pause | Override) -> str:
    return f"{action.since:%Y-%m-%d %H:%M:%SZ} by {action.who}" + (f" ({action.why})" if action.why else "")


def list_exceeded_settings(view: Reader, subject: str, kind: Kind, now: datetime) -> Iterator[str]:
    """Return which limits are exceeded because of what is set for a subject now, or that they cannot be checked.

    All other subjects are taken at their rates in the menus and what is set for them: `run --scale` and `--link`
    are not in the ledger.
    """
    try:
        unended = [resolved for resolved in menus(view) if resolved.end > now]
        campaign = menu.campaign(unended) if unended else None
    except MenuError as error:
        yield f"cannot check it against the limits: {error.problems[0]}"
        return
    if campaign is None:
        return
    in_force = view.overrides()
    others = [override for override in in_force if (override.subject, override.kind) != (subject, kind)]
    before = lint.list_exceeded_limits(overrides.apply_overrides(campaign, others))
    for limit in lint.list_exceeded_limits(overrides.apply_overrides(campaign, in_force)):
        if limit not in before:
            yield limit


def menus(view: Reader) -> list[Menu]:
    """Return the menus in force, also those that are over. Raises MenuError.

    Their texts are in the ledger, with what they include; large parts are read from their files.
    """
    return [resolved(read_kept(record, view), view) for record in view.menus_in_force()]


def read_kept(record: MenuInForce, view: Reader) -> menu.MenuDraft:
    """Return a menu that a ledger keeps. Raises MenuError."""
    return menu.read_kept(record.text, record.name, record.digest, view.menu_parts(record.digest), files.load)


def resolved(draft: menu.MenuDraft, view: Reader) -> Menu:
    """Return a menu whose RSE expressions mean what the ledger has for them, else themselves."""
    return draft.resolve({text: view.resolution(service, text) or (text,) for service, text in draft.expressions})
