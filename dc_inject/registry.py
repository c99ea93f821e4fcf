"""What is found by its name: commands, back ends, and what `run` is handed by apps.

Only strings stand here, each `module:object`, and a module is imported when its name is used: so `--help` is
quick, and the core knows no app. A new command, subcommand or back end is one line.
"""

from __future__ import annotations

import importlib
from typing import Any

# name: (object, first line of help), in the order in which a user meets them
COMMANDS = {
    "run": ("dc_inject.cli.run:run", "Inject menus."),
    "link": ("dc_inject.apps.link.command:link", "Test one link: a mini-challenge in one command."),
    "smoke": ("dc_inject.apps.smoke.command:smoke", "Send one file over each link, and show which links work."),
    "plan": (
        "dc_inject.apps.preview.command_plan:plan",
        "Show what would be injected, without changing anything.",
    ),
    "footprint": ("dc_inject.apps.preview.command_footprint:footprint", "Show what menus require of each site."),
    "simulate": ("dc_inject.apps.twin.command:simulate", "Run menus in a simulated grid."),
    "check": ("dc_inject.apps.preview.command_check:check", "Check menus for errors."),
    "menu": ("dc_inject.apps.menutools.command:menu", "Make, convert and compare menu files."),
    "status": ("dc_inject.cli.status:status", "Show what was due, injected and moved."),
    "explain": (
        "dc_inject.cli.explain:explain",
        "Explain what is short or held, what to look at, and whom to call.",
    ),
    "watch": ("dc_inject.apps.report.command_watch:watch", "Watch a campaign on the whole terminal."),
    "report": (
        "dc_inject.apps.report.command_report:report",
        "Report on a campaign: figures over time, by scenario and site.",
    ),
    "export": (
        "dc_inject.apps.report.command_export:export",
        "Export injections, or planned flows, for other programs.",
    ),
    "serve": ("dc_inject.apps.report.command_serve:serve", "Serve reports as live pages, on this machine only."),
    "stop": ("dc_inject.cli.actions:stop", "Stop injecting for a whole campaign, from any terminal."),
    "pause": ("dc_inject.cli.actions:pause", "Stop injecting for a scenario or a link."),
    "resume": ("dc_inject.cli.actions:resume", "Inject again after a stop or a pause."),
    "set": ("dc_inject.cli.actions:set_", "Change rates while a campaign runs."),
    "unset": ("dc_inject.cli.actions:unset", "Delete what was set; the menus apply again."),
    "note": ("dc_inject.cli.actions:note", "Write a note on a campaign."),
    "end": ("dc_inject.cli.end:end", "End rules or jobs of a campaign, a scenario or a link."),
    "campaigns": ("dc_inject.cli.campaigns:campaigns", "List the campaigns on this machine, or forget some."),
    "ledger": ("dc_inject.cli.ledger:ledger", "Check, back up or rebuild a ledger."),
    "data": ("dc_inject.apps.data.command:data", "Make, list or delete test data at a source."),
    "health": ("dc_inject.cli.health:health", "Check that an injector does its work."),
    "config": ("dc_inject.cli.config:config", "Show which defaults of options are in force."),
    "completion": ("dc_inject.cli.shared.completion:completion", "Print the completion for a shell."),
    "ping": ("dc_inject.apps.preview.command_ping:ping", "Show who you are at the services, and what you may do."),
    "demo": ("dc_inject.apps.sandbox.command_demo:demo", "Run everything once, on a grid on this machine."),
    "sandbox": (
        "dc_inject.apps.sandbox.command_sandbox:sandbox",
        "Run a test grid with a real Rucio on this machine.",
    ),
}

# of a group of the core: name and object
SUBCOMMANDS = {"ledger": {"rebuild": "dc_inject.apps.rebuild.command:rebuild"}}

# what `run` is handed; the verdict of a link's test is for `status` and `explain`
LIVE_VIEW = "dc_inject.apps.report.live_view:of_campaign"
VERDICT = "dc_inject.apps.link.verdicts:describe"
PAGE = "dc_inject.apps.report.serving:serve_pages"

# by the word after `through:`; each is called with a `Wanted` of `credentials/trust.py`
BACKENDS = {
    "rucio": "dc_inject.backends.build:rucio",
    "fts": "dc_inject.backends.build:fts",
    "reads": "dc_inject.apps.reads.backend:reads",
}
CONFIGURED = "dc_inject.backends.build:configured"  # returns the services that the environment configures
ONLY_READ = "dc_inject.apps.preview.dry:DryBackend"  # made of a back end, of which it changes nothing, and a clock


def load(name: str) -> Any:  # noqa: ANN401  whatever stands there
    """Import and return an object, which is named by `module:object`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
