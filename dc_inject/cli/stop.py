"""`dc-inject stop`: the plain name for pausing a whole campaign, the brake that works from any terminal."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject.cli.shared import common, operator_actions, subjects
from dc_inject.model.errors import UsageError


@click.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@common.CAMPAIGN
@common.WHY
@common.LEDGER
@click.pass_context
def stop(ctx: click.Context, campaign: str, why: str, ledger_path: Path | None) -> None:
    r"""Stop injecting for a whole campaign until `resume`; `pause` does it for a scenario or a link.

    A running injector stops within seconds. You can also stop a campaign when no injector runs, or when no service
    can be reached. Existing rules stay and end with their lifetime; `dc-inject end CAMPAIGN` ends them earlier.
    Nothing is due while a campaign is stopped, so it does not resume with a burst.

    \b
    Example: dc-inject stop dc27-rehearsal --why "the LHCOPN is needed"
    """
    if ctx.args:
        raise UsageError(
            f"`stop` takes a campaign and nothing else, not {' '.join(ctx.args)!r}",
            "to stop a scenario or a link: dc-inject pause [CAMPAIGN] SCENARIO, or SRC DST",
        )
    path = subjects.campaign_ledger(campaign, ledger_path)
    operator_actions.carry_out(operator_actions.PAUSE, path, subjects.CAMPAIGN, why)
