"""Validate a menu with pydantic: every problem is reported at once, with its place in the file.

pydantic collects the errors of a whole document, each with its path in it. `validated` notes each of them with
file, line, column and hint. Then it cuts out what is wrong and reads the rest: what does not fit together in
there is reported in the same run. A model knows which keys were cut (`written`), so that they are not missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from dc_inject.menu import nodes, values
from dc_inject.menu.includes import MenuReader
from dc_inject.menu.nodes import Kept, Map, Node, Place, Seq, Text
from dc_inject.menu.values import NotedError, WrongError
from dc_inject.model import units
from dc_inject.model.groups import grouped

ROUNDS = 3  # what is left after the first cut has nothing wrong in it, or what was hidden by it
_KEY = "[key]"  # how pydantic ends the path of a key

M = TypeVar("M", bound="MenuModel")
Path = tuple[str | int, ...]


class MenuModel(BaseModel):
    """A mapping of the menu format, which knows where it stands; keys that begin with `x-` are free."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"patternProperties": {"^x-": {}}})
    examples: ClassVar[dict[str, str]] = {  # for hints, of keys that have to be there
        "menu": "1",
        "start": "2027-02-08 10:00",
        "end": "2027-02-09 10:00",
        "rate": "10 Gb/s",
        "from": "T2_CH_CERN",
    }
    removed: ClassVar[dict[str, str]] = {}  # keys that it had, and what to do without each
    _node: Map = PrivateAttr(default_factory=lambda: Map((), Place("", 0)))

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self._node.place

    def at(self, key: str) -> Place:
        """Where a key of it stands, or the mapping where the key is not given."""
        return self._node.place_of(key)

    def written(self, key: str) -> bool:
        """Whether a key of it was written, be its value right or wrong."""
        return key in self._node or key in self._node.cut

    @property
    def keys(self) -> frozenset[str]:
        """The keys of it that were written, be their values right or wrong; not the free ones."""
        return frozenset(key for key in (*self._node, *self._node.cut) if not key.startswith("x-"))

    def texts(self, key: str) -> Iterator[Text]:
        """Yield the texts that were written as the value of a key, those of lists and mappings too."""
        return nodes.texts(self._node[key]) if key in self._node else iter(())

    def names(self, key: str) -> frozenset[str] | None:
        """Return the keys of a mapping in it, also of entries that were refused; None if it was refused itself."""
        inner = self._node.get(key)
        return None if key in self._node.cut else frozenset((*inner, *inner.cut) if isinstance(inner, Map) else ())

    def has_refused(self, key: str) -> bool:
        """Whether a mapping in it was refused, or an entry of it."""
        inner = self._node.get(key)
        return key in self._node.cut or (isinstance(inner, Map) and bool(inner.cut))

    def keys_in(self, key: str) -> Iterable[Text]:
        """Return the keys of a mapping in it as they were written."""
        inner = self._node.get(key)
        return (name for name, _ in inner.entries()) if isinstance(inner, Map) else ()

    @classmethod
    def key_of(cls, name: str) -> str:
        """Return what a field is called in a menu."""
        return cls.model_fields[name].alias or name

    @model_validator(mode="wrap")
    @classmethod
    def _remember(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401  as pydantic has it
        """Leave out the free keys, and give nothing for what has to be there and was cut out."""
        if not isinstance(data, Map):
            return handler(data)
        taken: dict[str, Node | None] = {key: node for key, node in data.items() if not key.startswith("x-")}
        for name, field in cls.model_fields.items() if data.cut else ():
            if field.is_required() and cls.key_of(name) in data.cut:
                taken[cls.key_of(name)] = None
        model = handler(taken)
        model._node = data  # noqa: SLF001  its own
        return model


class _Spot(NamedTuple):
    """Where an error arose: in which model, at which of its keys, and what has to be cut out for it."""

    part: type[MenuModel]
    key: str
    holder: Node  # of what is cut out
    path: Path


KINDS = {"menu": "grid", "grid": "menu"}
SIMULATE = "`dc-inject simulate MENU --grid GRID`"


def cannot_be(key: str, root: Map, reader: MenuReader) -> bool:
    """Complain of a document that is not a `key`, a menu or a grid, or is a later version of it.

    Nothing else about it can be judged then.
    """
    other = KINDS[key]
    if root.get(key) is None and root.get(other) is not None:
        where = {"menu": "menus go before --grid", "grid": "a grid goes after --grid"}[other]
        hint = f"a {key} begins with `{key}: 1`; {where}: {SIMULATE}"
        reader.complain(root.place, f"this is a {other} file, not a {key}", hint)
        return True
    version = root.get(key)
    number = version.strip() if isinstance(version, Text) else ""
    if not isinstance(version, Text) or not re.fullmatch("[0-9]{1,9}", number) or int(number) <= values.VERSION:
        return False
    hint = f"this release reads version {values.VERSION}: install a newer one, or write `{key}: {values.VERSION}`"
    reader.complain(version.place, f"`{key}: {number}` is from a newer dc_inject", hint)
    return True


def validated(model: type[M], data: Map, reader: MenuReader, parts: Mapping[str, type[MenuModel]]) -> M | None:
    """Read a document as a model; every error is noted, and what is right is returned nevertheless.

    `parts` are the models by what hints call them. None is returned when nothing can be understood.
    """
    for _ in range(ROUNDS):
        try:
            return model.model_validate(data, context=reader)
        except ValidationError as error:
            paths = []
            for details in error.errors(include_url=False):
                spot = _spot(model, data, _path(details))
                _note(details, spot, reader, parts)
                is_key = _is_key(details) and spot.path == _path(details)
                paths.append((*spot.path, _KEY) if is_key else spot.path)
            left = _cut(data, paths)  # what it shares with others by anchors stays there
            data = left if isinstance(left, Map) else data
    return None


def _is_key(details: ErrorDetails) -> bool:
    return details["loc"][-1:] == (_KEY,) and details["type"] != "extra_forbidden"


def _path(details: ErrorDetails) -> Path:
    return details["loc"][:-1] if _is_key(details) else details["loc"]


def _spot(model: type[MenuModel], data: Map, path: Path) -> _Spot:
    """Follow the path of an error: as deep as there are models, since a value is right or wrong as a whole."""
    part, key = model, ""
    holder: Map | Seq = data
    node: Map | Seq = data
    inner: type[MenuModel] | None = model  # of what `node` is, or of each of its items
    many = False
    walked: list[str | int] = []
    for step in path:
        walked.append(step)
        holder = node
        if many:
            part, many = inner or part, False
        else:
            part, key = inner or part, str(step)
            inner, many = _inside(part, key)
        child = _child(holder, step)
        if inner is None or not isinstance(child, Map | Seq):
            break
        node = child
    return _Spot(part, key, holder, tuple(walked))


def _child(holder: Node, step: str | int) -> Node | None:
    if isinstance(holder, Map):
        return holder.get(str(step))
    return holder[step] if isinstance(holder, Seq) and isinstance(step, int) else None


def _inside(part: type[MenuModel], key: str) -> tuple[type[MenuModel] | None, bool]:
    """Return the model of a key's value, and whether the value is a list or mapping of such."""
    field = next((field for name, field in part.model_fields.items() if part.key_of(name) == key), None)
    return (None, False) if field is None else _model_of(field.annotation)


def _model_of(annotation: object) -> tuple[type[MenuModel] | None, bool]:
    if isinstance(annotation, type) and issubclass(annotation, MenuModel):
        return annotation, False
    for argument in get_args(annotation):
        model, many = _model_of(argument)
        if model is not None:
            return model, many or get_origin(annotation) in {dict, tuple}
    return None, False


def _note(details: ErrorDetails, spot: _Spot, reader: MenuReader, parts: Mapping[str, type[MenuModel]]) -> None:
    """Note one error of pydantic in our words, at its place."""
    last = spot.path[-1] if spot.path else ""
    node, error = _child(spot.holder, last), details.get("ctx", {}).get("error")
    value = details["input"] if isinstance(details["input"], Text | Map | Seq) else node
    place = value.place if isinstance(value, Text | Map | Seq) else spot.holder.place
    if details["type"] == "missing":
        example = f", such as `{last}: {spot.part.examples[str(last)]}`" if last in spot.part.examples else ""
        reader.complain(spot.holder.place, f"`{last}` is missing", f"add `{last}: ...`{example}")
    elif details["type"] == "extra_forbidden":
        message = f"the key `{values.shown(str(last))}` is unknown here{values.odd_character(str(last))}"
        reader.complain(_place_of(spot.holder, str(last)), message, _nearest(str(last), spot.part, parts))
    elif isinstance(node, Text) and not node.strip() and isinstance(last, str) and not _is_key(details):
        where = _place_of(spot.holder, last)
        reader.complain(where, f"`{last}` has no value", "give it one, or remove the key")
    elif isinstance(error, ValueError) and not isinstance(error, NotedError):
        message, hint = values.explain(error)
        prefix = "" if message.startswith("`") else f"`{spot.key}`: "
        reader.complain((error.place if isinstance(error, WrongError) else None) or place, prefix + message, hint)
    elif error is None:
        key = last if isinstance(last, str) else spot.key
        _unexpected(value, _expected(details, spot), values.shown(key), place, reader)


def _place_of(holder: Node, key: str) -> Place:
    return holder.place_of(key) if isinstance(holder, Map) else holder.place


def _unexpected(node: Node | None, expected: str, key: str, place: Place, reader: MenuReader) -> None:
    """Complain of a value that pydantic did not take."""
    got = "a mapping" if isinstance(node, Map) else "a list"
    got = repr(values.shown(node, 40)) if isinstance(node, Text) else got
    hints = {"a list": "write a list: `- ...` lines, or [...]", "a mapping": "write `key: value` lines, or {...}"}
    reader.complain(place, f"`{key}`: expected {expected}, got {got}", hints.get(expected, f"write {expected}"))


def _expected(details: ErrorDetails, spot: _Spot) -> str:
    """Return what pydantic expected instead of a value."""
    kind, context = details["type"], details.get("ctx", {})
    if kind == "tuple_type":
        return "a list"
    if kind == "enum":
        return str(context["expected"]).replace("'", "")
    if kind.startswith("bool"):
        return "true or false"
    if not kind.startswith("int") and not context.keys() & {"ge", "le"}:
        return "a mapping"
    bounds = {
        name: getattr(limit, name)
        for key, field in spot.part.model_fields.items()
        if spot.part.key_of(key) == spot.key
        for part in (field, *parts_of(field.annotation))
        for limit in getattr(part, "metadata", ())
        for name in ("ge", "le")
        if hasattr(limit, name)
    }
    return f"a whole number from {bounds['ge']} to {bounds['le']}"


def parts_of(annotation: object) -> Iterator[object]:
    """Yield a type with all that it is made of."""
    yield annotation
    for argument in get_args(annotation):
        yield from parts_of(argument)


def _nearest(key: str, part: type[MenuModel], parts: Mapping[str, type[MenuModel]]) -> str:
    if key in part.removed:
        return f"it was removed: {part.removed[key]}"
    keys = [part.key_of(name) for name in part.model_fields]
    elsewhere = [noun for noun, model in parts.items() if key in map(model.key_of, model.model_fields)]
    if near := units.nearest(key, keys):
        return f"did you mean `{near[0]}`?"
    return f"it belongs in {elsewhere[0]}" if elsewhere else f"known here: {', '.join(keys)}"


def _cut(node: Node, paths: Sequence[Path]) -> Node:
    """Return a document without what stands at some paths."""
    below = grouped((first, tuple(rest)) for first, *rest in paths)
    if isinstance(node, Seq):
        remaining = [
            _cut(entry, below[at]) if at in below else entry
            for at, entry in enumerate(node)
            if () not in below.get(at, ())
        ]
        return Seq(remaining, node.place)
    if not isinstance(node, Map):
        return node
    gone = {str(key): Text(str(key), node.place) for key, inner in below.items() if () in inner}
    entries = []
    for key, value in node.entries():
        inner = below.get(key, [])
        if key in gone:
            gone[key] = key
        else:
            new = Kept(key, key.place) if (_KEY,) in inner else key
            entries.append((new, _cut(value, [path for path in inner if path != (_KEY,)]) if inner else value))
    return Map(entries, node.place, [*gone.values(), *(Text(key, place) for key, place in node.cut.items())])
