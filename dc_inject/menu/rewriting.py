"""The text of a menu with its scenarios written out: what is replaced stays as a comment, all else as it was."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping

from dc_inject.menu import spans, writing
from dc_inject.menu.draft import MenuDraft
from dc_inject.menu.expanding import WAYS, Expander, Where, WrittenOut, names_a_file
from dc_inject.menu.nodes import Map, Node, Place, Seq, Text
from dc_inject.menu.reading import Load, path_of
from dc_inject.menu.spans import Span
from dc_inject.model.errors import MenuError, UsageError


def expanded(draft: MenuDraft, load: Load, names: Mapping[str, tuple[str, ...]], where: Where) -> str:
    """Return the text of a menu with every link on its own, and without includes.

    `names` is what the RSE expressions of the menu mean; `where` says how the new menu has to call a file that
    the old one names. Raises MenuError or UsageError where that cannot be done.
    """
    expander = Expander(draft, load, names, where)
    made = {name: expander.scenario(name) for name in draft.document.scenarios}
    if expander.reading.problems:
        raise MenuError(expander.reading.problems)
    return _Rewriter(draft, expander, made).text()


def moved(text: str, name: str, where: Where) -> str:
    """Return the text of a menu for another folder; `name` is its file, `where` says how to call others there."""
    edits = _renamed(_file_names(spans.parse(text)), text, name, lambda file: where(path_of(file)))
    return spans.replaced(text, edits)


class _Rewriter:
    """Gathers the edits of one text."""

    def __init__(self, draft: MenuDraft, expander: Expander, made: Mapping[str, WrittenOut]) -> None:
        self._text = draft.text if draft.text.endswith("\n") else f"{draft.text}\n"
        self._name = draft.name
        self._expander = expander
        self._made = made
        self._root = spans.parse(self._text)
        self._edits: list[tuple[int, int, str]] = []
        self._gone: list[Span] = []  # what is a comment now
        self._end: list[str] = []  # lines that come last

    def text(self) -> str:
        if self._root.flow:
            return self._anew()
        own = {key.text: (key, value) for key, value in self._root.pairs}
        for key, node in self._expander.root.entries():
            if key == "scenarios":
                self._scenarios(own.get(key), node)
            elif key not in own:
                self._end += [] if key.startswith("x-") else self._whole(key, node)
            elif _has_other(node, self._name):
                self._replace(*own[key], self._whole(key, node)[1:], "  ")
        if "include" in own:
            self._comment(*own["include"])
        self._files()
        self._aliases(self._root)
        at = self._line_end(self._root.end)
        self._edits.append((at, at, "".join(f"\n{line}" for line in self._end)))
        # Two insertions at one place are in the order of their texts: the deeper, with more blanks, first.
        return spans.replaced(self._text, self._edits)

    def _anew(self) -> str:
        """Return a menu that is all in braces, as JSON is: in lines, below what it was."""
        lines = [_comment(line) for line in self._text.splitlines() if line.strip()]
        for key, node in self._expander.root.entries():
            if key == "scenarios":
                assert isinstance(node, Map)
                lines += ["scenarios:", *self._all(node, "  ")]
            elif key != "include" and not key.startswith("x-"):
                lines += self._whole(key, node)
        return "".join(f"{line}\n" for line in lines)

    # ----------------------------------------------------------------- scenarios

    def _scenarios(self, own: tuple[Span, Span] | None, node: Node) -> None:
        assert isinstance(node, Map)
        if own is None:
            self._end += ["scenarios:", *self._all(node, "  ")]
            return
        value = own[1]
        if value.kind != "map" or value.flow or any(key.text == "<<" for key, _ in value.pairs):
            self._replace(*own, self._all(node, "  "), "  ")
            return
        here = {key.text: (key, one) for key, one in value.pairs}
        indent = " " * value.pairs[0][0].column
        for key, pair in here.items():
            scenario = node[key]
            assert isinstance(scenario, Map)
            self._scenario(*pair, scenario, self._made[key], indent)
        others = Map([(key, one) for key, one in node.entries() if key not in here], node.place)
        if others:
            at = self._line_end(value.end)
            self._edits.append((at, at, "".join(f"\n{line}" for line in self._all(others, indent))))

    def _all(self, scenarios: Map, indent: str) -> list[str]:
        """Return the lines of scenarios that are written anew."""
        lines = []
        for key, node in scenarios.entries():
            assert isinstance(node, Map)
            said = f"  # from {node.place.file}" if node.place.file != self._name else ""
            lines += [f"{indent}{writing.scalar(key)}:{said}", *self._body(node, self._made[key], f"{indent}  ")]
        return lines

    def _body(self, node: Map, made: WrittenOut, indent: str) -> list[str]:
        """Return the lines of a scenario below its name."""
        gone = (*WAYS, "shape") if made.shape else WAYS
        placed = ((str(key), self._expander.placed(value, key)) for key, value in node.entries())
        rest = [(key, writing.flow(value)) for key, value in placed if key not in gone]
        rest += [("shape", made.shape)] if made.shape else []
        return [*(f"{indent}{key}: {value}" for key, value in rest), *_links(made.lines, indent)]

    def _scenario(self, key: Span, value: Span, node: Map, made: WrittenOut, indent: str) -> None:
        """Write one scenario out where it stands."""
        if made.stays:
            return
        pairs = {one.text: (one, other) for one, other in value.pairs}
        if value.kind != "map" or value.flow or "<<" in pairs:
            self._replace(key, value, self._body(node, made, f"{indent}  "), f"{indent}  ")
            return
        if made.entries is not None and pairs["links"][1].kind == "list":
            self._entries(pairs["links"][1], made.entries)
            return
        gone = [pairs[name] for name in (*WAYS, *(("shape",) if made.shape else ())) if name in pairs]
        for pair in gone:
            self._comment(*pair)
        inner = " " * value.pairs[0][0].column
        at = self._line_end(max(one.end for _, one in gone))
        shape = [f"{inner}shape: {made.shape}"] if made.shape else []
        lines = [*shape, *_links(made.lines, inner)]
        self._edits.append((at, at, "".join(f"\n{line}" for line in lines)))

    def _entries(self, links: Span, entries: Iterable[tuple[str, ...] | None]) -> None:
        """Write entries of a list out where they stand."""
        between = ", " if links.flow else f"\n{' ' * links.column}- "
        for span, lines in zip(links.items, entries, strict=True):
            if lines is not None:
                self._gone.append(span)
                self._edits.append((span.start, span.end, between.join(lines)))

    # ----------------------------------------------------------------- the rest

    def _whole(self, key: str, node: Node) -> list[str]:
        """Return the lines of a key at the top."""
        node = self._expander.placed(node, key)
        if isinstance(node, Map) and node:
            return [f"{key}:", *(f"  {writing.scalar(name)}: {writing.flow(one)}" for name, one in node.items())]
        if isinstance(node, Seq) and node:
            return [f"{key}:", *(f"  - {writing.flow(one)}" for one in node)]
        return [f"{key}: {writing.flow(node)}"]

    def _replace(self, key: Span, value: Span, lines: list[str], indent: str) -> None:
        """Put lines in the place of a value, which stays above them as a comment."""
        colon = self._text.index(":", key.end) + 1
        end = self._line_end(value.end)
        first, *rest = self._text[colon:end].split("\n")
        old = [f"{indent}{_comment(first.strip())}"] if first.strip() else []
        old += [line if not line.strip() else f"{indent}{_comment(line.strip())}" for line in rest]
        self._gone.append(value)
        self._edits.append((colon, end, "".join(f"\n{line}" for line in (*old, *lines))))

    def _comment(self, key: Span, value: Span) -> None:
        """Make a comment of the lines of a key and its value."""
        self._gone.append(value)
        start, end = key.start - key.column, self._line_end(value.end)
        lines = self._text[start:end].split("\n")
        indent = " " * key.column
        new = [f"{indent}{_comment(line[key.column :])}" if line.strip() else line for line in lines]
        self._edits.append((start, end, "\n".join(new)))

    def _line_end(self, at: int) -> int:
        return self._text.index("\n", at)

    def _kept(self, span: Span) -> bool:
        return not any(gone.start <= span.start < gone.end for gone in self._gone)

    def _files(self) -> None:
        """Call files as the new menu has to, wherever they are still named."""
        kept = (span for span in _file_names(self._root) if self._kept(span))
        self._edits += _renamed(kept, self._text, self._name, self._expander.called)

    def _aliases(self, span: Span) -> None:
        """Write out what an alias stands for if its anchor is in a comment now."""
        if span.kind == "alias" and self._kept(span) and not self._kept(span.node):
            if span.node.kind != "scalar":
                hint = f"move &{span.anchor} to a key of its own that begins with `x-`"
                raise UsageError(f"*{span.anchor} stands for what is written out now", hint)
            self._edits.append((span.start, span.end, writing.scalar(span.node.text)))
        for one in (*span.items, *(value for _, value in span.pairs)):
            self._aliases(one)


def _file_names(span: Span, key: str = "", above: str = "") -> Iterator[Span]:
    """Yield the scalars that name files."""
    if span.kind == "scalar" and names_a_file(key, above):
        yield span
    for name, value in span.pairs:
        yield from _file_names(value, name.text, key)
    for value in span.items:
        yield from _file_names(value, key, above)


def _renamed(
    files: Iterable[Span], text: str, name: str, called: Callable[[Text], str]
) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that give files the names that they have from elsewhere."""
    for span in files:
        new = called(Text(span.text, Place(name, 1)))
        if posixpath.normpath(span.text) != new:
            yield spans.value_edit(span, text, new)


def _links(lines: Iterable[str], indent: str) -> list[str]:
    return [f"{indent}links:", *(f"{indent}  - {line}" for line in lines)]


def _comment(line: str) -> str:
    return line if line.startswith("#") else f"# {line}"


def _has_other(node: Node, name: str) -> bool:
    """Tell whether something below a key is from another file."""
    return any(place.file != name for place in _places(node))


def _places(node: Node) -> Iterator[Place]:
    if isinstance(node, Map):
        for key, value in node.entries():
            yield key.place
            yield from _places(value)
    elif isinstance(node, Seq):
        for one in node:
            yield from _places(one)
    else:
        yield node.place
