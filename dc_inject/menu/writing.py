"""Menus as text: what `menu import` and `menu new` write, with comments, and what `menu expand` puts in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from dc_inject.menu.nodes import LOADER, Map, Node, Seq
from dc_inject.model import Limits, units
from dc_inject.model.services import DEFAULT, SERVICES

_PLAIN = re.compile(r"[A-Za-z0-9_.](?:[A-Za-z0-9_.@+/ %-]*[A-Za-z0-9_.@+/%-])?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?(?:Z|[+-]\d\d:\d\d)?")
_WIDTH = 32  # at which comments begin


@dataclass(frozen=True, slots=True)
class Heading:
    """The top of a menu, as texts of the format; `assumed` are the keys that were not given."""

    campaign: str
    contact: str
    start: str
    end: str
    timezone: str = "UTC"
    description: str = ""
    through: str = DEFAULT.name
    datasets: Sequence[str] = ()  # patterns of DIDs
    bounds: str = "files: 1..1000, mean_file: 1..20 GB"  # of datasets
    folder: str = ""  # of sources through FTS
    endpoint: str = ""
    include: str = ""
    assumed: frozenset[str] = field(default_factory=frozenset)


def scalar(text: str) -> str:
    """Write a text as a YAML scalar that can stand anywhere: plain where that is safe, else in quotes."""
    if _PLAIN.fullmatch(text) or _TIME.fullmatch(text):
        return text
    written = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
    inside = (written.get(char) or (char if char.isprintable() else f"\\U{ord(char):08X}") for char in text)
    return f'"{"".join(inside)}"'


def with_scalars(text: str, new: Mapping[tuple[int, int], str]) -> str:
    """Return YAML with other texts in the place of some scalars, by line and column as in a Place.

    All else stays, also their quotes, anchors and comments.
    """
    parts, done = [], 0
    for event in yaml.parse(text, Loader=LOADER) if new else ():
        begin, end = event.start_mark, event.end_mark
        if not isinstance(event, yaml.ScalarEvent) or begin is None or end is None:
            continue
        if (value := new.get((begin.line + 1, begin.column + 1))) is not None:
            old, written = text[begin.index : end.index], scalar(value)
            head, found, tail = old.rpartition(event.value.strip() or old)
            if not found or written != value:  # it has escapes or several lines, or the new one needs quotes
                head, tail = f"&{event.anchor} " if event.anchor else "", old[len(old.rstrip("\r\n")) :]
                double = written if written != value else f'"{value}"'
                written = {"'": "'" + value.replace("'", "''") + "'", '"': double}.get(old[-1:], written)
            parts += [text[done : begin.index], head, written, tail]
            done = end.index
    return "".join(parts) + text[done:]


def flow(node: Node) -> str:
    """Write a node in one line: `{from: A, to: B}`, `[A, B]` or a scalar."""
    if isinstance(node, Map):
        return "{" + ", ".join(f"{scalar(key)}: {flow(value)}" for key, value in node.items()) + "}"
    return "[" + ", ".join(flow(item) for item in node) + "]" if isinstance(node, Seq) else scalar(node)


def link(source: str, destination: str, more: Iterable[tuple[str, str]]) -> str:
    """Write one link in one line; `more` are its other keys, `rate` first, with their YAML."""
    parts = (("from", scalar(source)), ("to", scalar(destination)), *more)
    return "{" + ", ".join(f"{key}: {value}" for key, value in parts) + "}"


def links(name: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of a scenario whose links have their own rates."""
    return [f"  {scalar(name)}:", "    links:", *(f"      - {line}" for line in lines)]


def shared(name: str, keys: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of a scenario whose links share a rate; `keys` have their YAML."""
    return [f"  {scalar(name)}:", *(f"    {key}: {value}" for key, value in keys)]


def menu(heading: Heading, comments: Iterable[str], total: str, scenarios: Iterable[str]) -> str:
    """Return the text of a menu; `total` is the sum of its rates, for `target` and, if needed, `limits`."""
    return _text(comments, [*_top(heading, total), "scenarios:", *scenarios])


def day(heading: Heading, total: str, scenarios: Iterable[str]) -> str:
    """Return the text of a menu that includes what it has in common with others: `include` names that file."""
    own = [line for line in _top(heading, total) if not _is_common(line) or line.startswith("include:")]
    return _text([], [*own, "scenarios:", *scenarios])


def common(heading: Heading, comments: Iterable[str], total: str) -> str:
    """Return what menus have in common; `total` is the highest sum of their rates."""
    return _text(comments, [line for line in _top(heading, total) if _is_common(line)])


def _is_common(line: str) -> bool:
    return line.startswith((" ", "contact:", "timezone:", "limits:", "include:", "fts:", "defaults:"))


def _text(comments: Iterable[str], lines: Iterable[str]) -> str:
    return "\n".join([*(f"# {comment}" if comment else "#" for comment in comments), *lines]) + "\n"


def _top(heading: Heading, total: str) -> list[str]:
    h, lines = heading, ["menu: 1"]
    lines.append(_line(h, "campaign", scalar(h.campaign), "one ledger for all menus of this name"))
    if h.description:
        lines.append(f"description: {scalar(h.description)}")
    lines.append(_line(h, "contact", scalar(h.contact), "whom to ask; every rule and job names it"))
    lines.append(_line(h, "timezone", scalar(h.timezone), "of all times here that have no offset"))
    lines.append(_line(h, "start", scalar(h.start)))
    lines.append(_line(h, "end", scalar(h.end)))
    lines.append(_line(h, "target", total, "what the rates sum to; checked"))
    default = Limits().total
    if units.parse_rate(total) > default:
        why = f"above the default, {units.format_rate(default)}: agree on it first"
        lines.append(_line(h, "limits", f"{{total: {total}}}", why))
    if h.include:
        lines.append(f"include: {scalar(h.include)}")
    if h.endpoint:
        lines.append(f"fts: {{endpoint: {scalar(h.endpoint)}}}")
    return lines + _defaults(h)


def _defaults(heading: Heading) -> list[str]:
    lines, takes_files = ["defaults:", f"  through: {heading.through}"], SERVICES[heading.through].takes_files
    if takes_files and not heading.datasets:
        comment = "  # assumed: the source itself" if "folder" in heading.assumed else ""
        return [*lines, f"  files: {{folder: {scalar(heading.folder)}}}{comment}"]
    if "datasets" in heading.assumed:
        lines.append(
            "  # assumed: any dataset of these sizes; name those that may be injected, such as cms:/*/RAW#*"
        )
    patterns = ", ".join(scalar(pattern) for pattern in heading.datasets)
    return [*lines, f"  datasets: {{did: [{patterns}]{'' if takes_files else ', ' + heading.bounds}}}"]


def _line(heading: Heading, key: str, value: str, comment: str = "") -> str:
    comments = "; ".join(part for part in ("assumed" if key in heading.assumed else "", comment) if part)
    return f"{key}: {value}".ljust(_WIDTH if comments else 0) + (f"  # {comments}" if comments else "")
