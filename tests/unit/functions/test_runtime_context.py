"""The runtime context offers the functions of the operator's context, and refuses the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.common.errors import InvalidJob, KeyedStateNotAvailable, UserFunctionError
from penstock.datastream.functions import Function, MapFunction, RuntimeContext, close_function, open_function
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.functions.operator_context import OperatorContext
from penstock.functions.runtime_context import RuntimeContextImpl
from penstock.taskmanager.operators.simple import MapOperator
from penstock.testing.operator_run import OperatorRun


@pytest.fixture
def context() -> OperatorContext:
    return replace(
        OperatorRun(MapOperator(len)).context,
        uid="count",
        name="Count",
        subtask=2,
        parallelism=4,
        attempt=1,
        metrics=None,
        job_parameters={"keyWord": "flink"},
        job_id="0123456789abcdef0123456789abcdef",
        job_name="words",
    )


def test_the_context_names_its_place(context: OperatorContext) -> None:
    runtime = RuntimeContextImpl(context)
    assert (runtime.get_index_of_this_subtask(), runtime.get_number_of_parallel_subtasks()) == (2, 4)
    assert (runtime.get_max_number_of_parallel_subtasks(), runtime.get_attempt_number()) == (128, 0)
    assert (runtime.get_task_name(), runtime.get_task_name_with_subtasks()) == ("Count", "Count (3/4)#0")
    assert runtime.get_job_parameter("keyWord", "") == "flink"
    assert runtime.get_job_parameter("other", "default") == "default"
    assert (runtime.get_job_name(), runtime.get_job_id(), runtime.is_restored()) == ("words", context.job_id, False)


def test_keyed_state_needs_a_key(context: OperatorContext) -> None:
    with pytest.raises(KeyedStateNotAvailable, match="state 'count' is keyed state") as caught:
        RuntimeContextImpl(context).get_state(ValueStateDescriptor("count", int))
    error = caught.value
    assert ("key_by" in error.remedy, error.operator, error.location) == (True, "Count", "job.py:7")


def test_keyed_state_comes_from_the_backend(context: OperatorContext) -> None:
    keyed = OperatorRun(MapOperator(len, len)).context
    assert keyed.keyed_state is not None
    keyed.keyed_state.key_context.key = "a"
    state = RuntimeContextImpl(keyed).get_state(ValueStateDescriptor("count", int))
    state.update(3)
    assert state.value() == 3


def test_the_getter_must_belong_to_the_descriptor(context: OperatorContext) -> None:
    descriptor: Any = ListStateDescriptor("values", int)
    with pytest.raises(InvalidJob, match="get_state takes a ValueStateDescriptor, got ListStateDescriptor"):
        RuntimeContextImpl(context).get_state(descriptor)
    with pytest.raises(InvalidJob, match="get_reducing_state takes a ReducingStateDescriptor"):
        RuntimeContextImpl(context).get_reducing_state(MapStateDescriptor("m", str, str))  # type: ignore[arg-type]


def test_operator_state_needs_no_key(context: OperatorContext) -> None:
    store = RuntimeContextImpl(context).get_operator_state_store()
    store.get_list_state("offsets", int).append(3)
    assert store.get_list_state("offsets", int) == [3]


def test_metrics_work_without_a_reporter(context: OperatorContext) -> None:
    runtime = RuntimeContextImpl(context)
    runtime.get_metrics_group().add_group("mine").counter("dropped").inc(2)
    assert runtime.get_metrics_group().add_group("mine").counter("dropped").get_count() == 2


class TestLifeCycle:
    def test_function_objects_are_opened_and_closed(self, context: OperatorContext) -> None:
        calls: list[str] = []

        class Log(MapFunction):
            def open(self, runtime_context: RuntimeContext) -> None:
                calls.append(runtime_context.get_task_name())

            def close(self) -> None:
                calls.append("closed")

            def map(self, value: Any) -> Any:
                return value

        function = Log()
        open_function(function, context)
        close_function(function)
        assert calls == ["Count", "closed"]

    def test_plain_callables_and_classes_are_not_changed(self, context: OperatorContext) -> None:
        for function in (len, lambda v: v, Function, str.upper):
            open_function(function, context)
            close_function(function)

    def test_an_error_in_open_names_function_and_operator(self, context: OperatorContext) -> None:
        class Broken(Function):
            def open(self, runtime_context: RuntimeContext) -> None:
                raise OSError("no route to host")

        with pytest.raises(UserFunctionError, match=r"Broken\.open raised OSError: no route to host") as caught:
            open_function(Broken(), context)
        assert (caught.value.operator, caught.value.location) == ("Count", "job.py:7")
        assert isinstance(caught.value.__cause__, OSError)
