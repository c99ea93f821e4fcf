"""The reference of all commands, from the commands themselves: as a page of the docs, and as man pages.

Both walk the same commands and show the same parts of each: usage, what its help says, options, and examples.
A command has one man page, with the commands below it: `man dc-inject-menu`, which `man dc-inject menu` finds too.
They are in git, so that every build has them, also where nothing that the commands import is installed.
What is in backquotes is bold there, and what roff would take for a request or an escape is printed as it is.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import click

from dc_inject.cli.root import root
from dc_inject.registry import COMMANDS
from tests.docs import DOCS

MAN = DOCS / "man"
NAME = "dc-inject"
INTRODUCTION = """\
# Commands

This page is generated from the commands themselves (`make docs`); `dc-inject COMMAND --help` prints the same.
See also [Configuration](configuration.md), for defaults of your own, and [Exit codes](exit-codes.md).
"""


def cli() -> str:
    """Return the reference of all commands, with their options."""
    context = click.Context(root, info_name=NAME)
    parts = [INTRODUCTION, "| command | what it does |\n|---|---|"]
    parts[-1] += "".join(f"\n| [`{name}`](#dc-inject-{name}) | {line} |" for name, (_, line) in COMMANDS.items())
    parts.append("## Options before the command\n\n" + _table(_options(root, context)))
    all_commands = list(commands(root, context))
    shared = _shared_options(all_commands)
    parts.append("## Options of several commands\n\n" + _table(shared))
    parts += [_section(command, inner, shared) for command, inner in all_commands]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield each command below a group with its context, groups before their commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        yield command, inner
        if isinstance(command, click.Group):
            yield from commands(command, inner)


def _paragraphs(command: click.Command) -> tuple[list[str], list[str]]:
    """Return what the help of a command says, and its examples; what stays as it is begins with a backspace."""
    said, examples = [], []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        (examples if paragraph.replace("\b\n", "").startswith("Example") else said).append(paragraph)
    return said, [paragraph.replace("\b\n", "") for paragraph in examples]


def _typed(examples: list[str]) -> Iterator[str]:
    """Yield the lines of examples as they are typed, each with its remark as a comment."""
    for line in "\n".join(examples).splitlines():
        remark, _, typed = line.strip().partition(": ")
        note = remark.removeprefix("Example").strip(", ")
        yield f"{typed}  # {note}" if note else typed


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return the options of a command, with what they mean."""
    return [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and "--help" not in parameter.opts
        and (record := parameter.get_help_record(context)) is not None
    ]


# The page

COMMANDS_THAT_SHARE = 3  # as many commands have an option that the page explains once


def _shared_options(commands: Iterable[tuple[click.Command, click.Context]]) -> list[tuple[str, str]]:
    """Return the options that several commands have with the same meaning, those of most commands first."""
    counted = Counter(option for command, context in commands for option in _options(command, context))
    return [option for option, number in counted.most_common() if number >= COMMANDS_THAT_SHARE]


def _section(command: click.Command, context: click.Context, shared: Collection[tuple[str, str]]) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    said, examples = _paragraphs(command)
    deep = "#" * (2 if context.parent is not None and context.parent.parent is None else 3)
    parts = [f"{deep} {context.command_path}", "\n\n".join(said).replace("\b\n", "")]
    parts.append("```sh\n" + "\n".join([f"{context.command_path} {usage}", *_typed(examples)]) + "\n```")
    options = _options(command, context)
    parts.append(_table([option for option in options if option not in shared]))
    if also := [f"`{re.findall('--[a-z-]+', name)[0]}`" for name, text in options if (name, text) in shared]:
        parts.append(f"[Also](#options-of-several-commands): {', '.join(also)}.")
    return "\n\n".join(part for part in parts if part)


def _table(options: Iterable[tuple[str, str]]) -> str:
    rows = [f"| `{_cell(name)}` | {_cell(text).replace('<', '&lt;')} |" for name, text in options]
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# The man pages


def man_pages() -> dict[str, str]:
    """Return all man pages by the names of their files."""
    context = click.Context(root, info_name=NAME)
    lines = {f"{NAME}-{name}": line for name, (_, line) in COMMANDS.items()}
    listed = "".join(f".TP\n\\fB{_roff(name)}\\fR(1)\n{_roff(line)}\n" for name, line in lines.items())
    pages = {f"{NAME}.1": _man(root, context, "make the traffic of data challenges") + f".SH COMMANDS\n{listed}"}
    for name, (_, line) in COMMANDS.items():
        command = root.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        page = _man(command, inner, line[0].lower() + line[1:].rstrip("."))
        pages[f"{NAME}-{name}.1"] = page + f".SH SEE ALSO\n.BR {_roff(NAME)} (1)\n"
    return pages


def _man(command: click.Command, context: click.Context, purpose: str) -> str:
    """Return the man page of a command and of those below it; it has no date, so that only a change changes it."""
    name = context.command_path.replace(" ", "-")
    parts = [
        f'.TH "{_roff(name.upper())}" 1 "" dc_inject\n.nh\n.ad l',
        f".SH NAME\n{_roff(name)} \\- {_roff(purpose)}",
    ]
    parts.append(f".SH SYNOPSIS\n{_usage(command, context)}")
    parts += _told(command, context, "SH")
    if isinstance(command, click.Group) and command is not root:
        parts.append(".SH COMMANDS")
        for part, inner in commands(command, context):
            parts += [f".SS {_roff(inner.command_path)}", _usage(part, inner), *_told(part, inner, "PP")]
    return "\n".join(parts) + "\n"


def _usage(command: click.Command, context: click.Context) -> str:
    return f"\\fB{_roff(context.command_path)}\\fR {_roff(' '.join(command.collect_usage_pieces(context)))}"


def _told(command: click.Command, context: click.Context, head: str) -> Iterator[str]:
    """Yield the description, the options and the examples of a command, in sections or in paragraphs."""
    said, examples = _paragraphs(command)
    heads = {"SH": (".SH DESCRIPTION", ".SH OPTIONS", ".SH EXAMPLES")}.get(head, (".PP", ".PP\nOptions:", ".PP"))
    if any(said):
        yield "\n.PP\n".join([f"{heads[0]}\n{_prose(said[0])}", *map(_prose, said[1:])])
    if options := _options(command, context):
        yield heads[1]
        yield from (f".TP\n\\fB{_roff(name)}\\fR\n{_prose(text)}" for name, text in options)
    if examples:
        yield f"{heads[2]}\n.nf\n" + "\n".join(_roff(line) for line in _typed(examples)) + "\n.fi"


def _prose(paragraph: str) -> str:
    """Return a paragraph with what is in backquotes in bold; lines after a backspace stay as they are."""
    kept = paragraph.startswith("\b\n")
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _roff(paragraph.replace("\b\n", "")))
    return f".nf\n{text}\n.fi" if kept else text


def _roff(text: str) -> str:
    """Return a text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)
