"""A menu with its rates and volumes multiplied, in its own text: nothing else in it changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from fractions import Fraction

from dc_inject.menu import fields as f
from dc_inject.menu import writing
from dc_inject.menu.differences import near, same_goal
from dc_inject.menu.draft import MenuDraft
from dc_inject.menu.endpoints import EndpointResolver
from dc_inject.menu.nodes import Place, Text
from dc_inject.menu.validation import MenuModel, parts_of
from dc_inject.model import Flow, rates, units, urls
from dc_inject.model.errors import UsageError
from dc_inject.model.services import DEFAULT

EXPAND = "add --expand, which writes every link out first"


def scaled(draft: MenuDraft, factor: Fraction, scenario: str = "", link: str = "") -> tuple[str, tuple[Flow, ...]]:
    """Return the text of a menu with rates, volumes and bytes to keep multiplied, and the flows it should have.

    Without a scenario or link these are all rates, those in shapes included, and the target. Raises UsageError
    when nothing is meant, or when what is meant has no rate of its own in the menu's text.
    """
    chosen = {flow.key for flow in draft.preview.flows if _meant(flow, scenario, link)}
    if not chosen:
        subject = " and ".join(
            f"{noun} {name!r}" for noun, name in (("scenario", scenario), ("link", link)) if name
        )
        near = [flow for flow in draft.preview.flows if not scenario or flow.scenario == scenario] if link else []
        names = sorted({str(flow.link) for flow in near} or {flow.scenario for flow in draft.preview.flows})
        raise UsageError(f"the menu has no {subject}", f"{'links' if near else 'scenarios'}: {units.some(names)}")
    _refuse_elsewhere([flow for flow in draft.preview.flows if flow.key in chosen], draft)
    wanted = tuple(
        rates.scaled(flow, float(factor)) if flow.key in chosen else flow for flow in draft.preview.flows
    )
    meant: dict[Place, Text] = {}
    others: set[Place] = set()
    for amount, is_meant in _amounts(draft, scenario, link):
        if amount.place.file == draft.name:
            meant |= {amount.place: amount} if is_meant else {}
            others |= set() if is_meant else {amount.place}
    new = {place[1:]: units.times(amount, factor) for place, amount in meant.items()}
    for target in draft.document.texts("target"):
        if target.place.file != draft.name:
            raise UsageError(f"the target is in {target.place.file}, not in the menu", EXPAND)
        peak = units.exact_rate(rates.peak(wanted).rate)
        new[target.place[1:]] = peak if scenario or link else units.times(target, factor)
    if any(place[1:] in new for place in others):
        raise UsageError("an anchor gives the same rate to others as well", EXPAND)
    return writing.with_scalars(draft.text, new), wanted


def compare(wanted: Iterable[Flow], read_again: Iterable[Flow]) -> None:
    """Raise UsageError when a scaled menu does not have the rates that it should have."""
    for flow, again in zip(wanted, read_again, strict=True):
        same = flow.key == again.key and near(flow.rate, again.rate) and flow.shape == again.shape
        if not (same and same_goal(flow, again)):
            raise UsageError(f"the rate of {flow.key} cannot be scaled alone, with its shape", EXPAND)


def _meant(flow: Flow, scenario: str, link: str) -> bool:
    return scenario in {"", flow.scenario} and link in {"", str(flow.link)}


def _refuse_elsewhere(flows: Iterable[Flow], draft: MenuDraft) -> None:
    for flow in flows:
        if flow.menu != draft.name:
            raise UsageError(f"the rate of {flow.key} is in {flow.menu}, not in the menu", EXPAND)


def _amounts(draft: MenuDraft, scenario: str, link: str) -> Iterator[tuple[Text, bool]]:
    """Yield all texts that are rates or volumes of links, and whether they are to be multiplied."""
    document = draft.document
    for part in filter(None, (document.defaults, document.limits, *document.sites.values())):  # limits stay
        yield from ((text, part is document.defaults and not scenario and not link) for text in _amounts_of(part))
    for name, entry in document.scenarios.items():
        here = scenario in {"", name}
        if here and link and entry.links:
            chosen = set(_entries(draft, name, link))
            for index, link_entry in enumerate(entry.links):
                yield from ((text, index in chosen) for text in _amounts_of(link_entry))
        else:
            links = [str(flow.link) for flow in draft.preview.flows if flow.scenario == name]
            meant = here and _all_or_none(links, link, name)
            yield from ((text, meant) for text in _amounts_of(entry))


def _entries(draft: MenuDraft, name: str, link: str) -> Iterator[int]:
    """Yield the numbers of the entries of `links` that make a link."""
    document = draft.document
    endpoints = EndpointResolver(document, None, lambda *_: None)
    scenario = document.scenarios[name]
    for index, entry in enumerate(scenario.links or ()):
        levels = (entry, scenario, document.defaults)
        service = next((level.through for level in levels if level and level.through), DEFAULT)
        if entry.from_ is None or entry.to is None:
            continue
        pairs = [(a, b) for a in endpoints.rses(entry.from_, service) for b in endpoints.rses(entry.to, service)]
        turned = [(b, a) for a, b in pairs] if entry.both_ways else []
        if _all_or_none([f"{a}:{b}" for a, b in (*pairs, *turned)], link, name):
            yield index


def _all_or_none(links: list[str], link: str, scenario: str) -> bool:
    """Return whether a rate is that of the link that is meant; raises UsageError if others share it."""
    if link and link in links and len(links) > 1:
        raise UsageError(f"{scenario} {urls.arrow(link)} has no rate of its own in the menu", EXPAND)
    return not link or link in links


def _amounts_of(part: MenuModel) -> Iterator[Text]:
    """Yield the texts of a mapping that are rates or volumes, by its schema; levels may be some."""
    for name, field in part.__class__.model_fields.items():
        value = getattr(part, name)
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, MenuModel):
                yield from _amounts_of(inner)
        if f.SCALED in parts_of(field.annotation):
            yield from (text for text in part.texts(part.key_of(name)) if _is_amount(text))


def _is_amount(text: str) -> bool:
    """Distinguish a rate or size from a part of one, such as `25 %`."""
    for read in (units.parse_rate, units.parse_size):
        with contextlib.suppress(ValueError):
            return read(text) > 0
    return False
