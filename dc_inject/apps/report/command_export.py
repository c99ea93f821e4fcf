"""`dc-inject export`: records for other programs, of what was injected and of what is planned.

What was injected comes from a ledger alone, at any time, also while the campaign runs. What is to come
(`--planned`) comes from menus, before there is a ledger; or from the menus in force of a campaign that has one,
with the rates that people have set over them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, starmap
from pathlib import Path
from typing import BinaryIO

import click

from dc_inject.apps.report import export as records
from dc_inject.apps.report.export import FIELDS, FORMATS, About
from dc_inject.apps.report.planned_flows import planned_flows
from dc_inject.cli.shared import common, menu_files
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model.errors import UsageError
from dc_inject.summary import figures
from dc_inject.summary.figures import ReportScope
from dc_inject.summary.menu_terms import site_of
from dc_inject.system import disk, files


@click.command()
@common.INCLUDE_FROM
@click.argument(
    "subjects", cls=common.CampaignArgument, nargs=-1, required=True, metavar="CAMPAIGN|LEDGER|MENU..."
)
@click.option(
    "--planned",
    is_flag=True,
    help="Export the flows that are to come: of menus, or of a campaign; with --since those that end later.",
)
@common.SINCE
@common.UNTIL
@click.option("--experiment", metavar="NAME", help="The experiment, where no scitag names it [default: the VO].")
@click.option(
    "--format",
    "fmt",
    type=click.Choice(list(FORMATS)),
    default="jsonl",
    show_default=True,
    help="A JSON object a line, CSV, or Parquet.",
)
@menu_files.OUTPUT
@menu_files.FORCE
@common.LEDGER
def export(
    subjects: tuple[str, ...],
    *,
    planned: bool,
    since: datetime | None,
    until: datetime | None,
    experiment: str | None,
    fmt: str,
    output: Path,
    force: bool,
    ledger_path: Path | None,
) -> None:
    r"""Export what a campaign injected and what became of it, one record for each rule or job.

    With --planned: what MENUs, or the menus in force of a campaign, are going to send between sites, when, at
    which rate and how much. The records have a documented schema with a version. A file that is written can be
    read by you only (mode 0600).

    \b
    Example: dc-inject export dc27-rehearsal -o dc27.jsonl
    Example: dc-inject export dc27-rehearsal --since 2027-02-08T00:00Z --format parquet -o day1.parquet
    Example: dc-inject export --planned menus/cms-t0-export.yaml --experiment cms --format csv
    """
    if fmt == "parquet":
        records.library()  # whether it is there, before anything is read
    if planned:
        to_come = records.campaigns_to_come(subjects, ledger_path, experiment, menu_files.show)
        flows = [(planned_flows(campaign, since, until), about) for campaign, about in to_come]
        with _opened(output, force=force) as file:
            FORMATS[fmt](chain.from_iterable(starmap(records.planned, flows)), FIELDS["planned"], file)
        return
    if len(subjects) != 1:
        raise UsageError("export takes one campaign", "name several menus with --planned only")
    path = ledger_files.existing(subjects[0], ledger_path)
    with LedgerView.open(path) as view:
        ledger_files.campaign_in(view, subjects[0], path)
        period = figures.period(view, ReportScope(since, until))
        made = (
            records.injections(view, period, About(records.experiments_of(view, experiment), site_of(view)))
            if period
            else iter(())
        )
        with _opened(output, force=force) as file:
            FORMATS[fmt](made, FIELDS["injection"], file)


@contextmanager
def _opened(output: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open what is written to: stdout, or a file that is there as a whole or not at all."""
    if output == menu_files.STDIN:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with files.whole(output, force=force, mode=disk.PRIVATE) as file:
        yield file
    click.echo(f"wrote {output}", err=True)
