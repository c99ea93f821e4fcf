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
SOURCES = "reads all sources"

LEFT_OUT = {
    "apps/data/test_data.py": KILLS,
    "apps/link/test_link.py": DAYS,
    "apps/link/test_link_ends.py": DAYS,
    "apps/link/test_link_others.py": DAYS,
    "apps/link/test_link_starts.py": DAYS,
    "apps/link/test_mini_challenge.py": DAYS,
    "apps/rebuild/test_rebuilding.py": DAYS,
    "apps/report/test_export.py": DAYS,
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
    "docs/test_names.py": SOURCES,
    "docs/test_screens.py": PICTURES,
    "engine/test_breaker.py": DAYS,
    "engine/test_calls_a_rule.py": DAYS,
    "engine/test_clocks.py": DAYS,
    "engine/test_cost_of_a_cycle.py": DAYS,
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
    "engine/test_two.py": DAYS,
    "engine/test_withheld.py": DAYS,
    "ledger/test_cost.py": CASES,
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
        "test_a_closed_terminal_is_no_second_ctrl_c": KILLS,
        "test_an_interruption_at_any_moment_afterwards_says_the_same": KILLS,
    },
    "apps/link/test_link_refused.py": {
        "test_a_test_that_runs_is_not_resumed_and_its_menu_stays": DAYS,
    },
    "apps/link/test_link_running.py": {
        "test_the_verdict_of_one_that_still_runs_is_not_that_it_was_ended": DAYS,
    },
    "apps/menutools/test_expanding.py": {
        "test_a_menu_written_out_asks_for_the_same": CASES,
    },
    "apps/menutools/test_importing.py": {
        "test_every_cell_counts_or_is_reported": CASES,
        "test_what_is_no_table": CASES,
    },
    "apps/menutools/test_menu_new.py": {
        "test_ctrl_c_leaves_nothing": SERVER,
    },
    "apps/menutools/test_scaling.py": {
        "test_scale_is_linear": CASES,
    },
    "apps/menutools/test_workbooks.py": {
        "test_every_cell_of_a_workbook_counts_or_is_reported": CASES,
        "test_what_is_no_workbook_is_one_problem": CASES,
    },
    "apps/report/test_report.py": {
        "test_a_report_of_a_simulation_says_so_in_every_format": PICTURES,
        "test_figures_agree_with_status_and_the_ledger_to_the_byte": DAYS,
    },
    "apps/report/test_report_beside.py": {
        "test_readings_stand_in_the_report": PICTURES,
    },
    "apps/report/test_watch_figures.py": {
        "test_ratios_are_those_of_a_report_and_sums_those_of_the_closing_table": DAYS,
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
        "test_a_menu_through_fts_moves_what_is_due_where_nothing_stands_in_its_way": DAYS,
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
    "cli/test_hints.py": {
        "test_a_command_names_only_its_own_options_where_it_names_no_command": SOURCES,
        "test_commands_and_options_that_texts_name_exist": SOURCES,
        "test_the_keys_that_texts_name_stand_in_menus": SOURCES,
    },
    "cli/test_hints_pasted.py": {
        "test_no_text_of_the_package_names_a_key_of_a_menu_or_an_option_of_run_to_a_user_of_link": SOURCES,
    },
    "cli/test_ledger.py": {
        "test_a_backup_is_taken_while_an_injector_writes_and_is_of_one_moment": SERVER,
    },
    "cli/test_log.py": {
        "test_a_run_tells_its_cycles_as_json": DAYS,
    },
    "cli/test_losses.py": {
        "test_a_report_says_which_control_was_in_force": PICTURES,
        "test_jobs_that_a_run_ends_after_their_lifetime_have_expired": DAYS,
        "test_people_read_it_in_the_verdict_and_in_tables": PICTURES,
    },
    "cli/test_run_once.py": {
        "test_a_menu_that_cannot_be_read_is_in_the_log_file_of_the_program": SERVER,
        "test_they_do_so_where_their_file_is_named_whatever_is_wrong": CASES,
    },
    "cli/test_tables.py": {
        "test_status_fits_a_terminal_and_names_what_it_leaves_out": CASES,
    },
    "cli/test_thresholds.py": {
        "test_a_missed_one_is_exit_code_5_and_the_report_is_written": DAYS,
        "test_those_of_menus_are_judged_at_the_end_of_a_run_and_in_reports": DAYS,
    },
    "control/test_windows.py": {
        "test_datasets_are_not_so_small_that_the_calls_of_a_cycle_do_not_suffice": DAYS,
    },
    "core/test_footprint.py": {
        "test_experiments_add_up_in_any_order": CASES,
        "test_experiments_at_once_are_the_sum_of_each": CASES,
    },
    "core/test_plan.py": {
        "test_every_link_has_its_turn_when_rules_are_scarce": CASES,
        "test_the_plan_does_not_depend_on_the_order_of_its_situation": CASES,
    },
    "apps/link/test_saturation.py": {
        "test_noisy_links_are_found_within_five_percent_in_a_third_of_the_time": CASES,
    },
    "apps/link/test_searches.py": {
        "test_an_interval_knows_that_a_trial_counts_few_datasets": CASES,
    },
    "core/test_services.py": {
        "test_no_code_but_back_ends_asks_which_service_it_is": SOURCES,
    },
    "docs/test_pages.py": {
        "test_man_formats_its_pages_without_a_warning": SERVER,
    },
    "engine/test_ending.py": {
        "test_looking_on_the_way_is_bounded": CASES,
    },
    "engine/test_expiry.py": {
        "test_a_reading_in_the_cycle_in_which_they_end_blames_them_and_not_the_service": DAYS,
        "test_a_service_that_does_not_answer_in_the_last_hour_is_asked_every_five_minutes_and_no_more": DAYS,
        "test_they_are_told_an_hour_before_held_at_the_end_and_used_as_soon_as_they_are_renewed": DAYS,
        "test_tokens_of_an_hour_that_somebody_renews_all_the_time_are_no_trouble_until_nobody_does": DAYS,
    },
    "ledger/test_failing.py": {
        "test_a_link_goes_on_failing_when_what_is_stuck_expires": DAYS,
        "test_a_link_that_works_again_is_let_go_by_what_its_probe_brought": DAYS,
        "test_a_link_through_rucio_fails_by_what_became_stuck_of_late_and_lets_go_while_it_still_is": DAYS,
        "test_what_became_stuck_in_the_night_does_not_hold_a_link_in_the_morning": DAYS,
    },
    "engine/test_leaps.py": {
        "test_a_leap_that_no_service_confirms_changes_nothing": DAYS,
    },
    "engine/test_longest_unused.py": {
        "test_a_pool_goes_round_before_anything_goes_out_again": DAYS,
    },
    "engine/test_outages.py": {
        "test_what_is_forgiven_after_an_outage_is_blamed_on_it": DAYS,
    },
    "engine/test_restored.py": {
        "test_brought_to_the_present_it_has_all_that_was_injected_since_and_makes_nothing_up": DAYS,
        "test_moved_to_another_machine_within_a_cycle_it_goes_on_as_if_nothing_had_happened": DAYS,
        "test_what_came_and_went_meanwhile_is_not_made_up": DAYS,
        "test_within_its_cycle_what_was_injected_since_is_adopted_by_its_key": KILLS,
    },
    "engine/test_shards.py": {
        "test_a_rate_that_was_set_is_what_all_shards_sum_to": DAYS,
        "test_limits_of_menus_in_the_same_cycle_do_not_starve_a_shard": DAYS,
        "test_rules_an_hour_are_divided": DAYS,
        "test_shards_keep_to_the_limits_of_the_campaign_together": DAYS,
        "test_what_an_exclusion_frees_goes_to_the_links_of_other_shards_too": DAYS,
    },
    "engine/test_silent_service.py": {
        "test_its_links_hold_with_the_reason_and_status_says_so": DAYS,
        "test_the_other_service_is_observed_and_ended": DAYS,
    },
    "engine/test_slices.py": {
        "test_over_a_day_a_coarse_link_is_within_half_a_file_of_its_account": DAYS,
    },
    "engine/test_spaces.py": {
        "test_a_menu_that_grants_more_than_there_is_changes_nothing": DAYS,
        "test_no_space_is_found_larger_than_it_is_and_no_disk_above_98_percent": DAYS,
        "test_others_that_fill_a_disk_are_noticed_with_the_next_word_of_it": DAYS,
    },
    "engine/test_stalled.py": {
        "test_they_are_ended_after_some_minutes_and_their_bytes_are_given_back_and_counted": DAYS,
        "test_where_rules_may_not_be_ended_they_are_left_to_their_lifetime_and_given_back_then": DAYS,
    },
    "engine/test_waiting_for_room.py": {
        "test_a_disk_that_fills_since_nothing_is_deleted_is_blamed_on_deletions_unless_it_is_too_small": DAYS,
        "test_a_space_that_is_just_enough_is_used_by_counting_on_what_is_deleted": DAYS,
        "test_a_space_that_was_small_is_forgotten_although_what_is_told_then_never_changes": DAYS,
        "test_an_old_word_of_free_space_counts_with_what_had_arrived_then": DAYS,
        "test_looking_often_where_room_is_waited_for_keeps_nobody_from_looking_elsewhere": DAYS,
        "test_what_counts_on_deletions_that_do_not_come_waits_for_room_and_is_withdrawn": DAYS,
        "test_what_waits_for_room_on_an_old_word_goes_out_with_a_new_one": DAYS,
        "test_what_was_complete_is_asked_for_as_soon_as_it_has_ended": DAYS,
    },
    "ledger/test_active_entries.py": {
        "test_a_look_that_is_repeated_leaves_what_it_left_before": CASES,
    },
    "ledger/test_crashes.py": {
        "test_what_a_crash_leaves_is_whole_and_going_on_from_it_gives_the_same": KILLS,
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
