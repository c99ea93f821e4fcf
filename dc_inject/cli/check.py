"""`dc-inject check`: everything that is wrong or odd in menus, and with --online in what they need of services."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from dc_inject import files, lint, menu, rates, units
from dc_inject.cli import common, online, tables
from dc_inject.cli.answers import Answers
from dc_inject.clock import SystemClock
from dc_inject.errors import MenuError, Problem, UsageError
from dc_inject.menu import MenuDraft
from dc_inject.metrics import Silent
from dc_inject.model import Campaign

COLUMNS = tuple(
    tables.Column(key, key) for key in ("file", "line", "severity", "code", "outlier", "message", "hint")
)


class Speed(click.ParamType[float]):
    """A rate with its unit, above 0, as menus write it."""

    name = "rate"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return bytes per second."""
        if isinstance(value, float):
            return value
        try:
            rate = units.parse_rate(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return rate if rate > 0 else self.fail("a speed is above 0", param, ctx)


@click.command()
@common.MENUS
@click.option("--strict", is_flag=True, help="Take warnings for errors: exit with 2.")
@click.option("--online", "asking", is_flag=True, help="Ask the services and storages too; nothing is changed.")
@click.option(
    "--file-speed",
    type=Speed(),
    default=menu.FILE_SPEED,
    show_default=f"{units.format_size(menu.FILE_SPEED)}/s, as in DC24",
    help="How fast one file moves through FTS.",
)
@common.TIMEOUT
@common.FORMAT
@click.pass_context
def check(
    ctx: click.Context,
    menus: tuple[Path, ...],
    strict: bool,
    asking: bool,
    file_speed: float,
    timeout: float,
    fmt: str,
) -> None:
    r"""Check MENUS, files or folders: every problem with its line and a hint.

    Errors are what cannot work (exit code 2). Warnings are findings with a code; `run` refuses those that are
    outliers unless the menu accepts them (`accept: [code]`).

    Without --online no service is asked. With it, it is asked who I am at the services, whether the ends of links
    are there, can copy, have room and datasets or files, and allow what is needed, and whether FTS's limits will
    throttle the menus. Exit code 4 when a service cannot be reached or does not let me in.

    \b
    Example: dc-inject check menus/cms-t0-export.yaml
    Example: dc-inject check --strict --format json menus/cms
    Example: dc-inject check --online menus/fts-juno-steps.yaml
    """
    drafts: list[MenuDraft] = []
    campaign: Campaign | None = None
    problems: tuple[Problem, ...] = ()
    said: list[str] = []
    service_failed = False
    try:
        drafts = files.read_menus(menus)
        campaign = menu.campaign([draft.preview for draft in drafts])
        problems = lint.findings(campaign, file_speed)
        if asking:
            common.talk(quiet=True)
            told = _ask(drafts, campaign, file_speed, timeout)
            campaign, said, service_failed = told.campaign, told.said, told.service_failed
            found = lint.findings(campaign, file_speed, told.limits)
            problems = tuple(sorted({*found, *told.problems}))
    except MenuError as error:
        problems = tuple(sorted({*problems, *error.problems}))
    _emit(fmt, problems)
    errors = sum(map(_is_error, problems))
    warnings = len(problems) - errors
    for sentence in said:
        click.echo(sentence, err=True)
    if campaign is not None:
        click.echo(_sentence(campaign, [] if said else drafts), err=True)
    if problems:
        counted = f"{units.counted(errors, 'errors')}, {units.counted(warnings, 'warnings')}"
        click.echo(counted + (" (taken for errors: --strict)" if strict and warnings else ""), err=True)
    ctx.exit(4 if service_failed else 2 if errors or (strict and warnings) else 0)


def _ask(drafts: list[MenuDraft], campaign: Campaign, file_speed: float, timeout: float) -> Answers:
    """Ask the services; raises MenuError when a menu does not say where one is."""
    try:
        backends = common.backends(
            {service for draft in drafts for service in draft.services},
            campaign=campaign.name,
            clock=SystemClock(),
            observer=Silent(),
            timeout=timeout,
            endpoint=common.menus_endpoint(drafts),
        )
    except UsageError as error:
        name = next(draft.name for draft in drafts if "fts" in draft.services)
        raise MenuError([Problem(name, 0, error.message, error.hint or "")]) from None
    return online.ask(drafts, campaign, backends, file_speed)


def _is_error(problem: Problem) -> bool:
    return not problem.code or problem.code in menu.ERRORS


def _emit(fmt: str, problems: Iterable[Problem]) -> None:
    rows = [
        {
            "file": problem.file,
            "line": problem.line or None,
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
        tables.emit(fmt, COLUMNS, rows)


def _sentence(campaign: Campaign, drafts: list[MenuDraft]) -> str:
    """Say what the menus ask for, in one sentence."""
    flows = campaign.flows
    links, scenarios = len({flow.link for flow in flows}), len({flow.scenario for flow in flows})
    start, end = (moment.strftime("%Y-%m-%dT%H:%MZ") for moment in (campaign.start, campaign.end))
    rate = units.format_rate(rates.peak(flows).rate)
    sentence = (
        f"{campaign.name}: {units.counted(links, 'links')} in {units.counted(scenarios, 'scenarios')}, "
        f"{rate} together, from {start} to {end}"
    )
    expressions = len({expression for draft in drafts for expression in draft.expressions})
    if expressions:
        sentence += (
            f"; {units.counted(expressions, 'RSE expressions')} counted as one RSE each, until `run` resolves them"
        )
    return sentence
