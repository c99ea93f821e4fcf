"""A campaign: menus that belong together, and what has to hold between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from dc_inject.menu import checks, second_hops
from dc_inject.menu.nodes import Complain, Place
from dc_inject.model import Campaign, Flow, FlowKey, Menu, units, urls
from dc_inject.model.errors import MenuError, Problem

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
        checks.copies_apart(every, complain)
        second_hops.check_one_way(every, complain)
        if not _check_copies(menus, complain):
            checks.over_total(menus, complain)
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
            flows=tuple(_scaled(flow, scale) for flow in menu.flows if not links or str(flow.link) in links),
            target=None if links or menu.target is None else menu.target * scale,
        )
        for menu in campaign.menus
    )
    return replace(campaign, menus=menus)


def gather_campaigns(menus: Iterable[Menu], links: Collection[str], scale: float) -> list[Campaign]:
    """Return the campaigns that menus make, those with any of these links (none: all), narrowed.

    Raises MenuError for a link that no campaign has, and as `campaign` and `narrowed` do.
    """
    by_name: dict[str, list[Menu]] = {}
    for menu in menus:
        by_name.setdefault(menu.campaign, []).append(menu)
    campaigns = [campaign(group) for group in by_name.values()]
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


def _scaled(flow: Flow, part: float) -> Flow:
    goal = None if flow.goal is None else flow.goal.scaled(part)
    return replace(flow, rate=flow.rate * part, goal=goal)


def _check_copies(menus: Sequence[Menu], complain: Complain) -> bool:
    """Complain once of each two menus with links in common at one time, such as a copied day with its old date.

    Their links may stand in one included file, so that only the menus' names tell what has to be changed.
    """
    seen: list[tuple[Menu, dict[FlowKey, list[Flow]]]] = []
    found = False
    for menu in menus:
        own: dict[FlowKey, list[Flow]] = {}
        for flow in menu.flows:
            own.setdefault(flow.key, []).append(flow)
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
