"""A calibrated grid as a grid file, with comments on the source of each figure, and what is not known.

What was fitted stands as a value; what could only be bounded, as a comment, so that the twin sets no limit there;
what is assumed is marked. `grid_file.read` reads what is written here.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence

from dc_inject.apps.twin.grid.calibration import (
    PARALLEL,
    Calibrated,
    DeletionFit,
    FailureFit,
    Fit,
    LinkFit,
    Resource,
)
from dc_inject.apps.twin.grid.description import Fts, LinkTraits
from dc_inject.apps.twin.grid.grid_entries import MOST_DATASETS
from dc_inject.apps.twin.grid.replay import MOST_MISSED, Ends, Past, summary
from dc_inject.apps.twin.grid.rule_times import Measured
from dc_inject.model import units

ASSUMED, ASSUMED_FTS = LinkTraits(), Fts()
NO_LIMIT = 100_000  # transfers
LEAST_RATE = 1.0  # bytes per second: a grid file has no rate below 1 b/s
AS_IF = "its figures were fitted as if nothing had happened to it"
FULL = "it was full at times"
BEHIND = "deletions at its destination were behind at times"
NO_SPACE = "the grid has no `space` of storages, which no ledger shows: until you add it, no disk gets full in it"


def text(
    fit: Fit,
    calibrated: Calibrated | None = None,
    forecast: Sequence[str] = (),
    inconclusive: Mapping[Ends, str] | None = None,
) -> str:
    """Return the grid file of a fit, with the errors of it and of a forecast, and links it does not predict."""
    past = fit.past
    rules, links = units.counted(len(past.sent), "rules and jobs"), units.counted(len(fit.links), "links")
    head = [
        f"# From the ledger of {past.name}: {rules} on {links} in {past.cycles} cycles of {past.cycle:g} s.",
        *(_error(calibrated) if calibrated is not None else ()),
        *(f"# {line}" for sentence in forecast for line in textwrap.wrap(f"{sentence}.", 110)),
        "# `fitted` is what the ledger shows. `not known` has at most a bound, and no limit is set. `assumed` is",
        "# what the ledger cannot show at all. What is full may be FTS's limit of transfers, too.",
        f"# {NO_SPACE[0].upper()}{NO_SPACE[1:]}.",
        "grid: 1",
        f"name: {json.dumps(f'calibrated-{past.name}')}",
        f"sources: [{json.dumps(f'the ledger of {past.name}')}]",
        *_services(fit),
        "sites:",
    ]
    reasons = inconclusive or {}
    lines = [*head, *_sites(fit), *_links(fit, reasons), *_stocks(past), *_inconclusive(reasons)]
    return "\n".join(lines) + "\n"


def _error(calibrated: Calibrated) -> Iterator[str]:
    yield (
        f"# Error: fitted to all but the last {units.counted(calibrated.held_out, 'cycles')}, and knowing what "
        "was injected, the twin predicts"
    )
    errors = summary(calibrated.errors)
    if errors is None:
        yield "# nothing of these, because nothing moved in them. The figures below are fitted to all cycles."
        return
    yield (
        f"# the bytes that {units.counted(errors.links, 'links')} moved in these with a median error of "
        f"{units.percent(errors.median)}, at worst {units.percent(errors.worst)}"
    )
    yield f"# ({errors.link[0]} -> {errors.link[1]}). The figures below are fitted to all cycles."


def _number(value: float, digits: int = 4) -> str:
    """Return a number with so many digits that count, and without an exponent."""
    return f"{float(f'{value:.{digits}g}'):f}".rstrip("0").rstrip(".")


def _rate(value: float) -> str:
    """Return bytes per second as a grid file has them."""
    return f"{_number(8 * value / 1e9)} Gb/s" if value >= 1e6 else f"{_number(8 * value / 1e3)} kb/s"


def _speed(value: float) -> str:
    """Return the bytes per second of a file."""
    return f"{_number(value / 1e6)} MB/s"


def _services(fit: Fit) -> Iterator[str]:
    every = f"{_number(fit.daemons)} s"
    least, most = ASSUMED_FTS.actives
    yield "# assumed, but for limits that would forbid what moved: those of storages show in the capacities below"
    yield f"fts: {{actives: {least}..{min(max(most, fit.transfers), 10_000)}, per_storage: {NO_LIMIT}}}"
    yield f"rucio:  # assumed; the fastest rule allows daemons no rarer than every {every}"
    for key in ("submit_every", "poll_every", "judge_every", "reap_every"):
        yield f"  {key}: {every}"
    if not fit.past.may_end:
        yield "  may_end: no"


# --------------------------------------------------------------------------- sites and storages


def _sites(fit: Fit) -> Iterator[str]:
    storages = sorted({end for link in fit.links for end in link} | fit.past.storages)
    by_site: dict[str, list[str]] = {}
    for storage in storages:
        by_site.setdefault(fit.past.sites.get(storage, storage), []).append(storage)
    for site, members in by_site.items():
        yield f"  {json.dumps(site)}:"
        for kind in ("wan_in", "wan_out"):
            yield from _shared(fit, Resource(kind, site), "    ")
        yield "    storages:"
        for storage in members:
            host = fit.past.hosts.get(storage)
            lines = [
                line for kind in ("read", "write") for line in _shared(fit, Resource(kind, storage), "        ")
            ]
            if host is not None:
                lines.append(f"        host: {json.dumps(host)}")
            if storage in fit.deletions:
                lines += _deletion(fit.deletions[storage])
            yield f"      {json.dumps(storage)}:" + (
                "" if any(line.strip()[0] != "#" for line in lines) else " {}"
            )
            yield from lines


def _shared(fit: Fit, resource: Resource, indent: str) -> Iterator[str]:
    if resource in fit.shared:
        yield from _capacity(fit.shared[resource], resource.kind, indent, "that all links here carry together")


def _capacity(rate: Measured, key: str, indent: str, what: str) -> Iterator[str]:
    if rate.value is None and rate.count:
        waited = f"in {units.counted(rate.count, 'cycles')} files waited all the time"
        but = f"and it carried {_rate(rate.low)} to {_rate(rate.high)} in these, as if it had changed"
        but = but if rate.high else "but at other times it carried more"
        yield f"{indent}# {key}: not known; {waited}, {but}: at least {_rate(rate.bound)}"
    elif rate.value is None:
        yield f"{indent}# {key}: not known, since it was never full; at least {_rate(rate.bound)}"
    else:
        yield (
            f"{indent}{key}: {_rate(rate.value)}  # fitted: {what}, in {units.counted(rate.count, 'cycles')} in "
            f"which files waited all the time ({_rate(rate.low)} to {_rate(rate.high)})"
        )


def _highest(rate: Measured) -> Iterator[str]:
    """Yield up to where a link is known, if its capacity is not."""
    if rate.value is None and rate.bound >= LEAST_RATE:
        yield f"    highest_measured: {_rate(rate.bound)}  # in the mean of four cycles; beyond, nothing is known"


def _deletion(fit: DeletionFit) -> Iterator[str]:
    lag, pace = fit.lag, fit.pace
    entries = []
    if lag.value is None:
        yield f"        # deletion: the lag is not known; at most {_number(lag.bound)} s, by {lag.count} deletions"
    else:
        yield f"        # deletion: lag fitted to {lag.count} deletions, to about a cycle"
        entries.append(f"lag: {_number(lag.value)} s")
    if fit.is_behind_at_times:
        waited = f"in {units.counted(pace.count, 'cycles')} files waited for it all the time"
        more = f"but at other times it deleted more: at least {_number(pace.bound)} files/s"
        yield f"        # deletion: the rate is not known; {waited}, {more}"
    elif pace.value is None:
        least = f"at least {_number(pace.bound)} files/s"
        yield f"        # deletion: the rate is not known, since it never fell behind; {least}"
    else:
        rate = f"{_number(pace.value)} files/s"
        yield f"        # deletion: {rate}, fitted to {pace.count} cycles in which it was behind all the time"
        entries += [f"seconds_per_file: {_number(PARALLEL / pace.value)} s", f"parallel: {PARALLEL}"]
    if entries:
        yield f"        deletion: {{{', '.join(entries)}}}"


# --------------------------------------------------------------------------- links and datasets


def _links(fit: Fit, inconclusive: Container[Ends]) -> Iterator[str]:
    yield "links:"
    for ends, link in fit.links.items():
        yield f"  {json.dumps(':'.join(ends))}:"
        if ends in inconclusive:
            yield f"    # inconclusive, see below: {AS_IF}"
        if link.full is not None:
            yield f"    # rate: not known, since {link.full.kind} of {link.full.name} is full first; see there"
        else:
            yield from _capacity(link.rate, "rate", "    ", "what it carries")
        if link.full is None or fit.shared[link.full].value is None:
            yield from _highest(link.rate)
        yield from _file(link)
        yield from _failures(link.failures)


def _file(link: LinkFit) -> Iterator[str]:
    files = link.files
    if files.speed is None:
        why = f"file_speed, overhead: not known, since {files.why}; assumed"
        yield from (f"    # {line}" for line in textwrap.wrap(why, 100))
        yield f"    file_speed: {_speed(ASSUMED.file_speed)}"
        return
    takes = f"at most {_number(files.at_most, 3)} s" if files.at_most else f"{_number(files.time, 3)} s"
    assumed = "half of that, and the overhead, are" if files.at_most else "the overhead is"
    yield f"    # file_speed, overhead: {units.counted(files.rules, 'rules')} show only that a file takes {takes};"
    yield f"    # {assumed} assumed"
    yield f"    file_speed: {_speed(files.speed)}"
    yield f"    overhead: {_number(files.overhead, 3)} s"


def _failures(failures: FailureFit) -> Iterator[str]:
    rate, failed = failures.rate, f"{failures.files:,}" if failures.files else "none"
    files = f"{failed} of {rate.count:,} files failed for good"
    if rate.value is not None:
        within = f"{units.percent(rate.low)} to {units.percent(rate.high)}"
        yield f"    failures: {_number(100 * rate.value)} %  # fitted: {files} ({within} at most times)"
    elif failures.files:
        yield (
            f"    # failures: not known; {files}, too few or too close together for a rate, so at most times at "
            f"most {units.percent(rate.bound)} of attempts"
        )
    elif rate.count:
        yield f"    # failures: not known; {files}, so at most {units.percent(rate.bound)} of attempts"
    else:
        yield "    # failures: not known, since no rule has ended"


def _stocks(past: Past) -> Iterator[str]:
    if not any(past.stocks.values()):
        return
    yield "datasets:  # as sources were last seen, or else as they sent them, between the smallest and the largest"
    for source, datasets in sorted(past.stocks.items()):
        files = [count for count, _ in datasets if count]
        sizes = [size / count for count, size in datasets if count]
        if files:
            count = min(len(files), MOST_DATASETS)
            yield (
                f"  - {{sources: [{json.dumps(source)}], count: {count}, files: {min(files)}..{max(files)}, "
                f"file_size: {_number(min(sizes))}..{_number(max(sizes))} B}}"
            )


def _inconclusive(reasons: Mapping[Ends, str]) -> Iterator[str]:
    if not reasons:
        return
    yield f"# The grid misses what these links moved by more than {100 * MOST_MISSED:.0f} %, or that is not known:"
    yield "# simulations are inconclusive for them. Their figures, and those of their storages and sites, were"
    yield "# fitted as if nothing had happened. Once you have added what the grid lacks, replace or remove these"
    yield "# figures, too, and only then remove the links here."
    yield "inconclusive:"
    for (source, destination), reason in reasons.items():
        yield f"  {json.dumps(f'{source}:{destination}')}: {json.dumps(reason)}"


def kinds(fit: Fit) -> Counter[str]:
    """Return how many links have which figure fitted; for people."""
    counts: Counter[str] = Counter()
    for link in fit.links.values():
        counts["capacity"] += link.rate.value is not None or link.full is not None
        counts["speed"] += link.files.speed is not None
        counts["failures"] += link.failures.rate.value is not None
    return counts


def at_times(fit: Fit) -> dict[Ends, list[str]]:
    """Return in words what happened to links at times for a reason that the ledger does not show."""
    reasons: dict[Ends, list[str]] = {ends: [FULL] for ends in full_at_times(fit)}
    for ends in fit.links:
        deletions = fit.deletions.get(ends[1])
        if deletions is not None and deletions.is_behind_at_times:
            reasons.setdefault(ends, []).append(BEHIND)
    return reasons


def full_at_times(fit: Fit) -> list[Ends]:
    """Return the links that were full at times, or what they share was."""
    return [
        ends
        for ends, link in fit.links.items()
        if link.is_full_at_times or (link.full is not None and fit.shared[link.full].value is None)
    ]
