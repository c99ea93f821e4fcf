"""`dc-inject report`: what became of a campaign, from its ledger alone, at any time, also while it runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from dc_inject.apps.report import overlay as wan
from dc_inject.apps.report import page, pictures, text
from dc_inject.apps.report.compare import compared
from dc_inject.cli.shared import common, menu_files, params
from dc_inject.cli.shared.thresholds import FAIL_UNDER
from dc_inject.engine import control_records
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.menu.values import WrongError
from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import scrub
from dc_inject.model.thresholds import Threshold
from dc_inject.summary import figures, readings, thresholds
from dc_inject.summary.figures import ExcludedWindow, ReportScope
from dc_inject.system import disk, files
from dc_inject.system.clock import SystemClock

PICTURED = ("html", "svg", "png")
FORMATS = ("md", "json", "csv", *PICTURED, "junit")
_EXCLUSION = re.compile(r"(?P<since>[^\s/]+)/(?P<until>[^\s/]+)(?:\s+(?P<why>.*))?", re.DOTALL)
_SUCH = 'such as "2027-02-12T08:00/12:00 token trouble"'
MAKE: Mapping[str, Callable[[Mapping[str, Any]], str | bytes]] = {
    "md": text.markdown,
    "json": lambda values: json.dumps(values, indent=1) + "\n",
    "html": page.html,
    "svg": lambda values: pictures.svg(pictures.together(values)) + "\n",
    "png": lambda values: pictures.png(pictures.together(values)),
    "junit": thresholds.junit,
}


def _exclusion(text: str) -> ExcludedWindow:
    """Read `FROM/TO why`, times in UTC unless they have an offset; TO may be a time of the same day only."""
    match = _EXCLUSION.fullmatch(text)
    if match is None or not match["why"]:
        raise WrongError(f"{text!r} is not FROM/TO with a reason", _SUCH)
    since = params.utc(match["since"])
    end = match["until"]
    until = params.utc(end if "T" in end else f"{since:%Y-%m-%d}T{end}")
    if until <= since:
        raise WrongError(f"{text!r} ends before it begins", f"an end on another day has its date, too; {_SUCH}")
    return ExcludedWindow(since, until, scrub(match["why"]))


@click.command()
@common.CAMPAIGN
@common.SINCE
@common.UNTIL
@click.option(
    "--exclude",
    "excluded",
    type=params.Parsed("window", _exclusion),
    multiple=True,
    metavar="'FROM/TO WHY'",
    help="Leave a window out of averages, and say why (UTC unless an offset is given; may be repeated).",
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(FORMATS),
    default="md",
    show_default=True,
    help="Markdown, all figures as JSON, CSV by hour and link, a page with pictures, only these, or JUnit.",
)
@click.option("--compare", metavar="CAMPAIGN", help="Set another campaign beside it, with differences.")
@click.option(
    "--overlay",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Readings of a site's WAN to show beside: JSON with InBytesPerSec and OutBytesPerSec, or CSV.",
)
@FAIL_UNDER
@menu_files.OUTPUT
@menu_files.FORCE
@common.LEDGER
@click.option("--renewed-every", type=float, default=0, hidden=True, help="Seconds, of a page that `serve` makes.")
def report(
    campaign: str,
    since: datetime | None,
    until: datetime | None,
    excluded: tuple[ExcludedWindow, ...],
    fmt: str,
    compare: str | None,
    overlay: Path | None,
    fail_under: tuple[Threshold, ...],
    output: Path,
    force: bool,
    ledger_path: Path | None,
    renewed_every: float,
) -> None:
    r"""Report what was due, injected, moved and lost, by hour, day, scenario and site; holds, failures, notes.

    It reads only the ledger, so it works at any time, also while the campaign runs. Only you can read the file
    that it writes (mode 0600), because names of links and reasons are in it.

    \b
    Example: dc-inject report dc27-rehearsal --format html -o dc27.html
    Example: dc-inject report dc27-rehearsal --exclude "2027-02-12T08:00/12:00 token trouble" --format json
    Example: dc-inject report dc27-rehearsal --fail-under 'ratio{scenario="t0-export"} >= 0.9' --format junit
    """
    if fmt in PICTURED:
        pictures.library()  # whether it is there, before anything is added up
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    if fmt == "csv" and (compare or overlay):
        raise UsageError("CSV has only this campaign's own rows", "leave out --compare and --overlay")
    path = ledger_files.existing(campaign, ledger_path)
    scope = ReportScope(since, until, excluded, fail_under)
    with LedgerView.open(path) as view, view.snapshot():
        name = ledger_files.campaign_in(view, campaign, path)
        if fmt == "csv":  # whole, since who reads the output may take his time
            made = _rows(view, scope)
        else:
            values = _read_figures(view, scope)
            made = None if values is None else _made(values, fmt, compare, overlay, renewed_every)
    if made is None:
        raise _nothing(name, scope)
    content, judgements = made
    _write(content, output, force=force)
    if (missed := thresholds.error(judgements)) is not None:
        raise missed


Judged = list[dict[str, Any]]


def _rows(view: LedgerView, scope: ReportScope) -> tuple[bytes, Judged] | None:
    """Return a report as CSV, and what became of thresholds; None where there is no cycle."""
    chosen = figures.period(view, scope)
    if chosen is None:
        return None
    return "".join(text.lines(view, chosen)).encode(), thresholds.figures(view, chosen, scope.thresholds)


def _read_figures(view: LedgerView, scope: ReportScope) -> dict[str, Any] | None:
    progress, shared = readings.progress(view.challenge()), control_records.redistributed(view)
    return figures.report(view, scope, progress, SystemClock().now(), shared)


def _made(
    values: dict[str, Any], fmt: str, compare: str | None, overlay: Path | None, renewed_every: float
) -> tuple[bytes, Judged]:
    """Return a report in a format, with what it is compared with, and what became of thresholds."""
    if compare is not None:
        values["compared"] = compared(values, _other(compare))
    for window in values["excluded_windows"]:
        if not window["cycles"]:
            click.echo(
                f"warning: no cycle of the report is in the window {window['since']}/{window['until']}", err=True
            )
    if overlay is not None:
        values["overlay"] = wan.overlay(_read(overlay), overlay.name, values)
    made = page.html(values, renewed_every) if fmt == "html" else MAKE[fmt](values)
    return made.encode() if isinstance(made, str) else made, values["thresholds"]


def _other(campaign: str) -> dict[str, Any]:
    """Return the figures of another campaign, as a whole."""
    path = ledger_files.existing(campaign)
    with LedgerView.open(path) as view, view.snapshot():
        other = _read_figures(view, ReportScope())
    if other is None:
        raise _nothing(campaign, ReportScope())
    return other


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(wan.LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _nothing(name: str, scope: ReportScope) -> UsageError:
    if scope.since is None and scope.until is None:
        return UsageError(f"{name} has had no cycle so far", "`dc-inject run MENUS` begins one")
    return UsageError(f"no cycle of {name} begins in that time", "leave out --since or --until")


def _write(content: bytes, output: Path, *, force: bool) -> None:
    if output == menu_files.STDIN:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        files.write_whole(output, content, force=force, mode=disk.PRIVATE)
        click.echo(f"wrote {output}", err=True)
