"""`dc-inject simulate --calibrate`: a grid file from the ledger of a past campaign.

What is fitted and how, is told in `twin/calibration.py`. Here the ledger is read, and only that: no menu and no
service is asked.
"""

from __future__ import annotations

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dc_inject.cli import ledger_files, tables
from dc_inject.engine import Settings
from dc_inject.ledger import LedgerView
from dc_inject.ledger.reading import Reader
from dc_inject.ledger.series import Accepted, CycleKind, Period
from dc_inject.model import Link, units, urls
from dc_inject.model.errors import UsageError
from dc_inject.system import files

if TYPE_CHECKING:
    from dc_inject.twin.calibration import Calibrated, Passed
    from dc_inject.twin.replay import Ends, Past, Sent

MOST_NAMED = 5  # links in one line
MOST_ROWS = 40  # links whose errors are shown to people, the worst ones
LEAST = 9  # cycles: fewer cannot be held out in part
# ruff: noqa: PLC0415  what needs numpy is imported late

ERRORS = (
    tables.Column("source", "source"),
    tables.Column("destination", "destination"),
    tables.Column("moved", "moved", units.format_size, right=True),
    tables.Column("predicted", "predicted", units.format_size, right=True),
    tables.Column("error", "error", lambda part: f"{100 * part:.1f} %", right=True),
    tables.Column("by_cycle", "by cycle", lambda part: f"{100 * part:.1f} %", right=True, spare=1),
)


def calibrate(campaign: str, output: Path, passed: Passed, *, force: bool) -> Calibrated:
    """Fit a grid to a campaign's ledger, and write its file; raises UsageError and LedgerError."""
    if find_spec("numpy") is None:
        raise UsageError(
            "calibrating needs numpy, which is not installed", "install it with `pip install '.[twin]'`"
        )
    from dc_inject.twin import calibration, grid_file, grid_text

    files.refuse_existing(output, force=force)
    files.need_folder(output)
    with LedgerView.open(ledger_files.existing(campaign)) as view, view.snapshot():
        past = read(view)
    made = calibration.calibrated(past, lambda fit: grid_file.read(grid_text.text(fit).encode(), "grid"), passed)
    files.write_whole(output, grid_text.text(made.fit, made), force=force)
    click.echo(f"wrote {output}", err=True)
    return made


def read(view: Reader) -> Past:
    """Return the past that a ledger tells; raises UsageError where that is too little."""
    from dc_inject.twin import arrays
    from dc_inject.twin.replay import Past

    name = view.campaign or view.path.stem
    first, last = view.first_cycle(), view.last_cycle()
    if first is None or last is None:
        raise UsageError(f"{name} has had no cycle so far", "calibrate from a campaign that ran")
    period = Period(first.start, last.end)
    closed = [cycle for cycle, kind in view.cycles(period) if kind is CycleKind.COUNTED]
    if len(closed) < LEAST:
        message = (
            f"{name} has {units.counted(len(closed), 'closed cycles')}: too few to fit some and predict others"
        )
        raise UsageError(message, f"calibrate from a campaign of at least {LEAST} cycles")
    length, count = first.length, round((closed[-1].end - first.start) / first.length)
    sent = [
        _sent(accepted, first.start)
        for accepted in view.accepted()
        if accepted.bytes > 0 and accepted.accepted_at < closed[-1].end
    ]
    if not sent:
        raise UsageError(f"{name} has injected nothing", "calibrate from a campaign that injected")
    moved: dict[Ends, list[int]] = {rule.link: [0] * count for rule in sent}
    for span in view.spans(period, length):
        ends, number = _ends(span.key.link), round((span.start - first.start) / length)
        if span.kind is CycleKind.COUNTED and ends in moved:
            moved[ends][number] += span.sums.moved
    ends_of = {end for link in moved for end in link}
    urls_ = {end for key in view.accounts() for end in (key.link.source, key.link.destination) if urls.is_url(end)}
    sites = {
        signal.subject: str(signal.value)
        for signal in view.signals()
        if signal.name == "site" and signal.value is not None
    }
    return Past(
        name,
        length.total_seconds(),
        count,
        length.total_seconds() / Settings().observations_per_cycle,
        sent,
        {ends: arrays.floats(cycles) for ends, cycles in moved.items()},
        {end: sites[end] for end in ends_of if end in sites},
        {_name(source): sizes for source, sizes in view.sizes_at_sources().items() if _name(source) in ends_of},
        {_name(url): urls.host_of(url) for url in urls_},
        all(identity.may_end is not False for identity in view.identities()),
    )


def _ends(link: Link) -> Ends:
    return _name(link.source), _name(link.destination)


def _name(end: str) -> str:
    """Return what a grid calls the end of a link: a storage that has URLs goes by its host, as FTS knows it."""
    return urls.host_of(end).replace(":", "-")


def _sent(rule: Accepted, start: datetime) -> Sent:
    from dc_inject.twin.replay import Sent

    def at(moment: datetime | None) -> float | None:
        return None if moment is None else (moment - start).total_seconds()

    accepted, ended = (rule.accepted_at - start).total_seconds(), at(rule.ended_at)
    expires = (rule.expires_at - start).total_seconds()
    if rule.completed_at is None and ended is not None:
        expires = ended
    return Sent(
        _ends(rule.key.link),
        rule.activity,
        rule.service_priority,
        rule.bytes,
        max(rule.files, 1),
        accepted,
        max(expires, accepted),
        at(rule.completed_at),
        ended,
        at(rule.gone_at),
        rule.files_done,
        rule.files_stuck,
        not rule.key.link.service.cleans_up,
    )


def show(fmt: str, made: Calibrated) -> None:
    """Print what is known now, and how well held-out cycles were predicted."""
    from dc_inject.twin import grid_text

    rows = [
        {
            "source": error.link[0],
            "destination": error.link[1],
            "moved": round(error.moved),
            "predicted": round(error.predicted),
            "error": error.error,
            "by_cycle": error.by_cycle,
        }
        for error in sorted(made.errors, key=lambda error: -error.error)
    ]
    middle, worst = grid_text.summary(made.errors) if made.errors else (None, None)
    fitted, at_times = grid_text.kinds(made.fit), grid_text.full_at_times(made.fit)
    if fmt == "csv":
        tables.emit("csv", ERRORS, rows)
        return
    if fmt == "json":
        tables.emit_json(
            {
                "campaign": made.fit.past.name,
                "cycles": made.fit.past.cycles,
                "held_out": made.held_out,
                "links": len(made.fit.links),
                "fitted": dict(fitted),
                "full_at_times": [dict(zip(("source", "destination"), ends, strict=True)) for ends in at_times],
                "median_error": middle,
                "worst_error": None if worst is None else worst.error,
                "errors": rows,
            }
        )
        return
    links = len(made.fit.links)
    click.echo(
        f"{made.fit.past.name}: {units.counted(links, 'links')} in {made.fit.past.cycles} cycles; fitted are"
    )
    for key, what in (
        ("capacity", "capacities, of the link or of what is full in its place (elsewhere bounds)"),
        ("speed", "speeds and overheads of files"),
        ("failures", "failures of attempts (elsewhere too few files failed for good: bounds)"),
    ):
        click.echo(f"  {fitted[key]} of {links} {what}")
    if at_times:
        names = ", ".join(f"{source} -> {destination}" for source, destination in at_times[:MOST_NAMED])
        more = f" and {len(at_times) - MOST_NAMED} more" if len(at_times) > MOST_NAMED else ""
        click.echo(
            f"full at times only, which the grid does not do by itself: {names}{more}\n"
            "hint: find out why, and write it into the file, such as `troubles` or `failures`"
        )
    if middle is None or worst is None:
        click.echo(f"nothing moved in the last {made.held_out} cycles, so no error is known")
        return
    click.echo()
    tables.emit("table", ERRORS, rows[:MOST_ROWS], f"bytes moved in the last {made.held_out} cycles, held out")
    click.echo(f"error by link: median {100 * middle:.1f} %, worst {100 * worst.error:.1f} %")
