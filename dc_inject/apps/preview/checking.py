"""What is wrong or odd in menus, and in what they need of services."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from dc_inject import ledger, menu
from dc_inject.analysis import lint
from dc_inject.apps.preview import online
from dc_inject.apps.preview.online_report import Answers
from dc_inject.credentials import trust
from dc_inject.credentials.trust import Trust
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign
from dc_inject.model.errors import LedgerError, MenuError, Problem, UsageError
from dc_inject.model.ports import Backend
from dc_inject.model.services import FTS
from dc_inject.summary import active_overrides
from dc_inject.system import files

Connect = Callable[[Sequence[MenuDraft]], Mapping[str, Backend]]  # raises UsageError where no one names a service


@dataclass(slots=True)
class Checked:
    """What was found: problems, and sentences where credentials would go and what services answered.

    `campaign` is None where the menus make none; `service_failed` is whether a service did not let us in.
    """

    drafts: Sequence[MenuDraft] = ()
    campaign: Campaign | None = None
    problems: tuple[Problem, ...] = ()
    credentials: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    service_failed: bool = False

    @property
    def errors(self) -> int:
        """The number of problems that are errors; all others are warnings."""
        return sum(problem.is_error for problem in self.problems)


def check(
    menus: Sequence[Path],
    links: Sequence[str],
    scale: float,
    file_speed: float,
    recall: Callable[..., Trust],
    connect: Connect | None,
    now: datetime,
) -> Checked:
    """Check menus as `run` would take them with these links, and rates times `scale`.

    `recall` takes campaigns, and returns the hosts that are trusted, with those that their ledgers have.
    `file_speed` is that of one file through FTS, in bytes per second; without `connect` no service is asked.
    """
    found = Checked()
    try:
        found.drafts = files.read_menus(menus)
        found.credentials = _describe_credentials(found.drafts, recall)
        found.campaign = _narrowed(found.drafts, links, scale, resolved=connect is not None)
        found.problems = lint.findings(found.campaign, file_speed)
        if connect is not None:
            answers = _ask(found.drafts, found.campaign, connect, file_speed, links, scale)
            found.campaign, found.answers = answers.campaign, answers.sentences
            found.service_failed = answers.service_failed
            found.problems = tuple(answers.collect_problems(file_speed))
        found.problems = tuple(sorted({*found.problems, *lint.find_late_starts(found.campaign, now)}))
    except MenuError as error:
        found.problems = tuple(sorted({*found.problems, *error.problems}))
    return found


def _narrowed(drafts: Sequence[MenuDraft], links: Sequence[str], scale: float, *, resolved: bool) -> Campaign:
    """Return what `run` would take of menus; links wait for RSE expressions if these will be `resolved`."""
    campaign = menu.campaign([draft.preview for draft in drafts])
    has_expressions = any(draft.expressions for draft in drafts)
    try:
        return menu.narrowed(campaign, () if resolved and has_expressions else links, scale)
    except MenuError as error:
        if not has_expressions:
            raise
        hint = "RSE expressions are resolved only with --online"
        raise MenuError([replace(problem, hint=hint) for problem in error.problems]) from None


def _ask(
    drafts: Sequence[MenuDraft],
    campaign: Campaign,
    connect: Connect,
    file_speed: float,
    links: Sequence[str],
    scale: float,
) -> Answers:
    """Ask the services; raises MenuError when a menu lacks the address of one."""
    try:
        backends = connect(drafts)
    except UsageError as error:
        name = next(draft.name for draft in drafts if FTS.name in draft.services)
        raise MenuError([Problem(name, 0, error.message, error.hint or "")]) from None
    return online.ask(
        drafts, campaign, backends, file_speed, lambda complete: menu.narrowed(complete, links, scale)
    )


def _describe_credentials(drafts: Sequence[MenuDraft], recall: Callable[..., Trust]) -> list[str]:
    """Return where credentials would go, and what names each host; a campaign's ledger may have an answer."""
    if not any(FTS.name in draft.services for draft in drafts):
        return []
    trusted = recall(*sorted({draft.campaign for draft in drafts}))
    ends = trust.ends(flow.link for draft in drafts for flow in draft.preview.flows)
    endpoint = menu.endpoint_of(drafts) or os.environ.get(trust.ENDPOINT, "")
    return [
        f"{label}: "
        + ", ".join(f"{host} ({f'trusted: {by}' if by else 'not trusted yet'})" for host, by in hosts.items())
        for label, hosts in trusted.listed(ends, endpoint).items()
    ]


def describe_actions(campaign: str) -> list[str]:
    """Return what is stopped and set over a campaign's menus, where it has a ledger in its default place."""
    path = ledger_files.file_of(None, campaign)
    if not ledger.files(path):
        return []
    try:
        with LedgerView.open(path) as view:
            return list(active_overrides.standing(view))
    except LedgerError as error:
        return [f"it is unknown what is stopped or set for {campaign}: {error.message}"]
