"""`menu expand`: shares, meshes, both ways, sites, expressions and includes are written as single links.

What the links are follows from the menu as it is read (`_Expander`). If a scenario changes, all scenarios are
replaced, and the old ones stay as a comment; so it is with each key at the top. All else stays as it was.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dc_inject import menu
from dc_inject.menu import differences, nodes, writing
from dc_inject.menu.draft import MenuDraft
from dc_inject.menu.endpoints import EndpointResolver
from dc_inject.menu.includes import Load, MenuReader, path_of
from dc_inject.menu.nodes import Map, Node, Place, Seq, Text
from dc_inject.menu.schema import LinkEntry, Scenario
from dc_inject.menu.shares_and_meshes import FlowWriter
from dc_inject.menu.values import WrongError
from dc_inject.model import Flow, units
from dc_inject.model.errors import DcInjectError, MenuError, UsageError
from dc_inject.model.goals import Recycle

WAYS = (
    "from",
    "to",
    "mesh",
    "rate",
    "volume",
    "keep",
    "again",
    "both_ways",
    "links",
)  # keys of a scenario that become `links`
_ENDS = ("from", "to", "rate", "volume", "keep", "again", "both_ways")  # keys of a link that are replaced

Where = Callable[[str], str]  # the path of a file -> what the new menu has to call it


def expanded(draft: MenuDraft, load: Load, names: Mapping[str, tuple[str, ...]], where: Where) -> str:
    """Return the text of a menu with every link on its own, and without includes.

    `names` is what the RSE expressions of the menu mean; `where` returns how the new menu has to name a file that
    the old one names. Raises MenuError or UsageError where that cannot be done.
    """
    expander = _Expander(draft, load, names, where)
    written_out = {name: expander.scenario(name) for name in draft.document.scenarios}
    if expander.reader.problems:
        raise MenuError(expander.reader.problems)
    called = _called(expander.own, expander.where)
    text = writing.with_scalars(draft.text, called).replace("\r\n", "\n").replace("\r", "\n")
    made = _text(text, expander, written_out, keep=True)
    wrong: list[Place] = []
    nodes.compose(made.encode(), draft.name, lambda place, *_: wrong.append(place))
    if wrong:  # such as an anchor that is gone
        made = _text(text, expander, written_out, keep=False)
    return made.replace("\n", "\r\n") if "\r\n" in draft.text else made


def written_out(
    draft: MenuDraft, names: Mapping[str, tuple[str, ...]], name: str, load: Load, where: Where
) -> str:
    """Return the text of a menu with every link on its own, for the file `name`; see `expanded`.

    Raises MenuError where that cannot be, and DcInjectError if it would not ask for the same.
    """
    text = expanded(draft, load, names, where)
    old, new = (menu.campaign([one.resolve(names)]) for one in (draft, menu.read(text, name, load)))
    if differences.changes(old, new) or list(differences.others(old, new)):
        raise DcInjectError("the expanded menu would differ from the original", "please report this")
    return text


def read_meaning(text: str) -> tuple[str, tuple[str, ...]]:
    """Read what an RSE expression means, as `tier=2&country=DE=T2_DE_DESY,T2_DE_RWTH`; raises ValueError.

    It is split at the last equals sign: expressions have some too, names of RSEs have none.
    """
    expression, _, names = text.rpartition("=")
    rses = tuple(name.strip() for name in names.split(",") if name.strip())
    if not expression or not rses:
        raise WrongError(f"{text!r} is not EXPRESSION=RSE,RSE...", "")
    return expression.strip(), rses


def match_meanings(
    draft: MenuDraft, meanings: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return what RSE expressions of a menu mean, and those without a meaning, each with its service.

    Raises UsageError for a meaning of an expression that the menu does not have, and for two of one.
    """
    names = dict(meanings)
    known = {expression: through for through, expression in draft.expressions}
    if unused := sorted(names.keys() - known):
        hint = units.did_you_mean(unused[0], known, "`")
        raise UsageError(f"the menu has no RSE expression {unused[0]!r}, which --rses names", hint)
    if len(names) < len(meanings):
        raise UsageError("--rses names an RSE expression twice", "keep one of them")
    return names, {expression: through for expression, through in known.items() if expression not in names}


def moved(text: str, name: str, where: Where) -> str:
    """Return the text of a menu for another folder; `name` is its file, `where` names others there."""
    reader = MenuReader(name, None)
    root = nodes.compose(text.encode(), name, reader.complain)
    if root is None:
        raise MenuError(reader.problems)
    return writing.with_scalars(text, _called(root, where))


def _called(root: Map, where: Where) -> dict[tuple[int, int], str]:
    """Return the new names of the files that a document names, by their positions, where they differ."""
    files = ((file, where(path_of(file))) for file in _file_names(root))
    return {(file.place.line, file.place.column): new for file, new in files if posixpath.normpath(file) != new}


def _file_names(node: Node, key: str = "", above: str = "") -> Iterator[Text]:
    """Yield the scalars that name files."""
    if isinstance(node, Map):
        for name, value in node.entries():
            yield from _file_names(value, name, key)
    elif isinstance(node, Seq):
        for value in node:
            yield from _file_names(value, key, above)
    elif _names_a_file(key, above):
        yield node


@dataclass(frozen=True, slots=True)
class _WrittenOut:
    """A scenario as single links, each in one line of YAML.

    It `stays` if it is written out already. `shape` is what its shape has to be then, if that changes.
    """

    lines: tuple[str, ...]
    stays: bool = False
    shape: str = ""


class _Expander:
    """Writes the scenarios of one menu out; `names` is what its expressions mean."""

    def __init__(self, draft: MenuDraft, load: Load, names: Mapping[str, tuple[str, ...]], where: Where) -> None:
        """Take the menu, what reads its other files, and how to name them."""
        self.reader = MenuReader(draft.name, load)
        data = draft.text.encode()
        root, own = self.reader.document(data), nodes.compose(data, draft.name, self.reader.complain)
        if root is None or own is None:
            raise MenuError(self.reader.problems)
        self.root = root  # with its includes merged in
        self.own = Map([(key, node) for key, node in own.entries() if key != "include"], own.place)
        self._document = draft.document
        self.where = where
        self._endpoints = EndpointResolver(
            draft.document, names if draft.expressions else None, self.reader.complain
        )

    def scenario(self, name: str) -> _WrittenOut:
        """Write a scenario out."""
        scenario, node = self._document.scenarios[name], self._node(name)
        shape = _first(self._in_defaults("shape"), node.get("shape"))
        if not scenario.written("links"):
            flows = self._flows(name, scenario)
            lines = tuple(_line(flow, _asks(flow, scenario)) for flow in flows)
            rate = scenario.rate
            turned = writing.flow(_in_parts(shape, rate)) if rate and shape and _in_rates(shape) else ""
            return _WrittenOut(lines, shape=turned)
        written = node["links"]
        listed = isinstance(written, Seq)
        entries = written if isinstance(written, Seq) else self._rows(written)
        entry_lines = [
            (self._entry(name, scenario, entry, node, shape), "both_ways" not in node)
            for entry, node in zip(scenario.links or (), _maps(entries), strict=True)
        ]
        lines = tuple(line for group, _ in entry_lines for line, _ in group)
        stays = listed and all(single and all(same for _, same in group) for group, single in entry_lines)
        return _WrittenOut(lines, stays)

    def placed(self, node: Node, key: str = "", above: str = "") -> Node:
        """Return a node in which files are called as the new menu has to call them."""
        if isinstance(node, Map):
            return Map([(name, self.placed(value, name, key)) for name, value in node.entries()], node.place)
        if isinstance(node, Seq):
            return Seq([self.placed(item, key, above) for item in node], node.place)
        return Text(self.called(node), node.place) if _names_a_file(key, above) else node

    def called(self, file: Text) -> str:
        """Return how the new menu has to call a file."""
        return self.where(path_of(file))

    def _node(self, name: str) -> Map:
        return nodes.child(nodes.child(self.root, "scenarios"), name)

    def _rows(self, written: Node) -> Seq:
        file = written.get("file") if isinstance(written, Map) else None
        return self.reader.rows(file) if isinstance(file, Text) else Seq((), written.place)

    def _in_defaults(self, key: str) -> Node | None:
        defaults = self.root.get("defaults")
        return defaults.get(key) if isinstance(defaults, Map) else None

    def _flows(self, name: str, scenario: Scenario) -> Sequence[Flow]:
        first = scenario.model_copy(update={"then": None})  # which stays as it is
        alone = self._document.model_copy(update={"scenarios": {name: first}})
        return FlowWriter(alone, self._endpoints, self.reader.complain).flows()

    def _entry(
        self, name: str, scenario: Scenario, entry: LinkEntry, node: Map, shape: Node | None
    ) -> list[tuple[str, bool]]:
        """Return the lines of one entry of `links`, and of each whether it means what the entry means."""
        flows = self._flows(name, scenario.model_copy(update={"links": (entry,)}))
        more = [(str(k), writing.flow(self.placed(value, k))) for k, value in node.entries() if k not in _ENDS]
        whole = len(flows) <= (2 if entry.both_ways else 1)  # else they share what it asks for
        lines = []
        for flow in flows:
            mine = _first(shape, node.get("shape"))
            parts = [(key, value) for key, value in more if whole or key != "shape" or not mine]
            if not whole and mine and entry.rate and _in_rates(mine):
                parts.append(("shape", writing.flow(_in_parts(mine, entry.rate))))
            elif not whole and mine and "shape" in node:
                parts.append(("shape", writing.flow(mine)))
            asks = [(key, str(node[key])) for key in ("rate", "volume", "keep", "again") if key in node]
            same = whole and (str(node["from"]), str(node["to"])) == flow.link.ends
            lines.append((_line(flow, [*(asks if whole else _asks(flow, entry)), *parts]), same))
        return lines


def _names_a_file(key: str, above: str) -> bool:
    """Return whether the value of a key is a file's path, by the key and the one above it."""
    return key == "include" or (above, key) in {("datasets", "file"), ("files", "list"), ("links", "file")}


def _line(flow: Flow, more: Sequence[tuple[str, str]]) -> str:
    return writing.link(flow.link.source, flow.link.destination, more)


def _asks(flow: Flow, entry: Scenario | LinkEntry) -> list[tuple[str, str]]:
    """Return what a link asks for that has a part of what its entry does: a rate, and a goal."""
    asks = [("rate", units.exact_rate(flow.rate))] if entry.rate is not None else []
    if isinstance(flow.goal, Recycle):
        return [*asks, (flow.goal.kind, "true")]
    return asks if flow.goal is None else [*asks, (flow.goal.kind, units.exact_size(flow.goal.bytes))]


def _maps(entries: Iterable[Node]) -> Iterator[Map]:
    return (entry for entry in entries if isinstance(entry, Map))


def _first(otherwise: Node | None, own: Node | None) -> Node | None:
    return otherwise if own is None else own


def _in_rates(shape: Node) -> bool:
    """Return whether a shape has levels that are rates, not parts of one."""
    return any(_level(text) is not None for text in nodes.texts(shape))


def _in_parts(shape: Node, rate: float) -> Node:
    """Return a shape with its levels as parts of a rate (bytes per second)."""
    if isinstance(shape, Map):
        return Map([(key, _in_parts(value, rate)) for key, value in shape.entries()], shape.place)
    if isinstance(shape, Seq):
        return Seq([_in_parts(item, rate) for item in shape], shape.place)
    level = _level(shape)
    return shape if level is None else Text(f"{level / rate:.12f}".rstrip("0").rstrip("."), shape.place)


def _level(text: str) -> float | None:
    try:
        return units.parse_rate(text)
    except ValueError:
        return None


def _text(text: str, expander: _Expander, written_out: Mapping[str, _WrittenOut], *, keep: bool) -> str:
    """Return a menu written out; without `keep` none of its own lines stays but as a comment."""
    head, own = _blocks(text) if keep else ("".join(f"# {line}" for line in _lines(text)), {})
    parts = [head]
    others = (str(key) for key in expander.root if key not in own and key != "include")
    for key in (*own, *(key for key in others if not keep or not key.startswith("x-"))):
        node, lines = None if key == "include" else expander.root.get(key), own.get(key, [])
        scenarios = node if key == "scenarios" and isinstance(node, Map) else None
        stays = all(written_out[name].stays for name in scenarios or ())
        if node is not None and lines and stays and not _has_other(node, expander.reader.name):
            parts.append("".join(lines))
            continue
        parts.append("".join(line if line.lstrip().startswith("#") else f"# {line}" for line in lines))
        if scenarios is not None:
            parts += ["scenarios:\n", *_all(scenarios, expander, written_out)]
        elif node is not None:
            parts += _whole(key, expander.placed(node, key))
    ended = [part if not part or part.endswith("\n") else f"{part}\n" for part in parts[:-1]]
    return "".join([*ended, parts[-1]])


def _blocks(text: str) -> tuple[str, dict[str, list[str]]]:
    """Return what stands before the first key of a menu, and the lines of each key; none in braces."""
    root: Mapping[str, Node] = nodes.compose(text.encode(), "", lambda *_: None) or {}
    begins = {key.place.line - 1: str(key) for key in root if isinstance(key, Text) and key.place.column == 1}
    lines = _lines(text)
    if len(begins) < len(root) or any(not lines[at].startswith((key, '"', "'")) for at, key in begins.items()):
        return "".join(f"# {line}" for line in lines), {}
    numbers = sorted(begins)
    return "".join(lines[: numbers[0]]), {
        begins[begin]: lines[begin:end] for begin, end in pairwise([*numbers, len(lines)])
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)  # at the line ends of YAML: a menu has no other control characters


def _all(scenarios: Map, expander: _Expander, written_out: Mapping[str, _WrittenOut]) -> Iterator[str]:
    """Yield the lines of scenarios."""
    for key in scenarios:
        node, links = nodes.child(scenarios, key), written_out[key]
        source = f"  # from {node.place.file}" if node.place.file != expander.reader.name else ""
        yield f"  {writing.scalar(key)}:{source}\n"
        gone = (*WAYS, "shape") if links.shape else WAYS
        placed = ((str(name), expander.placed(value, name)) for name, value in node.entries())
        rest = [(name, writing.flow(value)) for name, value in placed if name not in gone]
        rest += [("shape", links.shape)] if links.shape else []
        yield from (f"    {name}: {value}\n" for name, value in rest)
        yield "    links:\n"
        yield from (f"      - {line}\n" for line in links.lines)


def _whole(key: str, node: Node) -> Iterator[str]:
    """Yield the lines of a key at the top."""
    if isinstance(node, Map) and node:
        yield f"{key}:\n"
        yield from (f"  {writing.scalar(name)}: {writing.flow(value)}\n" for name, value in node.items())
    elif isinstance(node, Seq) and node:
        yield f"{key}:\n"
        yield from (f"  - {writing.flow(value)}\n" for value in node)
    else:
        yield f"{key}: {writing.flow(node)}\n"


def _has_other(node: Node, name: str) -> bool:
    """Return whether something below a key is from another file."""
    return any(place.file != name for place in _places(node))


def _places(node: Node) -> Iterator[Place]:
    if isinstance(node, Map):
        for key, value in node.entries():
            yield key.place
            yield from _places(value)
    elif isinstance(node, Seq):
        for item in node:
            yield from _places(item)
    else:
        yield node.place
