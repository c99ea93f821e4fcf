"""`menu expand`: shares, meshes, both ways, sites, expressions and includes are written as single links.

What the links are follows from the menu as it is read (`Expander`); they are put into the menu's own YAML
(`_Rewriter`), where what they replace stays as a comment and all else stays as it was.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dc_inject import menu
from dc_inject.apps.menutools import round_trip
from dc_inject.apps.menutools.round_trip import Commented, RoundTrip
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
_ENDS = ("from", "to", "rate", "volume", "keep", "again", "both_ways")  # keys of a link that are written anew

Where = Callable[[str], str]  # the path of a file -> what the new menu has to call it


def expanded(draft: MenuDraft, load: Load, names: Mapping[str, tuple[str, ...]], where: Where) -> str:
    """Return the text of a menu with every link on its own, and without includes.

    `names` is what the RSE expressions of the menu mean; `where` says how the new menu has to call a file that
    the old one names. Raises MenuError or UsageError where that cannot be done.
    """
    expander = _Expander(draft, load, names, where)
    written_out = {name: expander.scenario(name) for name in draft.document.scenarios}
    if expander.reader.problems:
        raise MenuError(expander.reader.problems)
    return _Rewriter(draft, expander, written_out).text()


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
    """Return the text of a menu for another folder; `name` is its file, `where` says how to call others there."""
    reader = MenuReader(name, None)
    root = nodes.compose(text.encode(), name, reader.complain)
    if root is None:
        raise MenuError(reader.problems)
    new = _called(root, where)
    if not new:
        return text
    document = RoundTrip(text)
    document.replace_scalars(new)
    return document.text()


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

    `entries` has the lines of each entry that `links` has now, None where it may stay; it is None itself where
    the scenario has no such list. `shape` is what its shape has to be then, if that changes.
    """

    lines: tuple[str, ...]
    entries: tuple[tuple[str, ...] | None, ...] | None
    shape: str = ""

    @property
    def stays(self) -> bool:
        """Whether it is written out already."""
        return self.entries is not None and all(entry is None for entry in self.entries)


class _Expander:
    """Writes the scenarios of one menu out; `names` is what its expressions mean."""

    def __init__(self, draft: MenuDraft, load: Load, names: Mapping[str, tuple[str, ...]], where: Where) -> None:
        """Take the menu, what reads the files beside it, and how to call them."""
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
            return _WrittenOut(lines, None, turned)
        written = node["links"]
        listed = isinstance(written, Seq)
        entries = written if isinstance(written, Seq) else self._rows(written)
        entry_lines = [
            (self._entry(name, scenario, entry, node, shape), "both_ways" not in node)
            for entry, node in zip(scenario.links or (), _maps(entries), strict=True)
        ]
        lines = tuple(line for group, _ in entry_lines for line, _ in group)
        rewritten = (
            None if single and all(same for _, same in group) else tuple(line for line, _ in group)
            for group, single in entry_lines
        )
        return _WrittenOut(lines, tuple(rewritten) if listed else None)

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
        """Return the lines of one entry of `links`, and of each whether it says what the entry says."""
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
            same = whole and (str(node["from"]), str(node["to"])) == flow.link[:2]
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


class _Rewriter:
    """Puts single links into the YAML of a menu."""

    def __init__(self, draft: MenuDraft, expander: _Expander, written_out: Mapping[str, _WrittenOut]) -> None:
        self._name = draft.name
        self._expander = expander
        self._written_out = written_out
        self._document = RoundTrip(draft.text, wrap=False)
        self._document.replace_scalars(_called(expander.own, expander.where))

    def text(self) -> str:
        root = self._document.root
        if root.fa.flow_style():  # as JSON is
            root.fa.set_block_style()
        for name, node in self._expander.root.entries():
            key = str(name)
            if key == "scenarios":
                self._scenarios(root, nodes.child(self._expander.root, "scenarios"))
            elif key == "include" or (key not in root and key.startswith("x-")):
                continue
            elif key not in root:
                root[key] = _parsed(self._whole(key, node))[key]
            elif _has_other(node, self._name):
                self._document.comment_out(root, [key], _parsed(self._whole(key, node)))
        if "include" in root:
            self._document.comment_out(root, ["include"])
        return self._document.text()

    def _scenarios(self, root: Commented, scenarios: Map) -> None:
        own = root.get("scenarios")
        if own is None:
            root["scenarios"] = _parsed(["scenarios:", *self._all(scenarios)])["scenarios"]
        elif own.fa.flow_style() or "<<" in own or _is_alias(root, "scenarios"):
            self._document.comment_out(root, ["scenarios"], _parsed(["scenarios:", *self._all(scenarios)]))
        else:
            for key in [str(key) for key in scenarios if key in own]:
                self._scenario(own, key, nodes.child(scenarios, key))
            others = Map([(key, node) for key, node in scenarios.entries() if key not in own], scenarios.place)
            self._add(own, _parsed(["scenarios:", *self._all(others)])["scenarios"] if others else {})

    def _add(self, holder: Commented, new: Commented) -> None:
        """Put more keys at the end of a mapping, with their comments."""
        for key in new:
            holder[key] = new[key]
            if key in new.ca.items:
                holder.ca.items[key] = new.ca.items[key]

    def _all(self, scenarios: Map) -> list[str]:
        """Return the lines of scenarios that are written anew."""
        lines = []
        for key in scenarios:
            node = nodes.child(scenarios, key)
            source = f"  # from {node.place.file}" if node.place.file != self._name else ""
            lines += [f"  {writing.scalar(key)}:{source}", *self._body(node, self._written_out[key])]
        return lines

    def _body(self, node: Map, written_out: _WrittenOut) -> list[str]:
        """Return the lines of a scenario below its name."""
        gone = (*WAYS, "shape") if written_out.shape else WAYS
        placed = ((str(key), self._expander.placed(value, key)) for key, value in node.entries())
        rest = [(key, writing.flow(value)) for key, value in placed if key not in gone]
        rest += [("shape", written_out.shape)] if written_out.shape else []
        return [*(f"    {key}: {value}" for key, value in rest), *_links(written_out.lines)]

    def _scenario(self, own: Commented, key: str, node: Map) -> None:
        """Write one scenario out where it stands."""
        value, written_out = own[key], self._written_out[key]
        if written_out.stays:
            return
        if value.fa.flow_style() or "<<" in value or _is_alias(own, key):
            lines = [f"{writing.scalar(key)}:", *self._body(node, written_out)]
            self._document.comment_out(own, [key], _parsed(lines))
        elif written_out.entries is not None and isinstance(value["links"], list):
            self._entries(value["links"], written_out.entries)
        else:
            gone = [name for name in value if name in WAYS or (written_out.shape and name == "shape")]
            shape = [f"    shape: {written_out.shape}"] if written_out.shape else []
            new = _parsed([*shape, *_links(written_out.lines)])
            self._document.comment_out(value, gone, new)

    def _entries(self, links: Commented, entries: Sequence[tuple[str, ...] | None]) -> None:
        """Write entries of a list out where they stand."""
        for at in range(len(entries) - 1, -1, -1):
            new = entries[at]
            if new is not None:
                links[at] = _parsed([new[0]])
                for line in reversed(new[1:]):
                    links.insert(at + 1, _parsed([line]))

    def _whole(self, key: str, node: Node) -> list[str]:
        """Return the lines of a key at the top."""
        node = self._expander.placed(node, key)
        if isinstance(node, Map) and node:
            return [
                f"{key}:",
                *(f"  {writing.scalar(name)}: {writing.flow(value)}" for name, value in node.items()),
            ]
        if isinstance(node, Seq) and node:
            return [f"{key}:", *(f"  - {writing.flow(value)}" for value in node)]
        return [f"{key}: {writing.flow(node)}"]


def _parsed(lines: Sequence[str]) -> Commented:
    """Return lines of YAML as a part of a menu."""
    return round_trip.parse("".join(f"{line}\n" for line in lines))


def _is_alias(holder: Commented, key: str) -> bool:
    """Return whether a value stands elsewhere, before its key."""
    return bool(holder.lc.value(key) < holder.lc.key(key))


def _links(lines: Iterable[str]) -> list[str]:
    return ["    links:", *(f"      - {line}" for line in lines)]


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
