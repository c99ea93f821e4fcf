"""The types of a menu's values for pydantic: text in, typed value out, and what an editor is told of them.

A text that is wrong is noted in the Reading (the validation context) and replaced by a value that leads to no
further complaint (NaN, None, nothing), so that one reading finds every problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, PlainValidator, ValidationInfo, WithJsonSchema

from dc_inject.menu import addresses, values
from dc_inject.menu.nodes import Map, Place, Seq, Text
from dc_inject.menu.reading import Reading
from dc_inject.model import Listing, Order, Verify

T = TypeVar("T")
MISSING = object()  # stands for a required value that is not there, which was complained of


@dataclass(frozen=True, slots=True)
class End:
    """One end as it was written: an RSE, a site or an RSE expression, with its share if it has one."""

    text: str
    share: float | None
    place: Place


Ends = tuple[End, ...]


def reading_of(info: ValidationInfo) -> Reading:
    """Return the reading that a validation belongs to."""
    assert isinstance(info.context, Reading)
    return info.context


def _key(info: ValidationInfo) -> str:
    return f"`{info.field_name.rstrip('_')}`: " if info.field_name else ""


def _one(read: Callable[[Text, Reading], T], otherwise: T, value: object, info: ValidationInfo) -> T:
    """Read one text; a problem with it is noted, and `otherwise` returned."""
    reading = reading_of(info)
    if value is MISSING:
        return otherwise
    if not isinstance(value, Text):
        place = value.place if isinstance(value, Map | Seq) else Place(reading.name, 0)
        kind = "a list" if isinstance(value, Seq) else "a mapping"
        reading.complain(place, f"{_key(info)}{kind} where one value is expected", "write one value")
        return otherwise
    try:
        return read(value, reading)
    except ValueError as error:
        message, hint = values.explain(error)
        reading.complain(value.place, _key(info) + message, hint)
        return otherwise


def _read(read: Callable[[str], T], otherwise: T) -> PlainValidator:
    return PlainValidator(lambda value, info: _one(lambda text, _: read(text.strip()), otherwise, value, info))


def _name(read: Callable[[str], str]) -> PlainValidator:
    """Read a name; a wrong one is kept, so that what is named so is looked at too, if it can carry no password."""

    def validate(value: object, info: ValidationInfo) -> str:
        kept = str(value) if isinstance(value, Text) and not addresses.is_url(value) else ""
        return _one(lambda text, _: read(text.strip()), kept, value, info)

    return PlainValidator(validate)


def _many(read: Callable[[str], T]) -> PlainValidator:
    """Read one text or a list of them."""

    def validate(value: object, info: ValidationInfo) -> tuple[T, ...]:
        items = value if isinstance(value, Seq) else [value]
        found = [_one(lambda text, _: read(text.strip()), None, item, info) for item in items]
        return tuple(one for one in found if one is not None)

    return PlainValidator(validate)


def _ends(value: object, info: ValidationInfo) -> Ends | None:
    """Read one end, a list of them, or a map of shares; None when nothing of it can be used."""
    reading = reading_of(info)
    if value is MISSING:
        return None
    written: list[tuple[object, object]] = [(value, None)]
    if isinstance(value, Seq):
        written = [(item, None) for item in value]
    elif isinstance(value, Map):
        written = list(value.entries())
    found = []
    for name, share in written:
        text = _one(lambda text, _: addresses.end(text), None, name, info)
        number = None if share is None else _one(lambda text, _: values.share(text.strip()), math.nan, share, info)
        if text is not None:
            assert isinstance(name, Text)
            found.append(End(text, number, name.place))
    if not written:
        assert isinstance(value, Map | Seq)
        reading.complain(value.place, f"{_key(info)}there is nothing in it", "name RSEs")
    elif (
        found and sum(end.share or 0 for end in found if end.share is not None) == 0 and found[0].share is not None
    ):
        reading.complain(found[0].place, f"{_key(info)}the shares sum to 0", "give at least one a share above 0")
        return None
    return tuple(found) if len(found) == len(written) and found else None


def _end(value: object, info: ValidationInfo) -> End | None:
    return _one(lambda text, _: End(addresses.end(text), None, text.place), None, value, info)


def _onwards(value: object, info: ValidationInfo) -> tuple[tuple[End | None, End], ...]:
    """Read one end for all, or a mapping of ends to ends; nothing when any of it cannot be used."""
    if isinstance(value, Map) and value:
        found = [(_end(key, info), _end(last, info)) for key, last in value.entries()]
        pairs = [(first, last) for first, last in found if first is not None and last is not None]
        return tuple(pairs) if len(pairs) == len(found) else ()
    if isinstance(value, Map):
        reading_of(info).complain(value.place, f"{_key(info)}there is nothing in it", "name RSEs")
        return ()
    last = _end(value, info)
    return () if last is None else ((None, last),)


def _mesh(value: object, info: ValidationInfo) -> Ends | None:
    if isinstance(value, Map):
        reading_of(info).complain(
            value.place, "`mesh`: a mapping", "a mesh has equal shares: write a list of RSEs"
        )
        return None
    return _ends(value, info)


def _dids_of_file(value: object, info: ValidationInfo) -> tuple[str, ...]:
    file = _one(lambda text, _: text, None, value, info)
    lines = reading_of(info).dids(file) if file is not None else []
    found = [_one(lambda text, _: values.did(text), None, text, info) for text in lines]
    return tuple(did for did in found if did is not None)


def _listing(value: object, info: ValidationInfo) -> Listing:
    """Read a source list; one without a digest stands for what was not understood, and was complained of."""
    file = _one(lambda text, _: text, None, value, info)
    found = reading_of(info).listing(file) if file is not None else None
    return found or Listing("", "", ())


def _once(value: object, info: ValidationInfo) -> object:
    """Complain of two spellings of one URL among the keys of a mapping."""
    first: dict[str, Text] = {}
    for key, _ in value.entries() if isinstance(value, Map) else ():
        try:
            name = addresses.end_name(key)
        except ValueError:
            continue  # complained of as a name
        other = first.setdefault(name, key)
        if other is not key:
            reading_of(info).complain(
                key.place, f"{name} is here twice, first in line {other.place.line}", "keep one of them"
            )
    return value


def _moment(value: object, info: ValidationInfo) -> datetime | None:
    return _one(lambda text, reading: values.moment(text, reading.zone), None, value, info)


def _word(*words: str) -> Callable[[str], str]:
    """Read one of a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise values.WrongError(f"{values.shown(text)!r} is not known here", f"write {' or '.join(words)}")
        return text

    return read


def _all(read: Callable[[str], T]) -> PlainValidator:
    """Read one text or a list of them; nothing when any of them is wrong, since their number and order count."""

    def validate(value: object, info: ValidationInfo) -> tuple[T, ...]:
        items = value if isinstance(value, Seq) else [value]
        if isinstance(value, Seq) and not value:
            reading_of(info).complain(value.place, f"{_key(info)}the list is empty", "write values, or remove it")
        found = [_one(lambda text, _: read(text.strip()), None, item, info) for item in items]
        return () if None in found else tuple(one for one in found if one is not None)

    return PlainValidator(validate)


def _curve(value: object, info: ValidationInfo) -> tuple[tuple[timedelta, values.Level], ...]:
    """Read a mapping of times of the day to levels, in the order of the times; nothing when any is wrong."""
    reading = reading_of(info)
    if not isinstance(value, Map) or not value:
        if value is not MISSING:
            place = value.place if isinstance(value, Text | Seq | Map) else Place(reading.name, 0)
            reading.complain(place, f"{_key(info)}no mapping of times to levels", 'write {"08:00": 30 %, ...}')
        return ()
    found = []
    for key, level in value.entries():
        at = _one(lambda text, _: values.clock(text.strip()), None, key, info)
        part = _one(lambda text, _: values.level(text.strip()), None, level, info)
        if at is not None and part is not None:
            found.append((at, part))
    return tuple(sorted(found, key=lambda pair: pair[0])) if len(found) == len(value) else ()


def _text(*examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": list(examples)})


def _number(low: int, high: int | None = None) -> WithJsonSchema:
    schema: dict[str, Any] = {"type": "integer", "minimum": low}
    return WithJsonSchema(schema if high is None else schema | {"maximum": high})


def _one_or_list(*examples: str) -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "examples": list(examples)}
    return WithJsonSchema({"anyOf": [text, {"type": "array", "items": text}]})


_PART = WithJsonSchema(
    {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "%$"}], "examples": ["10 %", 0.1]}
)
_LEVEL_OF: dict[str, Any] = {"anyOf": [{"type": "number"}, {"type": "string"}], "examples": ["25 %", "10 Gb/s"]}
_LEVEL = WithJsonSchema(_LEVEL_OF)
_RSES: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_SHARES: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}

Rate = Annotated[float, _read(values.rate, math.nan), _text("10 Gb/s", "1.25 GB/s", "512 MiB/s", "8000 Mbps")]
Size = Annotated[int, _read(values.size, 0), _text("500 TB", "2 PiB")]
Amount = Annotated[int, _read(values.amount, 0), _text("2 PiB", "20 TB")]
Duration = Annotated[timedelta, _read(values.duration, timedelta(0)), _text("15 min", "2 h", "1 h 30 min")]
Lasting = Annotated[timedelta | None, _read(values.lasting, None), _text("1 h", "2 h")]
Lastings = Annotated[tuple[timedelta, ...], _all(values.lasting), _one_or_list("1 h")]
Level = Annotated[values.Level | None, _read(values.level, None), _LEVEL]
Levels = Annotated[
    tuple[values.Level, ...], _all(values.level), WithJsonSchema({"type": "array", "items": _LEVEL_OF})
]
Curve = Annotated[
    tuple[tuple[timedelta, values.Level], ...],
    PlainValidator(_curve),
    WithJsonSchema({"type": "object", "additionalProperties": _LEVEL_OF}),
]
CycleLength = Annotated[timedelta | None, _read(values.cycle, None), _text("15 min")]
Fraction = Annotated[float, _read(values.fraction, 0.0), _PART]
Part = Annotated[float, _read(values.part, 0.25), _PART]
Count = Annotated[int, _read(values.count, 1), _number(1)]
Priority = Annotated[int, _read(values.priority, 3), _number(1, 5)]
Version = Annotated[int, _read(values.version, 1), WithJsonSchema({"const": 1})]
Switch = Annotated[
    bool, _read(values.switch, False), WithJsonSchema({"enum": [True, False, "yes", "no", "on", "off"]})
]
Counts = Annotated[tuple[int, int] | None, _read(values.counts, None), _text("1..1000")]
Sizes = Annotated[tuple[int, int] | None, _read(values.sizes, None), _text("1..20 GB")]
Moment = Annotated[datetime | None, PlainValidator(_moment), _text("2027-02-08 10:00", "2027-02-08 10:00+01:00")]
Zone = Annotated[str, _read(lambda text: values.zone(text).key, "UTC"), _text("Europe/Zurich", "UTC")]
Name = Annotated[str, _name(values.name), _text("t0-export")]
RseName = Annotated[str, _name(values.rse), _text("T1_DE_KIT_Disk")]
EndName = Annotated[str, _name(addresses.end_name), _text("T1_DE_KIT_Disk", addresses.EXAMPLE)]
ONCE = BeforeValidator(_once)
LinkName = Annotated[str, _read(addresses.link, ""), _text("T2_CH_CERN:T1_DE_KIT_Disk")]
Endpoint = Annotated[str, _read(addresses.endpoint, ""), _text("https://fts3.example.org:8446")]
SourceList = Annotated[Listing | None, PlainValidator(_listing), _text("sources.csv")]
Folder = Annotated[str, _read(addresses.path, ""), _text("data/2024", ".")]
Pattern = Annotated[str, _read(addresses.pattern, "*"), _text("*.root")]
JobFiles = Annotated[int, _read(values.whole(1, 5000, "the number of a job's files"), 1), _number(1, 5000)]
Retries = Annotated[int, _read(values.whole(0, 10, "a number of tries"), 0), _number(0, 10)]
SciTag = Annotated[int, _read(values.whole(65, 65535, "a scitag"), 65), _number(65, 65535)]
Checksums = Annotated[
    str, _read(_word(*Verify), Verify.BOTH), WithJsonSchema({"type": "string", "enum": list(Verify)})
]
Line = Annotated[str, _read(values.line, ""), _text()]
Prose = Annotated[str, _read(str, ""), _text()]
Activity = Annotated[str, _read(values.activity, ""), _text("Data Challenge")]
Codes = Annotated[tuple[str, ...], _many(str), _one_or_list("rate-outlier")]
Dids = Annotated[tuple[str, ...], _many(values.did), _one_or_list("cms:/*/RAW#*")]
Files = Annotated[tuple[str, ...], _many(str), _one_or_list("sites.yaml")]
DidFile = Annotated[tuple[str, ...], PlainValidator(_dids_of_file), _text("datasets.txt")]
Service = Annotated[
    str, _read(_word("rucio", "fts"), "rucio"), WithJsonSchema({"type": "string", "enum": ["rucio", "fts"]})
]
TakeOrder = Annotated[
    str, _read(_word(*Order), Order.LARGEST_FIRST), WithJsonSchema({"type": "string", "enum": list(Order)})
]
Onwards = Annotated[
    tuple[tuple[End | None, End], ...],
    PlainValidator(_onwards),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}
    ),
]
SliceName = Annotated[str, _read(values.slice_name, "{mark}"), _text("{campaign}.{mark}")]
Scope = Annotated[str, _read(values.scope, "-"), _text("user.dcops")]
OneEnd = Annotated[End | None, PlainValidator(_end), _text("T1_DE_KIT_Disk")]
SomeEnds = Annotated[
    Ends | None,
    PlainValidator(_ends),
    WithJsonSchema({"anyOf": [{"type": "string"}, _RSES, _SHARES]}),
]
MeshEnds = Annotated[Ends | None, PlainValidator(_mesh), WithJsonSchema({"anyOf": [{"type": "string"}, _RSES]})]
