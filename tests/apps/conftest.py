"""Fixtures that tests of several apps use."""

from tests.apps.link.linking import service

__all__ = ["service"]
