"""What commands share: options, and the services that a menu needs."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from dc_inject import menu, registry
from dc_inject.cli.shared import completion, params, tables, trusting
from dc_inject.credentials.trust import Wanted
from dc_inject.ledger import ledger_files
from dc_inject.model.errors import UsageError
from dc_inject.model.events import Observer, Silent
from dc_inject.model.naming import Origin
from dc_inject.model.ports import Backend, Clock
from dc_inject.system import files
from dc_inject.system.clock import SystemClock

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., object])
# In the meta of click's context: warnings that were logged, and the workers that an option names.
WARNED, NAMED = "dc_inject.warned", "dc_inject.workers"
OPTION = "option"  # in the metadata of a field: the decorator of click that gives a command its option


class CampaignArgument(click.Argument):
    """A campaign that has a ledger, or the ledger itself; without a name, the error lists those that there are."""

    def process_value(self, ctx: click.Context, value: object) -> object:
        """Return the name; raises UsageError, with the campaigns that have a ledger, when there is none."""
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            raise UsageError(
                f"the campaign is missing: `{ctx.command_path} CAMPAIGN`", ledger_files.known()
            ) from None


class CampaignToRead(CampaignArgument):
    """The same of a command that changes nothing: it takes the only campaign that there is."""

    def get_default(self, ctx: click.Context, call: bool = True) -> Any:  # noqa: ANN401  as in click
        """Return the ledger of --ledger, or the only campaign with one in its default place, if it is one."""
        given = ctx.params.get("ledger_path")
        names = [str(given)] if isinstance(given, Path) else ledger_files.campaigns()
        return names[0] if len(names) == 1 else super().get_default(ctx, call)


_GROUPS = {  # of options in the help of a command with many; all others show what it does
    "How careful": "--yes --max --space --rules-per-hour --accept --accept-clock --cancel-rate --allow-admin"
    " --threads --timeout --dry-run --no-drain --end-on-stop --abort-on --within",
    "Output": "--format --wide --quiet --verbose --plain --log-format --log-file --junit --metrics-address --serve"
    " --textfile --pushgateway --verdict --help",
}


class GroupedHelp(click.Command):
    """A command with many options, which are in groups in its help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("What", *_GROUPS)}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                own = (name for name, words in _GROUPS.items() if parameter.opts[-1] in words.split())
                groups[next(own, "What")].append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)


def options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what gives a command several options and arguments, in this order."""

    def add(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return add


INCLUDE_FROM = click.option(
    "--include-from",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    multiple=True,
    expose_value=False,
    callback=lambda _, __, folders: files.allow(folders),
    help="Let menus also include files of this folder [default: only of their own folder].",
)
MENUS = options(INCLUDE_FROM, click.argument("menus", nargs=-1, required=True, type=params.MenuFile()))
CAMPAIGN = click.argument(
    "campaign", cls=CampaignArgument, metavar="CAMPAIGN|LEDGER", shell_complete=completion.campaigns
)
TO_READ = click.argument(
    "campaign", cls=CampaignToRead, metavar="[CAMPAIGN|LEDGER]", shell_complete=completion.campaigns
)
LEDGER = click.option(
    "--ledger",
    "ledger_path",
    is_eager=True,  # `CampaignToRead` asks for it, wherever it was set
    type=click.Path(path_type=Path, dir_okay=False),
    help="The ledger's file [default: CAMPAIGN.sqlite in $XDG_STATE_HOME/dc_inject].",
)
ALLOW_ADMIN = click.option("--allow-admin", is_flag=True, help="Accept an administrator's account.")


FORMAT = options(
    click.option(
        "--format",
        "fmt",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        show_default=True,
        help="The format of the output.",
    ),
    click.option(
        "--wide",
        is_flag=True,
        expose_value=False,
        callback=lambda ctx, _, value: ctx.find_root().meta.update({tables.WIDE: value}),
        help="Print all columns of tables, even if the terminal is too narrow.",
    ),
)
LINKS = click.option(
    "--link",
    "links",
    type=params.LINK,
    multiple=True,
    metavar="SRC:DST",
    shell_complete=completion.links,
    help="Only this link, also written 'SRC->DST' (may be repeated).",
)
SINCE = click.option(
    "--since",
    type=params.UTC_TIME,
    metavar="TIME",
    help="Only cycles that begin from then on (UTC unless an offset is given).",
)
UNTIL = click.option("--until", type=params.UTC_TIME, metavar="TIME", help="Only what begins before.")
SHARD = click.option(
    "--shard",
    type=params.SHARD,
    metavar="INDEX/COUNT",
    envvar="DC_INJECT_SHARD",
    help="Only the destinations of this shard, such as 0/4, in a ledger of its own.",
)
WHY = click.option(
    "--why", metavar="TEXT", default="", help="The reason; kept in the ledger and shown by `status`."
)
SCALE = click.option(
    "--scale",
    default=1.0,
    show_default=True,
    type=params.FiniteRange("0.5 for half of each rate", min=0, min_open=True),
    help="Multiply every rate by this.",
)
TIMEOUT = click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=params.FiniteRange("90 for 90 seconds", min=0, max=86400, min_open=True),
    help="Give up a call to a service after this many seconds of silence, or after ten times that in all.",
)


WORKERS = click.option(
    "--workers",
    metavar="tls://HOST:PORT",
    envvar="DC_INJECT_WORKERS",
    expose_value=False,
    callback=lambda ctx, _param, value: ctx.meta.update({NAMED: value}),
    help="For streamed reads: the Dask scheduler whose workers read [default: workers on this machine].",
)


def option(*names: str, **attributes: Any) -> Any:  # noqa: ANN401  a type checker takes it as the field's default
    """Return the field of a dataclass that an option sets; the arguments are those of an option of click."""
    return given(click.option(*names, **attributes))


def given(decorator: Callable[[Callable[..., object]], Callable[..., object]]) -> Any:  # noqa: ANN401  as above
    """Return the field of a dataclass that an option sets which commands share; it has the option's default."""
    parameter = click.command("any")(decorator(lambda: None)).params[0].to_info_dict()
    default = () if parameter["multiple"] else parameter["default"]
    return dataclasses.field(default=default, metadata={OPTION: decorator})


def options_of(kind: type) -> Callable[[F], F]:
    """Give a command the options of a dataclass, in the order of its fields: `option` or `given` makes each."""
    return options(*(field.metadata[OPTION] for field in dataclasses.fields(kind)))


def own_options() -> set[str]:
    """Return the options of the command of this call, as they are written."""
    return {name for one in click.get_current_context().command.params for name in one.opts}


def refuse_ignored(leading: str, counting: Collection[str], hint: str) -> None:
    """Raise UsageError for what was given on the command line together with an option and would not count.

    `leading` is the name of the option's parameter, `counting` those of parameters that count together with it.
    """
    ctx = click.get_current_context()
    given = {
        parameter.name: parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name
        for parameter in ctx.command.params
        if ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    }
    ignored = [words for name, words in given.items() if name not in {leading, *counting}]
    if leading in given and ignored:
        raise UsageError(f"{' and '.join(ignored)} cannot be combined with {given[leading]}", hint)


def backends(
    services: Iterable[str],
    *,
    campaign: str,
    clock: Clock,
    observer: Observer,
    timeout: float,
    endpoint: str = "",
    origin: Origin | None = None,
) -> Mapping[str, Backend]:
    """Return a back end for each service that is needed; each client is imported only when it is.

    `endpoint` is that of FTS, where a menu or a ledger names it. `origin` goes into what is made.
    """
    context = click.get_current_context(silent=True)
    meta: dict[str, Any] = {} if context is None else context.meta
    warn = functools.partial(_warn_once, meta.setdefault(WARNED, set()))
    workers = meta.get(NAMED) or os.environ.get("DC_INJECT_WORKERS", "")
    trusted = trusting.trust().destinations()
    wanted = Wanted(campaign, clock, observer, timeout, endpoint, origin, trusted, warn, workers)
    return {service: registry.load(registry.BACKENDS[service])(wanted) for service in sorted(set(services))}


def connect(
    drafts: Sequence[menu.MenuDraft], timeout: float, services: Iterable[str] | None = None
) -> Mapping[str, Backend]:
    """Return the back ends of the services of menus, or of `services`, for a command whose calls are not counted.

    Raises UsageError where no address of a service is known.
    """
    return backends(
        {service for draft in drafts for service in draft.services} if services is None else services,
        campaign=drafts[0].campaign,
        clock=SystemClock(),
        observer=Silent(),
        timeout=timeout,
        endpoint=menu.endpoint_of(drafts),
    )


def _warn_once(warned: set[str], warnings: Iterable[str]) -> None:
    """Log warnings that were not logged yet, in whatever thread."""
    for warning in warnings:
        if warning not in warned:
            log.warning("%s", warning)
        warned.add(warning)
