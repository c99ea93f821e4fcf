"""A menu's own YAML, changed by ruamel.yaml's round trip: comments, order, anchors and quotes stay as they are.

Blanks between words are not kept, and the indentation is the one that the file has first. In here too every scalar
is text. ruamel.yaml forgets comments within braces; a menu that would lose one is refused instead.
Only what was read as a menu before comes here, so that size, depth and anchors are within their bounds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dc_inject.model.errors import UsageError

Commented: TypeAlias = Any  # a mapping or list as ruamel.yaml has it, with its comments
_ENDLESS = 1_000_000
Position = tuple[int, int]  # line and column, 1-based as in a Place


class RoundTrip:
    """One document: `root` is its mapping, as ruamel.yaml has it."""

    def __init__(self, text: str, *, wrap: bool = True) -> None:
        """Take the text of a menu; without `wrap` what stands in braces is written in one line, however long.

        Raises UsageError if ruamel.yaml cannot read it.
        """
        self._before = text.replace("\r\n", "\n")
        self._ends = "\r\n" if "\r\n" in text else "\n"
        self._width = max(map(len, self._before.splitlines()), default=80) if wrap else _ENDLESS
        self.root: Commented = parse(self._before)
        self._indents = {"mapping": 2, "offset": 2, "sequence": 4} | dict(_indents(self.root))
        self._tail: list[str] = []  # comments that come last

    def replace_scalars(self, new: Mapping[Position, str]) -> None:
        """Put other texts in the place of scalars; quotes and anchors stay."""
        replaced: dict[Position, object] = {}  # one object for an anchor and its aliases
        for holder, key in _scalars(self.root, set()):
            line, column = holder.lc.value(key) if hasattr(holder, "items") else holder.lc.item(key)
            position = line + 1, column + 1
            if position in new:
                holder[key] = replaced.setdefault(position, _like(holder[key], new[position]))

    def comment_out(self, holder: Commented, keys: Sequence[str], new: Commented = None) -> None:
        """Make a comment of some keys of a mapping, and put those of another mapping in their place."""
        names, column = list(holder), _column(holder)
        following = names[max(map(names.index, keys)) + 1 :]
        taken = type(holder)()
        for key in keys:
            taken[key] = holder.pop(key)
            if key in holder.ca.items:
                taken.ca.items[key] = holder.ca.items.pop(key)
        lines = self._lines(taken, column)
        at = len(holder) - len(following)
        for offset, key in enumerate(new or ()):
            holder.insert(at + offset, key, new[key])
        below = next(iter(new or following), None)
        if below is None:
            self._tail += lines
        else:
            holder.yaml_set_comment_before_after_key(below, before="\n".join(lines), indent=column)

    def text(self) -> str:
        """Return the document as it is now; raises UsageError if a comment would be lost."""
        text = self._dumped(self.root) + "".join(f"# {line}\n" for line in self._tail)
        lost = next((comment for comment in _comments(self._before) if comment not in text), None)
        if lost is not None:
            raise UsageError(
                f"the comment {lost!r} would be lost: it stands within braces or after the end",
                "move it to a line of its own, above the key that it is about",
            )
        return text.replace("\n", self._ends)

    def _lines(self, taken: Commented, column: int) -> list[str]:
        """Return keys as lines of a comment, as they stood in a column."""
        depth = column // self._indents["mapping"]
        for _ in range(depth):  # since the columns of comments are counted from the beginning of a line
            taken = type(taken)({"": taken})
        lines = self._dumped(taken).splitlines()[depth:]
        outside = " " * column
        return [
            (line[column:] if line.startswith(outside) else line.lstrip()).removeprefix("# ") for line in lines
        ]

    def _dumped(self, node: Commented) -> str:
        yaml = _yaml()
        yaml.indent(**self._indents)
        yaml.width = self._width
        yaml.explicit_start = node is self.root and self._before.startswith("---")
        out = io.StringIO()
        yaml.dump(node, out)
        return out.getvalue()


def parse(text: str) -> Commented:
    """Return YAML as ruamel.yaml has it, for a document or a part of one."""
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415  only two commands need it

    try:
        return _yaml().load(text)
    except YAMLError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"the menu cannot be changed: {reason}", "write it in plainer YAML") from None


def _yaml() -> Commented:
    from ruamel.yaml import YAML  # noqa: PLC0415  only two commands need it
    from ruamel.yaml.resolver import VersionedResolver  # noqa: PLC0415  as said

    yaml = YAML(typ="rt")
    # Every plain scalar is text, and `<<` is a key like any other.
    yaml.Resolver = type("TextResolver", (VersionedResolver,), {"versioned_resolver": property(lambda _: {})})
    yaml.preserve_quotes = True
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.width = _ENDLESS
    return yaml


def _scalars(node: Commented, visited: set[int]) -> Iterator[tuple[Commented, Commented]]:
    """Yield every scalar once for each place that it has: what holds it, and its key or number there."""
    if id(node) in visited:
        return
    visited.add(id(node))
    for key, value in list(node.items() if hasattr(node, "items") else enumerate(node)):
        if isinstance(value, str):
            yield node, key
        elif hasattr(value, "lc"):
            yield from _scalars(value, visited)


def _like(old: str, text: str) -> str:
    """Return another text with the quotes and the anchor of an old one."""
    if not hasattr(old, "yaml_anchor"):
        return text
    scalar: Any = type(old)(text)
    anchor = old.yaml_anchor()
    if anchor is not None:
        scalar.yaml_set_anchor(anchor.value, always_dump=anchor.always_dump)
    return str(scalar) if not isinstance(scalar, str) else scalar


def _indents(node: Commented) -> Iterator[tuple[str, int]]:
    """Yield how far mappings and lists are indented, the first ones of a document last."""
    values = list(node.values()) if hasattr(node, "values") else list(node)
    for value in reversed(values):
        if not hasattr(value, "lc") or value.fa.flow_style():
            continue
        yield from _indents(value)
        inside = _column(value) - _column(node)
        if not value or not hasattr(node, "values"):
            continue
        if hasattr(value, "values") and inside > 0:
            yield "mapping", inside
        elif not hasattr(value, "values") and inside >= 0 and value.lc.item(0)[1] >= _column(value) + 2:
            yield "offset", inside
            yield "sequence", value.lc.item(0)[1] - _column(node)


def _column(node: Commented) -> int:
    """Return the column (0-based) of the keys of a mapping, or of the dashes of a list."""
    column: int = node.lc.key(next(iter(node)))[1] if node and hasattr(node, "values") else node.lc.col
    return column


def _comments(text: str) -> Iterator[str]:
    """Yield the comments of a document, each line for itself."""
    for token in _yaml().scan(text):
        for part in _flat(getattr(token, "comment", None)):
            yield from (line.strip() for line in part.value.splitlines() if line.strip())


def _flat(comment: Commented) -> Iterator[Commented]:
    if isinstance(comment, list):
        for part in comment:
            yield from _flat(part)
    elif comment is not None:
        yield comment
