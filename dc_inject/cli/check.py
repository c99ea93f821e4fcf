"""`dc-inject check`: everything that is wrong or odd in menus, before anything is asked of a service."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject import files, menu, units
from dc_inject.cli import common, tables
from dc_inject.errors import MenuError, Problem
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign

COLUMNS = tuple(
    tables.Column(key, key) for key in ("file", "line", "severity", "code", "outlier", "message", "hint")
)


@click.command()
@common.MENUS
@click.option("--strict", is_flag=True, help="Take warnings for errors: exit with 2.")
@common.FORMAT
@click.pass_context
def check(ctx: click.Context, menus: tuple[Path, ...], strict: bool, fmt: str) -> None:
    """Check MENUS, files or folders, without asking any service: every problem with its line and a hint.

    Errors are what cannot work (exit code 2). Warnings are findings with a code; `run` refuses those that are
    outliers unless the menu accepts them (`accept: [code]`).

    Example: dc-inject check menus/cms-t0-export.yaml

    Example: dc-inject check --strict --format json menus/
    """
    drafts: list[MenuDraft] = []
    campaign: Campaign | None = None
    try:
        drafts = files.read_menus(menus)
        campaign = menu.campaign([draft.preview for draft in drafts])
        problems = menu.findings(campaign)
    except MenuError as error:
        problems = error.problems
    _emit(fmt, problems)
    errors = sum(1 for problem in problems if strict or not problem.code)
    if campaign is not None:
        click.echo(_sentence(campaign, drafts), err=True)
    if problems:
        click.echo(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}", err=True)
    ctx.exit(2 if errors else 0)


def _emit(fmt: str, problems: tuple[Problem, ...]) -> None:
    if fmt == "table":  # messages are sentences: lines that editors can follow beat columns
        for problem in problems:
            click.echo(f"{'warning' if problem.code else 'error'}: {problem}")
        return
    rows = [
        {
            "file": problem.file,
            "line": problem.line or None,
            "severity": "warning" if problem.code else "error",
            "code": problem.code or None,
            "outlier": problem.outlier,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
    tables.emit(fmt, COLUMNS, rows)


def _sentence(campaign: Campaign, drafts: list[MenuDraft]) -> str:
    """Say what the menus ask for, in one sentence."""
    flows = campaign.flows
    links, scenarios = len({flow.link for flow in flows}), len({flow.scenario for flow in flows})
    start, end = (moment.strftime("%Y-%m-%dT%H:%MZ") for moment in (campaign.start, campaign.end))
    rate = units.format_rate(menu.peak(flows).rate)
    sentence = (
        f"{campaign.name}: {_count(links, 'link')} in {_count(scenarios, 'scenario')}, {rate} together, "
        f"from {start} to {end}"
    )
    expressions = len({expression for draft in drafts for expression in draft.expressions})
    if expressions:
        sentence += f"; {_count(expressions, 'RSE expression')} counted as one RSE each, until `run` resolves them"
    return sentence


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
