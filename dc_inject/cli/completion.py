"""`dc-inject completion`: what a shell runs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dc_inject.cli.root import COMPLETE

PROGRAM = "dc-inject"
WHOLE_LINKS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:/}  # a link, SRC:DST, is one word\n"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the completion for a shell: of commands, options, campaigns, scenarios, links and RSEs.

    Names come from the ledgers on this machine, and from the menus on the same command line.

    \b
    Example: eval "$(dc-inject completion bash)"                      # in ~/.bashrc
    Example: eval "$(dc-inject completion zsh)"                       # in ~/.zshrc
    Example: dc-inject completion fish > ~/.config/fish/completions/dc-inject.fish
    """
    made_for = get_completion_class(shell)
    assert made_for is not None  # click knows all of the choices
    script = made_for(ctx.find_root().command, {}, PROGRAM, COMPLETE).source()
    click.echo((WHOLE_LINKS if shell == "bash" else "") + script)
