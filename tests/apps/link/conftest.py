"""Fixtures that several modules of this folder use."""

from tests.apps.link.linking import service

__all__ = ["service"]
