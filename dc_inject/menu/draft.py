"""Reading a menu: text becomes a draft, and a draft becomes a Menu once its RSE expressions are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from dc_inject.menu import checks, terms, values
from dc_inject.menu.endpoints import EndpointResolver
from dc_inject.menu.includes import Load, Reading
from dc_inject.menu.nodes import Map, Text
from dc_inject.menu.schema import Document, validate
from dc_inject.menu.shares_and_meshes import FlowWriter, check_twice
from dc_inject.menu.validation import is_from_the_future
from dc_inject.model import Exclusion, Limits, Menu, RseSpec, Site
from dc_inject.model.errors import MenuError

DEFAULT_CYCLE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class MenuDraft:
    """A menu in which everything is right that can be told without asking a service.

    `text` is what was read, `digest` the SHA-256 of it and of all files that it brings in. `expressions` are the
    RSE expressions that somebody has to resolve: (through, expression). In `preview` each of them stands for
    itself, as if it were one RSE; without expressions the preview is the menu.
    """

    name: str
    text: str
    digest: str
    expressions: tuple[tuple[str, str], ...]
    preview: Menu
    document: Document

    @property
    def campaign(self) -> str:
        """The campaign that it belongs to."""
        return self.preview.campaign

    @property
    def services(self) -> frozenset[str]:
        """The services that its links go through."""
        return frozenset(flow.link.through for flow in self.preview.flows)

    def resolve(self, names: Mapping[str, tuple[str, ...]]) -> Menu:
        """Return the menu with the RSEs that its expressions mean; raises MenuError with every problem."""
        if not self.expressions:
            return self.preview
        reading = Reading(self.name, None)
        menu, _ = _build(self.document, reading, self.digest, names)
        if reading.problems:
            raise MenuError(reading.problems)
        return menu


def read(text: str | bytes, name: str, load: Load | None = None) -> MenuDraft:
    """Read a menu.

    `name` is its file, as problems shall name it; `load` returns the bytes of another file (paths are put
    together from `name` and what the menu says) or raises OSError. Raises MenuError with every problem.
    """
    reading = Reading(name, load)
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    mapping = reading.document(data)
    document = None
    if mapping is not None and not is_from_the_future(mapping, "menu", reading):
        _take_zone(mapping, reading)
        document = validate(mapping, reading)
    if document is None:
        raise MenuError(reading.problems)
    menu, expressions = _build(document, reading, reading.digest, None)
    if reading.problems:
        raise MenuError(reading.problems)
    return MenuDraft(name, data.decode("utf-8-sig"), reading.digest, expressions, menu, document)


def names_of_sites(data: bytes, name: str, load: Load | None = None) -> frozenset[str]:
    """Return the sites of a part of a menu, with their RSEs and URL prefixes: whatever may be an end there.

    Raises MenuError with every problem.
    """
    reading = Reading(name, load)
    root = reading.document(data)
    sites = None if root is None else root.get("sites")
    if root is not None and (not isinstance(sites, Map) or not sites):
        reading.complain(root.place, "there are no sites", "write `sites: {KIT: {rses: {T1_DE_KIT_Disk: {}}}}`")
    if reading.problems or not isinstance(sites, Map):
        raise MenuError(reading.problems)
    rses = (site.get("rses") for site in sites.values() if isinstance(site, Map))
    return frozenset({*sites, *(rse for one in rses if isinstance(one, Map) for rse in one)})


def _take_zone(mapping: Map, reading: Reading) -> None:
    """Let times be read in the menu's zone; one that is not known is complained of by the schema."""
    given = mapping.get("timezone")
    if isinstance(given, Text):
        try:
            reading.zone = values.zone(given.strip())
        except values.WrongError:
            return


def _build(
    document: Document, reading: Reading, digest: str, names: Mapping[str, tuple[str, ...]] | None
) -> tuple[Menu, tuple[tuple[str, str], ...]]:
    """Write a menu out and check it; it can be used only if the reading has no problem."""
    endpoints = EndpointResolver(document, names, reading.complain)
    writer = FlowWriter(document, endpoints, reading.complain)
    written = writer.flows()
    start, end = terms.window(document)
    cycle = document.defaults.cycle if document.defaults else None
    menu = Menu(
        name=reading.name,
        digest=digest,
        campaign=document.campaign or "",
        contact=document.contact or "",
        start=start,
        end=end,
        flows=written,
        description=document.description,
        timezone=document.timezone,
        target=document.target,
        target_line=document.at("target").line if document.target is not None else 0,
        cycle=cycle or DEFAULT_CYCLE,
        limits=_limits(document),
        sites=_sites(document),
        exclusions=_exclusions(document),
        above_production=document.above_production,
        tape_agreed=writer.tape_agreed,
        accept=frozenset(document.accept),
        endpoint=(document.fts.endpoint or "") if document.fts else "",
    )
    check_twice(written, reading.complain)
    open_ends = names is None and bool(endpoints.expressions)
    checks.check(document, menu, reading.complain, whole=not reading.problems, open_ends=open_ends)
    return menu, tuple(endpoints.expressions)


def _limits(document: Document) -> Limits:
    given = document.limits.model_dump(exclude_none=True) if document.limits else {}
    return Limits(**given)


def _sites(document: Document) -> tuple[Site, ...]:
    return tuple(
        Site(
            name=name,
            wan=site.wan,
            max_ingress=site.max_ingress,
            max_egress=site.max_egress,
            rses={rse: RseSpec(spec.space, spec.deletion_lag or timedelta(0)) for rse, spec in site.rses.items()},
        )
        for name, site in document.sites.items()
    )


def _exclusions(document: Document) -> tuple[Exclusion, ...]:
    return tuple(
        Exclusion(
            start=entry.from_,
            end=entry.to,
            reason=entry.reason or "",
            site=entry.site or "",
            rse=entry.rse or "",
            link=entry.link or "",
            scenario=entry.scenario or "",
            redistribute=entry.redistribute,
            file=entry.place.file,
            line=entry.place.line,
        )
        for entry in document.exclude
        if entry.from_ is not None and entry.to is not None
    )
