"""A function cannot share a table of its operator. The name is refused in either order of requests.

`NAMES` lists the names of all tables of operators. The test runs every operator to find new names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import StateNameConflict
from penstock.datastream.functions import (
    JoinFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.functions.state.state_joins import EveryPair
from penstock.graph import operations
from penstock.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from penstock.state.operator_state import OperatorStateStore
from penstock.state.owners import FUNCTION, OPERATOR
from penstock.state.registry import Registration
from penstock.taskmanager.operators.factory import create_operator
from penstock.testing import JobHarness
from penstock.testing.operator_run import OperatorRun
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.time_windows import TumblingEventTimeWindows
from penstock.windowing.trigger import EventTimeTrigger
from penstock.windowing.window_function import WindowFunctionSpec
from tests.golden import history
from tests.unit.state.support import KINDS, Backends
from tests.unit.taskmanager.operators.test_current_key import IN_BATCH_MODE, KEY, KEYS, SCENARIOS
from tests.unit.taskmanager.operators.test_factory import OPERATIONS

NAMES = {
    "async-in-flight",
    "async-in-flight-times",
    "batch-given",
    "batch-input",
    "batch-input-0",
    "batch-input-1",
    "interval-join-watermark",
    "left",
    "left-buffer",
    "left-counts",
    "newest",
    "penstock-sink-writer",
    "process-watermark",
    "reduced",
    "right",
    "right-buffer",
    "rolling",
    "slide-count-assigner",
    "trigger:count",
    "trigger:fire-time",
    "tumble-count-assigner",
    "waiting",
    "waiting-times",
    "watermark-generator",
    "window-content-timestamps",
    "window-contents",
    "window-merging-set",
    "window-removed-until",
    "window-watermark",
    "with-state",
}


def test_the_list_of_names_has_every_state_that_an_operator_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    names: set[str] = set()
    original, register = Registration.of, OperatorStateStore._register

    def noted(descriptor: Any, operator: str, clock: Any, owner: str = FUNCTION) -> Registration:
        if owner == OPERATOR:
            names.add(descriptor.name)
        return original(descriptor, operator, clock, owner)

    def note(store: OperatorStateStore, name: str, *arguments: Any) -> Any:
        if store._owner == OPERATOR:
            names.add(name)
        return register(store, name, *arguments)

    monkeypatch.setattr(Registration, "of", staticmethod(noted))
    monkeypatch.setattr(OperatorStateStore, "_register", note)
    for scenario in SCENARIOS + IN_BATCH_MODE:
        run = OperatorRun(create_operator(scenario.operation()))
        for to in range(scenario.inputs):
            run.push(*((key, number) for number in range(3) for key in KEYS), at=[1] * 9, to=to)
        run.close()
    with JobHarness() as harness:
        history.build(harness)
        history.push_before(harness)
        history.push_after(harness)
    for operation in OPERATIONS:
        operator = create_operator(operation)
        if not isinstance(operation, operations.Source):
            OperatorRun(operator).close()
    assert names == NAMES


class RequestsState(ReduceFunction, ProcessWindowFunction, JoinFunction, KeyedProcessFunction):
    """A function that requests a state in `open`."""

    def __init__(self, descriptor: Any) -> None:
        self.descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.descriptor, str):
            runtime_context.get_operator_state_store().get_list_state(self.descriptor, int)
        elif isinstance(self.descriptor, ListStateDescriptor):
            runtime_context.get_list_state(self.descriptor)
        else:
            runtime_context.get_state(self.descriptor)

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return elements

    def join(self, first: Any, second: Any) -> Any:
        return first

    def process_element(self, value: Any, ctx: Any) -> None: ...


def tumbling(function: RequestsState, fold: Any = None) -> operations.Operation:
    spec = WindowFunctionSpec.process(function) if fold is None else WindowFunctionSpec.aggregate(fold, function)
    return operations.Window(TumblingEventTimeWindows.of(20), spec, EventTimeTrigger.create(), KEY, None, 0)


SHARED = {
    "reduce": lambda: operations.Reduce(KEY, RequestsState(ValueStateDescriptor("reduced"))),
    "window list": lambda: tumbling(RequestsState(ListStateDescriptor("window-contents"))),
    "window accumulator": lambda: tumbling(
        RequestsState(ValueStateDescriptor("window-contents")), FieldAggregate.sum(1)
    ),
    "window clock": lambda: tumbling(RequestsState("window-watermark")),
    "join": lambda: operations.CoProcess(
        EveryPair(RequestsState(ListStateDescriptor("left")), (None, None), None), (KEY, KEY)
    ),
    "process clock": lambda: operations.Process(RequestsState("process-watermark"), KEY),
    "timers": lambda: operations.Process(RequestsState(ValueStateDescriptor("event-time", int)), KEY),
}


@pytest.mark.parametrize("backend", KINDS)
@pytest.mark.parametrize("operation", SHARED)
def test_a_function_that_requests_a_table_of_its_operator_is_refused_by_name(operation: str, backend: str) -> None:
    with pytest.raises(StateNameConflict, match=r"asks for (.|\n)*another name") as refused:
        OperatorRun(create_operator(SHARED[operation]()), backend=backend)
    assert refused.value.operator


def test_a_function_may_use_the_name_of_a_table_of_another_operator() -> None:
    OperatorRun(create_operator(tumbling(RequestsState(ValueStateDescriptor("reduced", int))))).close()
    OperatorRun(create_operator(operations.Process(RequestsState(ListStateDescriptor("window-contents")), KEY))).close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [OPERATOR, FUNCTION])
def test_the_operator_and_the_function_cannot_use_each_others_state(kind: str, first: str, tmp_path: Path) -> None:
    backend = Backends(kind, tmp_path).create()
    backend.get_state(ValueStateDescriptor("a", int), first)
    with pytest.raises(StateNameConflict):
        backend.get_state(ValueStateDescriptor("a", int), FUNCTION if first == OPERATOR else OPERATOR)
    backend.close()
