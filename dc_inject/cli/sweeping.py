"""Sweeping up: files of ours below a destination that no ledger knows, shown, asked for, and deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import click

from dc_inject import units
from dc_inject.cli import removal
from dc_inject.errors import Permanent, ServiceError, UsageError
from dc_inject.ledger import Ledger
from dc_inject.naming import Copy
from dc_inject.ports import Backend


@runtime_checkable
class Sweeper(Protocol):
    """A service that can look for files of a campaign where they were copied to."""

    def sweep(self, prefix: str, campaign: str) -> Iterator[tuple[str, Copy, int]]:
        """Stream files whose whole path is one of ours: URL, what it says, and bytes."""
        ...

    def delete(self, urls: Sequence[str]) -> list[tuple[str, ServiceError | None]]:
        """Delete files, and folders of ours that are empty then; tells for each what stood in the way."""
        ...


def warn(prefix: str, ledger: Ledger | None) -> None:
    """Say so when a prefix is no destination of the campaign: most likely nothing of it is there."""
    if ledger is None:
        return
    known = sorted({flow.link.destination for flow in ledger.accounts() if flow.link.through == "fts"})
    if known and prefix not in known:
        others = f"{', '.join(known[:5])}{', ...' if len(known) > 5 else ''}"
        click.echo(f"no job of this ledger went to {prefix}; its destinations are {others}", err=True)


def sweep(backend: Backend, prefix: str, campaign: str, ledger: Ledger | None, *, yes: bool) -> None:
    """Find files of a campaign that no ledger answers for, ask, and delete them."""
    if not isinstance(backend, Sweeper):
        raise UsageError(f"{backend.name} leaves no files to sweep up")
    known = set() if ledger is None else {e.injection.key for e in ledger.entries() if e.state.resident}
    found = [(url, size) for url, copy, size in backend.sweep(prefix, campaign) if copy.key not in known]
    if not found:
        click.echo(f"no files of {campaign} below {prefix} but those that the ledger answers for", err=True)
        return
    total = units.format_size(sum(size for _, size in found))
    click.echo(
        f"{len(found)} files ({total}) of {campaign} below {prefix} that no ledger answers for, such as", err=True
    )
    for url, _ in found[:5]:
        click.echo(f"  {url}", err=True)
    if not yes and not removal.agreed("Delete them?"):
        raise UsageError("nothing was swept up", "answer y, or give --yes where nobody can be asked")
    errors = [error for _, error in backend.delete([url for url, _ in found]) if error is not None]
    click.echo(f"{len(found) - len(errors)} files deleted", err=True)
    if errors:
        raise Permanent(f"{len(errors)} files are still there: {errors[0].message}", errors[0].hint)
