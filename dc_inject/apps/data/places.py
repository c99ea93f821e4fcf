"""What the commands of `dc-inject data` share: their options, and how they reach a storage and Rucio."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from dc_inject.cli.shared import params, trusting
from dc_inject.credentials import Credentials
from dc_inject.credentials.destinations import hint, is_unencrypted, refusal
from dc_inject.metrics import Silent
from dc_inject.model import urls
from dc_inject.model.errors import UsageError
from dc_inject.storage import AccessDenied, WebDav, trust
from dc_inject.system.clock import SystemClock

if TYPE_CHECKING:
    from dc_inject.backends.rucio.connection import Connection

SCOPE = click.option("--scope", help="The scope in Rucio.  [default: user.ACCOUNT]")
BEFORE = click.option(
    "--name-prefix",
    "before",
    metavar="TEXT",
    default="",
    help="A prefix for all names in Rucio, if the experiment's policy requires one, such as user.me.",
)


def place(source: str, **rucio_only: object) -> str:
    """Return a source in its one form; raises UsageError for options that a storage has no use for."""
    if "://" not in source:
        return source
    prefix = params.PREFIX.convert(source, None, None)
    if urls.parse(prefix).scheme in urls.XROOTD:
        raise UsageError(
            "test data are written and deleted over WebDAV", "use a prefix that starts with davs:// or https://"
        )
    trusting.name(prefix)  # on the command line
    for name, value in rucio_only.items():
        if value:
            raise UsageError(
                f"--{name.replace('_', '-')} is only for Rucio, but {prefix} is a storage", "leave it out"
            )
    return prefix


@contextmanager
def storage(timeout: float) -> Iterator[WebDav]:
    """Give storages as those know us who let us write, with the same credentials as for deleting copies."""
    credentials = Credentials(os.environ, SystemClock())
    for warning in credentials.warnings():
        click.echo(f"dc-inject: {warning}", err=True)
    trusted = trusting.destinations()

    def may_open(url: str) -> None:
        """Raise AccessDenied where a token would go over plain http to an address that only Rucio names."""
        if is_unencrypted(url) and credentials.access("destination").token and not trusted.allow(url):
            raise AccessDenied(refusal(url, "your token", "Rucio"), hint(url), hold="credentials")

    webdav = WebDav(
        lambda: credentials.access("destination"), verify=trust(os.environ), read=timeout, may_open=may_open
    )
    try:
        yield webdav
    finally:
        webdav.close()


def rucio(timeout: float) -> Connection:
    """Return a connection to Rucio."""
    from dc_inject.backends.rucio.connection import Connection  # noqa: PLC0415  costs half a second

    return Connection(timeout=timeout, clock=SystemClock(), observer=Silent())


def own_scope(connection: Connection, scope: str | None) -> str:
    """Return the scope that was named, or that of the account's own."""
    from dc_inject.backends.rucio.identity import account_of  # noqa: PLC0415  costs half a second

    return scope or f"user.{account_of(connection)}"
