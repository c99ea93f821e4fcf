"""Scenarios written out as single links: shares, meshes, both ways, sites, expressions, files of links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dc_inject.menu import nodes, writing
from dc_inject.menu.draft import MenuDraft
from dc_inject.menu.ends import Naming
from dc_inject.menu.flows import Writer
from dc_inject.menu.nodes import Map, Node, Seq, Text
from dc_inject.menu.reading import Load, Reading, path_of
from dc_inject.menu.schema import LinkEntry, Scenario
from dc_inject.model import Flow, units
from dc_inject.model.errors import MenuError
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


@dataclass(frozen=True, slots=True)
class WrittenOut:
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
        return self.entries is not None and all(one is None for one in self.entries)


class Expander:
    """Writes the scenarios of one menu out; `names` is what its expressions mean."""

    def __init__(self, draft: MenuDraft, load: Load, names: Mapping[str, tuple[str, ...]], where: Where) -> None:
        """Take the menu, what reads the files beside it, and how to call them."""
        self.reading = Reading(draft.name, load)
        root = self.reading.document(draft.text.encode())
        if root is None:
            raise MenuError(self.reading.problems)
        self.root = root  # with its includes merged in
        self._document = draft.document
        self._where = where
        self._naming = Naming(draft.document, names if draft.expressions else None, self.reading.complain)

    def scenario(self, name: str) -> WrittenOut:
        """Write a scenario out."""
        scenario, node = self._document.scenarios[name], self._node(name)
        shape = _first(self._in_defaults("shape"), node.get("shape"))
        if "links" not in scenario.model_fields_set:
            flows = self._flows(name, scenario)
            lines = tuple(_line(flow, _asks(flow, scenario)) for flow in flows)
            rate = scenario.rate
            turned = writing.flow(_in_parts(shape, rate)) if rate and shape and _in_rates(shape) else ""
            return WrittenOut(lines, None, turned)
        written = node["links"]
        listed = isinstance(written, Seq)
        entries = written if isinstance(written, Seq) else self._rows(written)
        made = []
        for entry, one in zip(scenario.links or (), entries, strict=True):
            assert isinstance(one, Map)
            made.append((self._entry(name, scenario, entry, one, shape), _is_single(one)))
        lines = tuple(line for some, _ in made for line, _ in some)
        kept = (None if single and all(same for _, same in some) else tuple(line for line, _ in some)
                for some, single in made)  # fmt: skip
        return WrittenOut(lines, tuple(kept) if listed else None)

    def placed(self, node: Node, key: str = "", above: str = "") -> Node:
        """Return a node in which files are called as the new menu has to call them."""
        if isinstance(node, Map):
            return Map([(name, self.placed(value, name, key)) for name, value in node.entries()], node.place)
        if isinstance(node, Seq):
            return Seq([self.placed(one, key, above) for one in node], node.place)
        return Text(self.called(node), node.place) if names_a_file(key, above) else node

    def called(self, file: Text) -> str:
        """Return how the new menu has to call a file."""
        return self._where(path_of(file))

    def _node(self, name: str) -> Map:
        scenarios = self.root["scenarios"]
        assert isinstance(scenarios, Map)
        found = scenarios[name]
        assert isinstance(found, Map)
        return found

    def _rows(self, written: Node) -> Seq:
        assert isinstance(written, Map)
        file = written["file"]
        assert isinstance(file, Text)
        return self.reading.rows(file)

    def _in_defaults(self, key: str) -> Node | None:
        defaults = self.root.get("defaults")
        return defaults.get(key) if isinstance(defaults, Map) else None

    def _flows(self, name: str, scenario: Scenario) -> Sequence[Flow]:
        first = scenario.model_copy(update={"then": None})  # which stays as it is
        alone = self._document.model_copy(update={"scenarios": {name: first}})
        return Writer(alone, self._naming, self.reading.complain).flows()

    def _entry(
        self, name: str, scenario: Scenario, entry: LinkEntry, node: Map, shape: Node | None
    ) -> list[tuple[str, bool]]:
        """Return the lines of one entry of `links`, and of each whether it says what the entry says."""
        flows = self._flows(name, scenario.model_copy(update={"links": (entry,)}))
        more = [(str(k), writing.flow(self.placed(value, k))) for k, value in node.entries() if k not in _ENDS]
        whole = len(flows) <= (2 if entry.both_ways else 1)  # else they share what it asks for
        found = []
        for flow in flows:
            mine = _first(shape, node.get("shape"))
            parts = [(key, value) for key, value in more if whole or key != "shape" or not mine]
            if not whole and mine and entry.rate and _in_rates(mine):
                parts.append(("shape", writing.flow(_in_parts(mine, entry.rate))))
            elif not whole and mine and "shape" in node:
                parts.append(("shape", writing.flow(mine)))
            asks = [(key, str(node[key])) for key in ("rate", "volume", "keep", "again") if key in node]
            same = whole and (str(node["from"]), str(node["to"])) == flow.link[:2]
            found.append((_line(flow, [*(asks if whole else _asks(flow, entry)), *parts]), same))
        return found


def names_a_file(key: str, above: str) -> bool:
    """Tell whether the value of a key is a file's path, by the key and the one above it."""
    return key == "include" or (above, key) in {("datasets", "file"), ("files", "list"), ("links", "file")}


def _line(flow: Flow, more: Sequence[tuple[str, str]]) -> str:
    return writing.link(flow.link.source, flow.link.destination, more)


def _asks(flow: Flow, entry: Scenario | LinkEntry) -> list[tuple[str, str]]:
    """Return what a link asks for that has a part of what its entry does: a rate, and a goal."""
    found = [("rate", units.exact_rate(flow.rate))] if entry.rate is not None else []
    if isinstance(flow.goal, Recycle):
        return [*found, (flow.goal.kind, "true")]
    return found if flow.goal is None else [*found, (flow.goal.kind, units.exact_size(flow.goal.bytes))]


def _is_single(node: Map) -> bool:
    return "both_ways" not in node


def _first(otherwise: Node | None, own: Node | None) -> Node | None:
    return otherwise if own is None else own


def _in_rates(shape: Node) -> bool:
    """Tell whether a shape has levels that are rates, not parts of one."""
    return any(_level(text) is not None for text in nodes.texts(shape))


def _in_parts(shape: Node, rate: float) -> Node:
    """Return a shape with its levels as parts of a rate (bytes per second)."""
    if isinstance(shape, Map):
        return Map([(key, _in_parts(value, rate)) for key, value in shape.entries()], shape.place)
    if isinstance(shape, Seq):
        return Seq([_in_parts(one, rate) for one in shape], shape.place)
    level = _level(shape)
    return shape if level is None else Text(f"{level / rate:.12f}".rstrip("0").rstrip("."), shape.place)


def _level(text: str) -> float | None:
    try:
        return units.parse_rate(text)
    except ValueError:
        return None
