"""Readings of one link from the ledger, and the progress of the mini-challenge that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from dc_inject.apps.link.judging.progress import Progress
from dc_inject.apps.link.judging.reading import Reading
from dc_inject.apps.link.judging.steps import Ladder
from dc_inject.ledger import Reader, Totals
from dc_inject.ledger.inventory import ChallengeRecord
from dc_inject.model import Entry, FlowKey, Held, Hold, State
from dc_inject.model.errors import UsageError
from dc_inject.model.losses import count_stuck
from dc_inject.summary import why
from dc_inject.summary.failed_files import count_failed

LATELY = timedelta(hours=1)  # how far back the time to completion is measured, at most
SEARCH = 7  # which search: that of earlier, unreleased versions judged trials otherwise; its readings fit no other


@dataclass(frozen=True, slots=True)
class LinkReader:
    """Reads the account of one link."""

    key: FlowKey

    def now(self, ledger: Reader, now: datetime, before: Reading | None, since: datetime | None) -> Reading:
        """Return a reading; `before` is the last one, `since` when the step began that is under way.

        Files that Rucio has given up count as failed before their rule does.
        """
        account = ledger.accounts().get(self.key, Totals())
        entries = ledger.entries(State.LIVE, State.COMPLETE)
        live = [entry for entry in entries if entry.state is State.LIVE]
        stuck = sum(map(count_stuck, live))
        completion = ledger.completion_times(max(now - LATELY, since or now - LATELY)).get(self.key)
        injected = [entry.injection.item for entry in entries]
        bytes_, files = sum(item.bytes for item in injected), sum(item.files for item in injected)
        sizes = (before.dataset, before.file) if before else (0, 0)
        dataset = round(bytes_ / len(injected)) if injected else sizes[0]
        file = round(bytes_ / files) if files else sizes[1]
        return Reading(
            at=now,
            moved=account.moved,
            injected=account.accepted,
            failed=account.failed + stuck,
            completion=completion,
            held=why.explain_hold(self.key, ledger, since),
            coming=max(account.coming - stuck, 0),
            classes=count_failed(ledger)[0][self.key],
            dataset=dataset,
            file=file,
            counted_by=file if self.key.link.service.takes_files else dataset,  # Rucio reports whole ones
            silent=_silent(entries, before),
            service=self.key.link.service.title,
        )


def _silent(entries: Iterable[Entry], before: Reading | None) -> bool:
    """Whether something was on its way at the last reading, and nothing at all has been seen since."""
    if before is None:
        return False
    observable = list(entries)
    waiting = [e for e in observable if e.state is State.LIVE and e.accepted_at and e.accepted_at < before.at]
    last_seen = max((e.observed_at for e in observable if e.observed_at), default=None)
    return bool(waiting) and (last_seen is None or last_seen <= before.at)


# --------------------------------------------------------------------------- as they are kept


def written(reading: Reading) -> dict[str, Any]:
    """Return a reading as the ledger keeps it."""
    values = {name.name: getattr(reading, name.name) for name in fields(reading)}
    values["completion"] = None if reading.completion is None else reading.completion.total_seconds()
    held = reading.held
    values["held"] = None if held is None else [held.hold.value, dict(held.numbers)]
    values["classes"] = dict(reading.classes)
    values["at"] = reading.at.isoformat()
    return values


def read(record: Mapping[str, Any]) -> Reading:
    """Return a reading that was kept; what a later version has added is left out."""
    names = {name.name for name in fields(Reading)}
    values = {name: value for name, value in record.items() if name in names}
    values["at"] = datetime.fromisoformat(values["at"])
    if values.get("completion") is not None:
        values["completion"] = timedelta(seconds=values["completion"])
    if values.get("held") is not None:
        values["held"] = Held(Hold(values["held"][0]), values["held"][1])
    return Reading(**values)


def settings(ladder: Ladder, until: datetime) -> dict[str, Any]:
    """Return what a mini-challenge is asked, as the ledger keeps it."""
    return {
        "first": ladder.first,
        "every": ladder.every.total_seconds(),
        "step": ladder.step,
        "highest": ladder.highest,
        "saturate": ladder.saturate,
        "search": SEARCH,
        "until": until.isoformat(),
    }


def progress(records: Iterable[ChallengeRecord]) -> Progress | None:
    """Return how far a mini-challenge is, made again from what was kept of it; None when there is none.

    Raises UsageError for a search of a version that looked in another way.
    """
    rebuilt: Progress | None = None
    for at, kind, values in records:
        if kind == "asked":
            until = datetime.fromisoformat(values["until"])
            if rebuilt is None:
                if values["saturate"] and values.get("search") != SEARCH:
                    raise UsageError(
                        "this search was made by an older version, which looked in another way",
                        "`dc-inject status CAMPAIGN` shows what moved; search again for a verdict",
                    )
                every = timedelta(seconds=values["every"])
                ladder = Ladder(values["first"], every, values["step"], values["highest"], values["saturate"])
                rebuilt = Progress(ladder, until)
            else:
                rebuilt.resume(until, until - at)
        elif rebuilt is not None and kind == "reading":
            rebuilt.take(read(values))
        elif rebuilt is not None:
            rebuilt.stopped(read(values))
    return rebuilt
