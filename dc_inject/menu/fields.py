"""The types of a menu's values for pydantic: text in, typed value out, and their schema for editors.

pydantic itself reads whole numbers, switches and words; a function of `values` reads every other text, or raises
WrongError. `validation` adds the place of the mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema

from dc_inject.menu import addresses, values
from dc_inject.menu.includes import MenuReader
from dc_inject.menu.nodes import Kept, Map, Node, Place, Seq, Text
from dc_inject.menu.values import WrongError
from dc_inject.model import Listing, Mode, Order, Verify, thresholds, units
from dc_inject.model.findings import CODES
from dc_inject.model.services import SERVICES, Service
from dc_inject.model.thresholds import Threshold

T = TypeVar("T")


def _text(value: Node) -> Text:
    """Return a value that has to be one text."""
    if isinstance(value, Text):
        return value
    kind = "a list" if isinstance(value, Seq) else "a mapping"
    raise WrongError(f"expected one value, got {kind}", "write one value", value.place)


def _reader(info: ValidationInfo) -> MenuReader:
    """Return the reader that a validation belongs to, which knows zone and files."""
    return cast("MenuReader", info.context)


def _read(read: Callable[[str], T], schema: Any) -> PlainValidator:  # noqa: ANN401  a type, as pydantic has it
    """Return what reads one text; `schema` is the type for editors."""

    def validate(value: Node) -> T:
        text = _text(value).strip()
        result = read(text)
        if not text:
            raise WrongError("the value is empty", "give it one, or remove the key")
        return result

    return PlainValidator(validate, json_schema_input_type=schema)


def _name(read: Callable[[str], str], *examples: str) -> PlainValidator:
    """Return what reads a name; one that was refused is kept for the keys below it."""

    def validate(value: Node) -> str:
        if isinstance(value, Kept):
            return "" if addresses.meant_as_url(value) else str(value)  # a URL may carry a password
        return read(_text(value).strip())

    return PlainValidator(validate, json_schema_input_type=_example(*examples))


def _example(*examples: object) -> Any:  # noqa: ANN401  a type, as pydantic has it
    return Annotated[str, Field(examples=list(examples))]


def _words(*words: str) -> WithJsonSchema:
    return WithJsonSchema({"enum": [*words], "type": "string"})


def _service(text: str) -> Service:
    if text not in SERVICES:
        raise WrongError(f"{values.shown(text)!r} is no service", units.did_you_mean(text, SERVICES))
    return SERVICES[text]


def _code(text: str) -> str:
    if text not in CODES:
        raise WrongError(f"no finding has the code {text!r}", units.did_you_mean(text, CODES))
    return text


# ------------------------------------------------------------------------------------------- one text

SCALED = "scaled"  # marks what `menu scale` multiplies

_PART = Annotated[float | Annotated[str, Field(pattern="%$")], Field(examples=["10 %", 0.1])]
_LEVEL = Annotated[float | str, Field(examples=["25 %", "10 Gb/s"])]

Rate = Annotated[float, _read(values.rate, _example("10 Gb/s", "1.25 GB/s", "512 MiB/s", "8000 Mbps")), SCALED]
ReaderRate = Annotated[float, _read(values.rate, _example("10 MB/s"))]  # not traffic: not scaled
Block = Annotated[int, _read(values.block, _example("4 MB", "64 kB"))]
Size = Annotated[int, _read(units.parse_size, _example("500 TB", "2 PiB"))]
Amount = Annotated[int, _read(values.amount, _example("2 PiB", "20 TB")), SCALED]
Duration = Annotated[timedelta, _read(units.parse_duration, _example("15 min", "2 h", "1 h 30 min"))]
Lasting = Annotated[timedelta, _read(values.lasting, _example("1 h", "2 h"))]
Level = Annotated[values.Level, _read(values.level, _LEVEL), SCALED]
CycleLength = Annotated[timedelta, _read(values.cycle, _example("15 min"))]
Fraction = Annotated[float, _read(values.fraction, _PART)]
Part = Annotated[float, _read(values.part, _PART)]
Share = Annotated[float, _read(values.share, Annotated[float, Field(ge=0)])]
Count = Annotated[int, Field(ge=1, le=values.MOST)]
Priority = Annotated[int, Field(ge=1, le=5)]
Version = Annotated[int, _read(values.version, int), WithJsonSchema({"const": values.VERSION, "type": "integer"})]
Switch = Annotated[bool, WithJsonSchema({"enum": [True, False, "yes", "no", "on", "off"]})]
Counts = Annotated[tuple[int, int], _read(values.counts, _example("1..1000"))]
Sizes = Annotated[tuple[int, int], _read(values.sizes, _example("1..20 GB"))]
Clock = Annotated[timedelta, _read(values.clock, _example("08:00"))]
Zone = Annotated[str, _read(lambda text: values.zone(text).key, _example("Europe/Zurich", "UTC"))]
Name = Annotated[str, _name(values.name, "t0-export")]
RseName = Annotated[str, _name(values.rse, "T1_DE_KIT_Disk")]
EndName = Annotated[str, _name(addresses.end_name, "T1_DE_KIT_Disk", addresses.EXAMPLE)]
LinkName = Annotated[str, _read(addresses.link, _example("T2_CH_CERN:T1_DE_KIT_Disk"))]
FtsAddress = Annotated[str, _read(addresses.endpoint, _example("https://fts3.example.org:8446"))]
Folder = Annotated[str, _read(addresses.path, _example("data/2024", "."))]
Pattern = Annotated[str, _read(addresses.pattern, _example("*.root"))]
JobFiles = Annotated[int, Field(ge=1, le=5000)]
Connections = Annotated[int, Field(ge=1, le=10_000)]
Retries = Annotated[int, Field(ge=0, le=10)]
SciTag = Annotated[int, Field(ge=65, le=65535)]
Checksums = Annotated[Verify, _words(*Verify)]
Through = Annotated[Service, _read(_service, Annotated[str, _words(*SERVICES)])]
TakeOrder = Annotated[Order, _words(*Order)]
ControlMode = Annotated[Mode, _words(*Mode)]
Line = Annotated[str, _read(values.line, str)]
Prose = Annotated[str, _read(str, str)]
Activity = Annotated[str, _read(values.activity, _example("Data Challenge"))]
SliceName = Annotated[str, _read(values.slice_name, _example("{campaign}.{mark}"))]
Scope = Annotated[str, _read(values.scope, _example("user.dcops"))]
Did = Annotated[str, _read(values.did, _example("cms:/*/RAW#*"))]
Code = Annotated[str, _read(_code, _example("rate-outlier"))]
File = Annotated[str, _read(str, _example("sites.yaml"))]
ThresholdText = Annotated[Threshold, _read(thresholds.parse, _example(thresholds.EXAMPLE))]


def _moment(value: Node, info: ValidationInfo) -> datetime:
    return values.moment(_text(value), _reader(info).zone)


Moment = Annotated[
    datetime,
    PlainValidator(_moment, json_schema_input_type=_example("2027-02-08 10:00", "2027-02-08 10:00+01:00")),
]


# ------------------------------------------------------------------------------------------- several texts


def _listed(value: Node) -> Seq:
    """Take one value for a list of it."""
    return value if isinstance(value, Seq) else Seq([value], value.place)


def _filled(value: Node) -> Seq:
    if isinstance(value, Seq) and not value:
        raise WrongError("the list is empty", "write values, or remove it")
    return _listed(value)


def _curve(value: Node) -> Map:
    if not isinstance(value, Map) or not value:
        raise WrongError("expected a mapping of times to levels", 'write {"08:00": 30 %, ...}')
    return value


Dids = Annotated[tuple[Did, ...], BeforeValidator(_listed, json_schema_input_type=Did | list[Did])]
Codes = Annotated[tuple[Code, ...], BeforeValidator(_listed, json_schema_input_type=Code | list[Code])]
Files = Annotated[tuple[File, ...], BeforeValidator(_listed, json_schema_input_type=File | list[File])]
Lastings = Annotated[tuple[Lasting, ...], BeforeValidator(_filled, json_schema_input_type=Lasting | list[Lasting])]
Levels = Annotated[tuple[Level, ...], BeforeValidator(_filled, json_schema_input_type=list[Level])]
Thresholds = Annotated[
    tuple[ThresholdText, ...],
    BeforeValidator(_listed, json_schema_input_type=ThresholdText | list[ThresholdText]),
]
Curve = Annotated[dict[Clock, Level], BeforeValidator(_curve, json_schema_input_type=dict[str, Level])]


# ------------------------------------------------------------------------------------------- other files


def _dids_of_file(value: Node, info: ValidationInfo) -> list[Text]:
    return _reader(info).dids(_text(value))


def _listing(value: Node, info: ValidationInfo) -> Listing:
    return _reader(info).listing(_text(value))


DidFile = Annotated[
    tuple[Did, ...], BeforeValidator(_dids_of_file, json_schema_input_type=_example("datasets.txt"))
]
SourceList = Annotated[Listing, PlainValidator(_listing, json_schema_input_type=_example("sources.csv"))]


# ------------------------------------------------------------------------------------------- ends of links


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of links as it was written: an RSE, a site, an RSE expression or a URL, perhaps with its share."""

    text: Annotated[str, _read(addresses.end, str)]
    share: Share | None
    place: Place


def _link_end(value: Node | tuple[Text, Node]) -> dict[str, object]:
    """Return what pydantic makes an Endpoint of; with its share where it has one."""
    name, share = value if isinstance(value, tuple) else (value, None)
    text = _text(name)
    return {"text": text, "share": share, "place": text.place}


OneEnd = Annotated[LinkEnd, BeforeValidator(_link_end, json_schema_input_type=_example("T1_DE_KIT_Disk"))]
LinkEnds = tuple[OneEnd, ...]


def _link_ends(value: Node) -> list[Node] | list[tuple[Text, Node]]:
    """Take one end, a list of ends, or a mapping of ends to shares."""
    if isinstance(value, Map | Seq) and not value:
        raise WrongError("expected at least one RSE", "name RSEs")
    return value.entries() if isinstance(value, Map) else _listed(value)


def _mesh(value: Node) -> list[Node] | list[tuple[Text, Node]]:
    if isinstance(value, Map):
        raise WrongError("expected a list, got a mapping", "a mesh has equal shares: write a list of RSEs")
    return _link_ends(value)


def _shared(ends: LinkEnds) -> LinkEnds:
    """Refuse shares of nothing."""
    if ends[0].share is not None and not sum(end.share or 0 for end in ends):
        raise WrongError("the shares sum to 0", "give at least one a share above 0", ends[0].place)
    return ends


def _second_hops(value: Node) -> list[tuple[Text | None, Node]]:
    """Take one end for all that lands, or a mapping of where it lands to where it goes on to."""
    if isinstance(value, Map) and not value:
        raise WrongError("expected at least one RSE", "name RSEs")
    return [*value.entries()] if isinstance(value, Map) else [(None, value)]


_RSES = Annotated[list[str], Field(min_length=1)]
SharedEnds = Annotated[
    LinkEnds,
    BeforeValidator(_link_ends, json_schema_input_type=str | _RSES | dict[str, Share]),
    AfterValidator(_shared),
]
MeshEnds = Annotated[LinkEnds, BeforeValidator(_mesh, json_schema_input_type=str | _RSES)]
SecondHops = Annotated[
    tuple[tuple[OneEnd | None, OneEnd], ...],
    BeforeValidator(_second_hops, json_schema_input_type=str | dict[str, str]),
]
