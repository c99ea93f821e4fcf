"""The catalogue of metrics: each one's name, type, labels and meaning, in one place.

What is served takes its families from here, the reference in docs/reference/metrics.md is generated from it, and
tests hold alerts, recording rules and dashboards against it. A name or label is an interface: dashboards of others
depend on it.

Labels come from bounded sets only: scenarios and links of menus, and words of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

LINK = ("scenario", "source", "destination", "service")
CALL = ("service", "method", "result")
Family = CounterMetricFamily | GaugeMetricFamily


class Spec(NamedTuple):
    """A metric without the prefix `dc_inject_`: its name, its type, its labels except `campaign`, its meaning."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


# Read of the ledger at each scrape.
LEDGER = (
    Spec("due_bytes_total", "counter", LINK, "What links were due."),
    Spec(
        "injected_bytes_total", "counter", LINK,
        "Bytes of accepted rules and jobs, without what was there already; includes what failed later.",
    ),
    Spec(
        "failed_bytes_total", "counter", LINK,
        "Bytes that failed for good through FTS, and went back to the debt.",
    ),
    Spec("moved_bytes_total", "counter", LINK, "Bytes that arrived, estimates included."),
    Spec("forgiven_bytes_total", "counter", LINK, "Due bytes that will not be made up."),
    Spec("rules_made_total", "counter", LINK, "Rules and jobs that the service accepted."),
    Spec(
        "failed_files_total", "counter", (*LINK, "reason"),
        "Files that failed for good, by the class of the reason; through Rucio `suspended` and `not-begun`, "
        "of rules that Rucio held back.",
    ),
    Spec("moved_estimated_bytes", "gauge", LINK, "The part of moved that is an estimate."),
    Spec(
        "not_moved_bytes", "gauge", LINK,
        "Injected, and not moved when its rule or job ended; files of rules that failed, too.",
    ),
    Spec("resident_bytes", "gauge", LINK, "Injected, and not known to be gone from the destination."),
    Spec(
        "in_doubt_bytes", "gauge", LINK,
        "Bytes of calls whose answer was lost and that were not looked up yet."
    ),
    Spec("target_bytes_per_second", "gauge", LINK, "Due of the last cycle divided by its length."),
    Spec(
        "debt_bytes", "gauge", LINK,
        "What the last plan wanted, overhead included, less what was injected and forgiven since.",
    ),
    Spec("pool_items", "gauge", LINK, "Datasets or files that the last plan could choose from."),
    Spec("pool_bytes", "gauge", LINK, "Their bytes."),
    Spec(
        "link_held", "gauge", (*LINK, "hold", "harmless"),
        "1 for a link that is held in the present cycle, with the leading reason, as soon as it is known; "
        "other links have none.",
    ),
    Spec(
        "held_links", "gauge", ("hold", "harmless"),
        "Links held in the present cycle, by the leading reason; all reasons, also those with 0; `harmless` is "
        "`true` for those that need no action.",
    ),
    Spec(
        "control_window_bytes", "gauge", LINK,
        "With `control`, as in the last plan: the most that the link may have in flight.",
    ),
    Spec("control_in_flight_bytes", "gauge", LINK, "The same: what it had in flight then."),
    Spec(
        "control_held_links", "gauge", ("hold", "mode"),
        "Links that control holds (`act`) or would hold (`advise`), by the leading reason, also those with 0.",
    ),
    Spec("rse_info", "gauge", ("rse", "site"), "1 for each RSE or URL prefix of the menus in force, by site."),
    Spec("rules", "gauge", ("state",), "Injections by state."),
    Spec("pauses", "gauge", (), "Stops by people in force."),
    Spec("signals_missing", "gauge", ("signal",), "RSEs and storages for which a signal cannot be read."),
    Spec(
        "credentials_expiry_timestamp_seconds", "gauge", ("service",),
        "When credentials expire, if known; through FTS the earliest of those for FTS, sources and destinations.",
    ),
    Spec("last_cycle_timestamp_seconds", "gauge", (), "When the injector last turned to a new cycle."),
    Spec(
        "nothing_arrived_seconds", "gauge", (),
        "For how long nothing has arrived on any link that should have; 0 in the first two cycles and half hour.",
    ),
    Spec("cycle_seconds", "gauge", (), "Length of a cycle."),
    Spec(
        "service_up", "gauge", ("service",),
        "0 after three calls in a row that failed, or while the service refuses our credentials; else 1.",
    ),
    Spec("ledger_up", "gauge", (), "Whether the ledger could be read at this scrape."),
    Spec("ledger_bytes", "gauge", (), "Size of the ledger's file and its log."),
    Spec("ledger_disk_free_bytes", "gauge", (), "What is free for us on the disk of the ledger."),
    Spec("build_info", "gauge", ("version",), "1, with the version at work."),
)  # fmt: skip

# Counted by the process itself since its start.
PROCESS = (
    Spec(
        "calls_total", "counter", CALL,
        "Calls by result: ok, temporary, another-now, permanent, fatal or lost."
    ),
    Spec("call_seconds", "histogram", CALL, "Time that calls took."),
    Spec(
        "errors_total", "counter", ("service", "kind"),
        "Errors that services answered with: temporary, another-now, permanent or fatal (nothing works until a "
        "person acts).",
    ),
    Spec("refusals_total", "counter", ("service", "kind"), "Injections refused: another-now or permanent."),
    Spec("adopted_total", "counter", ("service",), "Injections found to be accepted earlier."),
    Spec("set_aside_total", "counter", (), "Datasets that a last check found to be of no use."),
    Spec("unexpected_errors_total", "counter", (), "Unexpected errors; their traces are in the ledger's notes."),
    Spec("menus_refused_total", "counter", (), "Changed menus that were not taken up."),
    Spec("cycles_closed_total", "counter", (), "Cycles closed."),
    Spec("cycle_overruns_total", "counter", (), "Cycles that took more than a tenth of the next one's time."),
    Spec("cycle_planning_seconds", "histogram", (), "From the start of planning to a plan on disk."),
    Spec("cycle_close_delay_seconds", "histogram", (), "From a cycle's end to its closing."),
)  # fmt: skip

METRICS: Mapping[str, Spec] = {spec.name: spec for spec in (*LEDGER, *PROCESS)}


def family(name: str) -> Family:
    """Return an empty family of a metric that is a counter or a gauge."""
    spec = METRICS[name]
    made = CounterMetricFamily if spec.type == "counter" else GaugeMetricFamily
    return made(f"dc_inject_{name}", spec.text, labels=spec.labels)
