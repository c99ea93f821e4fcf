"""New menus: their top, with what is assumed for it, their scenarios, and what is wrong with them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from dc_inject import menu
from dc_inject.analysis import lint
from dc_inject.menu import MenuDraft, addresses, values, writing
from dc_inject.menu.includes import Load
from dc_inject.menu.writing import Heading
from dc_inject.model import Campaign, rates, units
from dc_inject.model.errors import MenuError, Problem, UsageError
from dc_inject.model.services import DEFAULT, SERVICES
from dc_inject.system import account, files
from dc_inject.system.clock import SystemClock

ANY_DATASET = "*:*"
SHOWN = 10  # findings of a new menu
START_HOUR = 10  # of tomorrow, where no time is given
COMMENTS = (
    "`dc-inject check MENU` lists what is wrong or odd in it,",
    "`dc-inject footprint MENU` what it means for each site;",
    "docs/reference/menus.md explains every key.",
)
MORE = """
# What else a menu may have:
# sites:         # places with their WAN, our limits there, and their RSEs
#   KIT: {wan: 300 Gb/s, max_ingress: 80 Gb/s, rses: {T1_DE_KIT_Disk: {space: 500 TB}}}
# exclude:       # times in which something is due nothing
#   - {site: KIT, from: 2027-02-08 14:00, to: 2027-02-08 15:00, reason: downtime}
"""
_SHARED = re.compile(r"(?P<end>.+)@(?P<share>[0-9]+(?:\.[0-9]+)?)")


def heading(given: Mapping[str, Any], scenario: str, include: str = "") -> Heading:
    """Return the top of a menu out of the options, and what is assumed for those that were not given.

    Raises UsageError for options that do not go together.
    """
    stated = {key: value for key, value in given.items() if value not in (None, (), "")}
    start, end = choose_window(str(stated.get("timezone", "UTC")), str(stated.get("start", "")))
    usual = {"campaign": scenario, "contact": account.who(), "timezone": "UTC", "start": start, "end": end}
    service = SERVICES[str(stated.setdefault("through", DEFAULT.name))]
    if not service.takes_files and "folder" in stated:
        raise UsageError(
            "--folder is only for links through FTS", "add --through fts, or name datasets with --did"
        )
    if not service.takes_files:
        usual["datasets"] = ANY_DATASET
    elif "datasets" not in stated:
        usual["folder"] = "."
    assumed = {key: value for key, value in usual.items() if key not in stated}
    patterns: tuple[str, ...] = stated.pop("datasets", (ANY_DATASET,) if "datasets" in assumed else ())
    texts = {key: str(stated.get(key) or usual.get(key) or "") for key in _TEXTS}
    return Heading(**texts, datasets=patterns, include=include, assumed=frozenset(assumed))


_TEXTS = ("campaign", "contact", "start", "end", "timezone", "description", "through", "folder", "endpoint")


def choose_window(timezone: str, start: str = "") -> tuple[str, str]:
    """Return begin and end of a menu where at most its begin was given; raises UsageError for a wrong one."""
    zone = values.zone(timezone)
    start = start or local(_tomorrow(zone), zone)
    try:
        return start, local(values.moment(start, zone) + timedelta(days=1), zone)
    except values.WrongError as error:
        raise UsageError(error.message, error.hint) from None


def describe_assumptions(heading: Heading) -> list[str]:
    """Return in a sentence what was assumed, or nothing."""
    values = {key: getattr(heading, key) for key in _TEXTS} | {"datasets": " ".join(heading.datasets)}
    options = {"datasets": "--did"}
    parts = [f"{values[key]} ({options.get(key, f'--{key}')})" for key in sorted(heading.assumed - {"timezone"})]
    return [f"assumed: {', '.join(parts)}"] if parts else []


Origins: TypeAlias = dict[tuple[str, int], Problem]  # file and line of a link -> a problem at what it came from


def checked(
    texts: Mapping[str, str],
    load: Load = files.load,
    origins: Mapping[tuple[str, int], Problem] = MappingProxyType({}),
) -> tuple[Campaign, list[str]]:
    """Read menus that were made, by their names, and return them with warnings.

    What is wrong with a link is placed where the link came from; what differs only in numbers, as on several days,
    is there once. Raises MenuError with what cannot work.
    """
    drafts, problems = list[MenuDraft](), list[Problem]()
    try:
        for name, text in texts.items():
            drafts.append(menu.read(text, name, load))
        made = menu.campaign([draft.preview for draft in drafts])
        problems = list(lint.findings(made))
    except MenuError as error:
        raise MenuError(alike(_placed(error.problems, origins))) from None
    placed = {
        (*(one.file, one.sheet, one.line, one.column), re.sub("[0-9.]+", "", one.message)): one
        for one in _placed(problems, origins)
    }
    findings = list(placed.values())
    warnings = [f"warning: {finding}" for finding in findings[:SHOWN]]
    if len(findings) > SHOWN:
        warnings.append(f"warning: and {len(findings) - SHOWN} more, which `dc-inject check MENUS` lists")
    return made, warnings


def _placed(problems: Iterable[Problem], origins: Mapping[tuple[str, int], Problem]) -> list[Problem]:
    at = ((problem, origins.get((problem.file, problem.line), problem)) for problem in problems)
    return [replace(one, file=o.file, line=o.line, column=o.column, sheet=o.sheet) for one, o in at]


def alike(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with one of each kind (of one hint), with the number of others.

    A menu that is made has the same mistake in every link, if it has one.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(problem.hint or problem.message, []).append(problem)
    return [_with(first, more) for first, *more in groups.values()]


def _with(problem: Problem, more: Sequence[Problem]) -> Problem:
    if not more:
        return problem
    more_like_it = f"and {len(more)} more like it, to line {more[-1].line}"
    return replace(problem, hint=f"{problem.hint}; {more_like_it}" if problem.hint else more_like_it)


def together(made: Campaign) -> str:
    """Return how many links menus have, and what they sum to."""
    links = units.counted(len({flow.link for flow in made.flows}), "links")
    return f"{links}, {units.format_rate(rates.peak(made.flows).rate)} together"


def _tomorrow(zone: ZoneInfo) -> datetime:
    day = SystemClock().now().astimezone(zone) + timedelta(days=1)
    return day.replace(hour=START_HOUR, minute=0, second=0, microsecond=0)


def local(moment: datetime, zone: ZoneInfo) -> str:
    """Write a time in a zone, with its offset where clocks are put back over it."""
    local = moment.astimezone(zone)
    text = local.strftime("%Y-%m-%d %H:%M:%S").removesuffix(":00")
    try:
        values.moment(text, zone)
    except values.WrongError:
        return local.isoformat(" ", "seconds")
    return text


# --------------------------------------------------------------------------- scenarios


def check_destination(text: str) -> None:
    """Raise ValueError for what is neither an end of a link nor one with its share, as `T1_DE_KIT_Disk@40`."""
    match = _SHARED.fullmatch(text)
    addresses.end(match["end"] if match else text)
    if match:
        values.share(match["share"])


@dataclass(frozen=True, slots=True)
class ScenarioDraft:
    """A scenario as it was asked for: from sources to destinations, or a mesh."""

    name: str
    sources: Sequence[str]
    destinations: Sequence[str]
    mesh: Sequence[str]
    rate: str

    def lines(self) -> list[str]:
        """Return its lines in a menu."""
        if self.mesh:
            keys = [("mesh", _listed(self.mesh))]
        else:
            keys = [("from", _listed(self.sources)), ("to", _listed(self.destinations))]
        return writing.shared(self.name, [*keys, ("rate", f"{self.rate}   # all its links together")])


def write_menu(given: Mapping[str, object], wanted: Sequence[ScenarioDraft]) -> str:
    """Return the text of a menu with these scenarios; `given` are the options for its top."""
    top = heading(given, wanted[0].name)
    rates = [scenario.rate for scenario in wanted]
    total = (
        rates[0]
        if len(rates) == 1
        else units.exact_rate(math.fsum(units.parse_rate(scenario) for scenario in rates))
    )
    lines = [line for scenario in wanted for line in scenario.lines()]
    return writing.menu(top, COMMENTS, total, lines) + MORE


def _listed(ends: Sequence[str]) -> str:
    """Write ends: one, a list, or a map of shares; who has none among others that do has a share of 1."""
    matches = [_SHARED.fullmatch(text) for text in ends]
    if any(matches):
        pairs = ((m["end"], m["share"]) if m else (text, "1") for text, m in zip(ends, matches, strict=True))
        return "{" + ", ".join(f"{writing.scalar(end)}: {share}" for end, share in pairs) + "}"
    return writing.scalar(ends[0]) if len(ends) == 1 else f"[{', '.join(writing.scalar(text) for text in ends)}]"
