"""What a menu brings in: includes, lists of links, of datasets and of source files.

An include is another file whose mappings are merged below the menu's: the menu's own keys count first,
`exclude` and `accept` are joined, and two includes with the same key are an error. Paths count from the file
that names them. A `MenuReader` reads one menu once: it knows the zone, and collects the problems of all files,
so that a person gets them at once.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias
from zoneinfo import ZoneInfo

from dc_inject.menu import cells, nodes, source_lists
from dc_inject.menu.nodes import FirstComplaints, Map, Place, Seq, Text
from dc_inject.menu.values import NotedError
from dc_inject.model import Listing, redaction
from dc_inject.model.errors import Problem

Load: TypeAlias = Callable[[str, int], bytes]  # path, and how many bytes are wanted at most

DEEPEST_INCLUDE = 8
MOST_FILES = 100
MOST_KEPT = 4_000_000  # bytes of other files that are kept with a menu
MERGED = ("defaults", "sites", "scenarios", "limits", "tape", "fts")  # mappings that includes add to, key by key
JOINED = ("exclude", "accept")  # lists that includes add to


_ASKS = {"rate", "volume", "keep"}
_URL = re.compile(r"(?<!\S)(?=(\S+?://))\1\S++")


class MenuReader:
    """What is shared while one menu is read; complaints are collected, so that a person gets all at once."""

    def __init__(self, name: str, load: Load | None) -> None:
        """Take the menu's file name, and what returns the bytes of another file (or raises OSError)."""
        self.name = name
        self.problems: list[Problem] = []
        self.zone = ZoneInfo("UTC")
        self._load = load
        self._files = 0
        self._listings: dict[str, Listing | None] = {}
        self._dids: dict[str, list[Text]] = {}
        self._noted: set[Problem] = set()
        self._digest = hashlib.sha256()
        self.parts: dict[str, bytes] = {}  # what it brought in, by path, up to MOST_KEPT

    @property
    def digest(self) -> str:
        """SHA-256 of the menu's text and of all that it brought in."""
        return self._digest.hexdigest()

    def complain(self, place: Place, message: str, hint: str) -> None:
        """Note a problem; the same one is noted once (an anchor may repeat it)."""
        problem = Problem(place.file, place.line, safe(message), safe(hint), column=place.column)
        if problem not in self._noted:
            self._noted.add(problem)
            self.problems.append(problem)

    def document(self, data: bytes) -> Map | None:
        """Return the menu as one mapping, includes merged in; None when it makes no sense at all."""
        self._digest.update(data)
        root = nodes.compose(data, self.name, self.complain)
        return None if root is None else self._with_includes(root, (posixpath.normpath(self.name),))

    def with_links(self, root: Map) -> Map:
        """Return a menu in which the links of files (`links: {file: ...}`) stand as if they were written there."""
        scenarios = root.get("scenarios")
        if not isinstance(scenarios, Map):
            return root
        read = Map([(name, self._with_rows(node)) for name, node in scenarios.entries()], scenarios.place)
        return Map([(key, read if key == "scenarios" else node) for key, node in root.entries()], root.place)

    def dids(self, file: Text) -> list[Text]:
        """Return the lines of a file of DIDs, but for empty ones and comments (`#` first)."""
        path = path_of(file)
        if path in self._dids:
            return self._dids[path]
        text = self._text(file)
        lines = [] if text is None else text.splitlines()
        stripped = ((number, line.strip()) for number, line in enumerate(lines, start=1))
        dids = [Text(line, Place(path, number)) for number, line in stripped if line and line[0] != "#"]
        if text is not None and not dids:
            self.complain(file.place, f"{file} names no dataset", "write one DID per line")
        if not dids:
            raise NotedError
        self._dids[path] = dids
        return dids

    def listing(self, file: Text) -> Listing:
        """Return the files of a source list; one that is named often is read once. Raises NotedError."""
        path = path_of(file)
        if path not in self._listings:
            data = self._read(file, source_lists.LARGEST)
            listing = None if data is None else source_lists.read(data, path, str(file), self.complain)
            self._listings[path] = listing
        listing = self._listings[path]
        if listing is None:
            raise NotedError
        return listing

    def _with_rows(self, scenario: nodes.Node) -> nodes.Node:
        links = scenario.get("links") if isinstance(scenario, Map) else None
        file = links.get("file") if isinstance(links, Map) and len(links) == 1 else None
        if not isinstance(scenario, Map) or not isinstance(file, Text):
            return scenario
        rows = self.rows(file)
        others = [
            (key, rows if key == "links" else node) for key, node in scenario.entries() if rows or key != "links"
        ]
        return Map(others, scenario.place, [] if rows else [Text("links", file.place)])

    def rows(self, file: Text) -> Seq:
        """Return a CSV file of links as the list that could have been written in the menu."""
        links, data = Seq([], file.place), self._read(file)
        complain = FirstComplaints(self.complain)
        _, rows = (",", []) if data is None else cells.rows(data, path_of(file), complain, titled=True)
        head = rows[0].cells if rows else ()
        if rows and (not {"from", "to"} <= set(head) or not _ASKS & set(head) or len(set(head)) < len(head)):
            complain(head[0].place, f"the columns are {', '.join(head)}", "begin with a line `from,to,rate`")
            rows = []
        for row in rows[1:]:
            if len(row.cells) > len(head):
                message = cells.too_wide(len(row.cells), len(head))
                complain(row.cells[len(head)].place, message, "quote cells with commas")
            else:
                links.append(Map([(k, v) for k, v in zip(head, row.cells, strict=False) if v], row.place))
        if data is not None and not links and not complain:
            complain(file.place, f"{file} has no links", "begin with a line `from,to,rate`")
        complain.close()
        return links

    def _read(self, file: Text, largest: int = nodes.LARGEST_FILE) -> bytes | None:
        """Return the bytes of another file, which is named relative to the one that names it."""
        self._files += 1
        if self._load is None:
            self.complain(file.place, f"{file} cannot be read from here", "give the menu as a file, not as text")
        elif self._files > MOST_FILES:
            self.complain(file.place, f"more than {MOST_FILES} files are included", "merge some of them")
        else:
            try:
                data = self._load(path_of(file), largest + 1)  # so that a larger one is seen
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else "no such file"
                self.complain(
                    file.place,
                    f"{file!s:.100} cannot be read: {why}",
                    "paths are relative to the file that names them",
                )
            else:
                self._digest.update(f"\0{file}\0{len(data)}\0".encode(errors="replace"))
                self._digest.update(data)
                if sum(map(len, self.parts.values())) + len(data) <= MOST_KEPT:
                    self.parts[path_of(file)] = data
                return data
        return None

    def _text(self, file: Text) -> str | None:
        data = self._read(file)
        return None if data is None else nodes.decode(data, path_of(file), self.complain)

    def _with_includes(self, own: Map, chain: tuple[str, ...]) -> Map:
        """Return a mapping with its includes merged below it: its own keys count first."""
        include = own.get("include")
        files = include if isinstance(include, Seq) else [] if include is None else [include]
        result = own
        for file in files:
            if not isinstance(file, Text) or not file:
                self.complain(
                    include.place if include else own.place,
                    "`include`: expected a file",
                    "write the path of a file",
                )
                continue
            path = path_of(file)
            if path in chain:
                self.complain(
                    file.place,
                    f"{file} includes itself: {' -> '.join((*chain, path))}",
                    "remove one of these includes",
                )
            elif len(chain) > DEEPEST_INCLUDE:
                self.complain(file.place, f"includes are more than {DEEPEST_INCLUDE} deep", "include it higher up")
            elif (data := self._read(file)) is not None:
                other = nodes.compose(data, path, self.complain)
                if other is not None:
                    result = self._merge(result, self._with_includes(other, (*chain, path)), own)
        return result

    def _merge(self, upper: Map, lower: Map, own: Map, *, top: bool = True) -> Map:
        """Merge an included mapping; two includes with different values for a key are a problem."""
        entries: dict[str, tuple[Text, nodes.Node]] = {str(key): (key, value) for key, value in upper.entries()}
        for key, value in lower.entries():
            name = str(key)
            if top and name == "include":
                continue
            if name not in entries:
                entries[name] = key, value
                continue
            first_key, first = entries[name]
            if top and name in MERGED and isinstance(first, Map) and isinstance(value, Map):
                entries[name] = first_key, self._merge(first, value, nodes.child(own, name), top=False)
            elif top and name in JOINED and isinstance(first, Seq) and isinstance(value, Seq):
                entries[name] = first_key, Seq(_joined(first, value), first.place)
            elif key not in own:
                self._twice(first_key, key)
        return Map(entries.values(), upper.place)

    def _twice(self, first: Text, second: Text) -> None:
        if first.place == second.place:
            return  # the same file, included on two ways
        self.complain(
            second.place,
            f"`{second}` is also in {first.place.file}:{first.place.line}",
            "keep it in one of the included files, or write it in the menu itself",
        )


def load_kept_first(parts: Mapping[str, bytes], load: Load) -> Load:
    """Return a loader that has the parts that were kept, and loads others."""
    return lambda name, most: parts[name][:most] if name in parts else load(name, most)


def path_of(file: Text) -> str:
    """Return the path of a file that is named relative to the one that names it."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file.place.file), file))


def _joined(first: Seq, second: Seq) -> list[nodes.Node]:
    """Return both lists; what is from a file that was included on two ways is there once."""
    places = {item.place for item in first}
    return [*first, *(item for item in second if item.place not in places)]


def safe(text: str) -> str:
    """Return a text that is safe on a terminal and in a log: what a menu holds is not always."""
    printable = "".join(char if char.isprintable() else "?" for char in text)
    return _URL.sub(lambda url: redaction.scrub(url[0]), redaction.clean(printable))
