"""`dc-inject export`: records for other programs, of what was injected and of what is planned.

What was injected comes from a ledger alone, at any time, also while the campaign runs. What is to come
(`--planned`) comes from menus, before there is a ledger; or from the menus in force of a campaign that has one,
with the rates that people have set over them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, starmap
from pathlib import Path
from typing import BinaryIO

import click

from dc_inject import ledger, menu
from dc_inject.analysis.planned_flows import planned_flows
from dc_inject.apps.report import export as records
from dc_inject.apps.report.export import FIELDS, FORMATS, About
from dc_inject.cli.shared import common, menu_files
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.ledger.reading import Reader
from dc_inject.menu import MenuDraft
from dc_inject.model import Campaign
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.scitags import EXPERIMENTS
from dc_inject.model.services import SERVICES
from dc_inject.planning import overrides
from dc_inject.summary import active_overrides, figures
from dc_inject.summary.figures import ReportScope
from dc_inject.summary.sites import site_of
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
@click.option("--experiment", metavar="NAME", help="The experiment, where no scitag tells it [default: the VO].")
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
        to_come = _to_come(subjects, ledger_path, experiment)
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
            records.injections(view, period, About(_experiments(view, experiment), site_of(view)))
            if period
            else iter(())
        )
        with _opened(output, force=force) as file:
            FORMATS[fmt](made, FIELDS["injection"], file)


def _to_come(
    subjects: Sequence[str], ledger_path: Path | None, experiment: str | None
) -> Iterator[tuple[Campaign, About]]:
    """Yield the campaigns of menus, or that of a ledger, as they are with what people have set."""
    if len(subjects) == 1 and _is_campaign(subjects[0]):
        yield _as_set(subjects[0], ledger_files.existing(subjects[0], ledger_path), None, experiment)
        return
    by_campaign: dict[str, list[MenuDraft]] = {}
    for draft in files.read_menus([Path(subject) for subject in subjects]):
        by_campaign.setdefault(draft.campaign, []).append(draft)
    for name, drafts in by_campaign.items():
        file = ledger_files.file_of(ledger_path, name)
        if ledger.files(file):
            yield _as_set(name, file, drafts, experiment)
        else:
            named = dict.fromkeys(SERVICES, _named(experiment))
            yield menu.campaign([draft.preview for draft in drafts]), About(named, {})


def _as_set(
    name: str, file: Path, drafts: Sequence[MenuDraft] | None, experiment: str | None
) -> tuple[Campaign, About]:
    """Return the campaign of menus, or of those in force, with the rates that people have set; say what is set."""
    with LedgerView.open(file) as view:
        ledger_files.campaign_in(view, name, file)
        menus = (
            active_overrides.menus(view)
            if drafts is None
            else [active_overrides.resolved(draft, view) for draft in drafts]
        )
        if not menus:
            raise LedgerError(f"{file} has no menus in force", "name the menus instead")
        for line in active_overrides.standing(view):
            click.echo(line, err=True)
        whole = overrides.overlaid(menu.campaign(menus), view.overrides())
        return whole, About(_experiments(view, experiment), {})


def _is_campaign(subject: str) -> bool:
    """Whether a campaign is meant, or its ledger, and no menu."""
    path = Path(subject)
    return path.suffix == ".sqlite" or not (path.exists() or os.sep in subject or path.suffix in files.SUFFIXES)


def _experiments(view: Reader, experiment: str | None) -> dict[str, str]:
    """Return the experiment of each service: as it was named, else its VO if that is one of the registry."""
    vos = {identity.service: identity.vo.lower() for identity in view.identities()}
    experiments = {name: vo for name, vo in vos.items() if vo in EXPERIMENTS}
    return {name: _named(experiment) or experiments.get(name, "") for name in SERVICES}


def _named(experiment: str | None) -> str:
    """Return the registry's spelling of an experiment, or what was written where it is not in it."""
    name = experiment or ""
    return name.lower() if name.lower() in EXPERIMENTS else name


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
