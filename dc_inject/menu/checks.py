"""Checks of a menu beyond the form of its values, and of the menus of a campaign together; findings are errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from dc_inject.menu import addresses, second_hops, source_lists
from dc_inject.menu.nodes import Complain, Place, Text
from dc_inject.menu.schema import Document, ExcludeEntry
from dc_inject.model import (
    Campaign,
    FileFilter,
    Flow,
    FlowKey,
    Listing,
    Menu,
    naming,
    rates,
    thresholds,
    units,
    urls,
)
from dc_inject.model.errors import MenuError, Problem
from dc_inject.model.groups import grouped
from dc_inject.model.thresholds import Threshold


def check(document: Document, menu: Menu, complain: Complain, *, whole: bool, open_ends: bool) -> None:
    """Complain of what cannot work; `whole` if all rates are known, `open_ends` if some RSEs are not yet."""
    if document.names("scenarios") == frozenset():
        complain(document.at("scenarios"), "there is no scenario", "name one under `scenarios`")
    if document.start and document.end and document.end <= document.start:
        complain(document.at("end"), "the menu ends before it starts", "`end` is later than `start`")
    _sites(document, complain)
    _wan(menu, complain)
    _listings(menu, complain)
    _reads(menu, complain)
    copies_apart(menu.flows, complain)
    for exclusion in document.exclude:
        _exclusion(document, exclusion, menu, complain, open_ends=open_ends)
    _thresholds(document, menu, complain, open_ends=open_ends)
    _written_once(document.keys_in("tape"), complain)
    for site in document.sites.values():
        _written_once(site.keys_in("rses"), complain)
    if whole:
        place = document.limits.at("total") if document.limits else document.place
        over_total([menu], complain, place)


def _sites(document: Document, complain: Complain) -> None:
    """One RSE belongs to one site."""
    site_of: dict[str, str] = {}
    for name, site in document.sites.items():
        for rse in site.rses:
            if rse in site_of:
                message = f"{rse} is in two sites, {site_of[rse]} and {name}"
                complain(site.rses[rse].place, message, "list it under one site")
            site_of[rse] = name


def _written_once(names: Iterable[Text], complain: Complain) -> None:
    """Two spellings of one URL are one name."""
    first: dict[str, Text] = {}
    for name in names:
        try:
            other = first.setdefault(addresses.end_name(name), name)
        except ValueError:
            continue  # complained of as a name
        if other is not name:
            message = f"{addresses.end_name(name)} appears twice, first in line {other.place.line}"
            complain(name.place, message, "keep one of them")


def _thresholds(document: Document, menu: Menu, complain: Complain, *, open_ends: bool) -> None:
    """A threshold is about links that there are; and it stands in the menu, whose text the ledger keeps."""
    scenarios = document.names("scenarios")
    for text, threshold in zip(document.texts("thresholds"), document.thresholds, strict=False):
        scenario = dict(threshold.labels).get("scenario")
        if scenario is not None and scenarios is not None and scenario not in scenarios:
            complain(text.place, f"no scenario {scenario} in this menu", units.did_you_mean(scenario, scenarios))
        elif menu.flows and not open_ends:
            _threshold_links(threshold, menu, lambda *words, at=text.place: complain(at, *words))
        if text.place.file != menu.name:
            hint = f"move it to {menu.name}: the ledger keeps the text of menus, not that of their includes"
            complain(text.place, "a threshold stands in an included file", hint)


def _threshold_links(threshold: Threshold, menu: Menu, complain: Callable[[str, str], None]) -> None:
    """Complain of the first label that matches no link, or of labels that match none together."""
    for label, name in threshold.labels:
        names = {each for flow in menu.flows for each in thresholds.LABELS[label](flow.key)}
        if name not in names:
            rses = next((site.rses for site in menu.sites if site.name == name), ())
            hint = f"{name} is a site: name its RSE, {units.some(rses)}" if rses else ""
            return complain(
                f"no link of this menu has the {label} {name}", hint or units.did_you_mean(name, names)
            )
    if not any(threshold.matches(flow.key) for flow in menu.flows):
        complain("no link of this menu has all these labels", "give the labels of links that there are")
    return None


def _wan(menu: Menu, complain: Complain) -> None:
    """One link cannot carry more than the WAN of its own site."""
    wans = {rse: (site.name, site.wan) for site in menu.sites for rse in site.rses if site.wan is not None}
    for flow in menu.flows:
        for rse in flow.link.ends:
            site, wan = wans.get(rse, ("", None))
            if wan is not None and rates.is_above(flow.rate, wan):
                complain(
                    Place(flow.menu, flow.line),
                    f"{flow.link.shown} has {units.format_rate(flow.rate)}, "
                    f"more than the WAN of {site}, {units.format_rate(wan)}",
                    f"lower the rate, or correct sites.{site}.wan",
                )


def _reads(menu: Menu, complain: Complain) -> None:
    """Reads go from a URL or an RSE to a site, so not back, nor on; the files of an RSE are those of datasets."""
    for flow in menu.flows:
        source, destination, _ = flow.link
        place, title = Place(flow.menu, flow.line), flow.link.service.title
        if flow.link.service.reads and urls.is_url(destination):
            message = f"{flow.link.shown}: {title} go from a URL or an RSE to the site of the workers"
            hint = "such as from: root://se.example.org//dc27, to: T2_DE_DESY; without mesh, both_ways and then"
            complain(place, message, hint)
        elif flow.link.service.reads and not urls.is_url(source) and getattr(flow.datasets, "datasets", 0) is None:
            message = f"{flow.link.shown}: {title} from an RSE are of `datasets` that Rucio knows, not of `files`"
            complain(place, message, 'write `datasets: {did: "scope:pattern"}`, or a URL instead of the RSE')


def _listings(menu: Menu, complain: Complain) -> None:
    """A source list names files below the source of each link that it is for."""
    checked: set[tuple[Listing, str]] = set()
    for flow in menu.flows:
        listing = flow.datasets.listing if isinstance(flow.datasets, FileFilter) else None
        source = flow.link.source
        if listing is None or not listing.digest or (listing, source) in checked:
            continue
        checked.add((listing, source))
        if not source_lists.has_any_below(listing, source):
            complain(
                Place(flow.menu, flow.line),
                f"none of the {units.counted(len(listing.files), 'files')} of {listing.name} is below {source}",
                "list files of this source, by URL or by path, or correct the source",
            )


def copies_apart(flows: Iterable[Flow], complain: Complain) -> None:
    """Complain where copies would be taken for sources: they would be copied again, and vanish when deleted."""
    listed_for: dict[tuple[str, str], Flow] = {}
    destinations: dict[str, Flow] = {}
    for flow in flows:
        if isinstance(flow.datasets, FileFilter) and not flow.link.service.reads:
            destinations.setdefault(flow.link.destination, flow)
            if flow.datasets.folder is not None:
                listed_for.setdefault((flow.link.source, flow.datasets.folder), flow)
    folders = {urls.join(source, folder): flow for (source, folder), flow in listed_for.items()}
    hint = "take files from a folder that no copies go to: `files: {folder: ...}`"
    for destination, flow in destinations.items():
        listed = next((place for place in _upwards(destination) if place in folders), None)
        if listed is not None:
            message = f"copies to {destination} land in {listed}, where files are taken from"
            complain(Place(flow.menu, flow.line), message, hint)
    for folder, flow in folders.items():
        above = (
            place.removesuffix(f"/{naming.TOP}") for place in _upwards(folder) if place.endswith(f"/{naming.TOP}")
        )
        ours = next((place for place in above if place in destinations), None)
        if ours is not None:
            message = f"the files of {folder} are our own copies to {ours}, which we delete"
            complain(Place(flow.menu, flow.line), message, hint)


def _upwards(url: str) -> Iterator[str]:
    """Give a URL and all folders above it."""
    above = urls.parent(url)
    while above != url:
        yield url
        url, above = above, urls.parent(above)
    yield url


def _exclusion(
    document: Document, exclusion: ExcludeEntry, menu: Menu, complain: Complain, *, open_ends: bool
) -> None:
    if sum(map(exclusion.written, ("site", "rse", "link", "scenario"))) != 1:
        complain(
            exclusion.place, "an exclusion names one of site, rse, link and scenario", "write one entry for each"
        )
    if exclusion.from_ and exclusion.to and exclusion.to <= exclusion.from_:
        complain(exclusion.at("to"), "the exclusion ends before it starts", "`to` is later than `from`")

    def check_name(key: str, names: Collection[str] | None, message: str) -> None:
        name = getattr(exclusion, key)
        if name and names is not None and name not in names:
            complain(exclusion.at(key), message.format(name), units.did_you_mean(name, names))

    check_name("site", document.names("sites"), "no site {} under `sites`")
    if exclusion.place.file != menu.name:
        return  # a list that several menus include may name what is in another one of them
    check_name("scenario", document.names("scenarios"), "no scenario {} in this menu")
    if open_ends or not menu.flows:
        return
    rses = {rse for flow in menu.flows for rse in flow.link.ends} if exclusion.rse else None
    check_name("rse", rses, "no link of this menu touches {}")
    links = {str(flow.link) for flow in menu.flows} if exclusion.link else None
    check_name("link", links, "no link {} in this menu")


def over_total(menus: Sequence[Menu], complain: Complain, place: Place | None = None) -> None:
    """Complain when rates sum to more than limits.total; several menus only where they are in force together."""
    for excess in rates.over_total(menus):
        if len(menus) == 1 or len(excess.together) > 1:
            hint = f"if that is agreed, write `limits: {{total: {units.format_rate(excess.rate)}}}`"
            complain(place or Place(excess.menu.name, 1), str(excess), hint)


COUNTABLE = 2**63 - 1  # bytes: a ledger keeps integers of 64 bits


def campaign(menus: Sequence[Menu]) -> Campaign:
    """Join menus to a campaign; raises MenuError for what does not fit together.

    They have one campaign name, one contact and one cycle length; an RSE is in the same site everywhere; a link
    is in a scenario once at one time (two menus that break this are one problem); where windows overlap, the rates
    together keep to the lowest limits.total.
    """
    if not menus:
        raise MenuError([Problem("", 0, "there is no menu", "name a menu or a folder with menus")])
    problems: list[Problem] = []

    def complain(place: Place, message: str, hint: str) -> None:
        problems.append(Problem(place.file, place.line, message, hint))

    first = menus[0]
    for menu in menus[1:]:
        here = Place(menu.name, 1)
        if menu.campaign != first.campaign:
            message = f"the campaign is {menu.campaign}, but {first.campaign} in {first.name}"
            complain(here, message, "menus that run together have one campaign; run others on their own")
            continue
        if menu.contact != first.contact:
            complain(
                here,
                f"the contact is {menu.contact}, but {first.contact} in {first.name}",
                "a campaign has one contact",
            )
        if menu.cycle != first.cycle:
            lengths = [units.format_duration(either.cycle) for either in (menu, first)]
            message = f"a cycle lasts {lengths[0]}, but {lengths[1]} in {first.name}"
            complain(here, message, "write the same `defaults: {cycle: ...}` in all menus of a campaign")
    if not problems:
        _check_sites(menus, complain)
        _check_endpoints(menus, complain)
        every = tuple(flow for menu in menus for flow in menu.flows)
        copies_apart(every, complain)
        second_hops.check_one_way(every, complain)
        if not _check_copies(menus, complain):
            over_total(menus, complain)
    if problems:
        raise MenuError(problems)
    return Campaign(first.campaign, first.contact, first.cycle, tuple(menus))


def narrowed(campaign: Campaign, links: Collection[str], scale: float = 1.0) -> Campaign:
    """Return a campaign with only these links (`SRC:DST`; none: all), and with every rate and goal times `scale`.

    A menu's `target` is that of all its links: it is scaled, too, and does not count for some of them.
    Raises MenuError for a link that no menu has, and for rates whose bytes no ledger could count.
    """
    known = {str(flow.link): urls.arrow(str(flow.link)) for flow in campaign.flows}
    unknown = set(links) - known.keys()
    if unknown:
        names = list(map(urls.arrow, sorted(unknown)))
        message = f"no menu has the link {', '.join(names)}"
        near = units.nearest(names[0], known.values())
        hint = f"did you mean {near[0]}?" if near else "write --link SOURCE:DESTINATION as in the menu"
        raise MenuError([Problem(campaign.menus[0].name, 0, message, hint)])
    if scale != 1:
        for flow in campaign.flows:
            _require_countable(flow, scale)
    menus = tuple(
        replace(
            menu,
            flows=tuple(rates.scaled(flow, scale) for flow in menu.flows if not links or str(flow.link) in links),
            target=None if links or menu.target is None else menu.target * scale,
        )
        for menu in campaign.menus
    )
    return replace(campaign, menus=menus)


def gather_campaigns(menus: Iterable[Menu], links: Collection[str], scale: float) -> list[Campaign]:
    """Return the campaigns that menus make, those with any of these links (none: all), narrowed.

    Raises MenuError for a link that no campaign has, and as `campaign` and `narrowed` do.
    """
    campaigns = [campaign(group) for group in grouped((menu.campaign, menu) for menu in menus).values()]
    if len(campaigns) == 1 or not links:
        return [narrowed(one, links, scale) for one in campaigns]
    chosen = [{str(flow.link) for flow in one.flows} & set(links) for one in campaigns]
    if missing := set(links).difference(*chosen):
        narrowed(campaigns[0], missing)  # raises
    return [narrowed(one, own, scale) for one, own in zip(campaigns, chosen, strict=True) if own]


def _require_countable(flow: Flow, part: float) -> None:
    """Raise MenuError for a scaled link whose bytes a ledger, with integers of 64 bits, could not count."""
    rate = flow.rate * part
    if rate * (flow.end - flow.start).total_seconds() > COUNTABLE:
        message = (
            f"{urls.arrow(str(flow.link))}: {units.format_rate(flow.rate)} times {part:g} are too much: "
            f"a ledger counts at most {units.format_size(COUNTABLE)} of a link"
        )
        raise MenuError([Problem(flow.menu, flow.line, message, "lower --scale")])


def _check_copies(menus: Sequence[Menu], complain: Complain) -> bool:
    """Complain once of each two menus with links in common at one time, such as a copied day with its old date.

    Their links may stand in one included file, so that only the menus' names show what has to be changed.
    """
    seen: list[tuple[Menu, dict[FlowKey, list[Flow]]]] = []
    found = False
    for menu in menus:
        own = grouped((flow.key, flow) for flow in menu.flows)
        for other, others in seen:
            shared = own.keys() & others.keys() if other.start < menu.end and menu.start < other.end else ()
            overlaps = ((a.start < b.end and b.start < a.end for a in own[k] for b in others[k]) for k in shared)
            common = [key for key, times in zip(shared, overlaps, strict=True) if any(times)]
            if common:
                found, first = True, min(common)
                links = units.counted(len(common), "links")
                message = f"{other.name} has {links} of this menu at the same time, such as {first}"
                hint = "correct `start` and `end` of the one that was copied, or add up the rates in one menu"
                complain(Place(menu.name, 1), message, hint)
        seen.append((menu, own))
    return found


def _check_sites(menus: Sequence[Menu], complain: Complain) -> None:
    site_of: dict[str, tuple[str, Menu]] = {}
    for menu in menus:
        for site in menu.sites:
            for rse in site.rses:
                name, other = site_of.setdefault(rse, (site.name, menu))
                if name != site.name:
                    message = f"{rse} is in the site {site.name}, but in {name} in {other.name}"
                    complain(Place(menu.name, 1), message, "an RSE is in one site; include one file with `sites`")


def _check_endpoints(menus: Sequence[Menu], complain: Complain) -> None:
    named = [menu for menu in menus if menu.endpoint]
    for menu in named[1:]:
        if menu.endpoint != named[0].endpoint:
            message = f"FTS is {menu.endpoint}, but {named[0].endpoint} in {named[0].name}"
            complain(Place(menu.name, 1), message, "a campaign has one FTS; run others on their own")
