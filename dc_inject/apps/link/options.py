"""The options of `dc-inject link`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from dc_inject.cli.shared import common, params
from dc_inject.model import Limits

# The options that may be used with --verdict and --resume, by the parameters' names.
WITH_VERDICT = frozenset({"judged", "fmt", "wide", "timeout", "yes", "quiet", "plain", "log_format", "log_file"})
WITH_RESUME = WITH_VERDICT - {"judged"} | {"resume", "lasting", "cancel_rate", "allow_admin"}


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options of `dc-inject link`: rates in bytes per second, sizes in bytes, None where one was not given.

    `lasting` is --for, `highest` --max, `saturate` --until-saturated, and `judged` the campaign of --verdict.
    """

    rate: float | None = common.option(
        "--rate", type=params.RATE, help="The rate of the first step, such as 5Gb/s."
    )
    lasting: timedelta | None = common.option(
        "--for",
        "lasting",
        type=params.DURATION,
        help="The total duration, such as 2h; with --until-saturated, the longest.",
    )
    step: float | None = common.option(
        "--step",
        type=params.RATE,
        help="The increase from one step to the next, such as 1Gb/s; with --until-saturated, the first one.",
    )
    every: timedelta | None = common.option(
        "--every",
        type=params.DURATION,
        help="The duration of a step; with --until-saturated, five times that of a trial [default: 30m].",
    )
    saturate: bool = common.option(
        "--until-saturated",
        "saturate",
        is_flag=True,
        help="Search for the rate at which throughput stops following, and repeat that; needs --max.",
    )
    highest: float | None = common.option(
        "--max", "highest", type=params.RATE, help="The highest rate to try [default: ask above 10Gb/s]."
    )
    space: int | None = common.option(
        "--space",
        type=params.SIZE,
        help="The most space to use at DST at a time [default: half of the free space].",
    )
    rules_per_hour: int | None = common.option(
        "--rules-per-hour",
        type=params.COUNT,
        metavar="N",
        help=f"The most rules or jobs in any hour [default: {Limits().rules_per_hour}].",
    )
    yes: bool = common.option("--yes", is_flag=True, help="Do not ask for confirmation of a high rate.")
    campaign: str | None = common.option(
        "--campaign", type=params.NAME, help="The campaign's name [default: made from DST and the time]."
    )
    contact: str | None = common.option(
        "--contact", type=params.LINE, help="The contact that rules name [default: your account here]."
    )
    datasets: tuple[str, ...] = common.option(
        "--did",
        "datasets",
        type=params.DID,
        multiple=True,
        metavar="PATTERN",
        help="Datasets to inject, scope:name with wildcards (may be repeated) [default: *:*].",
    )
    mean_file: str = common.option(
        "--mean-file", default="0.1..20 GB", show_default=True, help="Bounds on the mean file size of a dataset."
    )
    folder: str | None = common.option(
        "--folder", type=params.FOLDER, help="Through FTS: files of this folder below SRC [default: .]."
    )
    endpoint: str | None = common.option("--fts", "endpoint", type=params.ENDPOINT, help="The address of FTS.")
    accept: tuple[str, ...] = common.option(
        "--accept",
        multiple=True,
        metavar="CODE",
        help="Accept a finding of `check` with this code (may be repeated).",
    )
    cycle: timedelta | None = common.option(
        "--cycle",
        type=params.DURATION,
        help="The length of a cycle [default: a sixth of a step, or a third of a trial; 5s to 15m].",
    )
    cancel_rate: float = common.option(
        "--cancel-rate",
        type=params.PER_HOUR,
        default="600/h",
        show_default=True,
        help="The most unfinished rules or jobs to end per hour or minute, afterwards.",
    )
    resume: str | None = common.option(
        "--resume", type=params.NAME, metavar="NAME", help="Continue a test that was stopped."
    )
    judged: str | None = common.option(
        "--verdict", "judged", type=params.NAME, metavar="NAME", help="Print the verdict of a test again."
    )
    allow_admin: bool = common.given(common.ALLOW_ADMIN)
    timeout: float = common.given(common.TIMEOUT)
    fmt: str = common.given(common.FORMAT)


def refuse_ignored() -> None:
    """Raise UsageError for options on the command line that --verdict or --resume would ignore."""
    verdict = "the verdict is that of the test as it was begun: `dc-inject link --verdict NAME`"
    common.refuse_ignored("judged", WITH_VERDICT, verdict)
    resume = "it continues as it was begun, only --for may be another; or begin a new test"
    common.refuse_ignored("resume", WITH_RESUME, resume)
