"""What may stand in a grid file: a class for each of its mappings, with the bounds of each value.

`docs/reference/grids.md` explains it, and `grid_file.py` reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator

from dc_inject.apps.twin.grid import description as g
from dc_inject.menu import fields as f
from dc_inject.menu import values
from dc_inject.menu.nodes import Node, Text
from dc_inject.menu.validation import MenuModel
from dc_inject.menu.values import WrongError
from dc_inject.model import units, urls
from dc_inject.model.items import LARGEST_FILE

LONGEST = timedelta(days=365)
MOST_DATASETS = 100_000  # of one source
LONGEST_REASON = 500  # characters
T = TypeVar("T")


def _of(read: Callable[[str], T], like: str) -> Any:  # noqa: ANN401  as pydantic has it
    """Return what reads one text; `like` is an example for hints."""

    def validate(value: Node) -> T:
        if not isinstance(value, Text):
            raise WrongError("one value is expected here", f"write one, such as {like}", value.place)
        return read(value.strip())

    return PlainValidator(validate)


def _seconds(like: str, least: timedelta = timedelta(0), called: str = "") -> Any:  # noqa: ANN401  as pydantic has it
    """Return what reads a duration, into seconds: from `least`, which messages call so, to a year."""

    def read(text: str) -> float:
        duration = units.parse_duration(text)
        if duration > LONGEST:
            raise WrongError(f"{text!r} is longer than a year", "write a shorter duration")
        if duration < least:
            raise WrongError(f"{text!r} is shorter than {called}", f"write a longer duration, such as {like}")
        return duration.total_seconds()

    return _of(read, like)


def _number(least: float, most: int, like: str) -> Any:  # noqa: ANN401  as pydantic has it
    """Return what reads a number between two others, both inclusive."""

    def read(text: str) -> float:
        value = values.share(text)
        if not least <= value <= most:
            raise WrongError(f"{text!r} is not from {least} to {most}", f"write a number such as {like}")
        return value

    return _of(read, like)


def _rate(text: str) -> float:
    value = values.rate(text)
    if value < units.parse_rate("1 b/s"):
        raise WrongError(
            f"{text!r} is below 1 b/s", "write a higher rate, or let a trouble of `capacity` cut it off"
        )
    return value


def _file_size(text: str) -> tuple[int, int]:
    smallest, largest = values.sizes(text)
    if not 1 <= smallest <= largest <= LARGEST_FILE:
        what = f"{text!r} is not within 1 B to {units.format_size(LARGEST_FILE)}"
        raise WrongError(what, "write bounds such as 1..5 GB")
    return smallest, largest


def _pattern(text: str) -> str:
    source, colon, destination = text.partition(":")
    if not colon or not source or not destination:
        raise WrongError(f"{values.shown(text)!r} is no link", "write SOURCE:DESTINATION; either may be `*`")
    return text


def _host(text: str) -> str:
    host = urls.host_of(f"davs://{text.lower()}")
    if host != text.lower():
        raise WrongError(f"{values.shown(text)!r} is no host", "write the host alone, such as se.example.org")
    return host


Host = Annotated[str, _of(_host, "se.example.org")]
Seconds = Annotated[float, _seconds("30 min")]
Interval = Annotated[float, _seconds("1 min", timedelta(seconds=1), "a second")]
Deleting = Annotated[float, _seconds("0.3 s", timedelta(milliseconds=1), "a millisecond")]
Rate = Annotated[float, _of(_rate, "10 Gb/s")]
Times = Annotated[float, _number(1, 10_000, "20")]
Weight = Annotated[float, _number(0.001, 1_000_000, "0.3")]
Operations = Annotated[float, _number(0.1, 1_000_000, "200")]
FileSize = Annotated[tuple[int, int], _of(_file_size, "3..6 GB")]
Actives = Annotated[tuple[int, int], _of(partial(values.counts, least=1, most=10_000), "2..130")]
Files = Annotated[tuple[int, int], _of(partial(values.counts, least=1, most=100_000), "10..100")]
Pattern = Annotated[str, _of(_pattern, "T2_CH_CERN:T1_DE_KIT_Disk")]
Name = Annotated[str, _of(str, "T2_CH_CERN")]
Number = Annotated[int, Field(ge=0, le=1_000_000)]
Reason = Annotated[str, _of(partial(values.line, longest=LONGEST_REASON), '"an outage"')]


class LinkEntry(MenuModel):
    """How a link behaves."""

    rate: Rate | None = Field(None, description="The most it carries")
    file_speed: Rate | None = Field(None, description="The most of one transfer")
    overhead: Seconds | None = Field(None, description="The time of a transfer in which it moves no bytes")
    failures: f.Fraction | None = Field(None, description="Part of the attempts that fails")
    actives: Actives | None = Field(None, description="The range of FTS's optimizer on this link")
    highest_measured: Rate | None = Field(None, description="The most that it was seen to carry")


class Deletion(MenuModel):
    """How a storage's files are deleted."""

    seconds_per_file: Deleting | None = None
    parallel: f.Count | None = Field(None, description="Deletions at a time")
    lag: Seconds | None = Field(None, description="From the end of a rule to the first deletion")


class StorageEntry(MenuModel):
    """A storage."""

    host: Host | None = Field(None, description="The host of its URLs, as menus through FTS have them")
    space: f.Size | None = Field(None, description="What is free at the beginning")
    read: Rate | None = None
    write: Rate | None = None
    connections: f.Count | None = Field(None, description="Transfers in and out up to which it works well")
    overload: g.Overload | None = Field(None, description="What it does beyond: slows or fails")
    fts_in: Number | None = Field(None, description="FTS's limit of transfers to it")
    fts_out: Number | None = Field(None, description="FTS's limit of transfers from it")
    deletion: Deletion | None = None


class SiteEntry(MenuModel):
    """A site with its storages."""

    wan: Rate | None = Field(None, description="Each direction")
    wan_in: Rate | None = Field(None, description="Into it, where that differs")
    wan_out: Rate | None = Field(None, description="Out of it, where that differs")
    storages: dict[f.EndName, StorageEntry] = Field({})


class Defaults(MenuModel):
    """The values of links and storages that have none of their own."""

    link: LinkEntry | None = None
    storage: StorageEntry | None = None


class PathEntry(MenuModel):
    """A part of the network that links share."""

    rate: Rate | None = Field()
    links: tuple[Pattern, ...] | None = Field()


class FtsEntry(MenuModel):
    """FTS."""

    actives: Actives | None = Field(None, description="The optimizer's range on a link")
    per_storage: f.Count | None = Field(None, description="Transfers at a storage, each direction")
    mode: g.Mode | None = Field(None, description="normal or conservative")
    operations: Operations | None = Field(None, description="Transfers started or cancelled in a second")
    retries: Annotated[int, Field(ge=0, le=100)] | None = Field(
        None, description="How often a file is tried again"
    )
    shares: dict[f.Activity, Weight] = Field({}, description="Weights of activities")
    named: f.Switch = Field(False, description="Whether it is asked about links through Rucio")


class RucioEntry(MenuModel):
    """Rucio's daemons."""

    submit_every: Interval | None = None
    requests: Weight | None = Field(None, description="Requests that are passed on in a second")
    poll_every: Interval | None = None
    judge_every: Interval | None = None
    rules_a_pass: f.Count | None = None
    reap_every: Interval | None = None
    reaper_chunk: f.Count | None = Field(None, description="Files of a storage in one pass of the reaper")
    usage_every: Interval | None = None
    may_end: f.Switch = Field(True, description="Whether rules may be ended before their lifetime is over")


class ProductionEntry(MenuModel):
    """Traffic of others on a link."""

    link: Pattern | None = Field()
    rate: Rate | None = Field()
    file_size: f.Amount | None = None
    activity: f.Activity | None = None
    priority: f.Priority | None = None


class TroubleEntry(MenuModel):
    """What goes wrong for a while."""

    fault: g.Fault | None = Field()
    begins: Seconds | None = Field(alias="at", description="From the beginning of the simulation")
    lasting: Interval | None = Field(alias="for")
    subject: Name = Field("", description="Of which site, storage, path or link")
    part: f.Fraction | None = Field(None, description="What is left, or what fails")
    times: Times | None = Field(None, description="How many times as long deleting takes")


class StockEntry(MenuModel):
    """Datasets at sources; their names follow the menu's patterns."""

    sources: tuple[Name, ...] | None = Field()
    count: Annotated[int, Field(ge=1, le=MOST_DATASETS)] | None = Field()
    files: Files | None = Field()
    file_size: FileSize | None = Field()


class Document(MenuModel):
    """A grid file."""

    grid: f.Version | None = Field(description="Version of the format")
    name: f.Name | None = Field()
    description: f.Prose = ""
    sources: tuple[f.Prose, ...] = Field((), description="Where its figures come from")
    fts: FtsEntry | None = None
    rucio: RucioEntry | None = None
    defaults: Defaults | None = None
    sites: Annotated[dict[f.RseName, SiteEntry], BeforeValidator(lambda sites: sites or {})] = Field()
    links: dict[Pattern, LinkEntry] = Field({})
    paths: dict[f.Name, PathEntry] = Field({})
    production: tuple[ProductionEntry, ...] = ()
    troubles: tuple[TroubleEntry, ...] = ()
    datasets: tuple[StockEntry, ...] = ()
    inconclusive: dict[Pattern, Reason] = Field({}, description="Links that it does not predict, and why")


PARTS: dict[str, type[MenuModel]] = {
    "the grid itself": Document,
    "`fts`": FtsEntry,
    "`rucio`": RucioEntry,
    "`defaults`": Defaults,
    "a site of `sites`": SiteEntry,
    "a storage of a site": StorageEntry,
    "`deletion`": Deletion,
    "a link of `links`": LinkEntry,
    "a path of `paths`": PathEntry,
    "an entry of `production`": ProductionEntry,
    "an entry of `troubles`": TroubleEntry,
    "an entry of `datasets`": StockEntry,
}
