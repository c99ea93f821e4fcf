"""Policy package `owners`: as in experiments, the owner of a rule may change its lifetime and delete it."""

SUPPORTED_VERSION = ">=38,<42"
