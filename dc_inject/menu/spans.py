"""Where the parts of a menu stand in its text, so that one is replaced while all else stays as it was written.

Comments, order, quotes and blanks are a person's work; no YAML library writes them back as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import yaml

from dc_inject.menu.nodes import LOADER


@dataclass(slots=True, eq=False)
class Span:
    """A node of YAML: its text is [start, end) of the document's; `kind` is scalar, map, list or alias.

    `text` is what a scalar says; `anchor` its name, or that which an alias names, whose node is `target`.
    """

    kind: str
    start: int
    end: int
    column: int = 0
    text: str = ""
    anchor: str = ""
    flow: bool = False  # `{...}` or `[...]`
    items: list[Span] = field(default_factory=list)
    pairs: list[tuple[Span, Span]] = field(default_factory=list)
    target: Span | None = None

    @property
    def node(self) -> Span:
        """The node itself: what an alias stands for."""
        return self if self.target is None else self.target.node

    def entries(self) -> Iterator[tuple[Span, Span]]:
        """Yield keys and values, its own before those that are merged in, each key once."""
        seen = set()
        merged = [value for key, value in self.node.pairs if key.text == "<<"]
        for key, value in self.node.pairs:
            if key.text != "<<":
                seen.add(key.text)
                yield key, value
        for one in merged:
            for part in one.node.items or [one]:
                for key, value in part.node.entries():
                    if key.text not in seen:
                        seen.add(key.text)
                        yield key, value

    def get(self, name: str) -> Span | None:
        """Return the value of a key."""
        return next((value for key, value in self.entries() if key.text == name), None)

    def scalars(self) -> Iterator[Span]:
        """Yield all scalars in it that are values, not keys."""
        node = self.node
        if node.kind == "scalar":
            yield node
        for one in (*node.items, *(value for _, value in node.pairs)):
            yield from one.scalars()


def parse(text: str) -> Span:
    """Return where the parts of a document stand; it is one that was read as a menu before."""
    open_: list[Span] = []
    keys: list[Span | None] = []
    anchors: dict[str, Span] = {}
    root = Span("scalar", 0, 0)
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            kind = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
            made = _span(kind, event, anchors)
            made.flow = bool(event.flow_style)
            open_.append(made)
            keys.append(None)
            continue
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            done = open_.pop()
            keys.pop()
            inside = [*done.items, *(value for _, value in done.pairs)]
            done.end = _end(event) if done.flow else max((one.end for one in inside), default=done.start)
        elif isinstance(event, yaml.ScalarEvent):
            done = _span("scalar", event, anchors)
            done.text = event.value
            done.end = done.start + len(text[done.start : _end(event)].rstrip())
        elif isinstance(event, yaml.AliasEvent):
            done = _span("alias", event, {})
            done.end, done.target = _end(event), anchors[done.anchor]
        else:
            continue
        if not open_:
            root = done
        elif open_[-1].kind == "list":
            open_[-1].items.append(done)
        elif (key := keys[-1]) is None:
            keys[-1] = done
        else:
            open_[-1].pairs.append((key, done))
            keys[-1] = None
    return root


def value_edit(span: Span, text: str, new: str) -> tuple[int, int, str]:
    """Return what puts another value into a scalar's place, with its anchor and its quotes kept."""
    start = span.start
    if span.anchor:
        start = text.index(f"&{span.anchor}", start) + len(span.anchor) + 1
        start += len(text[start : span.end]) - len(text[start : span.end].lstrip())
    quote = text[start] if text[start] in "\"'" else ""
    return start, span.end, f"{quote}{new}{quote}"


def replaced(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with some parts, which do not overlap, replaced."""
    parts, at = [], 0
    for start, end, new in sorted(edits):
        parts += [text[at:start], new]
        at = end
    return "".join((*parts, text[at:]))


def _end(event: yaml.Event) -> int:
    assert event.end_mark is not None
    return event.end_mark.index


def _span(kind: str, event: yaml.NodeEvent, anchors: dict[str, Span]) -> Span:
    mark = event.start_mark
    assert mark is not None
    made = Span(kind, mark.index, mark.index, mark.column, anchor=event.anchor or "")
    if event.anchor:
        anchors[event.anchor] = made
    return made
