"""A mapping of the menu format: what its keys are, which are missing or unknown, and where each stands."""

from __future__ import annotations

import difflib
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from dc_inject.menu import values
from dc_inject.menu.fields import MISSING, reading_of
from dc_inject.menu.nodes import Map, Place, Seq, Text
from dc_inject.menu.reading import Reading

_EXAMPLES = {
    "menu": "1",
    "start": "2027-02-08 10:00",
    "end": "2027-02-09 10:00",
    "rate": "10 Gb/s",
    "from": "T2_CH_CERN",
}
PARTS: dict[str, type[Mapping]] = {}  # what each mapping of the format is called, for hints


class Mapping(BaseModel):
    """A mapping of the format: unknown and missing keys are noted, keys that begin with `x-` are free."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"patternProperties": {"^x-": {}}})
    examples: ClassVar[dict[str, str]] = _EXAMPLES
    _place: Place = PrivateAttr(default=Place("", 0))
    _understood: bool = PrivateAttr(default=True)
    _places: dict[str, Place] = PrivateAttr(default_factory=dict)

    @classmethod
    def _example(cls, key: str) -> str:
        return f", such as `{key}: {cls.examples[key]}`" if key in cls.examples else ""

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self._place

    @property
    def understood(self) -> bool:
        """Whether it was a mapping at all; if not, that was complained of."""
        return self._understood

    @property
    def empty(self) -> bool:
        """Whether nothing was written in it, not even what was complained of."""
        return not self._places

    def written(self, key: str) -> bool:
        """Whether a key of it was written, with a value or without one."""
        return key in self._places

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
                misplaced(data, "a mapping", reading)
            nothing = cls.model_construct(**{n: None for n, one in cls.model_fields.items() if one.is_required()})
            nothing._understood = False  # noqa: SLF001  its own
            return nothing
        known = {field.alias or name: field for name, field in cls.model_fields.items()}
        taken: dict[str, Any] = {}
        for key, value in data.entries():
            if key.startswith("x-"):
                continue
            if key not in known:
                reading.complain(key.place, f"the key `{values.shown(key)}` is unknown here", _nearest(key, known))
            elif isinstance(value, Text) and not value.strip():
                reading.complain(key.place, f"`{key}` has no value", "give it one, or remove the key")
                taken[key] = MISSING
            else:
                taken[key] = value
        for name, field in known.items():
            if taken.get(name, MISSING) is not MISSING:
                continue
            if field.is_required() and name not in taken:
                reading.complain(data.place, f"`{name}` is missing", f"add `{name}: ...`{cls._example(name)}")
                taken[name] = MISSING
            elif not field.is_required():
                taken.pop(name, None)
        made = handler(taken)
        made._place, made._places = data.place, {str(key): key.place for key, _ in data.entries()}  # noqa: SLF001  its own
        return made


def misplaced(node: object, expected: str, reading: Reading) -> None:
    """Complain of a list, mapping or text where something else belongs."""
    assert isinstance(node, Map | Seq | Text), type(node)
    found = (
        "a mapping"
        if isinstance(node, Map)
        else "a list"
        if isinstance(node, Seq)
        else repr(values.shown(node, 40))
    )
    hints = {"a list": "write a list: `- ...` lines, or [...]", "a mapping": "write `key: value` lines, or {...}"}
    reading.complain(node.place, f"{found} stands where {expected} belongs", hints[expected])


def _nearest(key: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    elsewhere = [
        noun for noun, part in PARTS.items() if key in {x.alias or n for n, x in part.model_fields.items()}
    ]
    if elsewhere:
        return f"it belongs into {elsewhere[0]}"
    return f"known here: {', '.join(known)}"
