"""`gather`: lists by number and time. Neither a rescale nor a watermark loses records or makes them late."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.common.errors import InvalidJob, StateTypeError
from penstock.datastream import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.session import Session
from penstock.records.batch import RowBatch
from penstock.taskmanager.operators.gather import GatherOperator
from penstock.testing import OperatorHarness
from penstock.testing.operator_run import OperatorRun
from tests.in_process import InProcess


def test_a_list_is_emitted_when_it_is_full_or_has_waited_long_enough() -> None:
    with OperatorHarness(GatherOperator(3, 50)) as harness:
        harness.push(*range(7))
        assert harness.outputs() == [[0, 1, 2], [3, 4, 5]]
        harness.advance_processing_time(49)
        harness.push(7)
        assert harness.outputs() == [[0, 1, 2], [3, 4, 5]]
        harness.advance_processing_time(50)
        assert harness.outputs() == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_waiting_records_are_in_the_snapshot_and_split_by_a_rescale() -> None:
    with OperatorHarness(GatherOperator(10, 50)) as harness:
        harness.push(1, 2, 3)
        harness.restore(harness.snapshot(), parallelism=3)
        assert harness.outputs() == []
        harness.advance_processing_time(50)
        assert sorted(harness.outputs()) == [[1], [2], [3]]


def test_the_watermark_waits_for_the_oldest_value() -> None:
    with OperatorHarness(GatherOperator(2, 50)) as harness:
        harness.push(("a", 10), timestamp=10)
        harness.advance_watermark(30)
        assert harness.watermarks() == [9]
        harness.push(("b", 40), timestamp=40)
        assert harness.watermarks() == [9, 30]
        assert list(map(tuple, harness.outputs_with_timestamps())) == [([("a", 10), ("b", 40)], 40)]


def test_no_record_waits_while_the_input_is_idle() -> None:
    run = OperatorRun(GatherOperator(10, 50))
    run.push("a", at=100)
    run.watermark(100)
    run.operator.process_idle(True)
    run.push("b", at=200)
    run.operator.process_idle(False)
    run.push("c", at=300)
    assert run.events == [
        ("watermark", 99),
        (["a"], 100),
        ("watermark", 100),
        ("idle", True),
        (["b"], 200),
        ("idle", False),
    ]
    run.close()


def test_a_list_without_timestamps_does_not_change_those_of_others() -> None:
    with OperatorHarness(GatherOperator(2, 50)) as harness:
        harness.push("a", timestamp=10)
        (run,) = harness._runs
        run.operator.process_batch(RowBatch(["b", "c", "d", "e", "f"]))
        harness.push("g", timestamp=20)
        harness.advance_processing_time(50)
        found = list(map(tuple, harness.outputs_with_timestamps()))
    assert found == [(["a", "b"], 10), (["c", "d"], None), (["e", "f"], None), (["g"], 20)]


def test_the_end_of_bounded_input_emits_all_waiting_records() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lists = env.from_collection(range(10)).gather(4, timedelta(hours=1))
    with executing_on(Session(InProcess())):
        assert list(lists.execute_and_collect()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_invalid_arguments_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(InvalidJob, match="at least 1, got 0"):
        env.from_collection([1]).gather(0, 10)
    with pytest.raises(InvalidJob, match="at least 1 ms"):
        env.from_collection([1]).gather(1, 0)
    with executing_on(Session(InProcess())), pytest.raises(StateTypeError, match="complex"):
        list(env.from_collection([1]).map(complex).gather(2, 10).map(str).execute_and_collect())
