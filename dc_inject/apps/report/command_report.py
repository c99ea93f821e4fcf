"""`dc-inject report`: what became of a campaign, from its ledger alone, at any time, also while it runs."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import click

from dc_inject.apps.report import making, pictures
from dc_inject.cli.shared import common, menu_files, params
from dc_inject.ledger import ledger_files
from dc_inject.menu.values import WrongError
from dc_inject.model import thresholds as grammar
from dc_inject.model.errors import UsageError
from dc_inject.model.redaction import scrub
from dc_inject.model.thresholds import Threshold
from dc_inject.summary import figures, thresholds
from dc_inject.summary.figures import ExcludedWindow, ReportScope
from dc_inject.system import disk, files

_EXCLUSION = re.compile(
    r"(?P<since>[^\s/]+)/(?P<until>[^\s/]+)(?:\s+(?P<of>(?:site|rse|scenario)=\S+|link=\S+(?:\s+->\s+\S+)?))?"
    r"(?:\s+(?P<why>.*))?",
    re.DOTALL,
)
_SUCH = 'such as "2027-02-12T08:00/12:00 token trouble"'


def _exclusion(text: str) -> ExcludedWindow:
    """Read `FROM/TO [of] why`, times in UTC unless they have an offset; TO may be a time of the same day only."""
    match = _EXCLUSION.fullmatch(text)
    if match is None or not match["why"]:
        raise WrongError(f"{text!r} is not FROM/TO with a reason", _SUCH)
    since = params.utc(match["since"])
    end = match["until"]
    until = params.utc(end if "T" in end else f"{since:%Y-%m-%d}T{end}")
    if until <= since:
        raise WrongError(f"{text!r} ends before it begins", f"an end on another day has its date, too; {_SUCH}")
    return ExcludedWindow(since, until, scrub(match["why"]), match["of"] or "")


@click.command()
@common.TO_READ
@common.SINCE
@common.UNTIL
@click.option(
    "--exclude",
    "excluded",
    type=params.Parsed("window", _exclusion),
    multiple=True,
    metavar="'FROM/TO [OF] WHY'",
    help="Leave a window out of averages, of all links or of site=NAME, rse=NAME, link=SRC:DST or scenario=NAME, "
    "and give a reason (UTC unless an offset is given; may be repeated).",
)
@click.option(
    "--format",
    "fmt",
    type=click.Choice(making.FORMATS),
    help="Markdown, all figures as JSON, CSV by hour and link, a spreadsheet, a page, a picture, or JUnit "
    "[default: what the name of --output ends with, or md].",
)
@click.option(
    "--by",
    type=click.Choice(figures.BY),
    help="What a row of the table over time, of the pictures and of the CSV is [default: hour; cycle up to 12 h].",
)
@click.option(
    "--part",
    default="",
    metavar="NAME",
    help="Only this part, such as day-types or day-sites; if --output is a folder, each gets a file.",
)
@click.option("--compare", metavar="CAMPAIGN", help="Compare it with another campaign, with differences.")
@click.option(
    "--overlay",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Readings of a site's WAN to show with it: JSON with InBytesPerSec and OutBytesPerSec, or CSV.",
)
@click.option(
    "--fail-under",
    type=params.Parsed("threshold", grammar.parse),
    multiple=True,
    metavar="THRESHOLD",
    help=f"Exit with 5 unless this is reached, such as '{grammar.EXAMPLE}' (may be repeated).",
)
@menu_files.OUTPUT
@menu_files.FORCE
@common.LEDGER
@click.option("--renewed-every", type=float, default=0, hidden=True, help="Seconds, of a page that `serve` makes.")
def report(
    campaign: str,
    since: datetime | None,
    until: datetime | None,
    excluded: tuple[ExcludedWindow, ...],
    fmt: str | None,
    by: str | None,
    part: str,
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
    Example: dc-inject report dc27-rehearsal -o dc27.html
    Example: dc-inject report dc27-rehearsal --exclude "2027-02-12T08:00/12:00 token trouble" --format json
    Example: dc-inject report dc27-rehearsal --fail-under 'ratio{scenario="t0-export"} >= 0.9' --format junit
    """
    ends = output.suffix.lower().removeprefix(".")
    fmt = fmt or ("junit" if ends == "xml" else ends if ends in making.FORMATS else "md")
    if fmt in making.PICTURED:
        pictures.library()  # whether it is there, before anything is added up
    each = output.is_dir()
    if output != menu_files.STDIN and not each:
        files.refuse_existing(output, force=force)
    if part and fmt in {"json", "html", "junit"}:
        raise UsageError(f"--format {fmt} has all parts", "leave out --part, or take md, csv, xlsx, svg or png")
    if fmt == "csv" and not part and (compare or overlay):
        raise UsageError("CSV has only this campaign's own rows", "leave out --compare and --overlay")
    made = making.make(
        campaign,
        ledger_files.existing(campaign, ledger_path),
        ReportScope(since, until, excluded, fail_under, by or ""),
        fmt,
        compare=compare,
        overlay=overlay,
        renewed_every=renewed_every,
        part=part,
        each=each,
    )
    for warning in made.warnings:
        click.echo(f"warning: {warning}", err=True)
    for name, content in made.contents.items():
        file = output / f"{name or campaign}.{fmt}" if each else output
        menu_files.write(content, file, force=force, mode=disk.PRIVATE)
    if (missed := thresholds.error(made.judgements)) is not None:
        raise missed
