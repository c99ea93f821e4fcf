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

FOLDERS = ("control", "core", "menu", "ledger", "metrics", "cli", "engine", "docs", "summary", "apps")

# Not in FOLDERS, since they need a service or a storage, or try thousands of cases:
# backends, chaos, deploy, e2e, fuzz, golden, hostile, sandbox and storage.
DAYS = "simulates days"
KILLS = "dies at each of many steps"
SERVER = "starts a server or processes"
CASES = "tries many cases"
WHOLE = "plans whole challenges"
PICTURES = "draws pictures"

LEFT_OUT = {
    "apps/data/test_data.py": KILLS,
    "apps/link/test_link.py": DAYS,
    "apps/link/test_link_ends.py": DAYS,
    "apps/link/test_link_starts.py": DAYS,
    "apps/link/test_mini_challenge.py": DAYS,
    "apps/rebuild/test_rebuilding.py": DAYS,
    "apps/report/test_live_view.py": SERVER,
    "apps/report/test_report_browser.py": SERVER,
    "apps/report/test_report_page.py": PICTURES,
    "apps/report/test_serve.py": SERVER,
    "apps/report/test_serve_browser.py": SERVER,
    "apps/report/test_watch.py": SERVER,
    "apps/sandbox/test_demo_report.py": PICTURES,
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
    "apps/twin/test_simulate_output.py": DAYS,
    "apps/twin/test_simulate_policies.py": DAYS,
    "apps/twin/test_transfers.py": DAYS,
    "cli/test_closed_pipe.py": SERVER,
    "cli/test_hangup.py": SERVER,
    "cli/test_rights.py": SERVER,
    "cli/test_surroundings.py": SERVER,
    "cli/test_working_folder.py": SERVER,
    "core/test_day.py": DAYS,
    "core/test_even.py": DAYS,
    "core/test_patterns.py": CASES,
    "docs/test_measured.py": DAYS,
    "docs/test_screens.py": PICTURES,
    "engine/test_breaker.py": DAYS,
    "engine/test_calls_a_rule.py": DAYS,
    "engine/test_clocks.py": DAYS,
    "engine/test_crashes.py": KILLS,
    "engine/test_cycles.py": DAYS,
    "engine/test_day.py": DAYS,
    "engine/test_files.py": DAYS,
    "engine/test_goals.py": DAYS,
    "engine/test_goals_crashes.py": KILLS,
    "engine/test_overrides.py": DAYS,
    "engine/test_rooms.py": DAYS,
    "engine/test_second_hop_ends.py": DAYS,
    "engine/test_second_hops.py": DAYS,
    "engine/test_soak.py": DAYS,
    "ledger/test_machine.py": CASES,
    "ledger/test_same_process.py": SERVER,
    "menu/test_fuzz.py": CASES,
    "menu/test_real_changes.py": WHOLE,
    "menu/test_real_menus.py": WHOLE,
    "metrics/test_publishing.py": SERVER,
    "metrics/test_queries.py": SERVER,
    "metrics/test_rules.py": SERVER,
    "test_guard.py": SERVER,
    "test_release.py": SERVER,
    "test_transport.py": SERVER,
}

# Single tests of files of which a quick run does the others.
TESTS_LEFT_OUT = {
    "apps/link/test_link_interrupted.py": {
        "test_an_interruption_at_any_moment_afterwards_says_the_same": KILLS,
    },
    "apps/menutools/test_importing.py": {
        "test_what_is_no_table": CASES,
    },
    "apps/menutools/test_menu_new.py": {
        "test_ctrl_c_leaves_nothing": SERVER,
    },
    "apps/menutools/test_scaling.py": {
        "test_scale_is_linear": CASES,
    },
    "apps/menutools/test_workbooks.py": {
        "test_what_is_no_workbook_is_one_problem": CASES,
    },
    "apps/report/test_report.py": {
        "test_a_report_of_a_simulation_says_so_in_every_format": PICTURES,
    },
    "apps/report/test_report_beside.py": {
        "test_readings_stand_in_the_report": PICTURES,
    },
    "apps/twin/test_backend.py": {
        "test_a_disk_for_ten_datasets_is_never_above_98_percent_where_control_acts": DAYS,
        "test_a_full_disk_holds_its_link": DAYS,
        "test_a_link_at_a_part_of_its_rate_moves_that_part_and_the_rest_is_held": DAYS,
        "test_a_link_that_carries_its_rate_moves_what_is_due": DAYS,
        "test_a_rule_that_waits_for_the_submitter_is_a_backlog_and_no_failure": DAYS,
        "test_nothing_is_too_late_for_its_cycle_as_the_clock_stands": DAYS,
        "test_the_same_seed_gives_the_same_ledger": DAYS,
        "test_where_a_link_loses_its_transfers_little_expires_also_if_no_fts_is_named": DAYS,
        "test_while_rucio_is_down_links_are_held_and_their_debt_is_made_up": DAYS,
        "test_who_lets_nothing_out_of_a_small_disk_leads": DAYS,
    },
    "apps/twin/test_fts.py": {
        "test_a_grid_is_calibrated_from_jobs_too": DAYS,
        "test_its_files_are_deleted_and_make_room": DAYS,
        "test_rules_and_jobs_are_simulated_together_and_are_short_together": DAYS,
        "test_what_failed_is_injected_again": DAYS,
        "test_while_fts_is_down_links_are_held": DAYS,
    },
    "apps/twin/test_rucio.py": {
        "test_deletions_that_are_slower_than_arrivals_fill_a_disk": DAYS,
        "test_the_same_seed_gives_the_same_world": DAYS,
    },
    "cli/test_completion.py": {
        "test_the_script_works_in_a_real_bash": SERVER,
    },
    "cli/test_help.py": {
        "test_a_command_without_menus_imports_no_schema_of_menus": SERVER,
    },
    "cli/test_losses.py": {
        "test_a_report_says_which_control_was_in_force": PICTURES,
        "test_jobs_that_a_run_ends_after_their_lifetime_have_expired": DAYS,
        "test_people_read_it_in_the_verdict_and_in_tables": PICTURES,
    },
    "cli/test_run_once.py": {
        "test_a_menu_that_cannot_be_read_is_in_the_log_file_of_the_program": SERVER,
    },
    "core/test_plan.py": {
        "test_every_link_has_its_turn_when_rules_are_scarce": CASES,
    },
    "core/test_saturation.py": {
        "test_noisy_links_are_found_within_five_percent_in_a_third_of_the_time": CASES,
    },
    "docs/test_pages.py": {
        "test_man_formats_its_pages_without_a_warning": SERVER,
    },
    "engine/test_failing.py": {
        "test_a_link_goes_on_failing_when_what_is_stuck_expires": DAYS,
        "test_a_link_that_works_again_is_let_go_by_what_its_probe_brought": DAYS,
        "test_one_file_that_arrives_does_not_show_that_a_link_works": DAYS,
    },
    "engine/test_leaps.py": {
        "test_a_leap_that_no_service_confirms_changes_nothing": DAYS,
    },
    "engine/test_restored.py": {
        "test_brought_to_the_present_it_has_all_that_was_injected_since_and_makes_nothing_up": DAYS,
        "test_within_its_cycle_what_was_injected_since_is_adopted_by_its_key": KILLS,
    },
    "engine/test_slices.py": {
        "test_over_a_day_a_coarse_link_is_within_half_a_file_of_its_account": DAYS,
    },
    "engine/test_spaces.py": {
        "test_no_space_is_found_larger_than_it_is_and_no_disk_above_98_percent": DAYS,
        "test_others_that_fill_a_disk_are_noticed_with_the_next_word_of_it": DAYS,
    },
    "engine/test_waiting_for_room.py": {
        "test_a_disk_that_fills_since_nothing_is_deleted_is_blamed_on_deletions_unless_it_is_too_small": DAYS,
        "test_a_space_that_is_just_enough_is_used_by_counting_on_what_is_deleted": DAYS,
        "test_a_space_that_was_small_is_forgotten_although_what_is_told_then_never_changes": DAYS,
        "test_an_old_word_of_free_space_counts_with_what_had_arrived_then": DAYS,
        "test_what_counts_on_deletions_that_do_not_come_waits_for_room_and_is_withdrawn": DAYS,
        "test_what_waits_for_room_on_an_old_word_goes_out_with_a_new_one": DAYS,
        "test_what_was_complete_is_asked_for_as_soon_as_it_has_ended": DAYS,
    },
    "ledger/test_active_entries.py": {
        "test_a_look_that_is_repeated_leaves_what_it_left_before": CASES,
    },
    "ledger/test_files.py": {
        "test_processes_that_write_at_the_same_time_wait_for_each_other_and_lose_nothing": SERVER,
    },
    "ledger/test_lock.py": {
        "test_the_lock_is_free_when_its_holder_is_gone": SERVER,
    },
    "menu/test_nothing_ignored.py": {
        "test_every_cell_of_a_file_of_links": CASES,
        "test_every_scalar_of_a_menu": CASES,
    },
    "test_credentials.py": {
        "test_a_key_with_a_password_is_refused": SERVER,
        "test_ends_are_those_that_openssl_tells": SERVER,
    },
    "test_faults.py": {
        "test_tls": SERVER,
        "test_too_many_open_files": SERVER,
    },
}


def main(words: list[str]) -> int:
    """Run them, on as many processes as JOBS says (2)."""
    here = ROOT / "tests"
    places = [str(here / folder) for folder in FOLDERS] + [str(path) for path in sorted(here.glob("test_*.py"))]
    quick = "--all" not in words
    words = [word for word in words if word != "--all"]
    # A quick run tries only a few examples of each property.
    tests = (f"tests/{file}::{test}" for file, some in TESTS_LEFT_OUT.items() for test in some)
    ignoring = *(f"--ignore={here / name}" for name in LEFT_OUT), *(f"--deselect={test}" for test in tests)
    left_out = [*ignoring, "--hypothesis-profile=unit"] if quick else []
    jobs = ["-n", os.environ.get("JOBS", "2"), "--dist", "loadfile"]
    wanted = [place for place in places if not (quick and place.removeprefix(f"{here}/") in LEFT_OUT)]
    return pytest.main([*jobs, "-m", "not sandbox", *left_out, *words, *wanted])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
