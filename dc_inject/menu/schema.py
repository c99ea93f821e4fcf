"""What may stand in a menu: one class for each mapping of the format, with what editors show of its keys."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from dc_inject.menu import fields as f
from dc_inject.menu.fields import MISSING, reading_of
from dc_inject.menu.nodes import Map, Place, Seq, Text
from dc_inject.menu.reading import Reading

VERSION = 1


class Mapping(BaseModel):
    """A mapping of the format: unknown and missing keys are noted, keys that begin with `x-` are free."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"patternProperties": {"^x-": {}}})
    _place: Place = PrivateAttr(default=Place("", 0))
    _understood: bool = PrivateAttr(default=True)
    _places: dict[str, Place] = PrivateAttr(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self._place

    @property
    def understood(self) -> bool:
        """Whether it was a mapping at all; if not, that was complained of."""
        return self._understood

    def at(self, key: str) -> Place:
        """Where a key of it stands, or the mapping where the key is not given."""
        return self._places.get(key, self._place)

    @model_validator(mode="wrap")
    @classmethod
    def _note(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:  # noqa: ANN401  as pydantic has it
        """Note what is unknown, empty or missing; what is left is validated."""
        reading = reading_of(info)
        if not isinstance(data, Map):
            if data is not MISSING:
                _misplaced(data, "a mapping", reading)
            nothing = cls.model_construct(**{n: None for n, one in cls.model_fields.items() if one.is_required()})
            nothing._understood = False  # noqa: SLF001  its own
            return nothing
        known = {field.alias or name: field for name, field in cls.model_fields.items()}
        taken: dict[str, Any] = {}
        for key, value in data.entries():
            if key.startswith("x-"):
                continue
            if key not in known:
                reading.complain(key.place, f"the key `{key!s:.60}` is unknown here", _nearest(key, known))
            elif isinstance(value, Text) and not value.strip():
                reading.complain(key.place, f"`{key}` has no value", "give it one, or remove the key")
                taken[key] = MISSING
            else:
                taken[key] = value
        for name, field in known.items():
            if taken.get(name, MISSING) is not MISSING:
                continue
            if field.is_required() and name not in taken:
                reading.complain(data.place, f"`{name}` is missing", f"add `{name}: ...`{_eg(cls, name)}")
                taken[name] = MISSING
            elif not field.is_required():
                taken.pop(name, None)
        made = handler(taken)
        made._place, made._places = data.place, {str(key): key.place for key, _ in data.entries()}  # noqa: SLF001  its own
        return made


class Lifetime(Mapping):
    """How long a rule may live; what is asked for lies between."""

    min: f.Lasting = Field(None, description="Shortest lifetime of a rule")
    max: f.Lasting = Field(None, description="Longest lifetime of a rule")


class Datasets(Mapping):
    """Which datasets are taken; `did`, `containers` and `file` select together."""

    did: f.Dids | None = Field(None, description="Patterns of DIDs, scope:name, wildcards in either part")
    containers: f.Dids | None = Field(None, description="Containers whose datasets are taken")
    file: f.DidFile | None = Field(None, description="A file of DIDs, one a line")
    exclude: f.Dids | None = Field(None, description="Patterns of DIDs that are never taken")
    files: f.Counts = Field(None, description="Bounds on the number of files of a dataset")
    mean_file: f.Sizes = Field(None, description="Bounds on the mean file size of a dataset")
    order: f.TakeOrder | None = Field(None, description="In which order datasets are taken")


class Overrides(Mapping):
    """What may be said for the whole menu (under `defaults`), for a scenario or for a link."""

    through: f.Service | None = Field(None, description="The service that moves the bytes")
    activity: f.Activity | None = Field(None, description="The activity of rules or jobs")
    priority: f.Priority | None = Field(None, description="Divides our own budgets, 1 to 5 (most)")
    service_priority: f.Priority | None = Field(
        None, description="What the service is told; above 3 only over production"
    )
    lifetime: Lifetime | None = None
    dwell: f.Duration | None = Field(None, description="How long complete data stay")
    overhead: f.Fraction | None = Field(None, description="What is injected on top of the rate")
    grain: f.Part | None = Field(None, description="Part of a cycle's worth that one dataset may have")
    datasets: Datasets | None = None


class Defaults(Overrides):
    """What holds where nothing else is said."""

    cycle: f.CycleLength = Field(None, description="Length of a cycle, the same in all menus of a campaign")


class Windowed(Overrides):
    """What may have a window of its own, inside of the menu's."""

    start: f.Moment = Field(None, description="Begin, if later than the menu's")
    end: f.Moment = Field(None, description="End, if earlier than the menu's")


class LinkEntry(Windowed):
    """One link with its rate."""

    from_: f.OneEnd = Field(alias="from", description="Source: an RSE, or an expression")
    to: f.OneEnd = Field(description="Destination: an RSE, or an expression")
    rate: f.Rate = Field(description="Rate of this link")
    both_ways: f.Switch = Field(False, description="The same rate in the other direction too")
    tape_agreed: f.Line | None = Field(None, description="Who agreed that an end is tape")


def _rows(value: object, info: ValidationInfo) -> object:
    """Turn `{file: links.csv}` into the list that the file holds."""
    if isinstance(value, Seq) and not value:
        reading_of(info).complain(value.place, "`links` is empty", "write `- {from: ..., to: ..., rate: ...}`")
    if not isinstance(value, Map):
        return value
    file = value.get("file")
    if not isinstance(file, Text) or len(value) != 1:
        reading_of(info).complain(
            value.place, "`links` is neither a list nor `{file: ...}`", "write `{file: links.csv}`"
        )
        return Seq([], value.place)
    return reading_of(info).rows(file)


def _or_file(schema: dict[str, Any]) -> None:
    properties = {"file": {"type": "string"}}
    file = {"type": "object", "properties": properties, "required": ["file"], "additionalProperties": False}
    schema["anyOf"].append(file)


class Scenario(Windowed):
    """A named group of links: `from`, `to` and `rate`, or `mesh` and `rate`, or `links`."""

    description: f.Prose = ""
    from_: f.SomeEnds = Field(None, alias="from", description="Sources: one, a list, or a map of shares")
    to: f.SomeEnds = Field(None, description="Destinations: one, a list, or a map of shares")
    mesh: f.MeshEnds = Field(None, description="RSEs of which every ordered pair is a link, in equal shares")
    rate: f.Rate | None = Field(None, description="Rate of all links together")
    both_ways: f.Switch = Field(False, description="The same rates in the other direction too")
    links: Annotated[tuple[LinkEntry, ...], BeforeValidator(_rows)] | None = Field(
        None, description="Links with their own rates, or a CSV file of them", json_schema_extra=_or_file
    )


class RseEntry(Mapping):
    """An RSE of a site."""

    space: f.Size | None = Field(None, description="What we may fill")
    deletion_lag: f.Duration | None = Field(None, description="From the end of a rule to free space")


class SiteEntry(Mapping):
    """A place behind one WAN."""

    wan: f.Rate | None = Field(None, description="Its WAN, each direction")
    max_ingress: f.Rate | None = Field(None, description="Our limit into it")
    max_egress: f.Rate | None = Field(None, description="Our limit out of it")
    rses: dict[f.RseName, RseEntry] = Field({}, description="Its RSEs")


class ExcludeEntry(Mapping):
    """A time in which a site, an RSE, a link or a scenario is due nothing."""

    site: f.RseName | None = None
    rse: f.RseName | None = None
    link: f.Line | None = Field(None, description="SOURCE:DESTINATION")
    scenario: f.Name | None = None
    from_: f.Moment = Field(alias="from")
    to: f.Moment = Field()
    reason: f.Line = Field()
    redistribute: f.Switch = Field(False, description="Share its rate among the scenario's other links")


class LimitsEntry(Mapping):
    """The brakes; naming one raises (or lowers) it."""

    total: f.Rate | None = Field(None, description="All links together")
    per_site: f.Rate | None = Field(None, description="Each site, each direction")
    rules_per_hour: f.Count | None = None
    files_in_flight: f.Count | None = None


class Document(Mapping):
    """A menu of dc_inject: links with rates, for a window of time."""

    menu: f.Version = Field(description="Version of the format")
    campaign: f.Name = Field(description="Binds menus into one exercise with one ledger")
    description: f.Prose = ""
    contact: f.Line = Field(description="Whom to ask; every rule says it")
    timezone: f.Zone = Field("UTC", description="Zone of all times that have no offset")
    start: f.Moment = Field(description="When the menu comes into force")
    end: f.Moment = Field(description="When it ends")
    target: f.Rate | None = Field(None, description="What the rates should sum to; checked")
    include: f.Files = Field((), description="Other files whose mappings are merged in")
    limits: LimitsEntry | None = None
    defaults: Defaults | None = None
    sites: dict[f.RseName, SiteEntry] = Field({})
    exclude: tuple[ExcludeEntry, ...] = Field(())
    tape: dict[f.RseName, f.Line] = Field({}, description="Tape RSEs, and who agreed to each")
    accept: f.Codes = Field((), description="Codes of findings that are meant")
    above_production: f.Switch = Field(False, description="Allow service priorities above 3")
    scenarios: dict[f.Name, Scenario] = Field()


def validate(data: Map, reading: Reading) -> Document | None:
    """Read a mapping as a menu; problems are noted, and None is returned when its structure is wrong."""
    try:
        return Document.model_validate(data, context=reading)
    except ValidationError as error:
        for one in error.errors(include_url=False, include_context=False):
            if one["input"] is not MISSING:
                _misplaced(one["input"], "a list" if one["type"] == "tuple_type" else "a mapping", reading)
    return None


def _misplaced(node: object, expected: str, reading: Reading) -> None:
    """Complain of a list, mapping or text where something else belongs."""
    assert isinstance(node, Map | Seq | Text), type(node)
    found = "a mapping" if isinstance(node, Map) else "a list" if isinstance(node, Seq) else repr(f"{node!s:.40}")
    hints = {"a list": "write a list: `- ...` lines, or [...]", "a mapping": "write `key: value` lines, or {...}"}
    reading.complain(node.place, f"{found} stands where {expected} belongs", hints[expected])


def _nearest(key: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    elsewhere = [
        noun for noun, part in _PARTS.items() if key in {x.alias or n for n, x in part.model_fields.items()}
    ]
    if elsewhere:
        return f"it belongs into {elsewhere[0]}"
    return f"known here: {', '.join(known)}"


_PARTS: dict[str, type[Mapping]] = {
    "the menu itself": Document,
    "`datasets`": Datasets,
    "`defaults`": Defaults,
    "a scenario": Scenario,
    "a link of `links`": LinkEntry,
    "`limits`": LimitsEntry,
    "a site of `sites`": SiteEntry,
    "an RSE of a site": RseEntry,
    "`lifetime`": Lifetime,
    "an entry of `exclude`": ExcludeEntry,
}
_EXAMPLES = {
    "menu": "1",
    "start": "2027-02-08 10:00",
    "end": "2027-02-09 10:00",
    "rate": "10 Gb/s",
    "from": "T2_CH_CERN",
}


def _eg(part: type[Mapping], key: str) -> str:
    if part is ExcludeEntry and key == "from":
        return ""
    return f", such as `{key}: {_EXAMPLES[key]}`" if key in _EXAMPLES else ""
