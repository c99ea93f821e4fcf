"""Fixtures that several modules of this folder use."""

from tests.cli.linking import service

__all__ = ["service"]
