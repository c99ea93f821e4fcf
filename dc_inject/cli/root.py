"""The command `dc-inject`: its subcommands, loaded only when they are asked for.

`dc-inject --help` imports click, this module and the table of commands, and nothing else of ours: it is what
people try first.
"""

from __future__ import annotations

import contextlib
import getpass
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dc_inject import registry
from dc_inject.cli import COMPLETE


@contextlib.contextmanager
def _closed_pipes() -> Iterator[None]:
    """Let the code of a closed pipe be ours: click would end the process with 1, which means a bug."""
    try:
        yield
    except BrokenPipeError as error:
        from dc_inject.cli.shared import exits  # noqa: PLC0415  `--help` is quick, and has no error

        raise click.exceptions.Exit(exits.explain(error)) from None


class LazyGroup(click.Group):
    """A group that imports a subcommand when it is run, so that `--help` is quick."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, or print what `--help` and `--version` ask for."""
        with _closed_pipes():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  whatever a command returns
        """Run a subcommand."""
        with _closed_pipes():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a user meets them."""
        del ctx
        return list(registry.COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; an unknown one is refused with similar names, or is None while a shell completes."""
        if cmd_name not in registry.COMMANDS:
            if ctx.resilient_parsing:
                return None
            raise click.exceptions.NoSuchCommand(cmd_name, possibilities=registry.COMMANDS, ctx=ctx)
        command = registry.load(registry.COMMANDS[cmd_name][0])
        assert isinstance(command, click.Command)
        _unwrapped(command)
        from dc_inject.cli.shared import defaults  # noqa: PLC0415  which only a command needs

        defaults.from_environment(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in registry.COMMANDS.items()])


def _unwrapped(command: click.Command) -> None:
    r"""Let click take `\b` for what it means: it looks for a backspace, and our docstrings are raw."""
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        _unwrapped(part)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="dc-inject", prog_name="dc-inject")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="DC_INJECT_CONFIG",
    help="Read defaults of options only from this file [default: /etc/dc_inject and ~/.config/dc_inject].",
)
@click.option(
    "--trust-host",
    metavar="HOST",
    multiple=True,
    help="Let tokens and proxies go to this FTS or storage even if only a menu names it; also DC_INJECT_TRUST.",
)
@click.pass_context
def root(ctx: click.Context, config: Path | None, trust_host: tuple[str, ...]) -> None:
    """Make the traffic of data challenges: turn menus of link rates into Rucio rules or FTS jobs.

    Example: dc-inject check menus/cms && dc-inject run menus/cms
    """
    from dc_inject.cli.shared import defaults, trusting  # noqa: PLC0415  which only a command needs

    trusting.trust().name(*trust_host, by=trusting.OPTION)
    trusting.trust().name(*defaults.trusted(config), by=trusting.CONFIG)
    if ctx.invoked_subcommand is not None and isinstance(ctx.command, click.Group):
        ctx.default_map = defaults.read(ctx.command, ctx, ctx.invoked_subcommand, config)


def main() -> None:
    """Run the command line; ends the process with the exit code of what happened."""
    os.environ["PYTHONSAFEPATH"] = "1"  # no process that we start imports modules of the working folder
    _open_streams()
    _name_account()
    try:
        try:
            code = root.main(standalone_mode=False, complete_var=COMPLETE)
        finally:
            sys.stdout.flush()  # what cannot be written is shown as any other error, and not by Python at the exit
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last place: no traceback reaches a user
        from dc_inject.cli.shared import exits  # noqa: PLC0415  `--help` is quick, and has no error

        code = exits.explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """Give a standard stream that was closed (`<&-`) the null device: its number would be that of a ledger.

    Output that was closed still cannot be written, which is an error for whoever prints something.
    """
    streams = ((0, "stdin", "r", os.O_RDONLY), (1, "stdout", "w", os.O_RDONLY), (2, "stderr", "w", os.O_WRONLY))
    for number, name, mode, access in streams:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, access)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # As stderr: names of files and sites may have any letter.
        sys.stdout.reconfigure(errors="backslashreplace")


def _name_account() -> None:
    """Let an account without an entry in passwd, as in many containers, go by its number."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())  # libraries, such as Rucio's client, want a name
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"  # as container runtimes have it
