"""A grid as a YAML file describes it: RSEs, links, account, datasets; the same file gives the same grid."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from dc_inject.model.errors import UsageError
from dc_inject.model.units import parse_duration, parse_rate, parse_size

Plain = dict[str, Any]  # what goes to the server's scripts as JSON


@dataclass(frozen=True)
class Dataset:
    """A dataset with the sizes of its files (bytes)."""

    scope: str
    name: str
    files: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files)


@dataclass(frozen=True)
class Rse:
    """A storage: kind is DISK or TAPE, attributes as Rucio's, quotas (bytes) by account.

    `space` is in bytes; without it Rucio does not report free space.

    `on` names a storage of the sandbox, on which its files then really lie.
    """

    name: str
    space: int | None
    kind: str = "DISK"
    attributes: Mapping[str, str] | None = None
    quotas: Mapping[str, int] | None = None
    on: str | None = None


@dataclass(frozen=True)
class Link:
    """What a link does: rate (bytes per second, shared), latency (seconds per file), failures (0 to 1)."""

    rate: float
    latency: float = 0.0
    failures: float = 0.0
    streams: int = 4  # files served at a time


@dataclass(frozen=True)
class Grid:
    """All of it."""

    seed: int
    account: str
    quota: int
    scopes: tuple[str, ...]
    rses: tuple[Rse, ...]
    default_link: Link
    links: Mapping[tuple[str, str], Link]
    datasets: Mapping[str, tuple[Dataset, ...]]  # by source RSE


def read_grid(file: Path | None = None) -> Grid:
    """Read a grid file, by default the built-in one. Raises UsageError with what is wrong and where."""
    text = (files("dc_inject.sandbox") / "grid.yaml").read_text() if file is None else _text(file)
    name = str(file or "grid.yaml")
    try:
        return _grid(yaml.safe_load(text))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            f"{name} is not a grid: {problem}", "docs/reference/sandbox.md describes the file"
        ) from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the grid {file} cannot be read: {error}") from error


def _grid(raw: Plain) -> Grid:
    if not isinstance(raw, dict):
        kind = "empty" if raw is None else f"a {type(raw).__name__}"
        raise ValueError(f"the file is {kind}, not a mapping")  # noqa: TRY004 (as all others here)
    seed = int(raw["seed"])
    rses = tuple(_rse(name, text) for name, text in raw["rses"].items())
    names = {rse.name for rse in rses}
    default = _link(raw["default_link"], Link(rate=0))
    links = {_pair(key, names): _link(text, default) for key, text in raw.get("links", {}).items()}
    datasets: dict[str, tuple[Dataset, ...]] = {}
    for block in raw.get("datasets", []):
        for source in block["sources"]:
            if source not in names:
                raise ValueError(f"datasets at {source}, which is not among the rses")
            datasets[source] = datasets.get(source, ()) + make_datasets(
                source,
                int(block["count"]),
                scope=str(block["scope"]),
                files=_span(block["files"], int),
                file_size=_span(block["file_size"], parse_size),
                seed=seed,
                label=str(block.get("label", "")),
            )
    account = raw["account"]
    return Grid(
        seed,
        str(account["name"]),
        parse_size(account["quota"]),
        tuple(map(str, raw["scopes"])),
        rses,
        default,
        links,
        datasets,
    )


def _rse(name: str, raw: Plain) -> Rse:
    own_keys = {"space", "type"}
    site = name.removesuffix("_Disk").removesuffix("_Tape")
    attributes = {"site": site, **{key: str(value) for key, value in raw.items() if key not in own_keys}}
    return Rse(str(name), parse_size(raw["space"]), str(raw.get("type", "DISK")), attributes)


def _link(raw: Plain, default: Link) -> Link:
    failures = float(raw.get("failures", default.failures))
    if not 0 <= failures <= 1:
        raise ValueError(f"failures is {failures}, but a probability is from 0 to 1")
    return Link(
        parse_rate(raw["rate"]) if "rate" in raw else default.rate,
        parse_duration(raw["latency"]).total_seconds() if "latency" in raw else default.latency,
        failures,
        int(raw.get("streams", default.streams)),
    )


def _pair(key: str, names: set[str]) -> tuple[str, str]:
    source, _, destination = key.partition(":")
    if source not in names or destination not in names:
        raise ValueError(f"link {key}: a link is source:destination, both among the rses")
    return source, destination


def _span(text: object, parse: Callable[[str], int]) -> tuple[int, int]:
    low, _, high = str(text).partition("..")
    return parse(low), parse(high or low)


def make_datasets(
    source: str,
    count: int,
    *,
    scope: str = "cms",
    files: tuple[int, int] = (5, 20),
    file_size: tuple[int, int] = (1_000_000_000, 4_000_000_000),
    seed: int | str = 0,
    label: str = "",
) -> tuple[Dataset, ...]:
    """Make datasets whose numbers of files and mean sizes spread evenly over the given spans.

    Five of six have the name of a CMS block, the others a plain one. A label keeps the names of several
    calls apart.
    """
    dice = random.Random(f"{seed} {source} {label}")  # noqa: S311 (a grid is no secret)
    made = []
    for number in range(count):
        mean = dice.randint(*file_size)
        sizes = tuple(
            min(file_size[1], max(file_size[0], round(mean * dice.uniform(0.8, 1.2))))
            for _ in range(dice.randint(*files))
        )
        tag = f"{source}{label}"
        if number % 6 == 5:
            name = f"dc.{tag}.plain.{number:05d}"
        else:
            block = uuid.UUID(int=dice.getrandbits(128), version=4)
            name = f"/Primary{'ABCDE'[number % 6]}_{tag}/Run2024-v1/RAW#{block}"
        made.append(Dataset(scope, name, sizes))
    return tuple(made)


def link_plain(link: Link) -> Plain:
    """Write a link for the daemons, in bytes per second and seconds."""
    return {"rate": link.rate, "latency": link.latency, "failures": link.failures, "streams": link.streams}
