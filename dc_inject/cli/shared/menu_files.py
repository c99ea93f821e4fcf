"""What the commands of `dc-inject menu` share: reading a file or stdin, and writing one as a whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from dc_inject import menu
from dc_inject.cli.shared import params
from dc_inject.model.errors import MenuError, Problem
from dc_inject.system import files

STDIN = Path("-")
PATH = params.MenuFile(allow_dash=True)
OUTPUT = click.option(
    "-o", "--output", type=PATH, default="-", show_default=True, help="The file to write; - is stdout."
)
FORCE = click.option("--force", is_flag=True, help="Replace the --output file if it exists.")


def read(path: Path) -> tuple[bytes, str]:
    """Return what a file (or stdin, `-`) holds, cut where it is too large for a menu, and its name in messages.

    Raises MenuError when it cannot be read.
    """
    if path == STDIN:
        return sys.stdin.buffer.read(files.LARGEST), "stdin"
    try:
        return files.load(str(path), files.LARGEST), str(path)
    except OSError as error:
        problem = Problem(str(path), 0, f"cannot be read: {error.strerror or error}", "check its path and rights")
        raise MenuError([problem]) from None


def drafts(path: Path) -> list[menu.MenuDraft]:
    """Read a menu, a folder of them, or stdin; raises MenuError with every problem."""
    return [menu.read(*read(path), files.make_loader(path))] if path == STDIN else files.read_menus([path])


def write(content: str | bytes, output: Path, *, force: bool, mode: int = 0o666) -> None:
    """Write a menu, or a report, to a file, which gets the rights of `mode`, or to stdout."""
    if output == STDIN:
        # It is UTF-8, whatever the terminal is.
        whole = content.encode() if isinstance(content, str) and hasattr(sys.stdout, "buffer") else content
        click.echo(whole, nl=False)
    else:
        files.write_whole(output, content, force=force, mode=mode)
        click.echo(f"wrote {output}", err=True)


def goal(file: Path, output: Path) -> Path:
    """Return which file a new menu is; one that goes to stdout is taken to go next to the old one."""
    if output != STDIN:
        return output
    return Path("stdout") if file == STDIN else file


def name_of(output: Path) -> str:
    """Return how messages name a menu that is written."""
    return "the new menu" if output == STDIN else str(output)


def seen_from(goal: Path) -> Callable[[str], str]:
    """Return a function from the path of a file to the name that a menu has to use."""
    return lambda path: os.path.relpath(path, goal.parent)


def show(*sentences: str) -> None:
    """Show sentences to the user on stderr; data are on stdout."""
    for sentence in sentences:
        click.echo(sentence, err=True)
