"""Every operation a program can record has an operator."""

from __future__ import annotations

import pickle
from operator import itemgetter
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.collection import CollectionSource
from penstock.connectors.simple.print import PrintSink
from penstock.datastream import AsyncFunction, BroadcastProcessFunction, CoFlatMapFunction, CoMapFunction
from penstock.datastream.columns import col
from penstock.datastream.functions import CoProcessFunction
from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.functions.async_io.async_retry_strategies import AsyncRetryStrategy
from penstock.graph import operations
from penstock.graph.operations import Operation
from penstock.state.descriptors import MapStateDescriptor
from penstock.taskmanager.operators.factory import create_operator
from penstock.windowing.aggregates import FieldAggregate
from penstock.windowing.time_windows import TumblingEventTimeWindows
from penstock.windowing.trigger import EventTimeTrigger
from penstock.windowing.window_function import WindowFunctionSpec

KEY = itemgetter(0)


class Asks(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


class Both(CoMapFunction, CoFlatMapFunction, CoProcessFunction, BroadcastProcessFunction):
    def map1(self, value: Any) -> Any: ...
    def map2(self, value: Any) -> Any: ...
    def flat_map1(self, value: Any) -> Any: ...
    def flat_map2(self, value: Any) -> Any: ...
    def process_element1(self, value: Any, ctx: Any) -> Any: ...
    def process_element2(self, value: Any, ctx: Any) -> Any: ...
    def process_element(self, value: Any, ctx: Any) -> Any: ...
    def process_broadcast_element(self, value: Any, ctx: Any) -> Any: ...


WINDOWS = TumblingEventTimeWindows.of(10)
OPERATIONS: list[Operation] = [
    operations.Source(CollectionSource([1]), None),
    operations.Sink(PrintSink("")),
    operations.Map(str),
    operations.Map(str, KEY),
    operations.FlatMap(str.split),
    operations.Filter(bool),
    operations.MapBatches(max),
    operations.Process(max),
    operations.Process(max, KEY),
    operations.AsyncWait(
        Asks(),
        timeout_ms=1000,
        capacity=1,
        retry_strategy=AsyncRetryStrategy.no_restart(),
        output_mode=AsyncFunctionDescriptor.OutputMode.ORDERED,
    ),
    operations.Gather(2, 1000),
    operations.Project((0, 2)),
    operations.Select((("twice", col("n") * 2),), keeps=True),
    operations.TimestampsAndWatermarks(WatermarkStrategy.for_monotonous_timestamps()),
    operations.Reduce(KEY, max),
    operations.RollingAggregate(KEY, "max_by", 1),
    operations.RollingFields(KEY, FieldAggregate.count()),
    operations.Window(WINDOWS, WindowFunctionSpec.reduce(max), EventTimeTrigger.create(), KEY),
    operations.Window(WINDOWS, WindowFunctionSpec.reduce(max), EventTimeTrigger.create()),
    operations.CoMap(Both()),
    operations.CoMap((str, str), (KEY, KEY)),
    operations.CoFlatMap(Both()),
    operations.CoProcess(Both(), (KEY, KEY)),
    operations.IntervalJoin(max, (KEY, KEY), lower_ms=-5, upper_ms=5),
    operations.BroadcastProcess(Both(), None, (MapStateDescriptor("rules"),)),
    operations.BroadcastProcess(Both(), KEY, (MapStateDescriptor("rules"),)),
    operations.InBatchMode(operations.BroadcastProcess(Both(), None, (MapStateDescriptor("rules"),))),
    operations.InBatchMode(operations.BroadcastProcess(Both(), KEY, (MapStateDescriptor("rules"),))),
    operations.InBatchMode(operations.RollingFields(KEY, FieldAggregate.count())),
]


def kinds(base: type[Operation]) -> set[type[Operation]]:
    """Return the subclasses of a base that have no subclasses."""
    below = base.__subclasses__()
    return {base} if not below else set().union(*map(kinds, below))


def name_of(operation: Operation) -> str:
    return f"{type(operation).__name__}{'-keyed' * operation.is_keyed}"


def test_every_kind_of_operation_is_tested() -> None:
    assert {type(operation) for operation in OPERATIONS} == kinds(Operation)


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_an_operation_has_an_operator_that_knows_its_keys(operation: Operation) -> None:
    operator = create_operator(operation)
    assert (operator.is_keyed, operator.key_selectors) == (operation.is_keyed, operation.key_selectors)


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_an_operation_can_be_pickled(operation: Operation) -> None:
    arrived = pickle.loads(pickle.dumps(operation))
    assert (type(arrived), vars(arrived).keys()) == (type(operation), vars(operation).keys())


def test_every_operator_is_a_new_one() -> None:
    operation = operations.Map(str)
    assert create_operator(operation) is not create_operator(operation)


def test_an_operation_without_operator_is_refused_by_name() -> None:
    with pytest.raises(NotImplementedError, match="no operator exists for Operation"):
        create_operator(Operation())
