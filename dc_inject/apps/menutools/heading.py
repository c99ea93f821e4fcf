"""The top of a new menu: its options, and the values that are assumed where none is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.cli.shared import common, menu_files
from dc_inject.cli.shared.params import DID, ENDPOINT, FOLDER, LINE, NAME, ZONE, menu_time
from dc_inject.menu import MenuDraft, values
from dc_inject.menu.writing import Heading
from dc_inject.model import rates, units
from dc_inject.model.errors import MenuError, Problem, UsageError
from dc_inject.model.services import DEFAULT, SERVICES
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

F = TypeVar("F", bound=Callable[..., object])
ANY_DATASET = "*:*"
TOLD = 10  # findings of a new menu
START_HOUR = 10  # of tomorrow, where nobody says when


TIME = menu_time(ZoneInfo("UTC"))

_OPTIONS = (
    click.option("--campaign", type=NAME, help="The name of the campaign [default: the scenario's name]."),
    click.option("--contact", type=LINE, help="The contact that rules name [default: your account here]."),
    click.option("--description", type=LINE, help="What the menu is for."),
    click.option("--timezone", type=ZONE, help="The time zone of times without an offset [default: UTC]."),
    click.option("--start", type=TIME, help="The start of the menu, or `now` [default: tomorrow, 10:00]."),
    click.option("--end", type=TIME, help="The end of the menu [default: 24 h after its start]."),
    click.option("--through", type=click.Choice(list(SERVICES)), default=DEFAULT.name, help="The service to use."),
    click.option("--did", "datasets", type=DID, multiple=True, metavar="PATTERN",
                 help="Datasets to inject, scope:name with wildcards (may be repeated) [default: *:*]."),
    click.option("--folder", type=FOLDER, help="Through FTS: files of this folder below the source [default: .]."),
    click.option("--fts", "endpoint", type=ENDPOINT, help="The address of FTS."),
)  # fmt: skip


def options(command: F) -> F:
    """Give a command the options for the top of a menu."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def heading(given: Mapping[str, Any], scenario: str, include: str = "") -> Heading:
    """Return the top of a menu out of the options, and what is assumed for those that were not given.

    Raises UsageError for options that do not go together.
    """
    stated = {key: value for key, value in given.items() if value not in (None, (), "")}
    start, end = usual_window(str(stated.get("timezone", "UTC")), str(stated.get("start", "")))
    usual = {"campaign": scenario, "contact": common.who(), "timezone": "UTC", "start": start, "end": end}
    service = SERVICES[str(stated.setdefault("through", DEFAULT.name))]
    if not service.takes_files and "folder" in stated:
        raise UsageError(
            "--folder is only for links through FTS", "add --through fts, or name datasets with --did"
        )
    if not service.takes_files:
        usual["datasets"] = ANY_DATASET
    elif "datasets" not in stated:
        usual["folder"] = "."
    assumed = {key: value for key, value in usual.items() if key not in stated}
    patterns: tuple[str, ...] = stated.pop("datasets", (ANY_DATASET,) if "datasets" in assumed else ())
    texts = {key: str(stated.get(key) or usual.get(key) or "") for key in _TEXTS}
    return Heading(**texts, datasets=patterns, include=include, assumed=frozenset(assumed))


_TEXTS = ("campaign", "contact", "start", "end", "timezone", "description", "through", "folder", "endpoint")


def usual_window(timezone: str, start: str = "") -> tuple[str, str]:
    """Return begin and end of a menu where at most its begin was said; raises UsageError for a wrong one."""
    zone = values.zone(timezone)
    start = start or _local(_tomorrow(zone), zone)
    try:
        return start, _local(values.moment(start, zone) + timedelta(days=1), zone)
    except values.WrongError as error:
        raise UsageError(error.message, error.hint) from None


def describe_assumptions(heading: Heading) -> str:
    """Say what was assumed, or nothing."""
    values = {key: getattr(heading, key) for key in _TEXTS} | {"datasets": " ".join(heading.datasets)}
    options = {"datasets": "--did"}
    parts = [f"{values[key]} ({options.get(key, f'--{key}')})" for key in sorted(heading.assumed - {"timezone"})]
    return f"assumed: {', '.join(parts)}" if parts else ""


def checked(text: str, output: Path) -> MenuDraft:
    """Read a menu that was made, and tell its findings; raises MenuError with what cannot work."""
    name = "the new menu" if output == menu_files.STDIN else str(output)
    try:
        draft = menu.read(text, name, files.load)
    except MenuError as error:
        raise MenuError(alike(error.problems)) from None
    findings = lint.findings(menu.campaign([draft.preview]))
    menu_files.say(*(f"warning: {finding}" for finding in findings[:TOLD]))
    if len(findings) > TOLD:
        menu_files.say(f"warning: and {len(findings) - TOLD} more, which `dc-inject check MENU` lists")
    return draft


def alike(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with one of each kind (of one hint), which says how many more there are.

    A menu that is made has the same mistake in every link, if it has one.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.hint or problem.message, []).append(problem)
    return [_with(first, more) for first, *more in groups.values()]


def _with(problem: Problem, more: Sequence[Problem]) -> Problem:
    if not more:
        return problem
    more_like_it = f"and {len(more)} more like it, to line {more[-1].line}"
    return replace(problem, hint=f"{problem.hint}; {more_like_it}" if problem.hint else more_like_it)


def together(draft: MenuDraft) -> str:
    """Return how many links a menu has, and what they sum to."""
    flows = draft.preview.flows
    links = len({flow.link for flow in flows})
    return f"{units.counted(links, 'links')}, {units.format_rate(rates.peak(flows).rate)} together"


def _tomorrow(zone: ZoneInfo) -> datetime:
    day = SystemClock().now().astimezone(zone) + timedelta(days=1)
    return day.replace(hour=START_HOUR, minute=0, second=0, microsecond=0)


def _local(moment: datetime, zone: ZoneInfo) -> str:
    """Write a time in a zone, with its offset where clocks are put back over it."""
    local = moment.astimezone(zone)
    text = local.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
    try:
        values.moment(text, zone)
    except values.WrongError:
        return local.isoformat(" ", "seconds")
    return text
