"""The verdict of a mini-challenge, from its ledger, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from dc_inject.apps.link import challenges
from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.verdict import COARSE, EARLY, StepOutcome
from dc_inject.apps.link.mini_challenge import MiniChallenge
from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.ledger.paths import link_menu
from dc_inject.model import Hold, State, units
from dc_inject.model.errors import DcInjectError, ServiceError, ThresholdMissed, UsageError
from dc_inject.model.services import SERVICES
from dc_inject.summary import left
from dc_inject.summary.thresholds import in_words

# By the cause of what is inconclusive; `{name}` is the campaign, `{selection}` the options that choose.
HINTS: Mapping[str, str] = {
    Hold.POOL_DRY: "take more datasets or files ({selection}), a lower --rate, or a shorter --for",
    Hold.DESTINATION_FULL: "raise --space, if the site agrees, or ask for a lower --rate",
    Hold.QUOTA: "ask for a larger quota there, or for a lower --rate",
    Hold.SITE_LIMIT: "raise --max",
    Hold.CAMPAIGN_LIMIT: "take larger datasets ({selection}), raise --rules-per-hour, or if it is the total --max",
    COARSE: "a longer --every (or --for), a higher --rate, or smaller datasets or files ({selection})",
    EARLY: "continue with `dc-inject link --resume {name}`",
    "time": "continue with `dc-inject link --resume {name} --for 1h`",
    "unsteady": "search at another time, or with a longer --every",
}
AGAIN = "repeat the step with `dc-inject link --resume {name} --for {step}`"  # after an outage
RUNNING, ENDING, ENDED = "running", "ending", "ended"  # the state of a test
FIRST = "first end what is left, then "


class Judged(NamedTuple):
    """The verdict of a mini-challenge, the error with which the command ends, and notes to print before both."""

    report: dict[str, Any]
    error: DcInjectError | None
    notes: Sequence[str]


def judge(campaign: str) -> Judged:
    """Return the verdict of a mini-challenge from its ledger, also while it runs."""
    path = ledger_files.existing(campaign)
    with LedgerView.open(path) as view, view.snapshot():
        holder = view.holder()
        challenge, progress, report = _report(view, running=holder is not None)
        notes: list[str] = []
        if report["state"] == RUNNING:
            so_far = "; ".join(filter(None, (f"{holder} is still running it", under_way(progress))))
            notes = [f"preliminary: {so_far}"]
        elif holder is not None:
            notes = [f"{holder} is still ending its {challenge.link.service.injections}"]
        return Judged(report, make_exit_error(report, challenge, view), notes)


def describe(view: Reader) -> str:
    """Return the result of a link's test in a sentence, or why there is none; empty while it runs."""
    if view.holder() is not None:
        return ""
    try:
        return sentence(_report(view)[2])
    except UsageError as error:  # a search of an older version: status shows what moved all the same
        return error.message


def _report(view: Reader, *, running: bool = False) -> tuple[MiniChallenge, Progress, dict[str, Any]]:
    """Return a mini-challenge, its progress and its verdict; the step of one that was killed ends there."""
    challenge, progress = challenges.load_challenge(view, view.path)
    if not running and progress.step is not None and progress.step.readings:
        progress.stopped(progress.step.readings[-1])
    return challenge, progress, verdict_json(challenge, progress, view, link_menu(view.path), running=running)


def verdict_json(
    challenge: MiniChallenge, progress: Progress, view: Reader, menu: Path, *, running: bool = False
) -> dict[str, Any]:
    """Return the verdict; the keys are an interface, described in docs/reference/link.md.

    `running` is whether an injector has it.
    """
    state = ENDED if not running else RUNNING if progress.over is None else ENDING
    return {
        "campaign": challenge.campaign,
        "state": state,
        "ends_by": units.format_time(challenge.latest) if state == RUNNING else None,
        "menu": str(menu),
        "ledger": str(view.path),
        "link": str(challenge.link),
        "source": challenge.link.source,
        "destination": challenge.link.destination,
        "service": challenge.link.through,
        **progress.concluded(running=running).figures(),
        "steps": [
            {
                "step": number,
                "rate": verdict.rate,
                "asked": round(verdict.asked),
                "moved": verdict.moved,
                "moved_rate": verdict.moved_rate,
                "grain": verdict.grain,
                "ratio": verdict.ratio,
                "failed": verdict.failed,
                "injected": verdict.injected,
                "start": units.format_time(verdict.start),
                "measured": units.format_time(verdict.measured),
                "end": units.format_time(verdict.end),
                "held": verdict.hold.value if verdict.hold else None,
                "outcome": verdict.outcome.value,
                "cause": verdict.cause.code if verdict.cause else None,
                "reason": verdict.why,
                "disturbed": str(verdict.disturbed) if verdict.disturbed else None,
                "next": str(decision.kind),
            }
            for number, (verdict, decision) in enumerate(
                zip(progress.verdicts, progress.decisions, strict=True), start=1
            )
        ],
        "failed_files": failed_files(challenge, progress, view),
        "resident": resident(view),
        "resident_at": units.format_time_or_none(_known_at(view)),
        "in_doubt": _bytes(view, State.CALLED),
        "space": challenge.space,
    }


def under_way(progress: Progress) -> str:
    """Return the progress of the current step in words; empty where none has a result so far."""
    if progress.step is None or not progress.step.readings:
        return ""
    first, last = progress.step.readings[0], progress.step.readings[-1]
    lasts, shortest = units.format_duration(last.at - first.at), units.format_duration(progress.ladder.shortest)
    moved = units.format_size(max(last.moved - first.moved, 0))
    least = "at least " if progress.ladder.saturate else ""
    return f"step {len(progress.verdicts) + 1} has run for {lasts} of {least}{shortest}, and {moved} moved"


def resident(view: Reader) -> int:
    """Return the bytes that are at the destination or may be: of what was accepted, and is not known to be gone.

    What was only intended is not there, and what is in doubt is counted apart.
    """
    return _bytes(view, State.LIVE, State.COMPLETE, State.ENDED)


def _known_at(view: Reader) -> datetime | None:
    """Return the time of the last news of what is at the destination; None before anything was accepted."""
    times = (
        when
        for entry in view.entries(*State)
        if entry.accepted_at is not None
        for when in (entry.accepted_at, entry.observed_at, entry.ended_at, entry.gone_at)
    )
    return max((when for when in times if when is not None), default=None)


def _bytes(view: Reader, *states: State) -> int:
    return sum(e.injection.item.bytes - e.present - e.failed for e in view.entries(*states))


def failed_files(challenge: MiniChallenge, progress: Progress, view: Reader) -> dict[str, int]:
    """Return how many files failed by class: those that were counted, and those that rules ended with."""
    counts = dict(view.failures().get(challenge.key, {}))
    last = progress.step.readings[-1].classes if progress.step and progress.step.readings else {}
    for name, count in last.items():
        counts[name] = max(counts.get(name, 0), count)
    return counts


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the table of steps lacks: failed files, why steps were not reached, and what is left."""
    failed = ", ".join(f"{count} {reason}" for reason, count in report["failed_files"].items())
    if failed or any(step["failed"] for step in report["steps"]):
        yield f"failed files: {failed or '(reasons not reported)'}"
    for step in report["steps"]:
        in_verdict = step["reason"] in report["reason"] or (
            report["interval"] and step["cause"] == report["cause"]
        )
        if step["outcome"] != StepOutcome.REACHED.value and not in_verdict:
            yield f"step {step['step']}, {step['outcome']}: {step['reason']}"
        if step["disturbed"]:
            yield f"step {step['step']}, {step['outcome']} although {step['disturbed']}"
    if report["resident"]:
        # "At most", since what was under way and cancelled never arrives.
        known = f"{units.format_size(report['resident'])} as of {report['resident_at']}"
        destination = report["destination"]
        if report["state"] == RUNNING:
            yield f"our data at or on the way to {destination}: {known}"
        else:
            service = SERVICES[report["service"]]
            then = f"; {service.title} deletes it after its {service.injections} have ended"
            yield f"left at {destination}: at most {known}{then if service.cleans_up else ''}"
    if report["in_doubt"]:
        yield f"in doubt: {units.format_size(report['in_doubt'])}, in calls that got no answer"


def sentence(report: Mapping[str, Any]) -> str:
    """Return the result in a sentence, with the rate of the last step first, if that shows something."""
    steps = report["steps"][-1:] if report["outcome"] != StepOutcome.INCONCLUSIVE.value else ()
    rate = "".join(f"{units.format_rate(step['moved_rate'])}, " for step in steps if not report["capacity"])
    return f"{rate}{report['source']} -> {report['destination']}: {report['outcome']}: {in_words(report)}"


def make_exit_error(report: Mapping[str, Any], challenge: MiniChallenge, view: Reader) -> DcInjectError | None:
    """Return the error with which the command ends: 5 not reached, 4 an outage, 2 what only we can change.

    Its hint names what has to be ended before a step is repeated; while the test runs, there is nothing to do.
    """
    if report["outcome"] == StepOutcome.REACHED.value:
        return None
    name = report["campaign"]
    message = f"{name}: {report['outcome']} ({report['cause']})"  # the reason has just been printed
    if report["outcome"] == StepOutcome.NOT_REACHED.value:
        return ThresholdMissed(message, f"see `dc-inject status {name}`")
    again = ""
    if report["state"] == RUNNING:
        again = f"it is still running: the verdict is expected {challenge.expected}"
    elif report["state"] == ENDING:
        again = f"it is still ending its {challenge.link.service.injections}: ask again later"
    if report["outage"]:
        first, step = FIRST * bool(left.read(view)), units.format_duration(challenge.ladder.every).replace(" ", "")
        return ServiceError(message, again or f"when it works again, {first}{AGAIN}".format(name=name, step=step))
    hint = HINTS.get(report["cause"] or "", "see `dc-inject status {name}`")
    reached = (step["rate"] for step in report["steps"][-1:] if step["outcome"] == StepOutcome.REACHED.value)
    if report["cause"] == "time" and max(reached, default=0) >= challenge.ladder.highest:
        hint += "; only a new test with a higher --max can show whether it carries more"
    if report["cause"] in {EARLY, "time"} and left.read(view).live:  # as after a kill
        hint = FIRST + hint
    return UsageError(message, again or hint.format(name=name, selection=challenge.selection))
