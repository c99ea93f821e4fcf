"""`dc-inject smoke`: one file over each link, the week before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from dc_inject.apps.link import ending
from dc_inject.apps.smoke import results
from dc_inject.apps.smoke.results import PASSED, Result
from dc_inject.apps.smoke.sending import OneFileEach
from dc_inject.assembly.starting import AppParts, RunOptions
from dc_inject.cli import end_files
from dc_inject.cli.run import inject
from dc_inject.cli.shared import common, exits, hangup, log_output, params, summary_output, tables
from dc_inject.ledger import ledger_files
from dc_inject.model import units
from dc_inject.model.errors import UsageError
from dc_inject.summary import thresholds
from dc_inject.summary.left import EndState
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

END_RATE = 3600.0  # unfinished rules or jobs, of one file each, that are ended in an hour
WHEN_STOPPED = timedelta(seconds=15)  # for which files that resist deletion are asked for again after Ctrl-C
CELL = 13  # characters of a column of the matrix, in most cases
COLUMNS = [
    tables.Column(
        name, name, name=name in {"source", "destination"}, whole=name in {"outcome", "fault"},
        below=name == "reason", quiet=name in {"bytes", "rate"}, spare=int(name in {"service", "cause"}),
    )
    for name in Result._fields
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SmokeOptions:
    """The options of `smoke`; `least` is --min-rate in bytes per second, `part` --at-least."""

    among: tuple[str, ...] = common.option(
        "--among",
        type=params.MENU_END,
        multiple=True,
        metavar="RSE",
        help="Instead of MENUS: all pairs of RSEs.",
    )
    links: tuple[str, ...] = common.given(common.LINKS)
    failed: bool = common.option("--failed", is_flag=True, help="Only the links that did not pass the last time.")
    within: timedelta = common.option(
        "--within", type=params.DURATION, default="15m", help="The longest time of the test [default: 15m]."
    )
    part: float = common.option(
        "--at-least", "part", type=params.FACTOR, default="100%", help="Of the links have to pass [default: 100%]."
    )
    least: float = common.option(
        "--min-rate", "least", type=params.RATE, default=0.0, help="Slower links fail, such as 10Mb/s."
    )
    allow_admin: bool = common.given(common.ALLOW_ADMIN)
    timeout: float = common.given(common.TIMEOUT)
    junit: Path | None = common.option(
        "--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write a test case for each link there."
    )
    fmt: str = common.given(common.FORMAT)


@click.command(cls=common.GroupedHelp)
@common.INCLUDE_FROM
@click.argument("menus", nargs=-1, type=params.MenuFile())
@common.options_of(SmokeOptions)
def smoke(menus: tuple[Path, ...], **given: Any) -> None:
    r"""Send one file over each link of MENUS, and show which links work, how fast, and who has to act.

    Each link gets the smallest file that its menu selects, through the menu's service and within its limits; from
    a dataset of several files, it is a slice in the account's own scope. Windows and rates of the menus do not
    count. The test ends when each link has a result, removes its rules, jobs and files, and prints a matrix. It
    has a ledger of its own. Ctrl-C ends it early, in the same way.

    Exit code 5: too few links passed; 2: it was interrupted; 4: a service does not work.

    \b
    Example: dc-inject smoke menus/day1 --junit smoke.xml
    Example: dc-inject smoke menus/day1 --failed
    Example: dc-inject smoke --among T1_DE_KIT_Disk --among T1_UK_RAL_Disk --among "tier=2&country=DE"
    """
    log_output.talk(quiet=True)
    options = SmokeOptions(**given)
    if bool(menus) == bool(options.among):
        raise UsageError("name menus, or RSEs with --among", "`dc-inject smoke MENUS`")
    if options.junit is not None:
        files.need_folder(options.junit)
    notify = partial(click.echo, err=True)
    one = OneFileEach(menus, options.among, SystemClock().now(), options.within, notify)
    links = set(options.links) or (results.did_not_pass(one.campaign) if options.failed else set())
    started = RunOptions(no_drain=True, links=[*links], allow_admin=options.allow_admin, timeout=options.timeout)
    hangup.interrupt()
    with ending.interruptible(one.campaign, "there is no matrix, since the end of the test was interrupted"):
        parts = AppParts(drafts=one.drafts, wrap_menus=one.over, planner=one, ends_afterwards=True)
        finished = inject(menus, started, parts)
        # Before the end cancels what is unfinished.
        found = results.of_campaign(one.campaign, one.keys, options.least)
        patience, path = end_files.PATIENCE if finished else WHEN_STOPPED, ledger_files.existing(one.campaign)
        end_state = ending.end_rules(one.campaign, path, END_RATE, options.timeout, patience)
        _show_results(one.campaign, found, options)
        summary_output.show_left(one.campaign, path, end_state)
        if end_state is EndState.INTERRUPTED:
            raise click.exceptions.Exit(exits.INTERRUPTED)
        if error := results.error(one.campaign, found, options.part, finished=finished):
            raise error


def _show_results(campaign: str, found: Sequence[Result], options: SmokeOptions) -> None:
    """Print the results, and write them for CI."""
    at, rows = units.format_time(SystemClock().now()), [one._asdict() for one in found]
    if options.fmt == "table":
        _show(found)
        rows = [row for row in rows if row["outcome"] != PASSED]
    if options.fmt == "json":
        tables.emit_json({"campaign": campaign, "at": at, "links": rows})
    elif rows:
        tables.emit(options.fmt, COLUMNS, rows)
    if options.junit is not None:
        cases = (("smoke", one.link, one.outcome, f"{one.fault}: {one.reason}") for one in found)
        files.write_whole(options.junit, thresholds.suite(campaign, at, cases), force=True)


def _show(found: Sequence[Result]) -> None:
    """Print the matrix of sources and destinations, in as many parts as the terminal needs."""
    cells: dict[str, dict[str, str]] = {}
    for one in found:
        rate = "passed" if one.rate is None else units.format_rate(one.rate)
        row = cells.setdefault(one.source, {"": one.source})
        row[one.destination] = rate if one.outcome == PASSED else one.fault
    names = sorted({one.destination for one in found})
    most = max((tables.width() - max(map(len, cells), default=0)) // (CELL + 2), 1)
    for first in range(0, len(names), most):
        shown = "", *names[first : first + most]
        columns = [tables.Column(name, name or "from / to", name=True) for name in shown]
        tables.emit("table", columns, list(cells.values()))
        click.echo()
