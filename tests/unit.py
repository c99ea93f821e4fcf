"""`python -m tests.unit` (`make unit`) runs the pure and the simulated tests: what a developer runs all day.

Further words go to pytest. `make test` stays the whole; what is left out here is said below, with the reason.
With `--all` (`make coverage`) nothing of these folders is left out, and properties get all their examples.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

FOLDERS = ("core", "menu", "ledger", "metrics", "cli", "engine", "docs", "summary", "apps")

# Not in FOLDERS, since they need a service or a storage, or try thousands of cases:
# backends, chaos, deploy, e2e, fuzz, golden, hostile, sandbox and storage.
DAYS = "simulates days"
KILLS = "dies at each of many steps"
SERVER = "starts a server or processes"
CASES = "tries many cases"
WHOLE = "plans whole challenges"

LEFT_OUT = {
    "apps/data/test_data.py": KILLS,
    "cli/test_hangup.py": SERVER,
    "apps/link/test_link.py": DAYS,
    "apps/link/test_link_ends.py": DAYS,
    "apps/link/test_link_starts.py": DAYS,
    "apps/report/test_report_browser.py": SERVER,
    "cli/test_rights.py": SERVER,
    "apps/report/test_serve.py": SERVER,
    "apps/report/test_serve_browser.py": SERVER,
    "apps/report/test_live_view.py": SERVER,
    "cli/test_surroundings.py": SERVER,
    "apps/report/test_watch.py": SERVER,
    "apps/twin/test_bottlenecks.py": DAYS,
    "apps/twin/test_calibrate.py": DAYS,
    "apps/twin/test_calibrate_incidents.py": DAYS,
    "apps/twin/test_calibration.py": DAYS,
    "apps/twin/test_even.py": DAYS,
    "apps/twin/test_inconclusive.py": DAYS,
    "apps/twin/test_own_menus.py": DAYS,
    "apps/twin/test_saturated.py": DAYS,
    "apps/twin/test_shortfalls.py": DAYS,
    "apps/twin/test_simulate.py": SERVER,
    "apps/twin/test_simulate_policies.py": DAYS,
    "apps/twin/test_transfers.py": DAYS,
    "core/test_day.py": DAYS,
    "core/test_patterns.py": CASES,
    "docs/test_measured.py": DAYS,
    "engine/test_breaker.py": DAYS,
    "engine/test_calls_a_rule.py": DAYS,
    "apps/link/test_mini_challenge.py": DAYS,
    "engine/test_clocks.py": DAYS,
    "engine/test_controlling.py": DAYS,
    "engine/test_crashes.py": KILLS,
    "engine/test_cycles.py": DAYS,
    "engine/test_day.py": DAYS,
    "engine/test_files.py": DAYS,
    "engine/test_goals.py": DAYS,
    "engine/test_goals_crashes.py": KILLS,
    "engine/test_guarding.py": DAYS,
    "engine/test_overrides.py": DAYS,
    "apps/rebuild/test_rebuilding.py": DAYS,
    "engine/test_second_hop_ends.py": DAYS,
    "engine/test_second_hops.py": DAYS,
    "engine/test_soak.py": DAYS,
    "ledger/test_machine.py": CASES,
    "menu/test_fuzz.py": CASES,
    "menu/test_real_changes.py": WHOLE,
    "menu/test_real_menus.py": WHOLE,
    "metrics/test_publishing.py": SERVER,
    "metrics/test_queries.py": SERVER,
    "metrics/test_rules.py": SERVER,
    "test_guard.py": SERVER,
    "test_transport.py": SERVER,
}


def main(words: list[str]) -> int:
    """Run them, on as many processes as JOBS says (2)."""
    here = ROOT / "tests"
    places = [str(here / folder) for folder in FOLDERS] + [str(path) for path in sorted(here.glob("test_*.py"))]
    quick = "--all" not in words
    words = [word for word in words if word != "--all"]
    # A quick run tries only a few examples of each property.
    left_out = [*(f"--ignore={here / name}" for name in LEFT_OUT), "--hypothesis-profile=unit"] if quick else []
    jobs = ["-n", os.environ.get("JOBS", "2"), "--dist", "loadfile"]
    wanted = [place for place in places if not (quick and place.removeprefix(f"{here}/") in LEFT_OUT)]
    return pytest.main([*jobs, "-m", "not sandbox", *left_out, *words, *wanted])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
