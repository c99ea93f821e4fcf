"""Policy package `generic`: Rucio's generic permissions; an ordinary account cannot end its own rules."""

SUPPORTED_VERSION = ">=38,<42"
