"""`dc-inject menu new`: asks what a menu needs, and writes it with comments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from dc_inject import menu
from dc_inject.apps.menutools import new_menus
from dc_inject.apps.menutools.new_menus import ScenarioDraft
from dc_inject.cli.shared import common, menu_files
from dc_inject.cli.shared.params import (
    DID,
    ENDPOINT,
    FOLDER,
    LINE,
    MENU_END,
    MENU_RATE,
    NAME,
    ZONE,
    Parsed,
    as_written,
    menu_time,
)
from dc_inject.menu import values
from dc_inject.model.errors import MenuError, UsageError
from dc_inject.model.services import DEFAULT, SERVICES
from dc_inject.system import account, files

BACK = "back"


def _several(read: Parsed[str]) -> Parsed[str]:
    """Return the type of one or several texts with blanks between."""

    def each(text: str) -> None:
        if not text:
            raise values.WrongError("nothing is named", "name one or several, separated by blanks")
        for word in text.split():
            read.convert(word, None, None)

    return as_written(f"{read.name}s", each)


DESTINATION = as_written("end", new_menus.check_destination)
_TIME = menu_time(ZoneInfo("UTC"))
HEADING = common.options(
    click.option("--campaign", type=NAME, help="The name of the campaign [default: the scenario's name]."),
    click.option("--contact", type=LINE, help="The contact that rules name [default: your account here]."),
    click.option("--description", type=LINE, help="What the menu is for."),
    click.option("--timezone", type=ZONE, help="The time zone of times without an offset [default: UTC]."),
    click.option("--start", type=_TIME, help="The start of the menu, or `now` [default: tomorrow, 10:00]."),
    click.option("--end", type=_TIME, help="The end of the menu [default: 24 h after its start]."),
    click.option("--through", type=click.Choice(list(SERVICES)), default=DEFAULT.name, help="The service to use."),
    click.option("--did", "datasets", type=DID, multiple=True, metavar="PATTERN",
                 help="Datasets to inject, scope:name with wildcards (may be repeated) [default: *:*]."),
    click.option("--folder", type=FOLDER, help="Through FTS: files of this folder below the source [default: .]."),
    click.option("--fts", "endpoint", type=ENDPOINT, help="The address of FTS."),
)  # fmt: skip


@click.command(short_help="Write a new menu; asks for what it needs.")
@click.option("--scenario", type=NAME, help="The name of the scenario [default: main].")
@click.option("--from", "sources", type=MENU_END, multiple=True, metavar="END", help="A source (may be repeated).")
@click.option(
    "--to",
    "destinations",
    type=DESTINATION,
    multiple=True,
    metavar="END[@SHARE]",
    help="A destination, optionally with its share of the rate (may be repeated).",
)
@click.option(
    "--mesh",
    type=MENU_END,
    multiple=True,
    metavar="END",
    help="A member of a mesh, a link for each pair (may be repeated).",
)
@click.option("--rate", type=MENU_RATE, help="The total rate of all links, such as 250Gb/s.")
@click.option("--ask/--no-ask", default=None, help="Ask for what the options leave open [default: on a terminal].")
@HEADING
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
    r"""Write a new menu with comments; on a terminal, you are asked for what the options leave open.

    Answer `back` to return to the previous question. The file is written after the last answer, so Ctrl-C leaves
    nothing behind. `check` accepts the new menu; comments in it mark what was assumed.

    \b
    Example: dc-inject menu new -o day1.yaml
    Example: dc-inject menu new --no-ask --from T2_CH_CERN --to T1_DE_KIT_Disk --rate 50Gb/s -o day1.yaml
    """
    if output != menu_files.STDIN:
        files.refuse_existing(output, force=force)
    if mesh and (sources or destinations):
        raise UsageError("--mesh cannot be combined with --from or --to", "use only one of them")
    first = ScenarioDraft(scenario or "main", sources, destinations, mesh, rate or "")
    complete = bool(rate and (mesh or (sources and destinations)))
    if ask or (ask is None and sys.stdin.isatty()):
        menu_files.show("`back` as an answer returns to the question before; Ctrl-C leaves, and writes nothing.")
        given, wanted = _ask(given, first if complete else None, scenario)
    elif complete:
        wanted = [first]
    else:
        raise UsageError(
            "a menu needs --rate, and --from and --to, or --mesh", "or use --ask to be asked for them"
        )
    text = new_menus.write_menu(given, wanted)
    draft, warnings = new_menus.checked({menu_files.name_of(output): text})
    assumed = new_menus.describe_assumptions(new_menus.heading(given, wanted[0].name))
    menu_files.show(*warnings, new_menus.together(draft), *assumed)
    menu_files.write(text, output, force=force)


Step = Callable[[], bool]  # asks one thing, and returns whether it had to


def _ask(
    given: Mapping[str, object], first: ScenarioDraft | None, name: str | None
) -> tuple[dict[str, object], list[ScenarioDraft]]:
    """Ask for what no option has; `back` as an answer returns to the question before."""
    answers = dict(given)
    heading = _heading_steps(answers)
    wanted = [] if first is None else [first]
    at, answered = 0, list[int]()
    while True:
        _walk(heading, at, answered)
        try:
            _ask_scenarios(wanted, name, answers)
        except Back:
            at = answered.pop() if answered else len(heading)
            continue
        return answers, wanted


class Back(Exception):
    """The user wants to answer the question before once more."""


def _walk(steps: Sequence[Step], at: int, answered: list[int]) -> None:
    """Ask one thing after the other from a step on; `answered` are the steps before that had to ask."""
    while at < len(steps):
        try:
            if steps[at]():
                answered.append(at)
            at += 1
        except Back:
            at = answered.pop() if answered else at


def _heading_steps(answers: dict[str, object]) -> list[Step]:
    """Return the questions for the top of a menu, but for those that options answered."""
    answered = {key for key, value in answers.items() if value not in (None, (), "")}

    def ask(key: str, question: str, kind: Callable[[], click.ParamType[str]], usual: Callable[[], str]) -> Step:
        def step() -> bool:
            if key in answered:
                return False
            answers[key] = _prompt(question, kind(), str(answers[key] or "") or usual())
            return True

        return step

    def datasets() -> bool:
        if "datasets" in answered:
            return False
        given = answers["datasets"]
        before = " ".join(given) if isinstance(given, tuple) else ""
        question = "Datasets, scope:name with wildcards, blanks between"
        answers["datasets"] = tuple(_prompt(question, _several(DID), before).split())
        return True

    def zone() -> str:
        return str(answers["timezone"])

    def time() -> Parsed[str]:
        return menu_time(values.zone(zone()))

    steps = [
        ask("campaign", "Campaign, which binds menus into one exercise", lambda: NAME, str),
        ask("contact", "Contact, whom others ask about the traffic", lambda: LINE, account.who),
        ask("timezone", "Time zone of all times here", lambda: ZONE, lambda: "UTC"),
        ask("start", "Start, or now", time, lambda: new_menus.choose_window(zone())[0]),
        ask("end", "End", time, lambda: new_menus.choose_window(zone(), str(answers["start"]))[1]),
    ]
    if not SERVICES[str(answers["through"])].takes_files:
        return [*steps, datasets]
    steps.append(ask("endpoint", "FTS", lambda: ENDPOINT, lambda: "https://fts3.example.org:8446"))
    if "datasets" not in answered:
        question = "Folder below the source that files are taken from"
        steps.append(ask("folder", question, lambda: FOLDER, lambda: "."))
    return steps


def _ask_scenarios(wanted: list[ScenarioDraft], name: str | None, given: Mapping[str, object]) -> None:
    """Ask for scenarios until there is no other one; each is checked as soon as it is complete.

    Raises Back at the first question of the first one; of a later one it leads back to whether there is one.
    """
    while not wanted or click.confirm("Another scenario?", default=False, err=True):
        usual = name if not wanted else None
        try:
            while not _fits(scenario := _ask_scenario(usual), wanted, given):
                usual = None
        except Back:
            if not wanted:
                raise
            continue
        wanted.append(scenario)


def _fits(scenario: ScenarioDraft, others: Sequence[ScenarioDraft], given: Mapping[str, object]) -> bool:
    """Return whether a menu with one more scenario is right; if not, print why."""
    try:
        menu.read(new_menus.write_menu(given, [*others, scenario]), "the new menu", files.load)
    except MenuError as error:
        menu_files.show(f"Invalid value: {error.message}", "Try again.")
        return False
    return True


def _ask_scenario(name: str | None) -> ScenarioDraft:
    """Ask for one scenario; raises Back at its first question."""
    answers: dict[str, str] = {"name": name or ""}
    questions: list[tuple[str, str, click.ParamType[str], str]] = [
        ("name", "Scenario, a group of links", NAME, "main"),
        ("sources", "Sources, blanks between (or `mesh`: all pairs of some)", _several(MENU_END), ""),
        ("mesh", "Which are the mesh", _several(MENU_END), ""),
        (
            "destinations",
            "Destinations, blanks between, with shares as T1_DE_KIT_Disk@40 if they differ",
            _several(DESTINATION),
            "",
        ),
        ("rate", "Rate of all its links together", MENU_RATE, ""),
    ]
    at, answered = 0, list[int]()
    while at < len(questions):
        key, question, kind, usual = questions[at]
        skipped = {"mesh": answers.get("sources") != "mesh", "destinations": answers.get("sources") == "mesh"}
        if skipped.get(key) or (key == "name" and name):
            at += 1
            continue
        try:
            answers[key] = _prompt(question, kind, answers.get(key) or usual)
        except Back:
            if not answered:
                raise
            at = answered.pop()
        else:
            answered.append(at)
            at += 1
    mesh = answers["mesh"].split() if answers["sources"] == "mesh" else []
    sources, destinations = ([], []) if mesh else (answers["sources"].split(), answers["destinations"].split())
    return ScenarioDraft(answers["name"], sources, destinations, mesh, answers["rate"])


def _prompt(question: str, kind: click.ParamType[str], default: str) -> str:
    """Ask on stderr until the answer can be understood; raises Back when it is `back`."""

    def read(text: str) -> str:
        if text.strip().lower() == BACK:
            raise Back
        return kind.convert(text, None, None)

    # an empty default, so that an empty answer gets its error too, instead of the same question once more
    return str(click.prompt(question, default=default, show_default=bool(default), value_proc=read, err=True))
