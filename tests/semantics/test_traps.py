"""The 25 typical errors of a streaming engine, and the tests that prevent each of them.

Use it to find the intended behaviour: each rule is next to the tests that check it. This module fails if a test in the
list is renamed or removed.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OPERATORS = "unit/taskmanager/operators"

TRAPS: dict[int, tuple[str, list[str]]] = {
    1: (
        "timers are one per key and time, survive failures, and overdue processing-time timers fire immediately after a restore",
        [
            "unit/state/timers/test_timers.py::test_a_timer_is_unique_per_time_key_and_namespace",
            "unit/state/timers/test_timers.py::test_timers_follow_their_keys",
            f"{OPERATORS}/test_process_operators.py::test_overdue_processing_time_timers_fire_immediately_after_a_restore",
        ],
    ),
    2: (
        "the watermark is the minimum over all partitions of all inputs, and timers fire before it is emitted",
        [
            "unit/testing/test_event_time.py::test_the_clock_of_a_task_is_the_minimum_of_its_partitions",
            f"{OPERATORS}/test_process_operators.py::test_event_time_timers_fire_in_order_of_time_before_the_watermark_is_emitted",
        ],
    ),
    3: (
        "an idle source does not hold the clock back, and is active again with its next record",
        [
            f"{OPERATORS}/event_time/test_watermarks.py::test_an_input_is_idle_after_the_timeout_and_active_with_the_next_record"
        ],
    ),
    4: (
        "each split of a source has a separate watermark",
        ["unit/testing/test_job_harness.py::test_each_split_has_its_watermark_and_an_idle_one_does_not_block"],
    ),
    5: (
        "an explicit trigger replaces the default one; a purge calls the window function's clear",
        [
            f"{OPERATORS}/window/test_window_triggers.py::test_an_explicit_trigger_replaces_the_default_one",
            f"{OPERATORS}/window/test_window_triggers.py::test_purge_drops_the_contents_and_clears_per_window_state",
        ],
    ),
    6: (
        "a trigger clears its state and timers itself; the engine removes the contents of windows",
        [
            f"{OPERATORS}/window/test_window_triggers.py::test_purge_keeps_the_state_of_the_trigger",
            f"{OPERATORS}/window/test_window_triggers.py::test_trigger_context_has_clocks_and_metrics_and_deletes_timers",
            f"{OPERATORS}/window/test_window_operator.py::test_windows_leave_no_state",
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
        "within the allowed lateness a window fires again with its current contents, and is deleted after it",
        [
            f"{OPERATORS}/window/test_window_lateness.py::test_allowed_lateness_updates_results_until_its_end",
            f"{OPERATORS}/window/test_session_windows.py::test_allowed_lateness_reopens_a_session_that_has_fired",
        ],
    ),
    9: (
        "windows are half open, aligned to the epoch and never empty; records between sliding windows belong to no window",
        [
            "unit/windowing/test_window_assigners.py::test_windows_contain_the_record_and_are_aligned",
            "unit/windowing/test_window_assigners.py::test_tumbling_windows_have_an_offset",
            f"{OPERATORS}/window/test_window_operator.py::test_records_between_sliding_windows_are_dropped_but_not_late",
            f"{OPERATORS}/window/test_window_operator.py::test_windows_of_each_key_are_independent_and_never_empty",
        ],
    ),
    10: (
        "rolling aggregates emit a result for every record; the result of an operation has no key",
        [
            "unit/datastream/test_keyed_and_windowed.py::test_reduce_and_aggregates_return_every_step",
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
        "operator state is split evenly, given completely to all, or copied; some subtasks may start without state",
        [
            "unit/testing/test_semantics.py::test_operator_list_state_is_distributed_or_united",
            "unit/state/test_operator_state.py::test_broadcast_state_is_copied_to_every_subtask",
        ],
    ),
    13: (
        "the number of key groups limits the parallelism permanently",
        [
            "unit/testing/test_semantics.py::test_another_max_parallelism_is_refused",
            "unit/checkpoint/recovery/test_restore.py::test_a_parallelism_above_the_maximum_is_refused",
        ],
    ),
    14: (
        "a notification may be missed: a restore commits the pending transactions of its checkpoint, and a later one covers it",
        [
            "unit/jobmanager/coordinators/test_hung_commits.py::test_the_next_attempt_commits_the_promises_of_a_hung_one",
            "unit/checkpoint/recovery/test_recovery.py::test_the_newest_checkpoint_is_restored_with_its_commits",
        ],
    ),
    15: (
        "a savepoint also commits the transactions of sinks",
        ["unit/checkpoint/coordinator/test_coordinator_savepoints.py::test_a_savepoint_is_a_copied_checkpoint"],
    ),
    16: (
        "state is matched by uid, then by name; state that no operator uses is refused unless it is named",
        [
            "unit/testing/test_semantics.py::test_state_is_found_by_uid_when_the_program_changes",
            "unit/testing/test_semantics.py::test_state_of_another_uid_is_refused",
            "unit/testing/test_semantics.py::test_state_that_is_no_longer_needed_is_dropped_by_name",
        ],
    ),
    17: (
        "if a savepoint fails, and with it a stop or a rescale, the job continues unchanged",
        [
            "unit/rest/routes/test_actions.py::test_a_failed_savepoint_is_completed_with_a_cause_and_the_job_keeps_running",
            "unit/jobmanager/job/test_rescale_slots.py::test_a_rescale_beyond_the_available_slots_is_refused",
        ],
    ),
    18: (
        "slow REST requests return a request id to poll",
        ["unit/rest/routes/test_actions.py::test_a_savepoint_is_triggered_and_polled_as_in_the_transcript"],
    ),
    19: (
        "a commit may be repeated, and survives a crash between its steps",
        [
            "unit/connectors/file/test_files_on_s3.py::test_files_are_invisible_before_the_commit_and_the_commit_is_repeatable",
            "unit/connectors/file/test_file_sink.py::test_a_commit_that_crashed_between_link_and_unlink_is_completed",
            "unit/connectors/test_transactional_sinks.py::test_transactional_files_are_exactly_once",
        ],
    ),
    20: (
        "a write-ahead sink may repeat records in its two windows; committed records are noted outside the job's state",
        ["unit/connectors/test_transactional_sinks.py::test_records_are_sent_twice_only_if_the_note_is_missing"],
    ),
    21: (
        "inputs of async functions without results are in the checkpoint; no result passes a watermark or a barrier",
        [
            f"{OPERATORS}/test_async_wait.py::test_inputs_without_results_are_in_the_checkpoint_and_requested_again",
            f"{OPERATORS}/test_async_wait.py::test_results_and_watermarks_do_not_pass_each_other",
            "integration/engine/programs/test_async_io.py::test_pending_requests_survive_a_killed_worker",
        ],
    ),
    22: (
        "changed files are read again, in the order of their times; a file sink finishes files with checkpoints",
        [
            "unit/connectors/file/test_file_source.py::test_continuous_mode_reads_new_and_changed_files",
            "unit/connectors/file/test_file_source.py::test_files_are_read_in_order_of_modification_then_name",
            "unit/connectors/file/test_file_sink.py::test_an_open_part_continues_after_a_restore_without_later_records",
        ],
    ),
    23: (
        "the configured start position applies to the first start only; a restored position takes precedence",
        ["unit/connectors/test_functions.py::test_a_resettable_function_loses_and_repeats_no_record"],
    ),
    24: (
        "names of metrics that become equal are distinguished",
        ["unit/metrics/test_prometheus.py::test_names_that_become_equal_are_distinguished"],
    ),
    25: (
        "settings of the program take precedence over the command line, and those over the file; a job without slots waits and reports it",
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


def test_the_list_has_25_traps() -> None:
    assert sorted(TRAPS) == list(range(1, 26))
