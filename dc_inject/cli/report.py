"""`dc-inject report`: what became of a campaign, from its ledger alone, at any time, also while it runs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from dc_inject.cli import common, menu_files, params
from dc_inject.cli.thresholds import FAIL_UNDER
from dc_inject.engine import readings
from dc_inject.ledger import LedgerView
from dc_inject.menu.values import WrongError
from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import scrub
from dc_inject.model.thresholds import Threshold
from dc_inject.report import figures, page, pictures, text, thresholds
from dc_inject.report.figures import Exclusion, Wanted
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

PICTURED = ("html", "svg", "png")
FORMATS = ("md", "json", "csv", *PICTURED, "junit")
_EXCLUSION = re.compile(r"(?P<since>[^\s/]+)/(?P<until>[^\s/]+)(?:\s+(?P<why>.*))?", re.DOTALL)
_SUCH = 'such as "2027-02-12T08:00/12:00 token trouble"'
PRIVATE = 0o600
MAKE: Mapping[str, Callable[[Mapping[str, Any]], str | bytes]] = {
    "md": text.markdown,
    "json": lambda told: json.dumps(told, indent=1) + "\n",
    "html": page.html,
    "svg": lambda told: pictures.svg(pictures.together(told)) + "\n",
    "png": lambda told: pictures.png(pictures.together(told)),
    "junit": thresholds.junit,
}


def _exclusion(text: str) -> Exclusion:
    """Read `FROM/TO why`, times in UTC unless they have an offset; TO may be a time of the same day only."""
    match = _EXCLUSION.fullmatch(text)
    if match is None or not match["why"]:
        raise WrongError(f"{text!r} is not FROM/TO with a reason", _SUCH)
    since = _utc(match["since"])
    end = match["until"]
    until = _utc(end if "T" in end else f"{since:%Y-%m-%d}T{end}")
    if until <= since:
        raise WrongError(f"{text!r} ends before it begins", _SUCH)
    return Exclusion(since, until, scrub(match["why"]))


def _utc(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongError(f"{text!r} is not a time", _SUCH) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


@click.command()
@common.CAMPAIGN
@click.option("--since", type=params.TIME, metavar="TIME", help="Only cycles that begin from then on.")
@click.option("--until", type=params.TIME, metavar="TIME", help="Only cycles that begin before.")
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
@FAIL_UNDER
@menu_files.OUTPUT
@menu_files.FORCE
@common.LEDGER
def report(
    campaign: str,
    since: datetime | None,
    until: datetime | None,
    excluded: tuple[Exclusion, ...],
    fmt: str,
    fail_under: tuple[Threshold, ...],
    output: Path,
    force: bool,
    ledger_path: Path | None,
) -> None:
    r"""Report what was due, injected and moved, by hour, day, scenario and site; holds, failures, notes.

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
    path = common.existing_ledger(campaign, ledger_path)
    wanted = Wanted(since, until, excluded, fail_under)
    with LedgerView.open(path) as view, view.snapshot():
        name = common.own_ledger(view, campaign, path)
        made = _made(view, wanted, fmt)  # whole, since who reads the output may take his time
    if made is None:
        raise _nothing(name, wanted)
    content, judgements = made
    _write(content, output, force=force)
    if (missed := thresholds.error(judgements)) is not None:
        raise missed


def _made(view: LedgerView, wanted: Wanted, fmt: str) -> tuple[bytes, list[dict[str, Any]]] | None:
    """Return a report in a format, and what became of thresholds; None where there is no cycle."""
    if fmt == "csv":
        chosen = figures.period(view, wanted)
        if chosen is None:
            return None
        return "".join(text.lines(view, chosen)).encode(), thresholds.figures(view, chosen, wanted.thresholds)
    told = figures.report(view, wanted, readings.progress(view.challenge()), SystemClock().now())
    if told is None:
        return None
    made = MAKE[fmt](told)
    return made.encode() if isinstance(made, str) else made, told["thresholds"]


def _nothing(name: str, wanted: Wanted) -> UsageError:
    if wanted.since is None and wanted.until is None:
        return UsageError(f"{name} has had no cycle so far", "`dc-inject run` begins one")
    return UsageError(f"no cycle of {name} begins in that time", "leave out --since or --until")


def _write(content: bytes, output: Path, *, force: bool) -> None:
    if output == menu_files.STDIN:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
    else:
        files.write_whole(output, content, force=force, mode=PRIVATE)
        click.echo(f"wrote {output}", err=True)
