"""Export: what a campaign injected and what became of it, and what menus plan, as records for other programs.

Monitoring of networks, sites and experiments wants plain records with common parameters, not figures: when, for
which experiment and activity, from which site to which, how many bytes and files, and how that ended. The records
here are an interface. Each has its kind (`type`) and the `version` of its schema, which `FIELDS` describes and
docs/reference/export.md repeats: within a version fields may be added, but never change or go away.

An injection (a rule or a job) is one record with its present state; exported later, it may have another one. Sums
over all records of a campaign are its accounts, to the byte. Cycles are read one after another, each in one piece:
so a campaign of any size needs the memory of its largest cycle, and a slow reader of the output does not keep the
ledger's log from being cleared.

Names come from menus and services; what would move a terminal's cursor is taken out of them.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dc_inject import ledger, menu
from dc_inject.apps.report.planned_flows import PlannedFlow
from dc_inject.ledger import LedgerView, Reader, ledger_files
from dc_inject.ledger.series import Period
from dc_inject.model import Campaign, Entry, units
from dc_inject.model.errors import LedgerError, UsageError
from dc_inject.model.redaction import no_formula, scrub, visible
from dc_inject.model.services import SERVICES
from dc_inject.planning import overrides
from dc_inject.summary import active_overrides
from dc_inject.summary.days import list_days
from dc_inject.system import files

VERSION = 1
AT_ONCE = 20_000  # records of a row group of Parquet
INSTALL = "install it with `pip install '.[parquet]'` in the clone, or take --format jsonl or csv"
Record = dict[str, Any]

# Of Scitags: only what is needed to name a data challenge's traffic. What is not here stays unknown.
ACTIVITIES = 64  # numbers of activities that an experiment can have

# As registered on 2024-02-01.
EXPERIMENTS = {
    "default": 1,
    "atlas": 2,
    "cms": 3,
    "lhcb": 4,
    "alice": 5,
    "belleii": 6,
    "ska": 7,
    "dune": 8,
    "lsst": 9,
    "ilc": 10,
    "auger": 11,
    "juno": 12,
    "nova": 13,
    "xenon": 14,
}
_SMALL = ("default", "lhcb", "alice", "belleii", "ska", "dune", "lsst", "ilc", "auger")
ACTIVITY_IDS = {
    **{(name, "DataChallenge"): 4 for name in _SMALL},
    **{("atlas", activity): number for activity, number in (
        ("Data Consolidation", 4), ("Data Rebalancing", 8), ("Functional Test", 11), ("Production Input", 15),
        ("Production Output", 16), ("Staging", 19), ("T0 Export", 20), ("Data Challenge", 26),
    )},
    **{("cms", activity): number for activity, number in (
        ("Data Challenge", 4), ("Data Consolidation", 6), ("Data rebalancing", 7), ("Functional Test", 10),
        ("Production Input", 12), ("Production Output", 13), ("Staging", 16), ("T0 Export", 17),
    )},
}  # fmt: skip
_NAMES = {number: name for name, number in EXPERIMENTS.items()}


class Field(NamedTuple):
    """A field of a record: its name, its type (`text`, `integer`, `time` or `truth`), and what it means."""

    name: str
    type: str
    text: str


_SITE = "site in the menus, else the host of the URL prefix, or the RSE"
_WHOSE = (
    Field("campaign", "text", "the campaign"),
    Field("experiment", "text", "the experiment: of the scitag, else of `--experiment`, else the service's VO"),
    Field("experiment_id", "integer", "its number in the registry of Scitags"),
    Field("scenario", "text", "the scenario"),
    Field("activity", "text", "the activity at Rucio or FTS"),
    Field("activity_id", "integer", "its number in the registry of Scitags"),
    Field("scitag", "integer", "the flow label: the menu's, else the one that the registry has for both names"),
    Field("service", "text", "`rucio` or `fts`"),
)
_HEAD = (
    Field("type", "text", "the kind of record: `injection` or `planned`"),
    Field("version", "integer", "the version of the schema"),
)
FIELDS: Mapping[str, Sequence[Field]] = {
    "injection": (
        *_HEAD,
        Field("time", "time", "when the service accepted it; before that, when it was or will be submitted"),
        *_WHOSE,
        Field("source", "text", "the source RSE or URL prefix"),
        Field("source_site", "text", f"its {_SITE}"),
        Field("destination", "text", "the destination RSE or URL prefix"),
        Field("destination_site", "text", f"its {_SITE}"),
        Field("cycle", "time", "the start of the cycle in which it was planned"),
        Field("day", "integer", "the number of the challenge day that this cycle belongs to"),
        Field("key", "text", "its unique key; the `sid` of a job"),
        Field("item", "text", "the dataset, the slice of one, or the bundle of files"),
        Field("external_id", "text", "the number of the rule or job; empty before it was accepted"),
        Field(
            "state",
            "text",
            "`intended`, `called`, `live`, `complete`, `ended`, `gone`, `refused` or `withdrawn`",
        ),
        Field("bytes", "integer", "the size of the item"),
        Field("files", "integer", "the files of the item"),
        Field("injected_bytes", "integer", "what counts as injected: accepted, not there before, and not failed"),
        Field("present_bytes", "integer", "what was at the destination, or on its way there for others, before"),
        Field("failed_bytes", "integer", "what failed for good and went back to the debt"),
        Field("moved_bytes", "integer", "what has arrived"),
        Field("moved_exact", "truth", "whether that is exact; else it is an estimate"),
        Field("files_done", "integer", "files that have arrived"),
        Field("files_stuck", "integer", "files that the service has set aside, or that failed"),
        Field("attempts", "integer", "how often it was submitted"),
        Field("release_at", "time", "when it was or will be submitted, as planned"),
        Field("called_at", "time", "when it was last submitted"),
        Field("accepted_at", "time", "when the service accepted it"),
        Field("completed_at", "time", "when it was seen complete"),
        Field("expires_at", "time", "when its lifetime ends"),
        Field("ended_at", "time", "when its rule or job was gone"),
        Field("gone_at", "time", "when its bytes were known to be gone from the destination"),
        Field("observed_at", "time", "when its service was last asked about it"),
        Field("error", "text", "the last error of the service about it, without secrets"),
    ),
    "planned": (
        *_HEAD,
        Field("time", "time", "when the flow starts"),
        Field("end", "time", "when it ends, or changes its rate"),
        *_WHOSE,
        Field("source_site", "text", f"the source's {_SITE}"),
        Field("destination_site", "text", f"the destination's {_SITE}"),
        Field("links", "integer", "how many links of the two sites it has"),
        Field("bytes_per_second", "integer", "its mean rate"),
        Field("peak_bytes_per_second", "integer", "its highest rate: not the mean while it rises or falls"),
        Field("bytes", "integer", "its volume"),
    ),
}


@dataclass(frozen=True)
class About:
    """What the ledger's rows do not have: experiments by service, and the sites of RSEs."""

    experiments: Mapping[str, str]
    sites: Mapping[str, str]


def injections(view: Reader, period: Period, about: About) -> Iterator[Record]:
    """Yield the injections of the cycles of a period, by cycle and release."""
    days = list_days(view)
    for cycle, _ in view.cycles(period):
        day = days.of(cycle)
        for entry in view.entries(cycle=cycle):
            yield _injection(entry, day, about)


def planned(flows: Iterable[PlannedFlow], about: About) -> Iterator[Record]:
    """Yield the records of planned flows."""
    for flow in flows:
        what = flow.purpose
        yield {
            "type": "planned",
            "version": VERSION,
            "time": flow.start,
            "end": flow.end,
            **_whose(what.campaign, what.scenario, what.service, what.activity, what.scitag, about),
            "source_site": _clean(what.source_site),
            "destination_site": _clean(what.destination_site),
            "links": len(flow.links),
            "bytes_per_second": round(flow.rate),
            "peak_bytes_per_second": round(flow.peak),
            "bytes": round(flow.bytes),
        }


def _injection(entry: Entry, day: int, about: About) -> Record:
    made = entry.injection
    source, destination, service = made.link
    scitag = None if made.job is None else made.job.scitag
    return {
        "type": "injection",
        "version": VERSION,
        "time": entry.accepted_at or entry.called_at or made.release,
        **_whose(made.campaign, made.scenario, service, made.activity, scitag, about),
        "source": _clean(source),
        "source_site": _clean(about.sites.get(source, source)),
        "destination": _clean(destination),
        "destination_site": _clean(about.sites.get(destination, destination)),
        "cycle": made.cycle.start,
        "day": day,
        "key": made.key,
        "item": _line(made.item.name),
        "external_id": _line(entry.external_id),
        "state": entry.state.value,
        "bytes": made.item.bytes,
        "files": made.item.files,
        "injected_bytes": entry.injected,
        "present_bytes": entry.present,
        "failed_bytes": entry.failed,
        "moved_bytes": entry.moved,
        "moved_exact": entry.moved_exact,
        "files_done": entry.files_done,
        "files_stuck": entry.files_stuck,
        "attempts": entry.attempt,
        "release_at": made.release,
        "called_at": entry.called_at,
        "accepted_at": entry.accepted_at,
        "completed_at": entry.completed_at,
        "expires_at": entry.expires_at,
        "ended_at": entry.ended_at,
        "gone_at": entry.gone_at,
        "observed_at": entry.observed_at,
        "error": scrub(entry.error) if entry.error else "",
    }


def _whose(
    campaign: str, scenario: str, service: str, activity: str, scitag: int | None, about: About
) -> Mapping[str, Any]:
    return _marked(campaign, scenario, service, activity, scitag, about.experiments.get(service, ""))


@lru_cache(maxsize=1 << 10)  # a campaign has a few of them, and a million injections
def _marked(
    campaign: str, scenario: str, service: str, activity: str, scitag: int | None, experiment: str
) -> Mapping[str, Any]:
    mark = marking(experiment, activity, scitag)
    return {
        "campaign": _line(campaign),
        "experiment": mark.experiment,
        "experiment_id": mark.experiment_id,
        "scenario": _line(scenario),
        "activity": _line(activity),
        "activity_id": mark.activity_id,
        "scitag": mark.scitag,
        "service": service,
    }


def _line(text: str) -> str:
    return visible(text).replace("\n", " ")


_clean = lru_cache(maxsize=1 << 14)(_line)  # names of places


# --------------------------------------------------------------------------- formats


def library() -> Any:  # noqa: ANN401  it has no types, and is not everywhere
    """Return pyarrow with its Parquet; raises UsageError where it is not installed."""
    try:
        import pyarrow as arrow  # noqa: PLC0415  an extra
        import pyarrow.parquet  # noqa: PLC0415  an extra
    except ImportError:
        raise UsageError("Parquet needs pyarrow, which is not installed", INSTALL) from None
    return arrow


def _jsonl(records: Iterable[Record], fields: Sequence[Field], file: BinaryIO) -> None:
    del fields  # records have theirs in their order
    encode = json.JSONEncoder(default=units.format_time, ensure_ascii=False, check_circular=False).encode
    for record in records:
        file.write(encode(record).encode(errors="replace") + b"\n")


def _csv(records: Iterable[Record], fields: Sequence[Field], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="", write_through=False)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields])
    writer.writerows([_cell(value) for value in record.values()] for record in records)
    text.flush()
    text.detach()  # who opened the file closes it


def _parquet(records: Iterable[Record], fields: Sequence[Field], file: BinaryIO) -> None:
    arrow = library()
    types = {
        "text": arrow.string(),
        "integer": arrow.int64(),
        "time": arrow.timestamp("us", tz="UTC"),
        "truth": arrow.bool_(),
    }
    described = [
        arrow.field(field.name, types[field.type], metadata={"description": field.text}) for field in fields
    ]
    schema = arrow.schema(described, metadata={"dc_inject.export.version": str(VERSION)})
    with arrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rest = iter(records)
        while batch := list(islice(rest, AT_ONCE)):
            writer.write_batch(arrow.RecordBatch.from_pylist(batch, schema=schema))


FORMATS: Mapping[str, Callable[[Iterable[Record], Sequence[Field], BinaryIO], None]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "parquet": _parquet,
}


def _cell(value: object) -> object:
    """Return what stands in a CSV for a value: as in JSON, but nothing for null."""
    if isinstance(value, datetime):
        return units.format_time(value)
    if isinstance(value, str):
        return no_formula(value)
    return str(value).lower() if isinstance(value, bool) else value


# --------------------------------------------------------------------------- what is exported


def campaigns_to_come(
    subjects: Sequence[str], ledger_path: Path | None, experiment: str | None, note: Callable[[str], None]
) -> Iterator[tuple[Campaign, About]]:
    """Yield the campaigns of menus, or that of a ledger, as they are with what people have set.

    `experiment` is the one that was named, if any; `note` gets sentences about what is set.
    """
    if len(subjects) == 1 and _is_campaign(subjects[0]):
        yield _as_set(subjects[0], ledger_files.existing(subjects[0], ledger_path), None, experiment, note)
        return
    by_campaign: dict[str, list[menu.MenuDraft]] = {}
    for draft in files.read_menus([Path(subject) for subject in subjects]):
        by_campaign.setdefault(draft.campaign, []).append(draft)
    for name, drafts in by_campaign.items():
        file = ledger_files.file_of(ledger_path, name)
        if ledger.files(file):
            yield _as_set(name, file, drafts, experiment, note)
        else:
            named = dict.fromkeys(SERVICES, _named(experiment))
            yield menu.campaign([draft.preview for draft in drafts]), About(named, {})


def _as_set(
    name: str,
    file: Path,
    drafts: Sequence[menu.MenuDraft] | None,
    experiment: str | None,
    note: Callable[[str], None],
) -> tuple[Campaign, About]:
    """Return the campaign of menus, or of those in force, with the rates that people have set; note those."""
    with LedgerView.open(file) as view:
        ledger_files.campaign_in(view, name, file)
        menus = (
            active_overrides.menus(view)
            if drafts is None
            else [active_overrides.resolved(draft, view) for draft in drafts]
        )
        if not menus:
            raise LedgerError(f"{file} has no menus in force", "name the menus instead")
        for line in active_overrides.standing(view):
            note(line)
        whole = overrides.apply_overrides(menu.campaign(menus), view.overrides())
        return whole, About(experiments_of(view, experiment), {})


def _is_campaign(subject: str) -> bool:
    """Whether a campaign is meant, or its ledger, and no menu."""
    path = Path(subject)
    return path.suffix == ".sqlite" or not (path.exists() or os.sep in subject or path.suffix in files.SUFFIXES)


def experiments_of(view: Reader, experiment: str | None) -> dict[str, str]:
    """Return the experiment of each service: as it was named, else its VO if that is one of the registry."""
    vos = {identity.service: identity.vo.lower() for identity in view.identities()}
    experiments = {name: vo for name, vo in vos.items() if vo in EXPERIMENTS}
    return {name: _named(experiment) or experiments.get(name, "") for name in SERVICES}


def _named(experiment: str | None) -> str:
    """Return the registry's spelling of an experiment, or what was written where it is not in it."""
    name = experiment or ""
    return name.lower() if name.lower() in EXPERIMENTS else name


# --------------------------------------------------------------------------- scitags


class Marking(NamedTuple):
    """Whose a flow is and what for, as far as that is known: the numbers by which networks recognise traffic.

    A scitag, or flow label, is a number from 65 to 65535: 64 times the number of an experiment, plus the number
    of one of its activities. The registry of the Scitags project gives both numbers out. Rucio marks a transfer
    with the one whose activity has the very name of the rule's activity; through FTS a menu has the number.
    """

    experiment: str | None
    experiment_id: int | None
    activity_id: int | None
    scitag: int | None


def marking(experiment: str, activity: str, scitag: int | None = None) -> Marking:
    """Return the marking of a flow: of its `scitag`, if a menu has one, else of the names of the registry.

    `experiment` is what the user named, or empty; a scitag counts more.
    """
    if scitag is not None:
        number, activity_number = divmod(scitag, ACTIVITIES)
        return Marking(_NAMES.get(number), number, activity_number, scitag)
    experiment_id = EXPERIMENTS.get(experiment)
    activity_id = ACTIVITY_IDS.get((experiment, activity))
    label = None if experiment_id is None or activity_id is None else experiment_id * ACTIVITIES + activity_id
    return Marking(experiment or None, experiment_id, activity_id, label)
