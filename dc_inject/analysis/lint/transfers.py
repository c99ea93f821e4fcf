"""More transfers at a time than FTS allows: what is above a limit of FTS waits in its queue.

A rate needs (rate / speed of one file) transfers at a time. FTS limits them on each link of two storages, out of a
storage, and into one. Where FTS does not report them, its defaults are assumed, and one finding stands for all
links of a scenario; a limit that FTS gave has a finding of its own. FTS starts below its limit and grows toward it
(`planning/ramp.py`): a step that is over before that is a finding too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

from dc_inject.analysis.lint.capacity import Finding, add_rest
from dc_inject.model import Campaign, Flow, Link, Menu, rates, units, urls
from dc_inject.model.errors import Problem
from dc_inject.model.shape import Point, Shape
from dc_inject.model.transfers import LIMITS_OF, LINK_LIMIT, TransferLimit, transfers_needed
from dc_inject.planning import ramp

_ALLOWS = {
    "config": "FTS allows {} (by its configuration)",
    "optimizer": "FTS allows {} (by its optimizer, just now)",
    "default": f"{LIMITS_OF} allows {{}} by default",
}
_OPTIMIZER = "the optimizer allows more while transfers succeed; "
_HINT = "ask FTS's operators for more, lower the rates, or give the speed of files there with --file-speed"


def slot_findings(
    campaign: Campaign, file_speed: float, services_with_limits: Collection[str]
) -> Iterator[Finding]:
    """Yield findings about FTS's default limits, and its ramp, but of services whose limits are known."""
    uses = [
        (of, flow)
        for of in campaign.menus
        for flow in of.flows
        if flow.link.through not in services_with_limits and not flow.link.service.reads
    ]
    pairs = dict.fromkeys(_pair(flow.link) for _, flow in uses)
    limits = [TransferLimit(*pair, LINK_LIMIT, "default") for pair in pairs]
    yield from _exceeded(uses, limits, file_speed)
    yield from _ramps(uses, file_speed, {})


def transfer_findings(campaign: Campaign, limits: Iterable[TransferLimit], file_speed: float) -> Iterator[Finding]:
    """Yield a finding for each limit of FTS that is below what the menus need at some time, or grown to too late.

    The rates of all flows between the same storages count together, as they do for FTS.
    """
    limits = list(limits)
    uses = [
        (of, flow)
        for of in campaign.menus
        for flow in of.flows
        if flow.link.service.ends_are_urls and not flow.link.service.reads
    ]
    yield from _exceeded(uses, limits, file_speed)
    yield from _ramps(uses, file_speed, {(limit.source, limit.destination): limit for limit in limits})


def _growth(limit: TransferLimit | None) -> ramp.Growth:
    """Return how FTS grows on a link with a limit; the optimizer's is where it is just now."""
    if limit is None:
        return ramp.Growth()
    if limit.origin == "optimizer":
        return ramp.Growth(limit.most, max(limit.most, LINK_LIMIT))
    return ramp.Growth.to(limit.most)


def _ramps(
    uses: Iterable[tuple[Menu, Flow]], file_speed: float, limits: Mapping[tuple[str, str], TransferLimit]
) -> Iterator[Finding]:
    """Find steps, and whole windows, that are over before FTS has grown to them; one finding for a scenario.

    `limits` are those of FTS by the storages of a link; its default where there is none.
    """
    short: dict[tuple[str, str], list[tuple[ramp.TooShort, Menu, Flow]]] = {}
    for menu, flow in uses:
        level = Shape(flow.start, (Point(timedelta(0), 1.0),)) if flow.shape is None else flow.shape
        rate = flow.rate * (1 + flow.overhead)
        flat = (piece for piece in level.pieces(flow.start, flow.end) if piece.first == piece.last)
        steps = ((piece.end - piece.start, rate * float(piece.first)) for piece in flat)
        too_short = ramp.too_short(steps, file_speed, _growth(limits.get(_pair(flow.link))))
        if too_short is not None:
            short.setdefault((flow.menu, flow.scenario), []).append((too_short, menu, flow))
    for (_, scenario), too_short_here in short.items():
        worst, menu, flow = max(too_short_here, key=lambda step: step[0].grows - step[0].lasts)
        limit = limits.get(_pair(flow.link))
        begin = f"starts with {_growth(limit).first}"
        if limit is not None and limit.origin == "optimizer":
            begin = f"runs {limit.most} just now"
        message = (
            f"{flow.link.shown}{add_rest(len(too_short_here) - 1, scenario)} has {units.format_rate(worst.rate)} "
            f"for {units.format_duration(worst.lasts)}, and FTS needs {units.format_duration(worst.grows)} to "
            f"grow to the transfers that it takes: it {begin} and adds {ramp.ADDED} a minute"
        )
        hint = "lengthen the step, or put a ramp before it (`shape`)"
        yield menu, Problem(flow.menu, flow.line, message, hint, "fts-ramp")


def _pair(link: Link) -> tuple[str, str]:
    """Return the storages of a link, as FTS has them where they are known."""
    if not link.service.ends_are_urls:
        return link.source, link.destination
    return urls.host_key(link.source), urls.host_key(link.destination)


def _exceeded(
    uses: Iterable[tuple[Menu, Flow]], limits: Iterable[TransferLimit], file_speed: float
) -> Iterator[Finding]:
    menu_of: dict[int, Menu] = {}
    flows: dict[tuple[str, str], list[Flow]] = {}  # by source and destination; an empty one stands for any
    for menu, flow in uses:
        injected = replace(flow, rate=flow.rate * (1 + flow.overhead))
        menu_of[id(injected)] = menu
        source, destination = _pair(flow.link)
        for key in ((source, destination), (source, ""), ("", destination)):
            flows.setdefault(key, []).append(injected)
    exceeded: dict[object, list[tuple[float, TransferLimit, Flow]]] = {}
    for limit in limits:
        rate, largest = rates.peak(flows.get((limit.source, limit.destination), ()))
        if largest is not None and rates.is_above(transfers_needed(rate, file_speed), limit.most):
            assumed = limit.origin == "default" and _is_link(limit) and (largest.menu, largest.scenario)
            exceeded.setdefault(assumed or limit, []).append((rate, limit, largest))
    for of_scenario in exceeded.values():
        rate, limit, flow = max(of_scenario, key=lambda excess: excess[0])
        yield menu_of[id(flow)], _problem(limit, rate, flow, len(of_scenario) - 1, file_speed)


def _problem(limit: TransferLimit, rate: float, flow: Flow, others: int, file_speed: float) -> Problem:
    code = "fts-link-limit" if _is_link(limit) else "fts-storage-limit"
    message = f"{limit}{add_rest(others, flow.scenario)}: {units.format_rate(rate)} need "
    message += f"{transfers_needed(rate, file_speed):.0f} transfers at a time, and "
    message += (
        f"{_ALLOWS[limit.origin].format(limit.most)}; {limit.most} files at {units.format_size(file_speed)}/s"
    )
    message += f" are {units.format_rate(limit.most * file_speed)}"
    hint = (_OPTIMIZER if limit.origin == "optimizer" else "") + _HINT
    if limit.origin == "default":
        noun = "link" if _is_link(limit) else "storage"
        hint = f"ask FTS's operators to raise the limit of this {noun}; if they did: `accept: [{code}]`"
    return Problem(flow.menu, flow.line, message, hint, code)


def _is_link(limit: TransferLimit) -> bool:
    return bool(limit.source and limit.destination)
