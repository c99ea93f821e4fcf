"""Reading a menu: text becomes a draft, and a draft becomes a Menu once its RSE expressions are resolved."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from dc_inject.menu import addresses, checks, nodes, terms, values
from dc_inject.menu.endpoints import EndpointResolver
from dc_inject.menu.includes import Load, MenuReader, load_kept_first
from dc_inject.menu.nodes import Complain, Map, Node, Text
from dc_inject.menu.schema import Document, SiteEntry, validate
from dc_inject.menu.shares_and_meshes import FlowWriter, check_twice
from dc_inject.menu.validation import cannot_be
from dc_inject.model import Exclusion, FileFilter, Flow, Limits, Menu, Mode, RseSpec, Site, Tape, thresholds
from dc_inject.model.errors import MenuError, Problem, ServiceError
from dc_inject.model.thresholds import Threshold

DEFAULT_CYCLE = timedelta(minutes=15)
# Keys of a menu for the time when it is in force, with what belongs to them.
_HEAD = re.compile(r"^([\"']?)(?:start|end|timezone|include)\1[ \t]*:.*(?:\n(?:[ \t#-].*)?$)*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MenuDraft:
    """A menu that is right as far as can be known without asking a service.

    `text` is what was read, `digest` the SHA-256 of it and of all files that it brings in; `parts` are those
    files, unless they are large. `expressions` are the RSE expressions that still have to be resolved:
    (through, expression). In `preview` each of them stands for itself, as if it were one RSE; without expressions
    the preview is the menu. `reshape` makes another menu of the one that was written.
    """

    name: str
    text: str
    digest: str
    expressions: tuple[tuple[str, str], ...]
    preview: Menu
    document: Document
    parts: Mapping[str, bytes]
    reshape: Callable[[Menu], Menu] = lambda menu: menu

    @property
    def campaign(self) -> str:
        """The campaign that it belongs to."""
        return self.preview.campaign

    @property
    def services(self) -> frozenset[str]:
        """The services that its links go through."""
        return frozenset(flow.link.through for flow in self.preview.flows)

    def wrong(self, expression: str, error: ServiceError) -> Problem:
        """Return why an expression could not be resolved, with the place of the first link that has it."""
        places = ((flow.menu, flow.line) for flow in self.preview.flows if expression in flow.link.ends)
        return Problem(*next(places, (self.name, 0)), error.message, error.hint or "")

    def resolve(self, names: Mapping[str, tuple[str, ...]]) -> Menu:
        """Return the menu with the RSEs that its expressions mean; raises MenuError with every problem."""
        if not self.expressions:
            return self.preview
        reader = MenuReader(self.name, None)
        menu, _ = _build(self.document, reader, names)
        if reader.problems:
            raise MenuError(reader.problems)
        return self.reshape(menu)

    def reshaped(self, reshape: Callable[[Menu], Menu]) -> MenuDraft:
        """Return a draft of another menu, which `reshape` makes of this one."""
        return replace(self, preview=reshape(self.preview), reshape=reshape)


def read(text: str | bytes, name: str, load: Load | None = None) -> MenuDraft:
    """Read a menu.

    `name` is its file, as problems shall name it; `load` returns the bytes of another file (paths are put
    together from `name` and the menu's own) or raises OSError. Raises MenuError with every problem.
    """
    reader = MenuReader(name, load)
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    mapping = reader.document(data)
    document = None
    if mapping is not None and not cannot_be("menu", mapping, reader):
        _take_zone(mapping, reader)
        document = validate(mapping, reader)
    if document is None:
        raise MenuError(reader.problems)
    menu, expressions = _build(document, reader, None)
    if reader.problems:
        raise MenuError(reader.problems)
    return MenuDraft(name, data.decode("utf-8-sig"), reader.digest, expressions, menu, document, reader.parts)


def read_kept(text: str, name: str, digest: str, parts: Mapping[str, bytes], load: Load) -> MenuDraft:
    """Read a menu of which the text and some parts were kept; the others are loaded. Raises MenuError."""
    whole = load_kept_first(parts, load)
    draft = read(text, name, whole)  # a mark of byte order is in the digest, but not in the text
    return draft if draft.digest == digest else read("\ufeff" + text, name, whole)


def one_campaign(drafts: Sequence[MenuDraft]) -> str:
    """Return the campaign that all menus name; raises MenuError when they name several."""
    names = sorted({draft.campaign for draft in drafts})
    if len(names) != 1:
        message = f"these menus belong to several campaigns: {', '.join(names)}"
        raise MenuError([Problem(drafts[0].name, 0, message, "use menus of one campaign")])
    return names[0]


def endpoint_of(drafts: Iterable[MenuDraft]) -> str:
    """Return the address of FTS that menus name, if any does."""
    return next((draft.preview.endpoint for draft in drafts if draft.preview.endpoint), "")


def names_of_sites(data: bytes, name: str, load: Load | None = None) -> frozenset[str]:
    """Return the sites of a part of a menu, with their RSEs and URL prefixes: whatever may be an end there.

    Raises MenuError with every problem.
    """
    reader = MenuReader(name, load)
    root = reader.document(data)
    sites = None if root is None else root.get("sites")
    if root is not None and (not isinstance(sites, Map) or not sites):
        reader.complain(root.place, "there are no sites", "write `sites: {KIT: {rses: {T1_DE_KIT_Disk: {}}}}`")
    if reader.problems or not isinstance(sites, Map):
        raise MenuError(reader.problems)
    rses = (site.get("rses") for site in sites.values() if isinstance(site, Map))
    return frozenset({*sites, *(rse for of_site in rses if isinstance(of_site, Map) for rse in of_site)})


def thresholds_of(text: str) -> tuple[Threshold, ...]:
    """Return the thresholds of a menu that was read before, from its text alone."""
    given, readable = _part(text, "thresholds"), []
    for line in () if given is None else nodes.texts(given):
        with suppress(ValueError):
            readable.append(thresholds.parse(line.strip()))
    return tuple(readable)


def sites_of(text: str) -> Mapping[str, str]:
    """Return the site of each RSE and URL prefix of a menu that was read before, from its text alone."""
    given, site_of = _part(text, "sites"), {}
    for site, entry in given.items() if isinstance(given, Map) else ():
        rses = entry.get("rses") if isinstance(entry, Map) else None
        for name in rses if isinstance(rses, Map) else ():
            with suppress(ValueError):
                site_of[addresses.end_name(name)] = str(site)
    return site_of


def window_of(text: str, name: str, load: Load) -> tuple[datetime, datetime, tzinfo] | None:
    """Return when a menu that was read before starts and ends, and its zone; None if that cannot be read.

    Its head alone is read where that is enough: to compose a menu of a thousand links takes its time.
    """
    head = "".join(part[0] for part in _HEAD.finditer(text))
    return (_window_of(head, name, load) if head else None) or _window_of(text, name, load)


def _window_of(text: str, name: str, load: Load) -> tuple[datetime, datetime, tzinfo] | None:
    if "start" not in text and "include" not in text:
        return None
    reader = MenuReader(name, load)
    mapping = reader.document(text.encode(errors="surrogatepass"))
    if mapping is None:
        return None
    _take_zone(mapping, reader)
    with suppress(ValueError):
        start, end = (values.moment(str(mapping.get(key, "")), reader.zone) for key in ("start", "end"))
        return start, end, reader.zone
    return None


def _part(text: str, key: str) -> Node | None:
    """Return what stands at a key of a menu, without its includes."""
    if key not in text:
        return None  # to compose a menu of a thousand links takes its time
    root = nodes.compose(text.encode(errors="surrogatepass"), "", lambda *_: None)
    return None if root is None else root.get(key)


def _take_zone(mapping: Map, reader: MenuReader) -> None:
    """Let times be read in the menu's zone; one that is not known is complained of by the schema."""
    given = mapping.get("timezone")
    if isinstance(given, Text):
        try:
            reader.zone = values.zone(given.strip())
        except values.WrongError:
            return


def _build(
    document: Document, reader: MenuReader, names: Mapping[str, tuple[str, ...]] | None
) -> tuple[Menu, tuple[tuple[str, str], ...]]:
    """Write a menu out and check it; it can be used only if the reader has no problem."""
    endpoints = EndpointResolver(document, names, reader.complain)
    writer = FlowWriter(document, endpoints, reader.complain)
    written = writer.flows()
    sites = _sites(document, writer.tape_agreed, reader.complain)
    if tapes := frozenset[str]().union(*(site.tape.ends for site in sites if site.tape)):
        written = tuple(_with_tape(flow, tapes) for flow in written)
    start, end = terms.window(document)
    cycle = document.defaults.cycle if document.defaults else None
    menu = Menu(
        name=reader.name,
        campaign=document.campaign or "",
        contact=document.contact or "",
        start=start,
        end=end,
        flows=written,
        timezone=document.timezone,
        target=document.target,
        target_line=document.at("target").line if document.target is not None else 0,
        cycle=cycle or DEFAULT_CYCLE,
        limits=_limits(document),
        sites=sites,
        exclusions=_exclusions(document),
        tape_agreed=writer.tape_agreed,
        accept=frozenset(document.accept),
        endpoint=(document.fts.endpoint or "") if document.fts else "",
    )
    check_twice(written, reader.complain)
    open_ends = names is None and bool(endpoints.expressions)
    checks.check(document, menu, reader.complain, whole=not reader.problems, open_ends=open_ends)
    return menu, tuple(endpoints.expressions)


def _limits(document: Document) -> Limits:
    limits = document.limits.model_dump(exclude_none=True) if document.limits else {}
    return Limits(**limits)


def _with_tape(flow: Flow, tapes: Collection[str]) -> Flow:
    """Return a flow whose ends may be tape.

    Control is off where the source is: its windows keep queues short, and a tape system needs long ones, in which
    it finds files of the same cartridge. What is in flight is bounded by the buffer.
    """
    recalls, archives = (end in tapes for end in flow.link.ends)
    if flow.job is not None:
        flow = replace(flow, job=replace(flow.job, recalls=recalls, archives=archives))
    if recalls and isinstance(flow.datasets, FileFilter):
        flow = replace(flow, datasets=replace(flow.datasets, recalls=True))
    return replace(flow, control=replace(flow.control, mode=Mode.OFF)) if recalls else flow


def _tape(site: SiteEntry, agreed: Container[str], complain: Complain) -> Tape | None:
    if site.tape is None:
        return None
    ends = frozenset(rse for rse in site.rses if rse in agreed)
    if not ends:
        hint = "list the RSE under the site's `rses`, and name it and who agreed in the menu's `tape`"
        complain(site.tape.place, "`tape`: none of the site's RSEs is tape", hint)
    return Tape((site.tape.drives or 0) * (site.tape.rate or 0.0), site.tape.buffer or 0, ends)


def _sites(document: Document, agreed: Container[str], complain: Complain) -> tuple[Site, ...]:
    return tuple(
        Site(
            name=name,
            wan=site.wan,
            max_ingress=site.max_ingress,
            max_egress=site.max_egress,
            rses={rse: RseSpec(spec.space, spec.deletion_lag or timedelta(0)) for rse, spec in site.rses.items()},
            tape=_tape(site, agreed, complain),
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
