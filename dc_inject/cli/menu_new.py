"""`dc-inject menu new`: asks what a menu needs, and writes it with comments."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from dc_inject import files, menu, units
from dc_inject.cli import menu_files, menu_heading
from dc_inject.cli.menu_heading import DID, END, ENDPOINT, FOLDER, LINE, NAME, RATE, ZONE, Written
from dc_inject.errors import MenuError, UsageError
from dc_inject.menu import addresses, values, writing

COMMENTS = (
    "`dc-inject check` says what is wrong or odd in it, `dc-inject plan --footprint` what it means for each site;",
    "docs/menus.md explains every key.",
)
MORE = """
# What else a menu may say:
# sites:         # places with their WAN, our limits there, and their RSEs
#   KIT: {wan: 300 Gb/s, max_ingress: 80 Gb/s, rses: {T1_DE_KIT_Disk: {space: 500 TB}}}
# exclude:       # times in which something is due nothing
#   - {site: KIT, from: 2027-02-08 14:00, to: 2027-02-08 15:00, reason: downtime}
"""
_SHARED = re.compile(r"(?P<end>.+)@(?P<share>[0-9]+(?:\.[0-9]+)?)")


def _destination(text: str) -> None:
    match = _SHARED.fullmatch(text)
    addresses.end(match["end"] if match else text)
    if match:
        values.share(match["share"])


def _several(read: Written) -> Written:
    """Return the type of one or several texts with blanks between."""

    def each(text: str) -> None:
        if not text:
            raise values.WrongError("nothing is named", "name one or several, with blanks between")
        for one in text.split():
            read.convert(one, None, None)

    return Written(f"{read.name}s", each)


DESTINATION = Written("end", _destination)


@dataclass(frozen=True, slots=True)
class Wanted:
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


@click.command(short_help="Ask what a menu needs, and write it.")
@click.option("--scenario", type=NAME, help="What to call its links [default: main].")
@click.option("--from", "sources", type=END, multiple=True, metavar="END", help="A source (may be repeated).")
@click.option(
    "--to",
    "destinations",
    type=DESTINATION,
    multiple=True,
    metavar="END[@SHARE]",
    help="A destination, perhaps with its share of the rate (may be repeated).",
)
@click.option(
    "--mesh", type=END, multiple=True, metavar="END", help="One of a mesh of all pairs (may be repeated)."
)
@click.option("--rate", type=RATE, help="What all links share, such as 250Gb/s.")
@click.option("--ask/--no-ask", default=None, help="Ask for what no option says [default: at a terminal].")
@menu_heading.options
@menu_files.OUTPUT
@menu_files.FORCE
def new(
    scenario: str | None,
    sources: tuple[str, ...],
    destinations: tuple[str, ...],
    mesh: tuple[str, ...],
    rate: str | None,
    ask: bool | None,
    output: Path,
    force: bool,
    **given: object,
) -> None:
    r"""Write a menu with comments: at a terminal it asks for what no option says.

    Nothing is written before the last answer, so that Ctrl-C leaves nothing behind. A menu is one that `check`
    accepts; what was assumed is marked in it.

    \b
    Example: dc-inject menu new -o day1.yaml
    Example: dc-inject menu new --no-ask --from T2_CH_CERN --to T1_DE_KIT_Disk --rate 50Gb/s -o day1.yaml
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    if mesh and (sources or destinations):
        raise UsageError("--mesh stands beside --from or --to", "give one of them")
    first = Wanted(scenario or "main", sources, destinations, mesh, rate or "")
    complete = bool(rate and (mesh or (sources and destinations)))
    if ask or (ask is None and sys.stdin.isatty()):
        given = _ask_heading(given)
        wanted = _ask_scenarios(first if complete else None, scenario, given)
    elif complete:
        wanted = [first]
    else:
        raise UsageError("a menu needs --rate, and --from and --to, or --mesh", "or let it ask: --ask")
    text = _text(given, wanted)
    draft = menu_heading.checked(text, output)
    menu_files.say(menu_heading.together(draft))
    if assumed := menu_heading.told(menu_heading.heading(given, wanted[0].name)):
        menu_files.say(assumed)
    menu_files.write(text, output, force=force)


def _text(given: Mapping[str, object], wanted: Sequence[Wanted]) -> str:
    heading = menu_heading.heading(given, wanted[0].name)
    rates = [one.rate for one in wanted]
    total = rates[0] if len(rates) == 1 else units.exact_rate(math.fsum(units.parse_rate(one) for one in rates))
    lines = [line for one in wanted for line in one.lines()]
    return writing.menu(heading, COMMENTS, total, lines) + MORE


def _ask_heading(given: Mapping[str, object]) -> dict[str, object]:
    """Ask for the top of a menu, but for what options said."""
    said = dict(given)

    def ask(key: str, question: str, kind: click.ParamType[str], default: str) -> str:
        if not said[key]:
            said[key] = _prompt(question, kind, default)
        return str(said[key])

    ask("campaign", "Campaign, which binds menus into one exercise", NAME, "")
    ask("contact", "Contact, whom others ask about the traffic", LINE, menu_heading.me())
    timezone = ask("timezone", "Time zone of all times here", ZONE, "UTC")
    time = menu_heading.time_in(timezone)
    start = ask("start", "Start", time, menu_heading.usual_window(timezone)[0])
    ask("end", "End", time, menu_heading.usual_window(timezone, start)[1])
    if said["through"] == "fts":
        ask("endpoint", "FTS", ENDPOINT, "https://fts3.example.org:8446")
        if not said["datasets"]:
            ask("folder", "Folder below the source that files are taken from", FOLDER, ".")
    elif not said["datasets"]:
        patterns = _prompt("Datasets, scope:name with wildcards, blanks between", _several(DID), "")
        said["datasets"] = tuple(patterns.split())
    return said


def _ask_scenarios(first: Wanted | None, name: str | None, given: Mapping[str, object]) -> list[Wanted]:
    """Ask for scenarios until there is no other one; each is checked as soon as it is complete."""
    wanted = [] if first is None else [first]
    while not wanted or click.confirm("Another scenario?", default=False, err=True):
        usual = name if not wanted else None
        while not _fits(one := _ask_scenario(usual), wanted, given):
            usual = None
        wanted.append(one)
    return wanted


def _fits(one: Wanted, others: Sequence[Wanted], given: Mapping[str, object]) -> bool:
    """Tell whether a menu with one more scenario is right; if not, say why."""
    try:
        menu.read(_text(given, [*others, one]), "the new menu", files.load)
    except MenuError as error:
        menu_files.say(f"This cannot be: {error.message}", "Once more, please.")
        return False
    return True


def _ask_scenario(name: str | None) -> Wanted:
    name = name or _prompt("Scenario, a group of links", NAME, "main")
    mesh: list[str] = []
    destinations: list[str] = []
    sources = _prompt("Sources, blanks between (or `mesh`: all pairs of some)", _several(END), "").split()
    if sources == ["mesh"]:
        sources, mesh = [], _prompt("Which are the mesh", _several(END), "").split()
    else:
        question = "Destinations, blanks between, with shares as T1_DE_KIT_Disk@40 if they differ"
        destinations = _prompt(question, _several(DESTINATION), "").split()
    return Wanted(name, sources, destinations, mesh, _prompt("Rate of all its links together", RATE, ""))


def _prompt(question: str, kind: click.ParamType[str], default: str) -> str:
    """Ask on stderr until the answer can be understood."""
    answer = click.prompt(question, type=kind, default=default or None, err=True)
    assert isinstance(answer, str)
    return answer


def _listed(ends: Sequence[str]) -> str:
    """Write ends: one, a list, or a map of shares; who has none beside others that do has a share of 1."""
    found = [_SHARED.fullmatch(one) for one in ends]
    if any(found):
        pairs = ((m["end"], m["share"]) if m else (one, "1") for one, m in zip(ends, found, strict=True))
        return "{" + ", ".join(f"{writing.scalar(end)}: {share}" for end, share in pairs) + "}"
    return writing.scalar(ends[0]) if len(ends) == 1 else f"[{', '.join(writing.scalar(one) for one in ends)}]"
