"""The options of `dc-inject link`, put together, and the limits on what they may ask for."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from dc_inject.apps.link import mini_challenge, records
from dc_inject.apps.link.judging import saturation
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.steps import Ladder, Next
from dc_inject.apps.link.judging.verdict import EARLY, StepOutcome
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.apps.link.options import LinkOptions
from dc_inject.ledger import Ledger, LedgerView, Reader, ledger_files
from dc_inject.menu import addresses
from dc_inject.model import Link, units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.services import by_end
from dc_inject.system import account

BRAKE = 10e9 / 8  # bytes per second: a higher rate has to be confirmed
LONGEST_SEARCH = timedelta(days=7)  # a search takes hours, and what a link carries changes within days
DEFAULT_STEP = timedelta(minutes=30)
Agree = Callable[[str], bool]
ROUNDS = 6  # trials of a search after those up, each of the length of a step, for which there is time by default


def challenge(
    source: str | None, destination: str | None, options: LinkOptions, now: datetime, agree: Agree
) -> MiniChallenge:
    """Return what is asked for; raises UsageError for options that do not go together.

    `agree` asks the user a question, and returns False where there is no answer.
    """
    if source is None or destination is None or options.rate is None:
        needed = {"SRC": source, "DST": destination, "--rate": options.rate}
        missing = [name for name, value in needed.items() if value is None]
        raise UsageError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            "`dc-inject link SRC DST --rate 5Gb/s --for 1h`",
        )
    _refuse_ends(source, destination)
    if options.folder and not addresses.meant_as_url(source):
        hint = "name two URL prefixes, or choose datasets with --did"
        raise UsageError("--folder is for files through FTS", hint)
    ladder, lasting = _ladder(options, options.rate)
    cycle = options.cycle or mini_challenge.choose_cycle_length(ladder)
    if cycle % timedelta(seconds=1):
        raise UsageError("--cycle is not of whole seconds", "its menu counts in them: such as --cycle 90s")
    if 2 * cycle > ladder.shortest:
        length, slot = units.format_duration(ladder.shortest), units.format_duration(cycle)
        part = f"a trial of {length}, a fifth of --every," if ladder.saturate else f"a step of {length}"
        hint = "lengthen --every (or --for), or shorten --cycle"
        raise UsageError(f"{part} has less than two cycles of {slot}", hint)
    trials = [*saturation.up(ladder), *[ladder.highest] * saturation.LEAST] if ladder.saturate else None
    start = now.replace(microsecond=0)
    if ladder.highest > BRAKE and not (options.highest or options.yes):
        _confirm_rate(ladder.highest, agree)
    return MiniChallenge(
        options=options,
        campaign=options.campaign or _name(destination, start),
        contact=options.contact or account.who(),
        link=Link(
            addresses.end_name(source),
            addresses.end_name(destination),
            by_end(is_url=addresses.meant_as_url(source)).name,
        ),
        ladder=ladder,
        cycle=cycle,
        start=start,
        until=mini_challenge.end_of(start, lasting, cycle),
        volume=sum(rate * ladder.shortest.total_seconds() for rate in trials or ladder.rates(lasting)),
        space=options.space or 0,
    )


def _refuse_ends(source: str, destination: str) -> None:
    urls = [addresses.meant_as_url(end) for end in (source, destination)]
    if urls[0] != urls[1]:
        raise UsageError("one end is a URL and the other is not", "name two RSEs, or two URL prefixes")
    if source == destination:
        raise UsageError(f"{source} is both source and destination", "source and destination must differ")


def _ladder(options: LinkOptions, first: float) -> tuple[Ladder, timedelta]:
    """Return the rates to ask for and the total duration; raises UsageError for options that do not fit."""
    if first < 1:
        raise UsageError("--rate is less than a byte per second", "such as --rate 5Gb/s")
    step, highest, lasting = options.step or 0.0, options.highest or 0.0, options.lasting
    if options.saturate and not highest:
        raise UsageError("--until-saturated needs --max", "such as --max 100Gb/s")
    if options.saturate and lasting and lasting > LONGEST_SEARCH:
        most = units.format_duration(LONGEST_SEARCH)
        raise UsageError(
            f"--for {units.format_duration(lasting)} is too long for a search: at most {most}",
            f"leave out --for, or give at most {most}",
        )
    if highest and highest < first:
        raise UsageError("--max is below --rate", "raise --max, or lower --rate")
    if options.every and not (step or options.saturate):
        raise UsageError("--every is for steps", "add --step, the increase of the rate, or leave it out")
    every = options.every or DEFAULT_STEP
    if step and lasting and not options.saturate and every >= lasting:
        raise UsageError("there is time for one step only", "shorten --every, lengthen --for, or leave out --step")
    if options.saturate:
        ladder = Ladder(first, every, step, highest, saturate=True)
        return ladder, lasting or (len(saturation.up(ladder)) + ROUNDS) * every
    if lasting is None:
        raise UsageError("the duration is missing", "such as --for 2h")
    if not step:
        return Ladder(first, lasting, step, first), lasting
    top = first + step * max(-(-lasting // every) - 1, 0)
    return Ladder(first, every, step, min(top, highest) if highest else top), lasting


def _confirm_rate(top: float, agree: Agree) -> None:
    """Ask whether a high rate is meant; raises UsageError when it is not, or there is no terminal to ask at."""
    rate, most = units.format_rate(top), units.format_rate(BRAKE)
    if not agree(f"{rate} is more than {most}. Ask the sites first. Test at this rate?"):
        raise UsageError(
            f"{rate} is above {most}, and was not confirmed",
            f"set the highest rate to try (--max {rate.replace(' ', '')}), or use --yes",
        )


def _name(destination: str, now: datetime) -> str:
    place = re.sub(r"[^A-Za-z0-9_-]+", "-", destination.rsplit("://", maxsplit=1)[-1]).strip("-")[:32]
    return f"link-{place}-{now:%Y%m%dT%H%M%S}"


# --------------------------------------------------------------------------- one that was begun


def begin(
    source: str | None, destination: str | None, options: LinkOptions, now: datetime, agree: Agree
) -> tuple[MiniChallenge, Progress]:
    """Return a new mini-challenge, or what is left of the one to resume.

    Raises UsageError where options do not go together or nothing is left, LedgerError where it still runs.
    """
    if options.resume:
        path = ledger_files.existing(options.resume)
        with Ledger.open(path) as ledger:
            if holder := ledger.holder():  # it reads its menu at each cycle, which must stay as it is
                hint = f"`dc-inject link --verdict {options.resume}` shows its progress; Ctrl-C or SIGTERM ends it"
                raise LedgerError(f"{options.resume} is still running: {holder}", hint)
            return resume_challenge(ledger, path, options.lasting, now)
    asked = challenge(source, destination, options, now, agree)
    _refuse_known(asked.campaign, now)
    return asked, Progress(asked.ladder, asked.until)


def _refuse_known(campaign: str, now: datetime) -> None:
    """Raise UsageError for a campaign that there is already."""
    if campaign in ledger_files.campaigns():
        goes_on = ""
        with contextlib.suppress(LedgerError):  # it cannot be read: there is none to continue
            goes_on = continued(campaign, ledger_files.existing(campaign), now)
        hint = "; ".join(filter(None, [goes_on, "for a new test, choose another --campaign"]))
        raise UsageError(f"campaign {campaign} exists already", hint)


def load_challenge(view: Reader, path: Path) -> tuple[MiniChallenge, Progress]:
    """Return the mini-challenge of a ledger and its progress; raises UsageError when it is none."""
    kept = view.challenge()
    progress = records.progress(kept)
    if progress is None:
        raise UsageError(
            f"{path} is not the ledger of a mini-challenge",
            f"`dc-inject status {shlex.quote(str(path))}` shows other campaigns",
        )
    last = next(values for _, kind, values in reversed(kept) if kind == "asked")
    return mini_challenge.challenge_from_ledger(last, progress.ladder), progress


def resume_challenge(
    view: Reader, path: Path, more: timedelta | None, now: datetime
) -> tuple[MiniChallenge, Progress]:
    """Return what is left of a mini-challenge that was stopped, from now on; `more` is how long, if not the rest.

    Raises UsageError when nothing is left of it.
    """
    begun, progress = load_challenge(view, path)
    name, stopped = begun.campaign, view.challenge()[-1].at
    outcome = progress.concluded().outcome
    if progress.over is not None and outcome is not StepOutcome.INCONCLUSIVE and not _cut_short(progress):
        raise UsageError(f"{name} is over, and has a verdict", f"`dc-inject link --verdict {name}` prints it")
    left = more or max(progress.until - stopped, timedelta(0))
    least = units.format_duration(2 * begun.cycle)
    if left < 2 * begun.cycle and more:
        raise UsageError(
            f"--for {units.format_duration(more)} is less than two cycles of {name}",
            f"it needs at least {least}",
        )
    if left < 2 * begun.cycle:
        raise UsageError(
            f"the time of {name} is over",
            f"extend it (such as --for 1h; at least {least}), or see `dc-inject link --verdict {name}`",
        )
    start = now.replace(microsecond=0)
    until = mini_challenge.end_of(start, left, begun.cycle)
    progress.resume(until, until - start)
    ledger_files.campaign_in(view, name, path)
    return replace(begun, start=start, until=until), progress


def _cut_short(progress: Progress) -> bool:
    """Whether a step was ended before its time, and is still to be made once more."""
    pairs = zip(progress.verdicts, progress.decisions, strict=True)
    return any(
        verdict.cause and verdict.cause.code == EARLY and then.kind is not Next.REPEAT for verdict, then in pairs
    )


def continued(campaign: str, path: Path, now: datetime) -> str:
    """Return how the test is continued, or where its verdict is; empty where it has not begun."""
    with LedgerView.open(path) as view, view.snapshot():
        if not view.challenge():
            return ""
        for more in (None, timedelta(hours=1)):
            try:
                resume_challenge(view, path, more, now)
            except UsageError:
                continue
            option = "" if more is None else " --for 1h"
            return f"`dc-inject link --resume {campaign}{option}` continues the test"
    return f"`dc-inject link --verdict {campaign}` prints the verdict"
