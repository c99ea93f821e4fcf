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
    names = (end for flow in _in_ledgers(_campaigns()) for end in (flow.link.source, flow.link.destination))
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
