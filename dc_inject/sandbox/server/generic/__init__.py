"""Policy package `generic`: Rucio's generic permissions; an ordinary account cannot end its own rules."""

from .. import commits

SUPPORTED_VERSION = ">=38,<42"
