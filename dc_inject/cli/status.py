"""`dc-inject status`: how a campaign stands, from its ledger alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import registry
from dc_inject.cli.shared import common, summary_output, tables
from dc_inject.cli.shared.summary_output import GOAL, LINK, size
from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.model import Hold, overrides, units, urls
from dc_inject.model.errors import UsageError
from dc_inject.model.held import format_numbers
from dc_inject.model.services import SERVICES, describe_right
from dc_inject.summary import advice, closing, first_lines, marks, standing, tape, why
from dc_inject.system.clock import SystemClock


def _subject(subject: str) -> str:
    return overrides.shown(subject, "everything")


ROWS = (
    *LINK,
    tables.Column("target", "target", units.format_rate, right=True, spare=4),
    tables.Column("due", "due", size, right=True),
    tables.Column("budget", "budget", size, quiet=True),
    tables.Column("injected", "injected", size, right=True, spare=1),
    tables.Column("moved", "moved", size, right=True),
    tables.Column("moved_estimated", "estimated", size, quiet=True),
    tables.Column("forgiven", "forgiven", size, quiet=True),
    tables.Column("rules", "rules/jobs", right=True, spare=5),
    tables.Column("pool_items", "pool", quiet=True),
    tables.Column("pool_bytes", "pool", size, quiet=True),
    tables.Column("held", "held", name=True),
    tables.Column("harmless", "harmless", quiet=True),
    tables.Column("numbers", "why", format_numbers, spare=2),
    GOAL,
)
IN_WORDS = {"intended": "planned", "called": "in doubt"}  # states of which a rule or job is not known to be there
WAITED_FOR = "without an answer yet"  # what is called, as long as an injector may hear of it
DECISIONS = (
    tables.Column("cycle", "cycle", heading=True),
    *LINK,
    tables.Column("mode", "control"),
    tables.Column("target", "target", units.format_rate, right=True, spare=2),
    tables.Column("hold", "hold", lambda hold: hold or "none"),
    tables.Column("held", "held", quiet=True),
    tables.Column("numbers", "why", "; ".join, below=True),
)
PAUSES = (
    tables.Column("subject", "stopped", _subject),
    tables.Column("since", "since", whole=True),
    tables.Column("who", "by"),
    tables.Column("why", "why"),
)
OVERRIDES = (tables.Column("subject", "set for", _subject), tables.Column("what", "what"), *PAUSES[1:])
SIGNALS = (
    tables.Column("signal", "signal missing"),
    tables.Column("subject", "of"),
    tables.Column("since", "since", whole=True),
    tables.Column("why", "why", below=True),
)
CHANGED = (tables.Column("at", "changed at", whole=True), PAUSES[2], OVERRIDES[1], PAUSES[3])


@click.command()
@common.TO_READ
@click.option("--summary", is_flag=True, help="Show the totals of each link since the start.")
@click.option(
    "--decisions",
    type=click.IntRange(1),
    is_flag=False,
    flag_value="1",
    metavar="[=CYCLES]",
    help="Show what control decided or advised of each link in the last cycle, or so many, and its windows.",
)
@common.LINKS
@common.LEDGER
@common.FORMAT
def status(
    campaign: str, summary: bool, decisions: int | None, links: tuple[str, ...], ledger_path: Path | None, fmt: str
) -> None:
    r"""Show the state of a campaign: its injector, the current cycle, holds, pauses and rights; or its totals.

    It reads only the ledger, so it works whether or not an injector runs, and without any service. In tables, `~`
    marks bytes that are partly an estimate.

    \b
    Example: dc-inject status dc27-rehearsal
    Example: dc-inject status dc27-rehearsal --summary --format csv
    Example: dc-inject status dc27-rehearsal --decisions 8 --link T2_CH_CERN:T1_DE_KIT_Disk
    """
    path = ledger_files.existing(campaign, ledger_path)
    if decisions is not None and summary:
        raise UsageError("--decisions cannot be combined with --summary", "call `status` once for each")
    if decisions is not None:
        with LedgerView.open(path) as view, view.snapshot():
            ledger_files.campaign_in(view, campaign, path)
            wanted = _of_links(links, standing.decided(view, decisions), view)
        if fmt == "table":
            wanted = [{**row, "numbers": _behind(row)} for row in wanted]
        if wanted or fmt != "table":
            tables.emit(fmt, DECISIONS, wanted)
        else:
            click.echo("no decisions in these cycles: control was off, or nothing was due")
        return
    _show(campaign, path, links, fmt, summary=summary)


def _of_links(links: Sequence[str], rows: Sequence[dict[str, Any]], view: Reader) -> list[dict[str, Any]]:
    """Return the rows of some links, or all without any; refuse a link that the campaign does not have."""
    known_links = {str(key.link) for key in view.accounts()} if links else set()
    if unknown := next((link for link in links if link not in known_links), ""):
        hint = units.did_you_mean(unknown, known_links)
        raise UsageError(f"the campaign has no link {urls.arrow(unknown)}", hint)
    return [row for row in rows if not links or f"{row['source']}:{row['destination']}" in links]


def _behind(row: Mapping[str, Any]) -> list[str]:
    """Return what binds first, in words: the window comes after the numbers of another hold."""
    window, held = row["numbers"], row["held"]
    if row["hold"] == Hold.BACKLOG.value:  # whose window may be another one, by which the row is held
        of_link = {name: window[name] for name in ("arrives",) if name in window}
        return [format_numbers({**(of_link if "window" in held else window), **held})]
    return [*filter(None, map(format_numbers, (held, window)))]


def _show(campaign: str, path: Path, links: Sequence[str], fmt: str, *, summary: bool) -> None:
    with LedgerView.open(path) as view, view.snapshot():
        name = ledger_files.campaign_in(view, campaign, path)
        if summary:
            totals, advised = closing.totals(name, view), advice.advised(view)
            rows = _of_links(links, totals["links"], view)
            shown = {**totals, "links": rows, "advice": advice.rows(advised.held)}
            if fmt == "table" and not links:
                rows, reasons = [*rows, totals["total"]], why.reasons(why.held_links(view))
        else:
            verdict = registry.load(registry.VERDICT)(view) if view.challenge() else ""
            now = standing.shown_moment(view, SystemClock().now())
            shown = {**standing.standing(name, view, now), "verdict": verdict}
            rows = shown["rows"] = _of_links(links, shown["rows"], view)
            columns: Sequence[tables.Column] = ROWS
            if shown["over_since"] and fmt == "table":  # its last cycle shows nothing of a campaign that is over
                columns, totals = summary_output.SUMMARY, closing.totals(name, view)
                rows = [*_of_links(links, totals["links"], view), *([] if links else [totals["total"]])]
    if fmt == "json":
        tables.emit_json(shown)
    elif fmt == "csv" or summary:
        tables.emit(fmt, summary_output.SUMMARY if summary else ROWS, rows)
        if summary and fmt == "table" and not links:  # what follows is of all links
            if lost := summary_output.lost_line(shown):
                click.echo(lost)
            summary_output.show_reasons(reasons)
            summary_output.show_advice(advised.given, shown["advice"], simulated=False)
    else:
        _print(shown, columns, rows)


# --------------------------------------------------------------------------- what a person sees


def _print(shown: Mapping[str, Any], of_links: Sequence[tables.Column], links: Sequence[dict[str, Any]]) -> None:
    """Print it, with a table of links: on a terminal what matters most comes last, where it is seen."""
    console, rows = tables.console(), tables.height()
    first = [*filter(None, [shown["verdict"]]), *first_lines.block(shown, tables.width(), rows - 2 if rows else 0)]
    for line in (*([] if rows else first), *_lines(shown)):
        console.print(line)
    for columns, listed in (
        (of_links, links),
        (PAUSES, shown["pauses"]),
        (OVERRIDES, shown["overrides"]),
        (SIGNALS, standing.group_missing(shown["signals_missing"])),
        (CHANGED, shown["changes"]),
    ):
        if listed:
            console.print()
            tables.emit("table", columns, listed)
    for line in ("", *first) if rows else ():
        console.print(line)


def _lines(shown: Mapping[str, Any]) -> Iterator[str]:
    yield f"ledger: {shown['ledger']}"
    if shown["simulated_in"] is not None:
        yield f"simulated in the grid {shown['simulated_in']}: no real transfer is in it"
    injector = shown["injector"]
    yield f"injector: {injector['who']}, since {injector['since']}" if injector else "injector: none is running"
    if (cycle := shown["cycle"]) is None:
        yield "cycle: none so far"
    else:
        state = "closed" if cycle["closed"] else "planned" if cycle["planned"] else "open, not planned"
        late = f"; {standing.explain_late_start(cycle['joined'])}" if cycle["joined"] else ""
        yield f"cycle: {cycle['start']} to {cycle['end']}, {state}{late}"
    if shown["scale"] != 1:
        yield f"rates: those of the menus times {shown['scale']:g}, by `run --scale`"
    for trouble in shown["troubles"]:
        sentence = marks.TROUBLES[trouble["what"]].format(of=trouble["of"])
        yield f"trouble: {sentence}, since {trouble['since']}: {trouble['why']}"
    yield from map(tape.line, shown["tape"])
    readers = any(SERVICES[right["service"]].reads for right in shown["rights"])
    words = IN_WORDS | ({"called": WAITED_FOR} if injector else {"live": "live when last seen"} if readers else {})
    rules = ", ".join(
        f"{units.grouped(count)} {words.get(state, state)}" for state, count in shown["rules"].items() if count
    )
    yield f"rules and jobs: {rules or 'none'}"
    broken = {trouble["of"] for trouble in shown["troubles"] if trouble["what"] == "service"}
    for right in shown["rights"]:
        yield _right(right, broken=right["service"] in broken)


def _right(right: Mapping[str, Any], *, broken: bool) -> str:
    seconds_left = right["credentials_left"]
    if seconds_left is None:
        good = "" if SERVICES[right["service"]].reads else "; end of credentials unknown"
    else:
        time = units.format_duration(timedelta(seconds=seconds_left))
        good = f"; credentials good for {time}" if seconds_left > 0 else "; credentials EXPIRED"
        if broken and seconds_left > 0:
            good = f"; when it last worked, credentials were good for {time} from now"
    vo = right["vo"] and f" (VO {right['vo']})"
    return (
        f"{right['service']}: {right['version']} at {right['address']} as {right['account']}{vo}; "
        f"{describe_right(right['service'], right['may_end'])}{good}"
    )
