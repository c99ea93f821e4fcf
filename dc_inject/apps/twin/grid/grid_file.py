"""Grid files: YAML that describes what the twin simulates. Every problem is reported with its place and a hint.

They are read as menus are: each scalar as text, each with its unit, unknown keys refused, everything bounded. What
may stand in one is in `grid_entries.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from dc_inject.apps.twin.grid import description as g
from dc_inject.apps.twin.grid.grid_entries import (
    MOST_DATASETS,
    PARTS,
    Defaults,
    Document,
    LinkEntry,
    ProductionEntry,
    StorageEntry,
    TroubleEntry,
)
from dc_inject.menu import nodes, values
from dc_inject.menu.includes import MenuReader
from dc_inject.menu.nodes import Map
from dc_inject.menu.validation import MenuModel, cannot_be, validated
from dc_inject.model import units
from dc_inject.model.errors import MenuError

MOST = {
    "sites": 1000,
    "links": 20_000,
    "paths": 1000,
    "production": 5000,
    "troubles": 1000,
    "datasets": 1000,
    "inconclusive": 20_000,
}
MOST_ARRIVALS = 10_000  # files of a stream of production in a second


def read(data: bytes, name: str) -> g.Grid:
    """Read a grid file; raises MenuError with every problem and its place."""
    reader = MenuReader(name, None)
    root = nodes.compose(data, name, reader.complain, "grid: 1")
    document = None
    if root is not None and not cannot_be("grid", root, reader):
        _bound(root, reader)
        document = validated(Document, root, reader, PARTS)
    if document is not None and not reader.problems:
        _check(document, reader)
        _check_measured(document, reader)
        made = None if reader.problems else _made(document)
        if made is not None:
            _check_capacities(document, made, reader)
            _check_amounts(document, made, reader)
        if made is not None and not reader.problems:
            return made
    raise MenuError(reader.problems)


def _bound(root: Map, reader: MenuReader) -> None:
    """Complain of lists and mappings that are larger than any grid."""
    for key, most in MOST.items():
        node = root.get(key)
        if isinstance(node, Map | nodes.Seq) and len(node) > most:
            reader.complain(node.place, f"`{key}` has {len(node)} entries", f"at most {most}")


def _made(document: Document) -> g.Grid:
    """Return the grid of a file without problems; what it leaves out has the values of `grid.py`."""
    defaults = document.defaults or Defaults.model_construct()
    sites, storages = {}, {}
    for name, site in document.sites.items():
        sites[name] = g.Site(name, site.wan_in or site.wan, site.wan_out or site.wan)
        for storage, entry in site.storages.items():
            storages[storage] = _storage(storage, name, entry, defaults.storage or StorageEntry.model_construct())
    base = _traits(defaults.link or LinkEntry.model_construct(), g.LinkTraits())
    return g.Grid(
        name=document.name or "",
        sites=sites,
        storages=storages,
        links={pattern: _traits(entry, base) for pattern, entry in document.links.items()},
        default_link=base,
        paths=tuple(g.Path(name, path.rate or 0.0, path.links or ()) for name, path in document.paths.items()),
        fts=g.Fts(**_given(document.fts)),
        rucio=g.Rucio(**_given(document.rucio)),
        production=tuple(_production(entry) for entry in document.production),
        troubles=tuple(_trouble(entry) for entry in document.troubles),
        stocks=tuple(g.Stock(**_given(entry)) for entry in document.datasets),
        inconclusive=document.inconclusive,
    )


def _given(entry: MenuModel | None) -> dict[str, Any]:
    """Return the values of an entry, by the names of its fields."""
    return entry.model_dump(exclude_unset=True, exclude_none=True) if entry is not None else {}


def _traits(entry: LinkEntry, base: g.LinkTraits) -> g.LinkTraits:
    given = _given(entry)
    return g.LinkTraits(**{name: given.get(name, getattr(base, name)) for name in LinkEntry.model_fields})


def _storage(name: str, site: str, entry: StorageEntry, base: StorageEntry) -> g.Storage:
    deletion = {**_given(base.deletion), **_given(entry.deletion)}
    given = {**_given(base), **_given(entry)}
    given.pop("deletion", None)
    words = {"seconds_per_file": "delete_seconds", "parallel": "deleting", "lag": "delete_lag"}
    return g.Storage(name, site, **given, **{words[key]: value for key, value in deletion.items()})


def _production(entry: ProductionEntry) -> g.Production:
    given = _given(entry)
    source, _, destination = given.pop("link").partition(":")
    return g.Production(source, destination, **given)


def _trouble(entry: TroubleEntry) -> g.Trouble:
    given = _given(entry)
    part = given.pop("times", None) or given.pop("part", 0.0)
    return g.Trouble(given.pop("fault"), given.pop("begins"), given.pop("lasting"), part=part, **given)


# --------------------------------------------------------------------------- what has to fit together


def _check(document: Document, reader: MenuReader) -> None:
    """Complain of names that nothing has, and of empty entries."""
    seen, hosts = dict[str, str](), dict[str, str]()
    for name, site in document.sites.items():
        for storage, described in site.storages.items():
            host = described.host
            if host and hosts.setdefault(host, storage) != storage:
                reader.complain(described.at("host"), f"{host} is {hosts[host]} already", "keep one of them")
            if storage in seen:
                what = f"{storage} is at {seen[storage]} already"
                reader.complain(site.at("storages"), what, "keep one of them")
            seen[storage] = name
    if not seen:
        reader.complain(document.at("sites"), "there are no storages", "write `storages: {NAME: {}}` into a site")
    _check_links(document, seen, reader)
    until: dict[tuple[g.Fault | None, str], float] = {}
    for trouble in sorted(document.troubles, key=lambda trouble: trouble.begins or 0.0):
        _check_trouble(trouble, document, set(seen), reader)
        begins, key = trouble.begins or 0.0, (trouble.fault, trouble.subject)
        if begins < until.get(key, 0.0):
            reader.complain(trouble.place, f"{trouble.fault} is on already then", "make one of both")
        until[key] = max(until.get(key, 0.0), begins + (trouble.lasting or 0.0))


def _check_links(document: Document, seen: Collection[str], reader: MenuReader) -> None:
    """Complain of links whose ends are no storages, or one, and of streams that are on no single link."""
    for place, name in _named(document):
        if name not in {"*", *seen}:
            reader.complain(place, f"no storage is called {values.shown(name)}", units.did_you_mean(name, seen))
    for place, pattern in _patterns(document):
        source, colon, destination = pattern.partition(":")
        if colon and source == destination in seen:
            message = f"{values.shown(pattern)!r} begins and ends at one storage"
            reader.complain(place, message, "name two storages that differ, or remove it")
    for entry in document.production:
        if entry.link and "*" in entry.link:
            reader.complain(entry.at("link"), "`*` names no link", "write one entry for each link")


def _check_measured(document: Document, reader: MenuReader) -> None:
    """Complain of links that were measured above their rate."""
    for link in document.links.values():
        if link.rate is not None and (link.highest_measured or 0.0) > link.rate:
            what = "`highest_measured`: it is above the `rate` of the link"
            reader.complain(link.at("highest_measured"), what, "raise `rate`, or lower what was measured")


def _check_amounts(document: Document, made: g.Grid, reader: MenuReader) -> None:
    """Complain of figures that are right alone, and not together."""
    entry, every = document.rucio, made.rucio.submit_every
    if entry is not None and made.rucio.requests * every < 1:
        what = f"`requests`: less than one in each `submit_every` ({every:g} s), so none is passed on"
        reader.complain(entry.at("requests"), what, "raise one of the two")
    for stream, traffic in zip(document.production, made.production, strict=True):
        arriving = traffic.rate / traffic.file_size
        if arriving > MOST_ARRIVALS:
            what = f"`rate`: it makes {arriving:.0f} files a second, and at most {MOST_ARRIVALS} are simulated"
            reader.complain(stream.at("rate"), what, "lower the rate, or write a larger `file_size`")
    held: Counter[str] = Counter()
    for stock in document.datasets:
        sources = made.storages if "*" in (stock.sources or ()) else stock.sources or ()
        held.update(dict.fromkeys(sources, stock.count or 0))
        largest, count = held.most_common(1)[0]
        if count > MOST_DATASETS:
            reader.complain(
                stock.at("count"), f"`count`: {largest} has more than {MOST_DATASETS} datasets", "write fewer"
            )
            return


def _check_capacities(document: Document, made: g.Grid, reader: MenuReader) -> None:
    """Complain of a trouble with the capacity of what has no limit."""
    limited = {path.name for path in made.paths}
    limited |= {site.name for site in made.sites.values() if site.wan_in or site.wan_out}
    limited |= {storage.name for storage in made.storages.values() if storage.read or storage.write}
    for trouble in document.troubles:
        subject = trouble.subject
        source, colon, destination = subject.partition(":")
        has_rate = made.traits(source, destination).rate if colon else subject in limited
        if trouble.fault is g.Fault.CAPACITY and not has_rate:
            reader.complain(trouble.at("subject"), f"{subject} has no rate to take a part of", "give it a rate")


def _named(document: Document) -> Iterator[tuple[nodes.Place, str]]:
    """Yield every name of a storage in whatever names links or sources, with its place."""
    for place, pattern in _patterns(document):
        for end in pattern.split(":", 1):
            yield place, end
    for stock in document.datasets:
        for source in stock.sources or ():
            yield stock.at("sources"), source


def _patterns(document: Document) -> list[tuple[nodes.Place, str]]:
    """Return everything that names links, with its place."""
    patterns = [(key.place, str(key)) for of in ("links", "inconclusive") for key in document.keys_in(of)]
    patterns += [(path.at("links"), pattern) for path in document.paths.values() for pattern in path.links or ()]
    return patterns + [(entry.at("link"), entry.link or "*") for entry in document.production]


def _check_trouble(trouble: TroubleEntry, document: Document, storages: set[str], reader: MenuReader) -> None:
    """Complain of a trouble whose subject does not fit its fault, or that lacks how much."""
    fault, subject = trouble.fault, trouble.subject
    names = storages
    if fault is g.Fault.CAPACITY:
        names = {*storages, *document.sites, *document.paths}
        if ":" in subject and {*subject.split(":", 1)} <= storages:
            names.add(subject)
    elif fault in {g.Fault.RUCIO_DOWN, g.Fault.FTS_DOWN}:
        names = {""}
    elif fault is g.Fault.FAILURES:
        names = {"", *storages}  # nothing: all of them
    if subject not in names:
        what = f"{fault} of {values.shown(subject)!r}" if subject else f"{fault} of what"
        hint = "remove `subject`" if names == {""} else units.did_you_mean(subject, names - {""})
        reader.complain(trouble.at("subject"), f"{what} is not known", hint)
    wanted = "times" if fault is g.Fault.DELETION else ""
    if fault in {g.Fault.CAPACITY, g.Fault.FAILURES}:
        wanted = "part"
    for key in ("part", "times"):
        if key == wanted and not trouble.written(key):
            reader.complain(trouble.place, f"{fault} needs `{key}`", f"add `{key}: ...`")
        elif key != wanted and trouble.written(key):
            reader.complain(trouble.at(key), f"`{key}` means nothing to {fault}", "remove it")
