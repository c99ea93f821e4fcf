"""`dc-inject check`: everything that is wrong or odd in menus, and with --online in what they need of services."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dc_inject import ledger, menu
from dc_inject.analysis import lint
from dc_inject.apps.preview import online
from dc_inject.apps.preview.online_report import Answers
from dc_inject.cli.shared import common, log_output, params, services, tables, trusting
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign, rates, units
from dc_inject.model.errors import LedgerError, MenuError, Problem, UsageError
from dc_inject.model.events import Silent
from dc_inject.model.findings import ERRORS
from dc_inject.model.services import FTS
from dc_inject.model.transfers import FILE_SPEED
from dc_inject.summary import active_overrides
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

COLUMNS = tuple(
    tables.Column(key, key) for key in ("file", "line", "column", "severity", "code", "outlier", "message", "hint")
)


@click.command()
@common.MENUS
@click.option("--strict", is_flag=True, help="Treat warnings as errors (exit code 2).")
@click.option("--online", "asking", is_flag=True, help="Also ask the services and storages; this changes nothing.")
@click.option(
    "--file-speed",
    type=params.RATE,
    default=FILE_SPEED,
    help=f"The speed of one file through FTS [default: {units.format_size(FILE_SPEED)}/s, as in DC24].",
)
@common.LINKS
@common.SCALE
@common.TIMEOUT
@common.FORMAT
@click.pass_context
def check(
    ctx: click.Context,
    menus: tuple[Path, ...],
    strict: bool,
    asking: bool,
    file_speed: float,
    links: tuple[str, ...],
    scale: float,
    timeout: float,
    fmt: str,
) -> None:
    r"""Check MENUS (files or folders), and report every problem with its line and a hint.

    An error is something that cannot work (exit code 2). A warning is a finding with a code; `run` refuses
    findings that are outliers unless the menu accepts their code (`accept: [code]`).

    With --online it also asks the services: who you are, whether the ends of all links exist, can copy, have space
    and datasets or files, and grant you the rights that are needed, and whether FTS's limits will throttle the
    menus. Exit code 4: a service cannot be reached, or refuses your credentials.

    --link and --scale check what `run` would do with them.

    \b
    Example: dc-inject check menus/cms-t0-export.yaml
    Example: dc-inject check --strict --format json menus/cms
    Example: dc-inject check --online menus/fts-juno-steps.yaml
    """
    drafts: list[MenuDraft] = []
    campaign: Campaign | None = None
    problems: tuple[Problem, ...] = ()
    notes: list[str] = []
    service_failed = False
    sent: list[str] = []
    try:
        drafts = files.read_menus(menus)
        sent = _sent(drafts)
        campaign = _narrowed(drafts, links, scale, resolved=asking)
        problems = lint.findings(campaign, file_speed)
        if asking:
            log_output.talk(quiet=True)
            answers = _ask(drafts, campaign, file_speed, timeout, links, scale)
            campaign, notes, service_failed = answers.campaign, answers.sentences, answers.service_failed
            findings = lint.findings(campaign, file_speed, answers.limits)
            problems = tuple(sorted({*findings, *answers.problems}))
    except MenuError as error:
        problems = tuple(sorted({*problems, *error.problems}))
    _emit(fmt, problems, sent)
    errors = sum(map(_is_error, problems))
    warnings = len(problems) - errors
    for sentence in [*sent, *notes, *([] if campaign is None else _standing(campaign.name))]:
        click.echo(sentence, err=True)
    if campaign is not None:
        click.echo(_sentence(campaign, [] if notes else drafts, scale), err=True)
    if problems:
        counted = f"{units.counted(errors, 'errors')}, {units.counted(warnings, 'warnings')}"
        click.echo(counted + (" (treated as errors: --strict)" if strict and warnings else ""), err=True)
    ctx.exit(4 if service_failed else 2 if errors or (strict and warnings) else 0)


def _narrowed(drafts: list[MenuDraft], links: tuple[str, ...], scale: float, *, resolved: bool) -> Campaign:
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
    drafts: list[MenuDraft],
    campaign: Campaign,
    file_speed: float,
    timeout: float,
    links: tuple[str, ...],
    scale: float,
) -> Answers:
    """Ask the services; raises MenuError when a menu does not say where one is."""
    try:
        backends = common.backends(
            {service for draft in drafts for service in draft.services},
            campaign=campaign.name,
            clock=SystemClock(),
            observer=Silent(),
            timeout=timeout,
            endpoint=menu.endpoint_of(drafts),
        )
    except UsageError as error:
        name = next(draft.name for draft in drafts if FTS.name in draft.services)
        raise MenuError([Problem(name, 0, error.message, error.hint or "")]) from None
    return online.ask(
        drafts, campaign, backends, file_speed, lambda complete: menu.narrowed(complete, links, scale)
    )


def _sent(drafts: list[MenuDraft]) -> list[str]:
    """Say where credentials would go, and what names each host; a campaign's ledger may have an answer."""
    if not any(FTS.name in draft.services for draft in drafts):
        return []
    for campaign in sorted({draft.campaign for draft in drafts}):
        trusting.recall_from(ledger_files.file_of(None, campaign), campaign)
    ends = trusting.ends(flow.link for draft in drafts for flow in draft.preview.flows)
    endpoint = menu.endpoint_of(drafts) or os.environ.get(services.ENDPOINT, "")
    return [
        f"{label}: "
        + ", ".join(f"{host} ({f'trusted: {by}' if by else 'not trusted yet'})" for host, by in hosts.items())
        for label, hosts in trusting.listed(ends, endpoint).items()
    ]


def _standing(campaign: str) -> list[str]:
    """Say what is stopped and set over these menus, where the campaign has a ledger in its default place."""
    path = ledger_files.file_of(None, campaign)
    if not ledger.files(path):
        return []
    try:
        with LedgerView.open(path) as view:
            return list(active_overrides.standing(view))
    except LedgerError as error:
        return [f"what is stopped or set for {campaign} cannot be told: {error.message}"]


def _is_error(problem: Problem) -> bool:
    return not problem.code or problem.code in ERRORS


def _emit(fmt: str, problems: Iterable[Problem], notes: Iterable[str]) -> None:
    """Print problems; where a program reads them, also what is worth to know and no problem."""
    rows: list[dict[str, Any]] = [
        {
            "file": problem.file,
            "line": problem.line or None,
            "column": problem.column or None,
            "severity": "error" if _is_error(problem) else "warning",
            "code": problem.code or None,
            "outlier": problem.outlier,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    if fmt == "table":  # messages are sentences: lines that editors can follow beat columns
        for row, problem in zip(rows, problems, strict=True):
            click.echo(f"{row['severity']}: {problem}")
    else:
        empty = {column.key: None for column in COLUMNS} | {"outlier": False}
        rows += [empty | {"severity": "note", "code": "credentials", "message": note} for note in notes]
        tables.emit(fmt, COLUMNS, rows)


def _sentence(campaign: Campaign, drafts: list[MenuDraft], scale: float) -> str:
    """Say what the menus ask for, in one sentence."""
    flows = campaign.flows
    links, scenarios = len({flow.link for flow in flows}), len({flow.scenario for flow in flows})
    start, end = (moment.strftime("%Y-%m-%dT%H:%MZ") for moment in (campaign.start, campaign.end))
    rate = units.format_rate(rates.peak(flows).rate)
    sentence = (
        f"{campaign.name}: {units.counted(links, 'links')} in {units.counted(scenarios, 'scenarios')}, "
        f"{rate} together{f' (rates times {scale:g})' if scale != 1 else ''}, from {start} to {end}"
    )
    expressions = len({expression for draft in drafts for expression in draft.expressions})
    if expressions:
        sentence += (
            f"; {units.counted(expressions, 'RSE expressions')} counted as one RSE each, until `run` resolves them"
        )
    return sentence
