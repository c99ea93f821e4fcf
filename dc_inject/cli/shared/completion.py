"""Completion of names that ledgers and menus on this machine have.

click completes commands and options by itself. Campaigns, scenarios, links and the ends of links come from the
ledgers in the default folder, or from the menus that have been typed already. Completion must never be in the way:
what cannot be read offers nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from dc_inject.cli import COMPLETE
from dc_inject.ledger import LedgerView, ledger_files
from dc_inject.model import FlowKey
from dc_inject.model.errors import DcInjectError

MOST = 20  # ledgers that are read for one word


def campaigns(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer campaigns that have a ledger."""
    return _beginning(incomplete, _campaigns())


def subjects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer what `[CAMPAIGN] SCENARIO|SRC DST` may be next, after the words that have been typed."""
    typed = list(ctx.params.get(str(param.name)) or ())
    named = ctx.params.get("campaign")
    within = [named] if named else [typed.pop(0)] if typed and typed[0] in _campaigns() else _campaigns()
    flows = list(_in_ledgers(within))
    if typed:
        return _beginning(incomplete, (f.link.destination for f in flows if f.link.source == typed[-1]))
    parts = [name for flow in flows for name in (flow.scenario, flow.link.source)]
    return _beginning(incomplete, [*parts, *(() if named or within != _campaigns() else within)])


def links(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the links of the menus on the command line, as SRC:DST."""
    menus = [*(ctx.params.get("menus") or ()), *ctx.args]  # the latter while the option has no value yet
    return _beginning(incomplete, (str(flow.link) for flow in _in_menus(menus)))


def ends(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the ends of links that campaigns on this machine had."""
    names = (end for flow in _in_ledgers(_campaigns()) for end in flow.link.ends)
    return _beginning(incomplete, names)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _campaigns() -> list[str]:
    with contextlib.suppress(OSError):
        return ledger_files.campaigns()
    return []


def _in_ledgers(names: Sequence[str]) -> Iterator[FlowKey]:
    """Yield the scenarios and links of campaigns."""
    for name in names[:MOST]:
        with contextlib.suppress(DcInjectError, OSError), LedgerView.open(ledger_files.existing(name)) as view:
            yield from view.accounts()


def _in_menus(menus: Iterable[str | Path]) -> list[FlowKey]:
    from dc_inject.system import files  # noqa: PLC0415  as above

    with contextlib.suppress(DcInjectError, OSError):
        return [
            flow.key for draft in files.read_menus([Path(menu) for menu in menus]) for flow in draft.preview.flows
        ]
    return []


PROGRAM = "dc-inject"
WHOLE_LINKS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}  # a link, SRC:DST, is one word\n"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the completion for a shell: of commands, options, campaigns, scenarios, links and RSEs.

    Names come from the ledgers on this machine, and from the menus on the same command line.

    \b
    Example: eval "$(dc-inject completion bash)"                      # in ~/.bashrc
    Example: eval "$(dc-inject completion zsh)"                       # in ~/.zshrc
    Example: dc-inject completion fish > ~/.config/fish/completions/dc-inject.fish
    """
    made_for = get_completion_class(shell)
    assert made_for is not None  # click knows all of the choices
    script = made_for(ctx.find_root().command, {}, PROGRAM, COMPLETE).source()
    click.echo((WHOLE_LINKS if shell == "bash" else "") + script)
