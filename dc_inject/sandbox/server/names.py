"""Names as experiments have them and Rucio's generic schema refuses: `/A/B-v1/RAW#12`, `T1_US_FNAL_Disk`.

Also replaces Rucio's `validate`, which checks the schema itself at each call (a fifth of the server's CPU).
"""

from __future__ import annotations

from typing import Any

from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from rucio.common import schema as rucio_schema
from rucio.common.schema import generic

PATTERNS = {
    generic.NAME["pattern"]: r"^[/A-Za-z0-9][/A-Za-z0-9\.\-_#]*$",
    generic.RSE["pattern"]: r"^([A-Za-z0-9]+([_-][A-Za-z0-9]+)*)$",
    generic.DEFAULT_RSE_ATTRIBUTE["pattern"]: r"([A-Za-z0-9]+([_-][A-Za-z0-9]+)*)",
}


def widen_schema(schema: Any) -> Any:  # noqa: ANN401  JSON
    """Return a schema in which names may be as above, wherever they stand: lists of DIDs have a copy of them."""
    if isinstance(schema, dict):
        pattern = schema.get("pattern")
        wider = {"pattern": PATTERNS.get(pattern, pattern)} if isinstance(pattern, str) else {}
        return {key: widen_schema(value) for key, value in schema.items()} | wider
    return [widen_schema(part) for part in schema] if isinstance(schema, list) else schema


NAME, RSE, DEFAULT_RSE_ATTRIBUTE = map(widen_schema, (generic.NAME, generic.RSE, generic.DEFAULT_RSE_ATTRIBUTE))
SCOPE_NAME_REGEXP = generic.SCOPE_NAME_REGEXP
SCHEMAS = widen_schema(generic.SCHEMAS)


def validate(instance: Any, schema: dict[str, Any]) -> None:  # noqa: ANN401  JSON
    """Validate as `jsonschema.validate` does, with a schema that is known to be one."""
    error = best_match(validator_for(schema)(schema).iter_errors(instance))
    if error is not None:
        raise error


if not hasattr(rucio_schema, "validate"):
    raise ImportError("this release of Rucio has no `validate` in rucio.common.schema that could be replaced")
rucio_schema.validate = validate
