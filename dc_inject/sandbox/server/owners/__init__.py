"""Policy package `owners`: as in experiments, the owner of a rule may change its lifetime and delete it."""

from .. import commits

SUPPORTED_VERSION = ">=38,<42"
