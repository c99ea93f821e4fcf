"""YAML as plain text with places: every scalar stays text, and everything knows its file and line.

YAML's own guessing (10:00 is 600, no is false, the last of two equal keys wins) never happens here. The
parser's events are composed without recursion, so that neither deep nesting nor an anchor bomb hurts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import yaml

from dc_inject.model import units

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LARGEST_FILE = 20_000_000  # bytes
MOST_NODES = 1_000_000  # after all anchors are expanded
DEEPEST = 40  # levels of nesting
_CONTROL = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.1, 5.1


class Place(NamedTuple):
    """Where something was written; line and column (in characters) are 1-based, 0 where they are not known."""

    file: str
    line: int
    column: int = 0


class Text(str):
    """A scalar, as it was written, or a key."""

    place: Place

    def __new__(cls, text: str, place: Place) -> Text:
        """Take the text and where it stands."""
        self = super().__new__(cls, text)
        self.place = place
        return self


_NOTHING: Mapping[str, Place] = {}


class Kept(Text):
    """A key that was refused, under which all else is read nevertheless."""


class Map(dict[str, "Node"]):
    """A mapping; its keys are Texts, which know their places too. `cut` are keys whose values were refused."""

    def __init__(self, entries: Iterable[tuple[Text, Node]], place: Place, cut: Iterable[Text] = ()) -> None:
        """Take entries, whose keys differ, and the place where the mapping begins."""
        super().__init__(entries)
        self.place = place
        self.cut: Mapping[str, Place] = {key: key.place for key in cut} or _NOTHING

    def entries(self) -> list[tuple[Text, Node]]:
        """Return keys and values."""
        return [(key, value) for key, value in self.items() if isinstance(key, Text)]

    def place_of(self, key: str) -> Place:
        """Return where a key stands, also one that was cut, or the mapping where there is no such key."""
        written = next((name for name in self if name == key), None)
        return written.place if isinstance(written, Text) else self.cut.get(key, self.place)


class Seq(list["Node"]):
    """A list of nodes."""

    def __init__(self, items: Iterable[Node], place: Place) -> None:
        """Take the items and the place where the list begins."""
        super().__init__(items)
        self.place = place


Node: TypeAlias = Text | Map | Seq
Complain: TypeAlias = Callable[[Place, str, str], None]  # place, message, hint


class FirstComplaints:
    """Passes on the first complaints about a file and counts the others: a wrong column makes one a line."""

    MOST = 20

    def __init__(self, complain: Complain) -> None:
        """Take where to complain."""
        self._complain = complain
        self._number = 0
        self._next = Place("", 0)  # of the first one that is not passed on

    def __call__(self, place: Place, message: str, hint: str) -> None:
        """Complain, if not too often."""
        self._number += 1
        if self._number <= self.MOST:
            self._complain(place, message, hint)
        elif self._number == self.MOST + 1:
            self._next = place

    def __bool__(self) -> bool:
        return self._number > 0

    def close(self) -> None:
        """Complain of how many more there are."""
        if self._number > self.MOST:
            more = units.counted(self._number - self.MOST, "more problems")
            self._complain(self._next, f"and {more} in this file", "fix those before it first")


def decode(data: bytes, file: str, complain: Complain, largest: int = LARGEST_FILE) -> str | None:
    """Return the text of a file in UTF-8, or None after one complaint."""
    if len(data) > largest:
        complain(Place(file, 1), f"the file is larger than {largest // 10**6} MB", "split it into several")
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        complain(Place(file, 1), "the file is encoded in UTF-16", "save it as UTF-8")
    elif 0 in data:
        complain(Place(file, 1), "the file is binary", "give a text file in UTF-8")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            complain(Place(file, line), "the file is not encoded in UTF-8", "save it as UTF-8")
            return None
        control = _CONTROL.search(text)
        if control is None:
            return text
        line = text.count("\n", 0, control.start()) + 1
        complain(Place(file, line), f"there is a control character, U+{ord(control[0]):04X}", "remove it")
    return None


def texts(node: Node) -> Iterator[Text]:
    """Yield all scalars of a node that are values, not keys."""
    if isinstance(node, Text):
        yield node
    for inner in node.values() if isinstance(node, Map) else node if isinstance(node, Seq) else ():
        yield from texts(inner)


def child(node: Node, key: str) -> Map:
    """Return a mapping in a mapping; an empty one where there is none."""
    value = node.get(key) if isinstance(node, Map) else None
    return value if isinstance(value, Map) else Map((), node.place)


def compose(data: bytes, file: str, complain: Complain, begin: str = "menu: 1") -> Map | None:
    """Read one YAML document that is a mapping; returns None after complaints when there is no sense in it.

    `begin` is how such a file begins, for hints.
    """
    composer = _composed(data, file, complain)
    return None if composer is None else composer.root_mapping(f"begin with `{begin}`")


def compose_list(data: bytes, file: str, complain: Complain) -> Seq | None:
    """Read one YAML document that is a list; returns None after complaints when there is no sense in it."""
    composer = _composed(data, file, complain)
    return None if composer is None else composer.root_list()


def _composed(data: bytes, file: str, complain: Complain) -> _Composer | None:
    text = decode(data, file, complain)
    if text is None:
        return None
    composer = _Composer(file, complain)
    try:
        for event in yaml.parse(text, Loader=LOADER):
            composer.take(event)
    except _TooMuchError as error:
        complain(error.place, error.message, error.hint)
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1)
        complain(place, f"this is not YAML: {reason}", "fix the syntax")
        return None
    return composer


class _TooMuchError(Exception):
    """The document asks for more than any menu needs."""

    def __init__(self, place: Place, message: str, hint: str) -> None:
        super().__init__(message)
        self.place, self.message, self.hint = place, message, hint


@dataclass
class _Open:
    """A mapping or list whose end has not been seen; `size` counts its nodes, expanded."""

    is_map: bool
    place: Place
    anchor: str | None
    size: int = 1
    key: Text | None = None
    skip: bool = False  # the value that comes belongs to a key that was refused
    entries: list[tuple[Text, Node]] = field(default_factory=list)
    merges: list[Node] = field(default_factory=list)
    keys: dict[str, Place] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)


class _Composer:
    """Puts nodes together from the parser's events."""

    def __init__(self, file: str, complain: Complain) -> None:
        self._file = file
        self._complain = complain
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._documents = 0
        self._root: Node | None = None

    def take(self, event: yaml.Event) -> None:
        """Take the next event."""
        mark = event.start_mark
        place = Place(self._file, mark.line + 1, mark.column + 1) if mark else Place(self._file, 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents == 2:
                self._complain(place, "a second document begins here", "one file is one document: remove `---`")
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), place)
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            if event.tag is not None:
                self._complain(
                    place, f"the YAML tag {event.tag!r} is not supported", "write plain values, without `!`"
                )
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event.value, event.anchor, place)
            else:
                self._begin(isinstance(event, yaml.MappingStartEvent), event.anchor, place)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end()

    def root_mapping(self, hint: str) -> Map | None:
        """Return the document, which has to be a mapping."""
        if isinstance(self._root, Map):
            return self._root
        place = Place(self._file, 1)
        if self._root is None or self._root == "":
            self._complain(place, "the file is empty", hint)
        else:
            kind = "a list" if isinstance(self._root, Seq) else "plain text"
            self._complain(place, f"the file is {kind}, not a mapping (`key: value` lines)", hint)
        return None

    def root_list(self) -> Seq | None:
        """Return the document, which has to be a list."""
        if isinstance(self._root, Seq):
            return self._root
        kind = "is a mapping" if isinstance(self._root, Map) else "holds plain text" if self._root else "is empty"
        self._complain(Place(self._file, 1), f"the file {kind}, not a list", "write a list: `- ...` lines")
        return None

    def _begin(self, is_map: bool, anchor: str | None, place: Place) -> None:
        if len(self._open) >= DEEPEST:
            raise _TooMuchError(place, f"nested more than {DEEPEST} levels deep", "a menu needs about six")
        if anchor is not None:
            self._anchors.pop(anchor, None)
        self._open.append(_Open(is_map, place, anchor))

    def _scalar(self, value: str, anchor: str | None, place: Place) -> None:
        node = Text(value, place)
        if anchor is not None:
            self._anchors[anchor] = node, 1
        self._put(node, 1)

    def _alias(self, anchor: str, place: Place) -> None:
        if any(holder.anchor == anchor for holder in self._open):
            self._complain(
                place, f"*{anchor} is inside the anchor that it names", "an anchor cannot contain itself"
            )
            self._put(Text("", place), 1)
        elif anchor not in self._anchors:
            self._complain(
                place, f"*{anchor} names no anchor above it", f"write &{anchor} at what it should repeat"
            )
            self._put(Text("", place), 1)
        else:
            self._put(*self._anchors[anchor])

    def _end(self) -> None:
        done = self._open.pop()
        if self._open and self._open[-1].key is not None:
            done.place = self._open[-1].key.place  # where a person looks for it: at its key
        node = self._mapping(done) if done.is_map else Seq(done.items, done.place)
        if done.anchor is not None:
            self._anchors[done.anchor] = node, done.size
        self._put(node, done.size)

    def _put(self, node: Node, size: int) -> None:
        """Add a complete node to what holds it."""
        if not self._open:
            if self._documents == 1:
                self._root = node
            return
        top = self._open[-1]
        top.size += size
        if top.size > MOST_NODES:
            what, hint = (
                f"there are more than {MOST_NODES} values",
                "shorten it; an alias counts as what it stands for",
            )
            raise _TooMuchError(top.place, what, hint)
        if not top.is_map:
            top.items.append(node)
        elif top.key is None and not top.skip:
            self._put_key(top, node)
        else:
            if top.key is not None:
                (top.merges.append(node) if top.key == "<<" else top.entries.append((top.key, node)))
            top.key, top.skip = None, False

    def _put_key(self, top: _Open, node: Node) -> None:
        if not isinstance(node, Text):
            self._complain(
                node.place, "expected text as a key, got a mapping or a list", "write plain text as a key"
            )
        elif node in top.keys:
            self._complain(
                node.place,
                f"the key `{node}` appears twice, first in line {top.keys[node].line}",
                "keep one of them",
            )
        else:
            top.key = node
            top.keys[str(node)] = node.place
            return
        top.skip = True

    def _mapping(self, done: _Open) -> Map:
        """Return the mapping with its merges: its own keys first, then those of the earlier merge."""
        merged: dict[str, tuple[Text, Node]] = {str(key): (key, value) for key, value in done.entries}
        for merge in done.merges:
            for other in merge if isinstance(merge, Seq) else (merge,):
                if not isinstance(other, Map):
                    self._complain(
                        done.keys["<<"], "<< can merge only mappings", "write `<<: *anchor` of a mapping"
                    )
                    continue
                for key, value in other.entries():
                    merged.setdefault(str(key), (key, value))
        return Map(merged.values(), done.place)
