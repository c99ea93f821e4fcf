"""`dc-inject link`: a mini-challenge of one link, in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from dc_inject import climb, files, lint, menu, units
from dc_inject.cli import common, link_menu, menu_heading, status, tables
from dc_inject.cli.check import Speed
from dc_inject.cli.end import Pace
from dc_inject.cli.end import end as end_command
from dc_inject.cli.link_menu import MiniChallenge
from dc_inject.cli.run import inject
from dc_inject.climb import Ladder
from dc_inject.clock import SystemClock
from dc_inject.engine.climbing import Climbing
from dc_inject.errors import LedgerError, ServiceError, ThresholdMissed, UsageError
from dc_inject.ledger import Ledger, LedgerView, default_folder
from dc_inject.ledger.place import make_folder
from dc_inject.menu import addresses
from dc_inject.model import Campaign, FlowKey, Link
from dc_inject.ports import Clock

DEFAULT_STEP = timedelta(minutes=30)
ROUNDS = 2  # how much longer than the steps up a search may take, unless --for says it
STEPS = (
    tables.Column("step", "step", right=True),
    tables.Column("rate", "asked", units.format_rate, right=True),
    tables.Column("moved_rate", "moved", units.format_rate, right=True),
    tables.Column("ratio", "moved/asked", tables.percent, right=True),
    tables.Column("failed", "failed", tables.percent, right=True),
    tables.Column("start", "from"),
    tables.Column("measured", "measured from", quiet=True),
    tables.Column("end", "to"),
    tables.Column("asked", "asked", units.format_size, quiet=True),
    tables.Column("moved", "moved", units.format_size, quiet=True),
    tables.Column("injected", "injected", units.format_size, quiet=True),
    tables.Column("held", "held", quiet=True),
    tables.Column("good", "reached", tables.yes_no),
    tables.Column("why", "because"),
    tables.Column("next", "then"),
)


class Lasting(click.ParamType[timedelta]):
    """A duration above 0 with its unit: `2h`, `30m`, `1 h 30 min`, `90 s`."""

    name = "duration"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it as menus do, and `m` for minutes too."""
        if isinstance(value, timedelta):
            return value
        try:
            lasting = units.parse_duration(re.sub(r"(?<=[0-9 ])m\b", "min", value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return lasting if lasting > timedelta(0) else self.fail("it has to last a while", param, ctx)


@click.command()
@click.argument("source", type=menu_heading.Written("end", addresses.end_name), metavar="SRC")
@click.argument("destination", type=menu_heading.Written("end", addresses.end_name), metavar="DST")
@click.option("--rate", type=Speed(), required=True, help="The rate of the first step, such as 30Gb/s.")
@click.option("--for", "lasting", type=Lasting(), help="How long in all, such as 2h; at most, with a search.")
@click.option("--step", type=Speed(), help="How much more in each step, such as 10Gb/s.")
@click.option("--every", type=Lasting(), help="How long a step lasts [default: 30m].")
@click.option(
    "--until-saturated", "saturate", is_flag=True, help="Go up until it does not follow, then back; needs --max."
)
@click.option("--max", "highest", type=Speed(), help="The most that is ever asked for.")
@click.option("--campaign", type=menu_heading.NAME, help="What to call it [default: from DST and now].")
@click.option("--contact", type=menu_heading.LINE, help="Whom to ask [default: your account here].")
@click.option(
    "--did", "datasets", type=menu_heading.DID, multiple=True, metavar="PATTERN",
    help="Datasets to inject, scope:name with wildcards (may be repeated) [default: *:*].",
)  # fmt: skip
@click.option("--mean-file", default="0.1..20 GB", show_default=True, help="Bounds on their mean file size.")
@click.option("--folder", type=menu_heading.FOLDER, help="Through FTS: this folder below SRC [default: .].")
@click.option("--fts", "endpoint", type=menu_heading.ENDPOINT, help="Where FTS is.")
@click.option("--accept", multiple=True, metavar="CODE", help="A finding that is meant (may be repeated).")
@click.option("--cycle", type=Lasting(), help="Length of a cycle [default: a sixth of a step, 15 min at most].")
@click.option(
    "--cancel-rate", type=Pace(), default="600/h", show_default=True,
    help="How many unfinished rules are ended in a time, afterwards.",
)  # fmt: skip
@common.TIMEOUT
@common.FORMAT
@click.pass_context
def link(ctx: click.Context, /, source: str, destination: str, timeout: float, fmt: str, **wanted: Any) -> None:
    r"""Try one link: inject at a rate, or at rates that go up, and tell what moved.

    Makes a menu, checks it, runs it, shows each cycle, ends its rules, and prints a verdict for each step. SRC and
    DST are RSEs, or two URL prefixes (then FTS moves files of SRC). Your own account will do.

    With --until-saturated a step lasts at least two times the time to completion, and the rate goes up by --step
    until less than 90 % of it moves or more than 5 % fail; then it goes back, and says where the link stands. What
    fails never counts. Ctrl-C ends the step: rules are ended, and the verdict so far is told.

    Exit code 5 when a step was not reached; with --until-saturated when not even the least was.

    \b
    Example: dc-inject link T1_UK_RAL_Disk T2_UK_London_IC --rate 30Gb/s --for 2h
    Example: dc-inject link T1_UK_RAL_Disk T2_UK_London_IC --rate 30Gb/s --for 2h --step 10Gb/s --every 30m
    Example: dc-inject link RAL IC --rate 20Gb/s --step 10Gb/s --until-saturated --max 100Gb/s
    """
    common.talk()
    clock = SystemClock()
    challenge = _challenge(source, destination, wanted, clock.now())
    path = _written(challenge)
    ledger_path = common.ledger_file(None, challenge.campaign)
    climbs: list[Climbing] = []

    def around(menus: Callable[[], Campaign], ledger: Ledger, clock: Clock) -> Callable[[], Campaign]:
        climbs.append(
            Climbing(
                menus,
                ledger=ledger,
                clock=clock,
                ladder=challenge.ladder,
                who=f"dc-inject link of {common.who()}",
                until=challenge.until,
                heard=lambda: _show(ledger),
                patience=link_menu.PATIENCE,
            )
        )
        return climbs[0]

    code: int | None = None
    inject([path], no_drain=True, timeout=timeout, around=around, stopping="{noun} will be ended")
    with Ledger.open(ledger_path) as ledger:
        climbs[0].finish(ledger, FlowKey(link_menu.SCENARIO, challenge.link))
    try:
        _end(ctx, challenge.campaign, ledger_path, wanted["cancel_rate"], timeout)
    except click.exceptions.Exit as left:
        code = left.exit_code
        click.echo(f"`dc-inject end {challenge.campaign} --cancel` ends what is left", err=True)
    told = _told(challenge, path, ledger_path, climbs[0])
    _emit(fmt, told)
    if code is not None:
        ctx.exit(code)
    if told["missed"]:
        raise ThresholdMissed(
            f"{told['link']}: {told['conclusion']}", f"`dc-inject status {challenge.campaign}` tells more"
        )


# --------------------------------------------------------------------------- before


def _challenge(source: str, destination: str, wanted: Mapping[str, Any], now: datetime) -> MiniChallenge:
    """Return what is asked for; raises UsageError for options that do not go together."""
    first, step, highest = wanted["rate"], wanted["step"] or 0.0, wanted["highest"]
    saturate, lasting = wanted["saturate"], wanted["lasting"]
    urls = [addresses.is_url(end) for end in (source, destination)]
    if urls[0] != urls[1]:
        raise UsageError("one end is a URL and the other is not", "name two RSEs, or two URL prefixes")
    if source == destination:
        raise UsageError(f"{source} is source and destination", "a link has two different ends")
    if saturate and not (step and highest):
        raise UsageError("--until-saturated needs --step and --max", "such as --step 10Gb/s --max 100Gb/s")
    if highest and highest < first:
        raise UsageError("--max is below --rate", "raise --max, or begin lower")
    if wanted["every"] and not step:
        raise UsageError("--every is for steps", "add --step 10Gb/s, or leave it out")
    if not (saturate or lasting):
        raise UsageError("nothing says how long", "such as --for 2h")
    if step and lasting and (wanted["every"] or DEFAULT_STEP) >= lasting:
        raise UsageError("there is time for one step only", "shorten --every, lengthen --for, or leave out --step")
    every = (wanted["every"] or DEFAULT_STEP) if step else lasting
    if lasting and not saturate:
        every = min(every, lasting)
    cycle = wanted["cycle"] or link_menu.cycle_for(every)
    if 2 * cycle > every:
        raise UsageError("a step has less than two cycles", "lengthen --every (or --for), or shorten --cycle")
    start = now.replace(microsecond=0)
    if saturate:
        steps = int((highest - first) / step) + 2
        lasting = lasting or ROUNDS * steps * every
        top = highest
    else:
        top = first + step * max(-(-lasting // every) - 1, 0)
        top = min(top, highest) if highest else top
    through = "fts" if urls[0] else "rucio"
    return MiniChallenge(
        campaign=wanted["campaign"] or _name(destination, start),
        contact=wanted["contact"] or menu_heading.me(),
        link=Link(addresses.end_name(source), addresses.end_name(destination), through),
        ladder=Ladder(first, every, step, highest or float("inf"), saturate=saturate),
        cycle=cycle,
        start=start,
        until=link_menu.end_of(start, lasting, cycle),
        highest=top,
        datasets=wanted["datasets"],
        mean_file=wanted["mean_file"],
        folder=wanted["folder"] or "",
        endpoint=wanted["endpoint"] or "",
        accept=wanted["accept"],
    )


def _name(destination: str, now: datetime) -> str:
    place = re.sub(r"[^A-Za-z0-9_-]+", "-", destination.rsplit("://", maxsplit=1)[-1]).strip("-")[:32]
    return f"link-{place}-{now:%Y%m%dT%H%M%S}"


def _written(challenge: MiniChallenge) -> Path:
    """Write the menu into the state folder, and check it as `check` does; raises MenuError."""
    folder = default_folder(os.environ) / "links"
    path = folder / f"{challenge.campaign}.yaml"
    text = challenge.text()
    draft = menu.read(text, str(path), files.load)
    for finding in lint.findings(menu.campaign([draft.preview])):
        click.echo(f"warning: {finding}", err=True)
    try:
        make_folder(folder)
    except OSError as error:
        raise LedgerError(f"{folder} cannot be made: {error.strerror or error}", "check XDG_STATE_HOME") from None
    files.write_whole(path, text, force=False)
    click.echo(f"menu: {path}", err=True)
    return path


# --------------------------------------------------------------------------- meanwhile, and after


def _show(ledger: Ledger) -> None:
    """Show how the link stands, as `status` does."""
    if rows := status.rows(ledger):
        cycle = ledger.last_cycle()
        if cycle is not None and (since := status.joined(ledger, cycle)):
            click.echo(status.said_late(f"{since:%Y-%m-%dT%H:%M:%SZ}"), err=True)
        tables.console(err=True).print(tables.table(status.ROWS, rows))


def _end(ctx: click.Context, campaign: str, ledger_path: Path, rate: float, timeout: float) -> None:
    """End what is left of it; where that cannot be, say so: everything ends with its lifetime."""
    options = {"scenario": None, "link": None, "sweep": None, "even_new": False, "no_ledger": False}
    try:
        ctx.invoke(
            end_command,
            campaign=campaign,
            cancel=True,
            rate=rate,
            yes=True,
            ledger_path=ledger_path,
            timeout=timeout,
            **options,
        )
    except ServiceError as error:
        click.echo(f"not all is ended: {error.message}{f' ({error.hint})' if error.hint else ''}", err=True)


def _told(challenge: MiniChallenge, path: Path, ledger_path: Path, climbing: Climbing) -> dict[str, Any]:
    """Return the verdict; the keys are an interface, described in docs/mini-challenge.md."""
    with LedgerView.open(ledger_path) as view:
        failures = view.failures().get(FlowKey(link_menu.SCENARIO, challenge.link), {})
    ladder, verdicts = challenge.ladder, climbing.verdicts
    stands = climb.stands(verdicts) if ladder.saturate else None
    missed = stands is None if ladder.saturate else not verdicts or not all(one.good for one in verdicts)
    return {
        "campaign": challenge.campaign,
        "menu": str(path),
        "ledger": str(ledger_path),
        "link": str(challenge.link),
        "source": challenge.link.source,
        "destination": challenge.link.destination,
        "service": challenge.link.through,
        "steps": [
            {
                "step": number,
                "rate": one.rate,
                "asked": round(one.asked),
                "moved": one.moved,
                "moved_rate": one.moved_rate,
                "ratio": one.ratio,
                "failed": one.failed,
                "injected": one.injected,
                "start": tables.moment(one.start),
                "measured": tables.moment(one.measured),
                "end": tables.moment(one.end),
                "held": one.hold.value if one.hold else None,
                "good": one.good,
                "why": one.why,
                "next": str(decision.what),
            }
            for number, (one, decision) in enumerate(zip(verdicts, climbing.decisions, strict=True), start=1)
        ],
        "failed_files": dict(failures),
        "stands": stands,
        "missed": missed,
        "conclusion": climb.conclusion(ladder, verdicts),
    }


def _emit(fmt: str, told: Mapping[str, Any]) -> None:
    if fmt == "json":
        tables.emit_json(told)
        return
    tables.emit(fmt, STEPS, told["steps"])
    failed = ", ".join(f"{count} {reason}" for reason, count in told["failed_files"].items())
    if failed:
        click.echo(f"failed files: {failed}", err=True)
    where = "" if told["stands"] is None else f"stands at {units.format_rate(told['stands'])}: "
    click.echo(f"{told['link']} {where}{told['conclusion']}", err=fmt != "table")
