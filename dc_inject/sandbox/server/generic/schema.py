"""The generic schema with the experiments' names; what is not here Rucio takes from its own."""

from ..names import DEFAULT_RSE_ATTRIBUTE, NAME, RSE, SCHEMAS, SCOPE_NAME_REGEXP

__all__ = ["DEFAULT_RSE_ATTRIBUTE", "NAME", "RSE", "SCHEMAS", "SCOPE_NAME_REGEXP"]
