"""On which terms a link is served: what it says itself, else its scenario, else the menu's defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import (
    Datasets,
    Defaults,
    Document,
    Files,
    Jobs,
    Lifetime,
    Overrides,
    ShapeEntry,
    Windowed,
)
from dc_inject.model import Control, DatasetFilter, FileFilter, JobOptions, Mode, Order, units
from dc_inject.model.items import MARK, Slicing
from dc_inject.model.services import DEFAULT, SERVICES, Service, titles
from dc_inject.model.types import LONGEST, SHORTEST

T = TypeVar("T")

FILES = (1, 1000)
MEAN_FILE = (10**9, 20 * 10**9)
ANY = (1, 2**63 - 1)  # bounds that let all pass
HIGHEST_SERVICE_PRIORITY = 3  # the default of Rucio and FTS: production is not overtaken


@dataclass(frozen=True, slots=True)
class Terms:
    """What a menu says of a link beside its ends and its rate; the fields are those of model.Flow."""

    service: Service
    start: datetime
    end: datetime
    datasets: DatasetFilter | FileFilter
    order: Order
    grain: float
    activity: str
    priority: int
    service_priority: int
    lifetime_min: timedelta
    lifetime_max: timedelta
    dwell: timedelta
    overhead: float
    job: JobOptions | None
    shape: ShapeEntry | None
    slices: Slicing | None
    control: Control


def terms(document: Document, levels: Sequence[Overrides], place: Place, complain: Complain) -> Terms:
    """Put the terms of a link or scenario together; `levels` begin with the most special one."""
    start, end = _window(document, levels, complain)
    shortest, longest = _lifetime(levels, place, complain)
    service = _or(_first(levels, lambda level: level.through), DEFAULT)
    if not service.takes_files:
        _refuse_keys_of_files(levels[0], complain)
    service_priority = _first(levels, lambda level: level.service_priority)
    if (
        service_priority is not None
        and service_priority > HIGHEST_SERVICE_PRIORITY
        and not document.above_production
    ):
        where = next(level.at("service_priority") for level in levels if level.service_priority is not None)
        complain(
            where,
            f"`service_priority` {service_priority} would overtake production",
            f"take {HIGHEST_SERVICE_PRIORITY} or less, or agree on it and write `above_production: true`",
        )
    return Terms(
        service=service,
        start=start,
        end=end,
        datasets=_files(levels, place, complain) if service.takes_files else _datasets(levels, place, complain),
        order=_order(levels),
        grain=_or(_first(levels, lambda level: level.grain), 0.25),
        activity=_or(_first(levels, lambda level: level.activity), "Data Challenge"),
        priority=_or(_first(levels, lambda level: level.priority), 3),
        service_priority=_or(service_priority, HIGHEST_SERVICE_PRIORITY),
        lifetime_min=shortest,
        lifetime_max=longest,
        dwell=_or(_first(levels, lambda level: level.dwell), timedelta(0)),
        overhead=_or(_first(levels, lambda level: level.overhead), 0.0),
        job=_job(levels) if service.takes_files else None,
        shape=next((level.shape for level in levels if level.written("shape")), None),
        slices=_slices(levels, service, complain),
        control=_control(levels),
    )


def window(document: Document) -> tuple[datetime, datetime]:
    """Return the menu's window; one that was not understood (and complained of) is taken as endless."""
    return document.start or datetime.min.replace(tzinfo=UTC), document.end or datetime.max.replace(tzinfo=UTC)


def _first(levels: Sequence[Overrides], get: Callable[[Overrides], T | None]) -> T | None:
    return next((value for level in levels if (value := get(level)) is not None), None)


def _or(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value


def _window(document: Document, levels: Sequence[Overrides], complain: Complain) -> tuple[datetime, datetime]:
    earliest, latest = window(document)
    start, end = earliest, latest
    for level in reversed(levels):
        if not isinstance(level, Windowed):
            continue
        start, end = level.start or start, level.end or end
        if level.start is not None and not earliest <= level.start < latest:
            complain(level.at("start"), "`start` lies outside of the menu's window", "begin within it")
        elif level.end is not None and not earliest < level.end <= latest:
            complain(level.at("end"), "`end` lies outside of the menu's window", "end within it")
        elif (level.start or level.end) and start >= end:
            complain(
                level.at("end" if level.end else "start"),
                "the window ends before it starts",
                "`end` is later than `start`",
            )
    return start, end


def _lifetime(levels: Sequence[Overrides], place: Place, complain: Complain) -> tuple[timedelta, timedelta]:
    given: list[Lifetime] = [level.lifetime for level in levels if level.lifetime is not None]
    shortest = next((level.min for level in given if level.min is not None), SHORTEST)
    longest = next((level.max for level in given if level.max is not None), LONGEST)
    if shortest > longest:
        complain(
            given[0].place if given else place,
            f"`lifetime`: min, {units.format_duration(shortest)}, is above max, {units.format_duration(longest)}",
            "write both: lifetime: {min: 1 h, max: 2 h}",
        )
    return shortest, longest


def _control(levels: Sequence[Overrides]) -> Control:
    given = [level.control for level in levels if level.control is not None]
    mode = next((control.mode for control in given if control.mode is not None), Mode.OFF)
    shares = next((control.redistribute for control in given if control.redistribute is not None), False)
    return Control(mode, shares)


def _order(levels: Sequence[Overrides]) -> Order:
    order = _first(levels, lambda level: level.datasets.order if level.datasets is not None else None)
    return _or(order, Order.LARGEST_FIRST)


def _slices(levels: Sequence[Overrides], service: Service, complain: Complain) -> Slicing | None:
    """Return how datasets may be cut: not at all unless the menu says so."""
    level = next((one for one in levels if one.datasets is not None and one.datasets.slices is not None), None)
    slices = level.datasets.slices if level is not None and level.datasets is not None else None
    if level is None or slices is None or slices.never:
        return None
    if not service.cuts:
        if not isinstance(level, Defaults):
            able = titles(one for one in SERVICES.values() if one.cuts)
            hint = f"{service.title} takes as many {service.items} as fit: remove `slices`"
            complain(slices.place, f"`slices` is only for links through {able}", hint)
        return None
    if slices.scope is None and not slices.written("scope"):
        hint = "slices: {scope: user.dcops}, a scope in which the account may make datasets"
        complain(slices.place, "`slices` has no scope", hint)
    return None if slices.scope is None else Slicing(slices.scope, slices.name or MARK, slices.at_most or 0)


def _datasets(levels: Sequence[Overrides], place: Place, complain: Complain) -> DatasetFilter:
    """Return which datasets are taken through Rucio."""
    given = [level.datasets for level in levels if level.datasets is not None]
    chosen = next((datasets for datasets in given if _selects(datasets)), None)
    if chosen is None and not any(level.written("datasets") and level.datasets is None for level in levels):
        hint = 'write `datasets: {did: "scope:pattern"}`, here or in `defaults`'
        complain(place, "no datasets are named for it", hint)
    chosen = chosen or Datasets.model_construct()
    return _filter(chosen, given, FILES, MEAN_FILE)


def _selects(datasets: Datasets) -> bool:
    """Tell whether datasets are named: who says one of the three replaces all that is said above."""
    return any(map(datasets.written, ("did", "containers", "file")))


def _filter(
    chosen: Datasets, given: Sequence[Datasets], files: tuple[int, int], mean_file: tuple[int, int]
) -> DatasetFilter:
    return DatasetFilter(
        dids=tuple(sorted({*(chosen.did or ()), *(chosen.file or ())})),
        containers=tuple(sorted(set(chosen.containers or ()))),
        exclude=tuple(
            sorted(set(next((datasets.exclude for datasets in given if datasets.exclude is not None), ())))
        ),
        files=next((datasets.files for datasets in given if datasets.files is not None), files),
        mean_file=next((datasets.mean_file for datasets in given if datasets.mean_file is not None), mean_file),
    )


def _files(levels: Sequence[Overrides], place: Place, complain: Complain) -> FileFilter:
    """Return which files are taken through FTS: of a list, of a folder, or of datasets that Rucio knows."""
    given: list[Files] = [level.files for level in levels if level.files is not None]
    pattern = next((files.pattern for files in given if files.pattern is not None), "*")
    size = next((files.size for files in given if files.size is not None), ANY)
    for level in levels:
        files, datasets = level.files, level.datasets
        if files is not None and files.written("list"):
            if files.written("folder"):
                complain(files.at("folder"), "`files` has a list and a folder", "keep one of them")
            return FileFilter(listing=files.list_, pattern=pattern, size=size)
        if files is not None and files.written("folder"):
            return FileFilter(folder=files.folder, pattern=pattern, size=size)
        if datasets is not None and _selects(datasets):
            named = [one.datasets for one in levels if one.datasets is not None]
            # Files are taken one by one, so a dataset's own shape does not matter unless the menu says so.
            return FileFilter(datasets=_filter(datasets, named, ANY, ANY), pattern=pattern, size=size)
    if not any(level.written("files") and level.files is None for level in levels):
        complain(
            place,
            "no source files are named for it",
            "write `files: {list: sources.csv}`, `files: {folder: data}`, or `datasets: {did: ...}` of Rucio",
        )
    return FileFilter(pattern=pattern, size=size)


def _job(levels: Sequence[Overrides]) -> JobOptions:
    """Return how files become FTS jobs; what no level says has the default of JobOptions."""
    given: list[Jobs] = [level.jobs for level in levels if level.jobs is not None]
    options = {key: value for jobs in reversed(given) for key, value in jobs if value is not None}
    return JobOptions(**options)


def _refuse_keys_of_files(level: Overrides, complain: Complain) -> None:
    """Complain of files and jobs for a link or scenario that takes datasets; `defaults` may serve both."""
    able = [service for service in SERVICES.values() if service.takes_files]
    for key in ("files", "jobs"):
        if level.written(key) and not isinstance(level, Defaults):
            hint = f"write `through: {able[0].name}`, or remove `{key}`"
            complain(level.at(key), f"`{key}` is only for links through {titles(able)}", hint)
