"""`dc-inject menu expand`: a menu with every link on its own."""

from __future__ import annotations

from pathlib import Path

import click

from dc_inject import menu
from dc_inject.apps.menutools import expanding, heading
from dc_inject.cli.shared import common, log_output, menu_files, trusting
from dc_inject.ledger import ledger_files
from dc_inject.menu import MenuDraft, differences
from dc_inject.model import units
from dc_inject.model.errors import DcInjectError, MenuError, Problem, UsageError
from dc_inject.model.events import Silent
from dc_inject.system import files
from dc_inject.system.clock import SystemClock


class Meaning(click.ParamType[tuple[str, tuple[str, ...]]]):
    """What an RSE expression means: `tier=2&country=DE=T2_DE_DESY,T2_DE_RWTH`."""

    name = "meaning"

    def convert(
        self, value: str | tuple[str, tuple[str, ...]], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[str, ...]]:
        """Split at the last equals sign: expressions have some too, names of RSEs have none."""
        if isinstance(value, tuple):
            return value
        expression, _, names = value.rpartition("=")
        rses = tuple(name.strip() for name in names.split(",") if name.strip())
        if not expression or not rses:
            self.fail(f"{value!r} is not EXPRESSION=RSE,RSE...", param, ctx)
        return expression.strip(), rses


@click.command(short_help="Write every link out on its own.")
@common.INCLUDE_FROM
@click.argument("file", metavar="MENU", type=menu_files.PATH)
@click.option("--online", "asking", is_flag=True, help="Ask Rucio which RSEs match the RSE expressions now.")
@click.option(
    "--rses",
    "meanings",
    type=Meaning(),
    multiple=True,
    metavar="EXPRESSION=RSE,...",
    help="The RSEs that an RSE expression stands for (may be repeated).",
)
@common.TIMEOUT
@menu_files.OUTPUT
@menu_files.FORCE
def expand(
    file: Path,
    asking: bool,
    meanings: tuple[tuple[str, tuple[str, ...]], ...],
    timeout: float,
    output: Path,
    force: bool,
) -> None:
    r"""Write MENU with every link separately: shares, meshes, both ways, expressions, includes, files of links.

    What is replaced stays as a comment; the order and all other comments are kept. The rates are exactly those of
    the old menu. Paths of files that the menu still names are written relative to the new menu.

    \b
    Example: dc-inject menu expand day1.yaml -o links.yaml
    Example: dc-inject menu expand day1.yaml --rses "tier=2&country=DE=T2_DE_DESY,T2_DE_RWTH"
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    data, name = menu_files.read(file)
    draft = menu.read(data, name, files.beside(file))
    names = dict(meanings)
    known = {expression: through for through, expression in draft.expressions}
    if unused := sorted(names.keys() - known):
        hint = units.did_you_mean(unused[0], known, "`")
        raise UsageError(f"the menu has no RSE expression {unused[0]!r}, which --rses names", hint)
    if len(names) < len(meanings):
        raise UsageError("--rses names an RSE expression twice", "keep one of them")
    missing = {expression: through for expression, through in known.items() if expression not in names}
    if missing and asking:
        names |= _resolve_online(draft, missing, timeout)
    elif missing:
        message = f"nobody says what {', '.join(sorted(missing))} means"
        raise MenuError([Problem(name, 0, message, "ask Rucio with --online, or name them with --rses")])
    goal = menu_files.goal(file, output)
    text = written_out(draft, names, goal)
    menu_files.say(heading.together(heading.checked(text, goal)))
    menu_files.write(text, output, force=force)


def written_out(draft: MenuDraft, names: dict[str, tuple[str, ...]], goal: Path) -> str:
    """Return the text of a menu with every link on its own, for a file; raises MenuError where that cannot be."""
    text = expanding.expanded(draft, files.load, names, menu_files.seen_from(goal))
    _compare(draft, names, menu.read(text, str(goal), files.load))
    return text


def _resolve_online(draft: MenuDraft, missing: dict[str, str], timeout: float) -> dict[str, tuple[str, ...]]:
    """Ask the services what expressions mean."""
    log_output.talk(quiet=True)
    trusting.recall_from(ledger_files.file_of(None, draft.campaign), draft.campaign)
    backends = common.backends(
        set(missing.values()),
        campaign=draft.campaign,
        clock=SystemClock(),
        observer=Silent(),
        timeout=timeout,
        endpoint=menu.endpoint_of([draft]),
    )
    return {expression: backends[through].resolve(expression) for expression, through in missing.items()}


def _compare(before: MenuDraft, names: dict[str, tuple[str, ...]], after: MenuDraft) -> None:
    """Be sure that both menus ask for the same."""
    old, new = menu.campaign([before.resolve(names)]), menu.campaign([after.resolve(names)])
    if differences.changes(old, new) or list(differences.others(old, new)):
        raise DcInjectError("the expanded menu would differ from the original", "please report this")
