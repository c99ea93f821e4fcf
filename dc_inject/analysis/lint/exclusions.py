"""Exclusions that take nothing out: a wrong date or name, so that traffic would go on during a downtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dc_inject.analysis.lint.capacity import Finding
from dc_inject.menu import values
from dc_inject.model import Campaign, Exclusion, Flow, Menu, urls
from dc_inject.model.errors import Problem
from dc_inject.model.rates import site_of
from dc_inject.planning import pace

CODE = "idle-exclusion"


def findings(campaign: Campaign) -> Iterator[Finding]:
    """Yield findings with the menu that may accept each.

    An exclusion counts for all menus that are in force at its time. One that stands in a file that menus include
    may be meant for another of them, so it is judged only where several menus are looked at together.
    """
    sites = site_of(site for menu in campaign.menus for site in menu.sites)
    for menu in campaign.menus:
        for exclusion in menu.exclusions:
            if exclusion.file and exclusion.file != menu.name and len(campaign.menus) == 1:
                continue
            covered = [
                flow
                for flow in campaign.flows
                if pace.covers(exclusion, flow.scenario, flow.link, sites) or _may_be_any(exclusion, flow)
            ]
            if message := _why_idle(exclusion, menu, campaign, covered):
                hint = "traffic continues then; correct the exclusion, or remove it"
                yield menu, Problem(exclusion.file or menu.name, exclusion.line, message, hint, CODE)


def _why_idle(exclusion: Exclusion, menu: Menu, campaign: Campaign, covered: Sequence[Flow]) -> str:
    """Say why an exclusion takes nothing out; nothing where it takes something out."""
    subject = exclusion.site or exclusion.rse or urls.arrow(exclusion.link) or exclusion.scenario
    menus = [menu] if exclusion.file in {"", menu.name} else campaign.menus
    if not any(of.start < exclusion.end and exclusion.start < of.end for of in menus):
        dates = f"{_at(min(of.start for of in menus))} to {_at(max(of.end for of in menus))}"
        excluded = f"{_at(exclusion.start)} to {_at(exclusion.end)}"
        return f"{subject} is excluded from {excluded}, which is outside of the menu's dates, {dates}"
    if not covered:
        return f"{subject} is excluded, but has no link here"
    if not any(flow.start < exclusion.end and exclusion.start < flow.end for flow in covered):
        return f"{subject} is excluded when none of its links has any traffic planned"
    return ""


def _may_be_any(exclusion: Exclusion, flow: Flow) -> bool:
    """Whether an end is an RSE expression that is not resolved yet, so that it may mean what is excluded."""
    if exclusion.scenario or not flow.link.service.knows_ends:
        return False
    return not all(values.is_name(end) for end in flow.link[:2])


def _at(moment: object) -> str:
    return f"{moment:%Y-%m-%dT%H:%MZ}"
