"""What may stand in a menu: one class for each mapping of the format, with what editors show of its keys."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dc_inject.menu import fields as f
from dc_inject.menu import validation, values
from dc_inject.menu.includes import MenuReader
from dc_inject.menu.nodes import Map, Node, Seq, Text
from dc_inject.menu.validation import MenuModel
from dc_inject.menu.values import WrongError


class Lifetime(MenuModel):
    """How long a rule may live; what is asked for lies between."""

    min: f.Lasting | None = Field(None, description="Shortest lifetime of a rule")
    max: f.Lasting | None = Field(None, description="Longest lifetime of a rule")


class SlicesEntry(MenuModel):
    """That datasets which are too coarse for a link are cut, and where the parts are made."""

    scope: f.Scope | None = Field(None, description="A scope in which the account may make datasets")
    name: f.SliceName | None = Field(None, description="Template of the parts' names, with {mark}")
    at_most: f.Size | None = Field(None, description="The most bytes of a part")
    never: f.Switch = Field(False, description="Whole datasets, where slices would hold")


_SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _short_for(key: str, value: Text, text: str) -> Map:
    """Return the mapping of one key for which a text is short."""
    return Map([(Text(key, value.place), Text(text, value.place))], value.place)


def _scope(value: Node) -> Node:
    """Take a scope for `{scope: ...}`, and a switch for whether there are any: `no` for `{never: true}`."""
    if not isinstance(value, Text):
        return value
    wanted = _SWITCHES.get(value.strip().lower())
    return (
        _short_for("scope", value, value)
        if wanted is None
        else _short_for("never", value, str(not wanted).lower())
    )


class Datasets(MenuModel):
    """Which datasets are taken; `did`, `containers` and `file` select together."""

    did: f.Dids | None = Field(None, description="Patterns of DIDs, scope:name, wildcards in either part")
    containers: f.Dids | None = Field(None, description="Containers whose datasets are taken")
    file: f.DidFile | None = Field(None, description="A file of DIDs, one a line")
    exclude: f.Dids | None = Field(None, description="Patterns of DIDs that are never taken")
    files: f.Counts | None = Field(None, description=f"Bounds on the files of a dataset, up to {values.MOST}")
    mean_file: f.Sizes | None = Field(None, description="Bounds on the mean file size of a dataset")
    order: f.TakeOrder | None = Field(None, description="In which order datasets are taken")
    slices: Annotated[SlicesEntry, BeforeValidator(_scope, json_schema_input_type=SlicesEntry | str)] | None = (
        Field(None, description="Cut what is too coarse: a scope of the account's own, or no")
    )


class Files(MenuModel):
    """Which files are taken through FTS; `list` or `folder` names them, or `datasets` of the same level."""

    list_: f.SourceList | None = Field(
        None, alias="list", description="A list of files: YAML, CSV, or one URL a line"
    )
    folder: f.Folder | None = Field(None, description="A folder below the source, which the storage lists")
    pattern: f.Pattern | None = Field(None, description="Wildcards for the path below the source")
    size: f.Sizes | None = Field(None, description="Bounds on the size of a file")


class Jobs(MenuModel):
    """How files become FTS jobs, and the options that FTS gets for them."""

    files: f.JobFiles | None = Field(None, description="The most files of a job")
    retry: f.Retries | None = Field(None, description="How often FTS tries a file again")
    verify: f.Checksums | None = Field(None, description="Where FTS compares checksums")
    scitag: f.SciTag | None = Field(None, description="The flow label of experiment and activity")
    longest_transfer: f.Lasting | None = Field(None, description="How long a cancelled transfer may still write")


class Reads(MenuModel):
    """How workers read files through streamed reads."""

    rate: f.ReaderRate | None = Field(None, description="The most of one reader")
    block: f.Block | None = Field(None, description="Bytes that are asked for at a time")
    fraction: f.Part | None = Field(None, description="Part of each file that is read")
    think: f.Duration | None = Field(None, description="Time for work after each block")
    connections: f.Connections | None = Field(None, description="The most readers of a source at a time")


class ShapeEntry(MenuModel):
    """How the rate goes over time; one of `ramp`, `steps`, `burst` and `daily`, or `constant`."""

    constant: f.Switch = Field(False, description="The rate as it is, where another shape would hold")
    ramp: f.Lasting | None = Field(None, description="Straight up to the rate in this time")
    from_: f.Level | None = Field(None, alias="from", description="Where a ramp begins")
    steps: f.Levels = Field((), description="Levels one after the other; the last one stays")
    hold: f.Lastings = Field((), description="How long a step lasts: one time for all, or a list")
    repeat: f.Switch = Field(False, description="After the last step the first one comes again")
    burst: f.Lasting | None = Field(None, description="Pulses: how long the rate holds")
    pause: f.Lasting | None = Field(None, description="Pulses: how long it does not")
    low: f.Level | None = Field(None, description="Pulses: the level of a pause")
    daily: f.Curve = Field({}, description="Levels at times of the day, with straight lines between them")


def _constant(value: Node) -> Node:
    """Take the word `constant` for `{constant: true}`."""
    if isinstance(value, Text) and value.strip() == "constant":
        return _short_for("constant", value, "true")
    return value


Shape = Annotated[ShapeEntry, BeforeValidator(_constant, json_schema_input_type=ShapeEntry | Literal["constant"])]


class ControlEntry(MenuModel):
    """Whether what a link has in flight is controlled; `control: act` is short for `{mode: act}`."""

    mode: f.ControlMode | None = Field(None, description="off, advise (show what would be done) or act")
    catch_up: f.Duration | None = Field(None, description="For how long a debt is kept, to be made up")
    removed = {"redistribute": "what is held back stays on its link, within `catch_up`"}  # noqa: RUF012  a ClassVar


def _mode(value: Node) -> Node:
    """Take a mode for `{mode: ...}`."""
    return _short_for("mode", value, value) if isinstance(value, Text) else value


ControlMode = Annotated[ControlEntry, BeforeValidator(_mode, json_schema_input_type=ControlEntry | f.ControlMode)]


class Settings(MenuModel):
    """Settings for the whole menu (under `defaults`), for a scenario or for a link."""

    through: f.Through | None = Field(None, description="The service that moves the bytes")
    activity: f.Activity | None = Field(None, description="The activity of rules or jobs")
    type: f.Line | None = Field(None, description="What reports call such links, such as T1s to T1s")
    priority: f.Priority | None = Field(None, description="Divides our own budgets, 1 to 5 (most)")
    service_priority: f.Priority | None = Field(
        None, description="Priority at the service; above 3 only over production"
    )
    shape: Shape | None = Field(None, description="How the rate goes over time")
    lifetime: Lifetime | None = None
    dwell: f.Duration | None = Field(None, description="How long complete data stay")
    overhead: f.Fraction | None = Field(None, description="What is injected on top of the rate")
    grain: f.Part | None = Field(None, description="Part of a cycle's worth that one dataset may have")
    control: ControlMode | None = Field(
        None, description="Bound what a link has in flight, so that nothing expires"
    )
    datasets: Datasets | None = None
    files: Files | None = None
    jobs: Jobs | None = None
    reads: Reads | None = None


class Defaults(Settings):
    """Settings that hold where a scenario or link has no other."""

    cycle: f.CycleLength | None = Field(None, description="Length of a cycle, the same in all menus of a campaign")


class Windowed(Settings):
    """What may have a window of its own, inside of the menu's."""

    start: f.Moment | None = Field(None, description="Begin, if later than the menu's")
    end: f.Moment | None = Field(None, description="End, if earlier than the menu's")


class LinkEntry(Windowed):
    """One link with its rate."""

    from_: f.OneEnd | None = Field(alias="from", description="Source: an RSE, an expression, or a URL prefix")
    to: f.OneEnd | None = Field(description="Destination: an RSE, an expression, or a URL prefix")
    rate: f.Rate | None = Field(None, description="Rate of this link")
    volume: f.Amount | None = Field(None, description="Bytes in all, each dataset or file once in the scenario")
    keep: f.Amount | None = Field(None, description="Bytes that are kept on their way")
    again: f.Switch = Field(False, description="Each dataset again as soon as its last rule is complete and gone")
    both_ways: f.Switch = Field(False, description="The same rate in the other direction too")
    tape_agreed: f.Line | None = Field(None, description="Who agreed that an end is tape")


class LinkFile(MenuModel):
    """A CSV file of links."""

    file: f.File = Field(description="Its path")


def _rows(value: Node) -> Node:
    """Refuse what is no list; the rows of a file of links stand here already."""
    if isinstance(value, Seq) and not value:
        raise WrongError("`links` is empty", "write `- {from: ..., to: ..., rate: ...}`")
    if isinstance(value, Map):
        raise WrongError("`links` is neither a list nor `{file: ...}`", "write `{file: links.csv}`")
    return value


Links = Annotated[tuple[LinkEntry, ...], BeforeValidator(_rows, json_schema_input_type=list[LinkEntry] | LinkFile)]


class ThenEntry(MenuModel):
    """A second hop: where each dataset goes on to once it has landed, after which the first copy is ended."""

    examples: ClassVar[dict[str, str]] = {"to": "{T1_DE_KIT_Disk: T1_DE_KIT_Tape}"}
    to: f.SecondHops | None = Field(description="One RSE, or one for each destination of the scenario")
    rate: f.Rate | None = Field(None, description="Rate of all second hops together, at most")
    activity: f.Activity | None = Field(None, description="Their activity, if another one")
    tape_agreed: f.Line | None = Field(None, description="Who agreed that an end is tape")


class Scenario(Windowed):
    """A named group of links: `from`, `to` and `rate`, or `mesh` and `rate`, or `links`."""

    description: f.Prose = ""
    from_: f.SharedEnds | None = Field(None, alias="from", description="Sources: one, a list, or a map of shares")
    to: f.SharedEnds | None = Field(None, description="Destinations: one, a list, or a map of shares")
    mesh: f.MeshEnds | None = Field(
        None, description="RSEs of which every ordered pair is a link, in equal shares"
    )
    rate: f.Rate | None = Field(None, description="Rate of all links together")
    volume: f.Amount | None = Field(None, description="Bytes in all, shared, each dataset or file once")
    keep: f.Amount | None = Field(None, description="Bytes that are kept on their way on all links together")
    again: f.Switch = Field(False, description="Each dataset again as soon as its last rule is complete and gone")
    both_ways: f.Switch = Field(False, description="The same rates in the other direction too")
    then: ThenEntry | None = Field(None, description="A second hop of what has landed")
    links: Links | None = Field(None, description="Links with their own rates, or a CSV file of them")


class RseEntry(MenuModel):
    """An RSE of a site."""

    space: f.Size | None = Field(None, description="What we may fill")
    deletion_lag: f.Duration | None = Field(None, description="From the end of a rule to free space")


class TapeEntry(MenuModel):
    """The tape system of a site, for links from its RSEs that `tape` or `tape_agreed` names."""

    examples: ClassVar[dict[str, str]] = {"drives": "8", "rate": "300 MB/s", "buffer": "50 TB"}
    drives: f.Count | None = Field(description="Drives that recalls may use")
    rate: f.ReaderRate | None = Field(description="What one drive reads")
    buffer: f.Size | None = Field(description="Disk that files are staged to")


class SiteEntry(MenuModel):
    """A place behind one WAN."""

    wan: f.Rate | None = Field(None, description="Its WAN, each direction")
    max_ingress: f.Rate | None = Field(None, description="Our limit into it")
    max_egress: f.Rate | None = Field(None, description="Our limit out of it")
    rses: dict[f.EndName, RseEntry] = Field({}, description="Its RSEs and URL prefixes")
    tape: TapeEntry | None = Field(None, description="Its tape system")


class ExcludeEntry(MenuModel):
    """A time in which a site, an RSE, a link or a scenario is due nothing."""

    examples: ClassVar[dict[str, str]] = {"from": "2027-02-08 14:00", "to": "2027-02-08 15:00"}
    site: f.RseName | None = None
    rse: f.EndName | None = None
    link: f.LinkName | None = Field(None, description="SOURCE:DESTINATION")
    scenario: f.Name | None = None
    from_: f.Moment | None = Field(alias="from")
    to: f.Moment | None = Field()
    reason: f.Line | None = Field()
    redistribute: f.Switch = Field(False, description="Share its rate among the scenario's other links")


class LimitsEntry(MenuModel):
    """The brakes; naming one raises (or lowers) it."""

    total: f.Rate | None = Field(None, description="All links together")
    per_site: f.Rate | None = Field(None, description="Each site, each direction")
    rules_per_hour: f.Count | None = Field(None, description=f"Rules made in any hour, 1 to {values.MOST}")
    files_in_flight: f.Count | None = Field(None, description=f"Files in flight, 1 to {values.MOST}")


class FtsEntry(MenuModel):
    """The FTS service that serves the links through FTS."""

    examples: ClassVar[dict[str, str]] = {"endpoint": "https://fts3.example.org:8446"}
    endpoint: f.FtsAddress | None = Field(description="Its REST interface")


def _or_none(value: Node | None) -> Node | dict[str, Node]:
    """Take scenarios that were refused for none."""
    return {} if value is None else value


Scenarios = Annotated[
    dict[f.Name, Scenario], BeforeValidator(_or_none, json_schema_input_type=dict[f.Name, Scenario])
]


class Document(MenuModel):
    """A menu of dc_inject: links with rates, for a window of time."""

    menu: f.Version | None = Field(description="Version of the format")
    campaign: f.Name | None = Field(description="Binds menus into one exercise with one ledger")
    description: f.Prose = ""
    contact: f.Line | None = Field(description="Whom to ask; every rule names it")
    timezone: f.Zone = Field("UTC", description="Zone of all times that have no offset")
    start: f.Moment | None = Field(description="When the menu comes into force")
    end: f.Moment | None = Field(description="When it ends")
    target: f.Rate | None = Field(None, description="What the rates should sum to; checked")
    include: f.Files = Field((), description="Other files whose mappings are merged in")
    limits: LimitsEntry | None = None
    defaults: Defaults | None = None
    sites: dict[f.RseName, SiteEntry] = Field({})
    exclude: tuple[ExcludeEntry, ...] = Field(())
    fts: FtsEntry | None = None
    tape: dict[f.EndName, f.Line] = Field({}, description="Tape RSEs, and who agreed to each")
    accept: f.Codes = Field((), description="Codes of findings that are meant")
    above_production: f.Switch = Field(False, description="Allow service priorities above 3")
    thresholds: f.Thresholds = Field((), description="What the campaign has to reach; else `run` exits with 5")
    scenarios: Scenarios = Field()


PARTS: dict[str, type[MenuModel]] = {
    "the menu itself": Document,
    "`datasets`": Datasets,
    "`slices`": SlicesEntry,
    "`defaults`": Defaults,
    "a scenario": Scenario,
    "a link of `links`": LinkEntry,
    "`limits`": LimitsEntry,
    "a site of `sites`": SiteEntry,
    "an RSE of a site": RseEntry,
    "the tape system of a site": TapeEntry,
    "`lifetime`": Lifetime,
    "`shape`": ShapeEntry,
    "`then`": ThenEntry,
    "`files`": Files,
    "`jobs`": Jobs,
    "`reads`": Reads,
    "`control`": ControlEntry,
    "`fts`": FtsEntry,
    "an entry of `exclude`": ExcludeEntry,
}


def validate(data: Map, reader: MenuReader) -> Document | None:
    """Read a mapping as a menu; problems are noted, and what is right is returned, None if that is nothing."""
    return validation.validated(Document, reader.with_links(data), reader, PARTS)


class _JsonSchema(GenerateJsonSchema):
    """A JSON Schema of what is written: a key may be left out, but not be given without a value."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Describe the value alone."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Name no default of None, which only means that the key is not there."""
        described = super().default_schema(schema)
        return {key: value for key, value in described.items() if (key, value) != ("default", None)}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002  as pydantic has it
        """Leave out titles, which repeat the keys."""
        return False


def json_schema() -> dict[str, Any]:
    """Return the menu format as a JSON Schema, for editors that complete and check a menu while it is written."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dc_inject menu"}
    return Document.model_json_schema(by_alias=True, schema_generator=_JsonSchema) | head
