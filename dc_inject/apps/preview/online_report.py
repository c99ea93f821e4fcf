"""The answers of services and storages to `check --online`, and its findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dc_inject.analysis import lint
from dc_inject.analysis.lint import PoolSize
from dc_inject.model import Campaign, Flow, Menu, PoolKey
from dc_inject.model.errors import Problem
from dc_inject.model.ports import Identity

Use = tuple[Menu, Flow]


@dataclass(slots=True)
class Answers:
    """What was found out: problems, sentences that are good to know, and whether a service did not let us in.

    `limits` are the services whose limits are known, `identities` who we are at those that let us in,
    `pool_sizes` what sources have, `on_tape` the sources whose files are all on tape.
    """

    campaign: Campaign
    problems: list[Problem] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    service_failed: bool = False
    limits: set[str] = field(default_factory=set)
    identities: dict[str, Identity] = field(default_factory=dict)
    pool_sizes: dict[PoolKey, PoolSize] = field(default_factory=dict)
    on_tape: set[str] = field(default_factory=set)

    def find(self, use: Use, code: str, message: str, hint: str | None = None) -> None:
        """Add a finding at a flow's place, unless its menu accepts the code."""
        menu_, flow = use
        if code not in menu_.accept:
            self.problems.append(Problem(flow.menu, flow.line, message, hint or "", code))

    def collect_problems(self, file_speed: float) -> list[Problem]:
        """Return what was found, and what the complete menus show with it; `file_speed` is in bytes per second."""
        return sorted({*lint.findings(self.campaign, file_speed, self.limits), *self.problems})

    def take(self, findings: Iterable[tuple[Menu, Problem]]) -> None:
        """Add findings, but for those that their menu accepts."""
        self.problems += [problem for menu, problem in findings if problem.code not in menu.accept]


def uses(campaign: Campaign, through: str) -> list[Use]:
    """Return the flows through a service, each with its menu."""
    return [(menu, flow) for menu in campaign.menus for flow in menu.flows if flow.link.through == through]
