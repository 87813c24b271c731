"""The 25 things that an engine like this one gets wrong first, and the tests that hold each of them.

Read it to find how something is meant to behave: each promise stands beside the tests that show it. A test that is renamed or gone
fails here, so the list stays true.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OPERATORS = "unit/taskmanager/operators"

TRAPS: dict[int, tuple[str, list[str]]] = {
    1: (
        "timers are one per key and time, survive failures, and overdue processing-time timers fire at once after a restore",
        [
            "unit/state/timers/test_timers.py::test_a_timer_is_one_per_time_key_and_namespace",
            "unit/state/timers/test_timers.py::test_timers_follow_their_keys",
            f"{OPERATORS}/test_process_operators.py::test_overdue_processing_time_timers_fire_at_once_after_a_restore",
        ],
    ),
    2: (
        "the watermark is the minimum over all partitions of all inputs, and timers fire before it goes on",
        [
            "unit/testing/test_event_time.py::test_the_clock_of_a_task_is_the_least_of_its_partitions",
            f"{OPERATORS}/test_process_operators.py::test_event_time_timers_fire_in_order_of_time_before_the_watermark_goes_on",
        ],
    ),
    3: (
        "an idle source does not hold the clock back, and is active again with its next record",
        [f"{OPERATORS}/event_time/test_watermarks.py::test_idle_after_the_timeout_and_active_with_the_next_record"],
    ),
    4: (
        "each split of a source has a watermark of its own",
        [
            "unit/testing/test_job_harness.py::test_splits_have_watermarks_of_their_own_and_an_idle_one_holds_nothing_back"
        ],
    ),
    5: (
        "an explicit trigger replaces the default one; a purge calls the window function's clear",
        [
            f"{OPERATORS}/window/test_window_triggers.py::test_an_explicit_trigger_replaces_the_default_one",
            f"{OPERATORS}/window/test_window_triggers.py::test_purge_drops_the_contents_and_clears_per_window_state",
        ],
    ),
    6: (
        "a trigger clears its state and timers itself; contents of windows go by themselves",
        [
            f"{OPERATORS}/window/test_window_triggers.py::test_purge_keeps_the_triggers_own_state",
            f"{OPERATORS}/window/test_window_triggers.py::test_trigger_context_gives_clocks_metrics_and_deletes_timers",
            f"{OPERATORS}/window/test_window_operator.py::test_windows_leave_no_state_behind",
        ],
    ),
    7: (
        "sessions merge the state of their triggers; a trigger that cannot merge is refused",
        [
            f"{OPERATORS}/window/test_window_triggers.py::test_all_mergeable_kinds_of_trigger_state_merge",
            f"{OPERATORS}/window/test_window_triggers.py::test_a_trigger_that_cannot_merge_is_refused_with_sessions",
        ],
    ),
    8: (
        "within the allowed lateness a window fires again with what it has by then, and is deleted after it",
        [
            f"{OPERATORS}/window/test_window_lateness.py::test_allowed_lateness_updates_results_until_its_end",
            f"{OPERATORS}/window/test_session_windows.py::test_allowed_lateness_reopens_a_session_that_has_fired",
        ],
    ),
    9: (
        "windows are half open, aligned to the epoch and never empty; what lies between sliding ones belongs to none",
        [
            "unit/windowing/test_window_assigners.py::test_windows_hold_the_record_and_are_aligned",
            "unit/windowing/test_window_assigners.py::test_tumbling_windows_with_an_offset",
            f"{OPERATORS}/window/test_window_operator.py::test_records_between_sliding_windows_are_dropped_but_not_late",
            f"{OPERATORS}/window/test_window_operator.py::test_windows_of_each_key_are_independent_and_none_is_empty",
        ],
    ),
    10: (
        "rolling aggregates give a result for every record; a key ends with the operation",
        [
            "unit/datastream/test_keyed_and_windowed.py::test_reduce_and_aggregates_give_every_step",
            "unit/datastream/test_keyed_and_windowed.py::test_a_key_ends_with_the_operation",
        ],
    ),
    11: (
        "the broadcast side writes, the keyed side only reads, and the broadcast side reaches the state of all keys",
        [
            f"{OPERATORS}/two_inputs/test_broadcast_operators.py::test_the_data_side_cannot_write",
            f"{OPERATORS}/two_inputs/test_broadcast_operators.py::test_the_broadcast_side_has_no_keyed_state",
            f"{OPERATORS}/two_inputs/test_broadcast_operators.py::test_the_broadcast_side_reaches_the_state_of_all_keys",
        ],
    ),
    12: (
        "operator state is split evenly, given whole to all, or copied; some subtasks start with nothing",
        [
            "unit/testing/test_semantics.py::test_operator_list_state_is_spread_or_united",
            "unit/state/test_operator_state.py::test_broadcast_state_is_copied_to_every_subtask",
        ],
    ),
    13: (
        "the number of key groups bounds the parallelism for good",
        [
            "unit/testing/test_semantics.py::test_another_max_parallelism_is_refused",
            "unit/checkpoint/recovery/test_restore.py::test_parallelism_above_it_is_refused",
        ],
    ),
    14: (
        "a notification may be missed: whoever restores a checkpoint commits what it promised, and a later one covers it",
        [
            "unit/jobmanager/coordinators/test_hung_commits.py::test_the_next_attempt_commits_what_a_hung_one_has_promised",
            "unit/checkpoint/recovery/test_recovery.py::test_the_newest_checkpoint_is_restored_with_its_commits",
        ],
    ),
    15: (
        "savepoints have sinks commit, too",
        ["unit/checkpoint/coordinator/test_coordinator_savepoints.py::test_a_savepoint_is_a_checkpoint_that_is_copied"],
    ),
    16: (
        "state is matched by uid, then by name; what no operator takes is refused unless it is named",
        [
            "unit/testing/test_semantics.py::test_state_is_found_by_uid_when_the_program_changes",
            "unit/testing/test_semantics.py::test_state_of_another_uid_is_refused",
            "unit/testing/test_semantics.py::test_state_that_is_not_needed_any_more_is_dropped_by_name",
        ],
    ),
    17: (
        "a savepoint that fails, and with it a stop or a rescale, leaves the job running as it was",
        [
            "unit/rest/test_actions.py::test_a_failed_savepoint_is_completed_with_a_cause_and_the_job_goes_on",
            "unit/jobmanager/job/test_rescale_slots.py::test_rescale_beyond_the_slots_there_are",
        ],
    ),
    18: (
        "what takes long over REST gives a request id to poll",
        ["unit/rest/test_actions.py::test_a_savepoint_is_triggered_and_polled_as_in_the_transcript"],
    ),
    19: (
        "a commit may be repeated, and survives a crash between its steps",
        [
            "unit/connectors/file/test_files_on_s3.py::test_nothing_is_visible_before_the_commit_and_a_commit_may_be_repeated",
            "unit/connectors/file/test_file_sink.py::test_a_commit_that_died_between_link_and_unlink_is_finished",
            "unit/connectors/test_transactional_sinks.py::test_transactional_files_are_exactly_once",
        ],
    ),
    20: (
        "a write-ahead sink may repeat records in its two windows; what was committed is noted outside the job's state",
        ["unit/connectors/test_transactional_sinks.py::test_records_come_twice_only_if_the_note_was_not_made"],
    ),
    21: (
        "inputs of async functions without results are in the checkpoint; no result overtakes a watermark or a barrier",
        [
            f"{OPERATORS}/test_async_wait.py::test_inputs_without_results_are_in_the_checkpoint_and_asked_for_again",
            f"{OPERATORS}/test_async_wait.py::test_no_result_overtakes_a_watermark_and_none_is_overtaken",
            "integration/engine/test_async_io.py::test_requests_under_way_survive_a_killed_worker",
        ],
    ),
    22: (
        "files that change are read anew and in the order of their times; a file sink finishes files with checkpoints",
        [
            "unit/connectors/file/test_file_source.py::test_continuous_mode_reads_new_and_changed_files",
            "unit/connectors/file/test_file_source.py::test_files_are_read_in_order_of_modification_then_name",
            "unit/connectors/file/test_file_sink.py::test_an_open_part_goes_on_after_a_restore_without_what_came_later",
        ],
    ),
    23: (
        "where a source starts counts at the first start only; a restored position wins",
        ["unit/connectors/test_functions.py::test_a_resettable_function_loses_and_repeats_nothing"],
    ),
    24: (
        "names of metrics that become equal stay apart",
        ["unit/metrics/test_prometheus.py::test_names_that_become_equal_stay_apart"],
    ),
    25: (
        "the program's settings win over the command line's, those over the file's; a job without slots waits and says so",
        [
            "unit/datastream/test_environment.py::test_default_then_file_then_command_line_then_program",
            "unit/jobmanager/job/test_schedulers.py::test_a_job_needs_as_many_slots_as_its_widest_operator",
            "unit/jobmanager/job/test_schedulers.py::test_a_job_with_too_few_slots_waits_visibly_and_then_fails",
        ],
    ),
}


def functions_of(module: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("number", sorted(TRAPS))
def test_each_promise_has_its_tests(number: int) -> None:
    promise, tests = TRAPS[number]
    for test in tests:
        module, _, name = test.partition("::")
        assert (TESTS / module).is_file(), f"{promise}: there is no {module}"
        assert name in functions_of(TESTS / module), f"{promise}: {module} has no {name}"


def test_there_are_25() -> None:
    assert sorted(TRAPS) == list(range(1, 26))
