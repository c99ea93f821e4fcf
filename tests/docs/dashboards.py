"""The Grafana dashboard of docs/reference/grafana-dashboard.json, made with Grafana's own library.

Metrics are named as the catalogue has them, without their prefix: one that is not in it is an error here. Every
panel follows the variables: the campaign, scenarios, and sites, each as the source or the destination of a link.
`dc_inject_rse_info` says which RSEs a site has; they are a variable of their own, which is not shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueGraphMode, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dc_inject.metrics.catalogue import LINK, METRICS
from dc_inject.summary.criteria import GRADES

SOURCE = DataSourceRef("prometheus", "$datasource")
CAMPAIGN = 'campaign="$campaign"'
WINDOW = "[$window]"
Query = tuple[str, str]  # an expression, and the legend of its series


def metric(name: str, *conditions: str, over: str = "") -> str:
    """Return the selector of a metric; of links only those that the variables choose."""
    of_links = METRICS[name].labels[: len(LINK)] == LINK
    chosen = [CAMPAIGN, *(['scenario=~"$scenario"'] if of_links else []), *conditions]
    return f"dc_inject_{name}{{{', '.join(chosen)}}}{over}"


def links(name: str, function: str = "", over: str = "") -> str:
    """Return what links tell whose source or destination is at one of the sites."""
    ends = (metric(name, f'{end}=~"$rse"', over=over) for end in ("source", "destination"))
    return "(" + " or ".join(f"{function}({one})" if function else one for one in ends) + ")"


def at_site(end: str, name: str = "moved_bytes_total", over: str = WINDOW) -> str:
    """Return what arrived, or was due, in bytes per second, by the site of a link's source or destination."""
    conditions = f'{end}=~"$rse"'
    rate = f"rate({metric(name, conditions, over=over)})"
    named = f'label_replace({rate}, "rse", "$1", "{end}", "(.*)")'
    return f"sum by (site) ({named} * on (campaign, rse) group_left (site) {metric('rse_info')})"


def day_at_site(end: str) -> str:
    """Return what arrived in 24 hours by what was due in them, by the site of a link's source or destination."""
    return f"{at_site(end, over='[1d]')} / ({at_site(end, 'due_bytes_total', '[1d]')} > 0)"


MOVED_1H = links("moved_bytes_total", "rate", "[1h]")
DUE_1H, BEFORE_1H = (links("due_bytes_total", "rate", over) for over in ("[1h]", "[1h] offset 30m"))


def moved_by_due(by: str = "") -> str:
    """Return what arrived in an hour by what should have, as the rules for Prometheus have it."""
    moved, due, before = (f"sum {by}({one})" for one in (MOVED_1H, DUE_1H, BEFORE_1H))
    return f"{moved} / (({due} < {before} or {before}) > 0)"


DAY_MOVED, DAY_DUE = (
    f"sum by (scenario) ({links(name, 'rate', '[1d]')})" for name in ("moved_bytes_total", "due_bytes_total")
)
CALL_BUCKETS = metric("call_seconds", over=WINDOW).replace("seconds{", "seconds_bucket{")
HELD = metric("held_links", 'harmless="false"')
RSES = metric("rse_info", 'site=~"$site"')

# title, meaning, unit, queries
NUMBERS = (
    ("Moved / due, last hour", "What arrived in the last hour by what should have.", "percentunit",
     moved_by_due()),
    ("Due now", "The sum of the present targets.", "bps", f"8 * sum({links('target_bytes_per_second')})"),
    ("Injected", "Since the beginning of the campaign.", "decbytes", f"sum({links('injected_bytes_total')})"),
    ("Moved", "Since the beginning of the campaign.", "decbytes", f"sum({links('moved_bytes_total')})"),
    ("Forgiven", "Due that will not be made up.", "decbytes", f"sum({links('forgiven_bytes_total')})"),
    ("Links held", "For reasons that somebody should look at.", "none", f"sum({HELD})"),
    ("Credentials end in", "The first of all services.", "s",
     f"min({metric('credentials_expiry_timestamp_seconds')}) - time()"),
    ("Free on the ledger's disk", "When it is full, the injector ends.", "decbytes",
     f"min({metric('ledger_disk_free_bytes')})"),
)  # fmt: skip
Picture = tuple[str, str, str, bool, Sequence[Query]]  # title, meaning, unit, whether stacked, queries
ROWS: dict[str, Sequence[Picture]] = {
    "Rates": (
        ("Due, injected and moved", "Of all links that are chosen.", "bps", False, (
            (f"8 * sum({links('target_bytes_per_second')})", "due"),
            (f"8 * sum({links('injected_bytes_total', 'rate', WINDOW)})", "injected"),
            (f"8 * sum({links('moved_bytes_total', 'rate', WINDOW)})", "moved"),
        )),
        ("Moved / due by scenario, last hour", "Above 1, debt is made up.", "percentunit", False, (
            (moved_by_due("by (scenario) "), "{{scenario}}"),
        )),
        ("Moved by scenario", "Each byte counts under one scenario.", "bps", True, (
            (f"8 * sum by (scenario) ({links('moved_bytes_total', 'rate', WINDOW)})", "{{scenario}}"),
        )),
        ("Debt", "What is still to be injected of what was due.", "decbytes", True, (
            (f"sum by (scenario) ({links('debt_bytes')})", "{{scenario}}"),
        )),
        ("Moved out of sites", "By the site of the source.", "bps", True, (
            (f"8 * {at_site('source')}", "{{site}}"),
        )),
        ("Moved into sites", "By the site of the destination.", "bps", True, (
            (f"8 * {at_site('destination')}", "{{site}}"),
        )),
    ),
    "Days: moved / due in the 24 hours before each moment": (
        ("By scenario", "At the end of a day of the challenge it is that day's.", "percentunit", False, (
            (f"{DAY_MOVED} / ({DAY_DUE} > 0)", "{{scenario}}"),
        )),
        ("By site", "Into its RSEs (DEST), and out of them (SRC).", "percentunit", False, (
            (day_at_site("destination"), "{{site}} DEST"),
            (day_at_site("source"), "{{site}} SRC"),
        )),
    ),
    "What goes wrong": (
        ("Nothing arrived for", "On any link, although something was due.", "s", False, (
            (f"min({metric('nothing_arrived_seconds')})", "nothing arrived"),
        )),
        ("Links held, by reason", "See docs/reference/holds.md.", "none", True, (
            (f"sum by (hold) ({links('link_held')})", "{{hold}}"),
        )),
        ("Failed files, by reason", "Within the window.", "none", True, (
            (f"sum by (reason) ({links('failed_files_total', 'increase', WINDOW)})", "{{reason}}"),
        )),
        ("Forgiven by scenario", "Within the window.", "decbytes", True, (
            (f"sum by (scenario) ({links('forgiven_bytes_total', 'increase', WINDOW)})", "{{scenario}}"),
        )),
        ("Errors of services", "A second.", "ops", False, (
            (f"sum by (service, kind) (rate({metric('errors_total', over=WINDOW)}))", "{{service}} {{kind}}"),
        )),
    ),
    "Control and services": (
        ("In flight, and the most that may be", "Of links with `control`.", "decbytes", False, (
            (f"sum({links('control_in_flight_bytes')})", "in flight"),
            (f"sum({links('control_window_bytes')})", "at most"),
        )),
        ("Links that control holds, or would hold", "", "none", True, (
            (f"sum by (hold, mode) ({metric('control_held_links')})", "{{hold}} ({{mode}})"),
        )),
        ("Injections by state", "", "none", True, ((f"sum by (state) ({metric('rules')})", "{{state}}"),)),
        ("Services that answer", "0: three calls in a row failed, or it refuses us.", "none", False, (
            (metric("service_up"), "{{service}}"),
        )),
        ("Calls", "A second, by result.", "ops", True, (
            (f"sum by (service, result) (rate({metric('calls_total', over=WINDOW)}))", "{{service}} {{result}}"),
        )),
        ("Time of calls", "Of 95 % of them.", "s", False, (
            (f"histogram_quantile(0.95, sum by (le, service) (rate({CALL_BUCKETS})))", "{{service}}"),
        )),
    ),
}  # fmt: skip
TABLE = {  # heads and queries of the table of links
    "target b/s": f"8 * sum by (scenario, source, destination) ({links('target_bytes_per_second')})",
    "moved b/s": f"8 * sum by (scenario, source, destination) ({links('moved_bytes_total', 'rate', WINDOW)})",
    "injected": f"sum by (scenario, source, destination) ({links('injected_bytes_total')})",
    "moved": f"sum by (scenario, source, destination) ({links('moved_bytes_total')})",
    "debt": f"sum by (scenario, source, destination) ({links('debt_bytes')})",
    "held": f"sum by (scenario, source, destination, hold) ({links('link_held')})",
}
VARIABLES = {  # name -> label, and where its values come from; one without a label is not shown
    "campaign": ("Campaign", "label_values(dc_inject_ledger_up, campaign)"),
    "scenario": ("Scenario", f"label_values(dc_inject_due_bytes_total{{{CAMPAIGN}}}, scenario)"),
    "site": ("Site", f"label_values({metric('rse_info')}, site)"),
    "rse": ("", f"label_values({RSES}, rse)"),
}


def grafana() -> str:
    """Return the dashboard as Grafana imports it."""
    made = (
        build.Dashboard("dc_inject: injected traffic")
        .uid("dc-inject")
        .description("Traffic that dc_inject injects: due, injected and moved, what goes wrong, and services.")
        .tags(["dc_inject", "wlcg"])
        .timezone("utc")
        .refresh("1m")
        .time("now-24h", "now")
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .variables([_source(), *map(_variable, VARIABLES), _window()])
    )
    for title, meaning, unit, expression in NUMBERS:
        panel = stat.Panel().title(title).description(meaning).unit(unit).datasource(SOURCE).height(4).span(3)
        panel = panel.graph_mode(BigValueGraphMode.NONE)
        if unit == "percentunit":
            panel = panel.thresholds(_grades())
        made = made.with_panel(panel.with_target(_query(expression, "", instant=True)))
    for row, panels in ROWS.items():
        made = made.with_row(build.Row(row))
        for panel in panels:
            made = made.with_panel(_picture(*panel))
    made = made.with_row(build.Row("Links")).with_panel(_table())
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def queries() -> list[str]:
    """Return the expressions of all panels."""
    told = [expression for *_, expression in NUMBERS]
    told += [expression for panels in ROWS.values() for *_, some in panels for expression, _ in some]
    return [*told, *TABLE.values()]


def plain(expression: str, **values: str) -> str:
    """Return an expression with values in place of Grafana's variables."""
    return re.sub(r"\$(campaign|scenario|site|rse|window)\b", lambda match: values[match[1]], expression)


def _source() -> build.DatasourceVariable:
    return build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")


def _variable(name: str) -> build.QueryVariable:
    label, query = VARIABLES[name]
    made = (
        build.QueryVariable(name)
        .query(query)
        .datasource(SOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )
    made = made.label(label) if label else made.hide(VariableHide.HIDE_VARIABLE)
    if name == "campaign":
        return made
    everything = VariableOption(selected=True, text="All", value="$__all")
    return made.multi(multi=True).include_all(include_all=True).current(everything)


def _window() -> build.IntervalVariable:
    """Rates are over some cycles: less would show the steps in which what is injected becomes known."""
    chosen = VariableOption(selected=True, text="1h", value="1h")
    return build.IntervalVariable("window").label("Rates over").values("15m,30m,1h,6h,1d").current(chosen)


def _query(expression: str, legend: str, letter: str = "A", *, instant: bool = False) -> Dataquery:
    made = Dataquery().expr(expression).legend_format(legend).ref_id(letter)
    return made.instant() if instant else made.range()


def _grades() -> build.ThresholdsConfig:
    steps = [
        Threshold(value=None if least == float("-inf") else least, color=colour)
        for least, colour, _ in reversed(GRADES)
    ]
    return build.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _picture(title: str, meaning: str, unit: str, stacked: bool, some: Sequence[Query]) -> timeseries.Panel:
    panel = timeseries.Panel().title(title).description(meaning).unit(unit).datasource(SOURCE).height(9).span(12)
    panel = panel.legend(common.VizLegendOptions().show_legend(show_legend=True))
    if stacked:
        panel = panel.fill_opacity(40).stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for letter, (expression, legend) in zip("ABCDEF", some, strict=False):
        panel = panel.with_target(_query(expression, legend, letter))
    return panel


def _table() -> table.Panel:
    panel = table.Panel().title("Links").datasource(SOURCE).height(14).span(24).show_header(show_header=True)
    for number, (head, expression) in enumerate(TABLE.items()):
        query = _query(expression, "", "ABCDEF"[number], instant=True).format(PromQueryFormat.TABLE)
        panel = panel.with_target(query)
        unit = "bps" if head.endswith("b/s") else "none" if head == "held" else "decbytes"
        panel = panel.override_by_name(head, [DynamicConfigValue("unit", unit)])
    heads = {f"Value #{'ABCDEF'[number]}": head for number, head in enumerate(TABLE)}
    order = {"excludeByName": {"Time": True}, "renameByName": heads}
    return panel.transformations(
        [DataTransformerConfig("merge", options={}), DataTransformerConfig("organize", options=order)]
    )
