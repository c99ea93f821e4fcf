"""The terms on which a link is served: its own settings, else its scenario's, else the menu's defaults.

Each key is taken from the most special level that has it, also inside `lifetime`, `datasets`, `files` and `jobs`.
A level that names datasets or files (`did`, `containers`, `file`; `list`; `folder`) replaces what others name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dc_inject.menu.nodes import Complain, Place
from dc_inject.menu.schema import Datasets, Defaults, Document, Settings, ShapeEntry, Windowed
from dc_inject.menu.validation import MenuModel
from dc_inject.model import Control, DatasetFilter, FileFilter, Flow, JobOptions, Link, Order, ReadOptions, units
from dc_inject.model.items import MARK, Slicing
from dc_inject.model.services import DEFAULT, SERVICES, Service, titles
from dc_inject.model.types import LONGEST, SHORTEST

ANY = (1, 2**63 - 1)  # bounds that let all pass
HIGHEST_SERVICE_PRIORITY = 3  # the default of Rucio and FTS: production is not overtaken


class Terms(NamedTuple):
    """A flow that has all but its scenario, ends and rate, and how its rate goes over time."""

    flow: Flow
    shape: ShapeEntry | None

    @property
    def service(self) -> Service:
        """The service that its bytes go through."""
        return self.flow.link.service


def terms(document: Document, levels: Sequence[Settings], place: Place, complain: Complain) -> Terms:
    """Put the terms of a link or scenario together; `levels` begin with the most special one."""
    start, end = _window(document, levels, complain)
    settings = _merged(levels)
    lifetime = _merged(level.lifetime for level in levels)
    shortest, longest = lifetime.get("min", SHORTEST), lifetime.get("max", LONGEST)
    if shortest > longest:
        complain(
            next(level.lifetime.place for level in levels if level.lifetime is not None),
            f"`lifetime`: min, {units.format_duration(shortest)}, is above max, {units.format_duration(longest)}",
            "write both: lifetime: {min: 1 h, max: 2 h}",
        )
    service: Service = settings.get("through", DEFAULT)
    files = {candidate for candidate in SERVICES.values() if candidate.takes_files}
    keys = {"files": files, "jobs": files, "reads": {one for one in files if one.reads}}
    _refuse_keys(levels[0], service, keys, complain)
    reads = _reads(levels) if service.reads else None
    datasets = (
        _files(levels, reads, place, complain) if service.takes_files else _datasets(levels, place, complain)
    )
    if settings.get("service_priority", 0) > HIGHEST_SERVICE_PRIORITY and not document.above_production:
        complain(
            next(level.at("service_priority") for level in levels if level.service_priority is not None),
            f"`service_priority` {settings['service_priority']} would overtake production",
            f"take {HIGHEST_SERVICE_PRIORITY} or less, or agree on it and write `above_production: true`",
        )
    flow = Flow(
        scenario="",
        link=Link("", "", service.name),
        rate=math.nan,
        start=start,
        end=end,
        datasets=datasets,
        order=_merged(level.datasets for level in levels).get("order", Order.LARGEST_FIRST),
        lifetime_min=shortest,
        lifetime_max=longest,
        job=JobOptions(**_merged(level.jobs for level in levels), reading=reads) if service.takes_files else None,
        slices=_slices(levels, service, complain),
        control=Control(**_merged(level.control for level in levels)),
        **{key: settings[key] for key in _AS_THEY_ARE if key in settings},
    )
    return Terms(flow, next((level.shape for level in levels if level.written("shape")), None))


_AS_THEY_ARE = ("grain", "type", "activity", "priority", "service_priority", "dwell", "overhead")


def window(document: Document) -> tuple[datetime, datetime]:
    """Return the menu's window; one that was not understood (and complained of) is taken as endless."""
    return document.start or datetime.min.replace(tzinfo=UTC), document.end or datetime.max.replace(tzinfo=UTC)


def _merged(models: Iterable[MenuModel | None]) -> dict[str, Any]:
    """Return what models say together; the first one that says something counts."""
    written = [model for model in models if model is not None]
    return {key: value for model in reversed(written) for key, value in model if value is not None}


def _window(document: Document, levels: Sequence[Settings], complain: Complain) -> tuple[datetime, datetime]:
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


def _slices(levels: Sequence[Settings], service: Service, complain: Complain) -> Slicing | None:
    """Return how datasets may be cut: not at all unless the menu says so."""
    level = next(
        (
            candidate
            for candidate in levels
            if candidate.datasets is not None and candidate.datasets.slices is not None
        ),
        None,
    )
    slices = level.datasets.slices if level is not None and level.datasets is not None else None
    if level is None or slices is None or slices.never:
        return None
    if not service.has_slices:
        if not isinstance(level, Defaults):
            able = titles(candidate for candidate in SERVICES.values() if candidate.has_slices)
            hint = f"{service.title} takes as many {service.items} as fit: remove `slices`"
            complain(slices.place, f"`slices` is only for links through {able}", hint)
        return None
    if slices.scope is None and not slices.written("scope"):
        hint = "slices: {scope: user.dcops}, a scope in which the account may make datasets"
        complain(slices.place, "`slices` has no scope", hint)
    return None if slices.scope is None else Slicing(slices.scope, slices.name or MARK, slices.at_most or 0)


def _datasets(levels: Sequence[Settings], place: Place, complain: Complain) -> DatasetFilter:
    """Return which datasets are taken through Rucio."""
    chosen = next((level.datasets for level in levels if level.datasets and _selects(level.datasets)), None)
    if chosen is None and not any(level.written("datasets") and level.datasets is None for level in levels):
        hint = 'write `datasets: {did: "scope:pattern"}`, here or in `defaults`'
        complain(place, "no datasets are named for it", hint)
    return _filter(chosen or Datasets.model_construct(), levels)


def _selects(datasets: Datasets) -> bool:
    """Return whether datasets are named: who says one of the three replaces all that is said above."""
    return any(map(datasets.written, ("did", "containers", "file")))


def _filter(chosen: Datasets, levels: Sequence[Settings], **bounds: tuple[int, int]) -> DatasetFilter:
    """Return a filter by name with the bounds that are said, else those that are given."""
    settings = _merged(level.datasets for level in levels)
    return DatasetFilter(
        dids=tuple(sorted({*(chosen.did or ()), *(chosen.file or ())})),
        containers=tuple(sorted(set(chosen.containers or ()))),
        exclude=tuple(sorted(set(settings.get("exclude", ())))),
        **bounds | {key: settings[key] for key in ("files", "mean_file") if key in settings},
    )


def _reads(levels: Sequence[Settings]) -> ReadOptions:
    """Return how files are read by workers."""
    options = _merged(level.reads for level in levels)
    if "think" in options:
        options["think"] = options["think"].total_seconds()
    return ReadOptions(**options)


def _files(levels: Sequence[Settings], reads: ReadOptions | None, place: Place, complain: Complain) -> FileFilter:
    """Return which files are taken through FTS: of a list, of a folder, or of datasets that Rucio knows."""
    filters = _merged(level.files for level in levels)
    common: Any = {"pattern": filters.get("pattern", "*"), "size": filters.get("size", ANY), "reading": reads}
    for level in levels:
        files, datasets = level.files, level.datasets
        if files is not None and files.written("list"):
            if files.written("folder"):
                complain(files.at("folder"), "`files` has a list and a folder", "keep one of them")
            return FileFilter(listing=files.list_, **common)
        if files is not None and files.written("folder"):
            return FileFilter(folder=files.folder, **common)
        if datasets is not None and _selects(datasets):
            # Files are taken one by one, so a dataset's own shape does not matter unless the menu says so.
            return FileFilter(datasets=_filter(datasets, levels, files=ANY, mean_file=ANY), **common)
    if not any(level.written("files") and level.files is None for level in levels):
        complain(
            place,
            "no source files are named for it",
            "write `files: {list: sources.csv}`, `files: {folder: data}`, or `datasets: {did: ...}` of Rucio",
        )
    return FileFilter(**common)


def _refuse_keys(level: Settings, service: Service, able: Mapping[str, set[Service]], complain: Complain) -> None:
    """Complain of keys for a link or scenario whose service has no use for them; `defaults` may serve several."""
    for key, services in able.items():
        if service not in services and level.written(key) and not isinstance(level, Defaults):
            fitting = [one for one in SERVICES.values() if one in services]
            hint = f"write `through: {fitting[0].name}`, or remove `{key}`"
            complain(level.at(key), f"`{key}` is only for links through {titles(fitting)}", hint)
