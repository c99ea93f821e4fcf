"""A menu with its rates and volumes multiplied, in its own text: nothing else in it changes."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from pydantic import PlainValidator

from dc_inject.menu import fields as f
from dc_inject.menu import spans
from dc_inject.menu.differences import near, same_goal
from dc_inject.menu.draft import MenuDraft
from dc_inject.menu.ends import Naming
from dc_inject.menu.schema import Defaults, LinkEntry, Scenario
from dc_inject.menu.spans import Span
from dc_inject.menu.validation import MenuModel
from dc_inject.model import Flow, rates, units, urls
from dc_inject.model.errors import UsageError

EXPAND = "add --expand, which writes every link out first"


def scaled(draft: MenuDraft, factor: Fraction, scenario: str = "", link: str = "") -> tuple[str, tuple[Flow, ...]]:
    """Return the text of a menu with rates, volumes and bytes to keep multiplied, and the flows it should have.

    Without a scenario or link these are all rates, those in shapes included, and the target. Raises UsageError
    when nothing is meant, or when what is meant has no rate of its own in the menu's text.
    """
    chosen = {flow.key for flow in draft.preview.flows if _meant(flow, scenario, link)}
    if not chosen:
        what = " and ".join(f"{noun} {name!r}" for noun, name in (("scenario", scenario), ("link", link)) if name)
        near = [flow for flow in draft.preview.flows if not scenario or flow.scenario == scenario] if link else []
        known = sorted({str(flow.link) for flow in near} or {flow.scenario for flow in draft.preview.flows})[:10]
        raise UsageError(f"the menu has no {what}", f"{'links' if near else 'scenarios'}: {', '.join(known)}")
    _refuse_elsewhere([flow for flow in draft.preview.flows if flow.key in chosen], draft)
    wanted = tuple(_times(flow, float(factor)) if flow.key in chosen else flow for flow in draft.preview.flows)
    root = spans.parse(draft.text)
    found: dict[int, Span] = {}
    others: set[int] = set()
    for span, meant in _found(root, draft, scenario, link):
        others |= set() if meant else {id(span)}
        found |= {id(span): span} if meant else {}
    if others & set(found):
        raise UsageError("an anchor gives the same rate to others too", EXPAND)
    edits = [spans.value_edit(span, draft.text, units.times(span.text, factor)) for span in found.values()]
    target = root.get("target")
    if target is not None:
        whole = not scenario and not link
        new = units.times(target.node.text, factor) if whole else units.exact_rate(rates.peak(wanted).rate)
        edits.append(spans.value_edit(target.node, draft.text, new))
    return spans.replaced(draft.text, edits), wanted


def compare(wanted: Iterable[Flow], found: Iterable[Flow]) -> None:
    """Raise UsageError when a scaled menu does not have the rates that it should have."""
    for one, other in zip(wanted, found, strict=True):
        same = one.key == other.key and near(one.rate, other.rate) and one.shape == other.shape
        same = same and same_goal(one, other)
        if not same:
            raise UsageError(f"the rate of {one.key} cannot be scaled alone, with its shape", EXPAND)


def _times(flow: Flow, factor: float) -> Flow:
    goal = None if flow.goal is None else flow.goal.scaled(factor)
    return replace(flow, rate=flow.rate * factor, goal=goal)


def _meant(flow: Flow, scenario: str, link: str) -> bool:
    return scenario in {"", flow.scenario} and link in {"", str(flow.link)}


def _refuse_elsewhere(flows: Iterable[Flow], draft: MenuDraft) -> None:
    for flow in flows:
        if flow.menu != draft.name:
            raise UsageError(f"the rate of {flow.key} stands in {flow.menu}, not in the menu", EXPAND)


def _found(root: Span, draft: MenuDraft, scenario: str, link: str) -> Iterator[tuple[Span, bool]]:
    """Yield all scalars that are rates of links, and whether they are to be multiplied."""
    defaults, scenarios = root.get("defaults"), root.get("scenarios")
    if defaults is not None:
        yield from ((span, not scenario and not link) for span in _rates(Defaults, defaults))
    for key, value in scenarios.entries() if scenarios is not None else ():
        here, entries = scenario in {"", key.text}, value.get("links")
        if here and link and entries is not None and entries.node.items:
            chosen = set(_entries(draft, key.text, link))
            for index, entry in enumerate(entries.node.items):
                yield from ((span, index in chosen) for span in _rates(LinkEntry, entry))
        else:
            flows = [flow for flow in draft.preview.flows if flow.scenario == key.text]
            meant = here and _all_or_none([str(flow.link) for flow in flows], link, key.text)
            yield from ((span, meant) for span in _rates(Scenario, value))


def _entries(draft: MenuDraft, name: str, link: str) -> Iterator[int]:
    """Yield the numbers of the entries of `links` that make a link."""
    document = draft.document
    naming = Naming(document, None, lambda *_: None)
    scenario = document.scenarios[name]
    for index, entry in enumerate(scenario.links or ()):
        levels = (entry, scenario, document.defaults)
        through = next((one.through for one in levels if one is not None and one.through is not None), "rucio")
        if entry.from_ is None or entry.to is None:
            continue
        pairs = [(a, b) for a in naming.rses(entry.from_, through) for b in naming.rses(entry.to, through)]
        turned = [(b, a) for a, b in pairs] if entry.both_ways else []
        if _all_or_none([f"{a}:{b}" for a, b in (*pairs, *turned)], link, name):
            yield index


def _all_or_none(links: list[str], link: str, scenario: str) -> bool:
    """Tell whether a rate is that of the link that is meant; raises UsageError if others share it."""
    if link and link in links and len(links) > 1:
        raise UsageError(f"{scenario} {urls.arrow(link)} has no rate in the menu that is its alone", EXPAND)
    return not link or link in links


def _rates(model: type[MenuModel], span: Span) -> Iterator[Span]:
    """Yield the scalars of a mapping that are rates or volumes, as its schema says; levels may be some."""
    hints = typing.get_type_hints(model, include_extras=True)
    keys = {field.alias or name: hints[name] for name, field in model.model_fields.items()}
    for key, value in span.entries():
        parts = list(_parts(keys.get(key.text)))
        if any(id(part) in _RATES for part in parts):
            yield from (one for one in value.scalars() if _is_amount(one.text))
        for part in parts:
            if isinstance(part, type) and issubclass(part, MenuModel):
                for one in value.node.items or [value]:
                    if one.node.kind == "map":
                        yield from _rates(part, one)


def _parts(hint: object) -> Iterator[object]:
    """Yield a type with all that it is made of."""
    yield hint
    for one in typing.get_args(hint):
        yield from _parts(one)


def _is_amount(text: str) -> bool:
    """Tell a rate or size from a part of one, such as `25 %`."""
    for read in (units.parse_rate, units.parse_size):
        with contextlib.suppress(ValueError):
            return read(text) > 0
    return False


_RATES = {
    id(part)
    for hint in (f.Rate, f.Amount, f.Level, f.Levels, f.Curve)
    for part in _parts(hint)
    if isinstance(part, PlainValidator)
}
