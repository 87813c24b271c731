"""The creation of operators from operations (`penstock.graph.operations`).

Operators are imported when they are created, so that a worker loads only the operators of its job.
"""

from __future__ import annotations

from functools import singledispatch

from penstock.functions.async_io.async_functions import AsyncFunctionDescriptor
from penstock.graph import operations
from penstock.graph.operator import Operator


def create_operator(operation: operations.Operation) -> Operator:
    """Return a new operator, ready for its `setup`.

    Raises:
        NotImplementedError: no operator exists for operations of this class.
    """
    operator = operator_of(operation)
    operator.key_type = operation.key_type
    return operator


@singledispatch
def operator_of(operation: operations.Operation) -> Operator:
    raise NotImplementedError(f"no operator exists for {type(operation).__qualname__}")


@operator_of.register(operations.InBatchMode)
def _(operation: operations.InBatchMode) -> Operator:
    from penstock.taskmanager.operators.batch_mode.batch_mode_operator import BatchModeOperator
    from penstock.taskmanager.operators.batch_mode.broadcast_first import BroadcastFirstOperator
    from penstock.taskmanager.operators.batch_mode.by_key import SortedKeyOperator

    inner = create_operator(operation.inner)
    if not operation.is_keyed:
        return BroadcastFirstOperator(inner)
    if operation.takes_columns:  # operators on columns do not need the records in order
        return BatchModeOperator(inner)
    return SortedKeyOperator(inner, operation.element_types)


@operator_of.register(operations.Source)
def _(operation: operations.Source) -> Operator:
    from penstock.taskmanager.operators.connectors.source import SourceOperator

    return SourceOperator(operation.source, operation.strategy)


@operator_of.register(operations.Sink)
def _(operation: operations.Sink) -> Operator:
    from penstock.taskmanager.operators.connectors.sink import SinkOperator

    return SinkOperator(operation.sink)


@operator_of.register(operations.Map)
def _(operation: operations.Map) -> Operator:
    from penstock.taskmanager.operators.simple import MapOperator

    return MapOperator(operation.function, operation.key_selector)


@operator_of.register(operations.FlatMap)
def _(operation: operations.FlatMap) -> Operator:
    from penstock.taskmanager.operators.simple import FlatMapOperator

    return FlatMapOperator(operation.function, operation.key_selector)


@operator_of.register(operations.Filter)
def _(operation: operations.Filter) -> Operator:
    from penstock.taskmanager.operators.simple import FilterOperator

    return FilterOperator(operation.function, operation.key_selector)


@operator_of.register(operations.MapBatches)
def _(operation: operations.MapBatches) -> Operator:
    from penstock.taskmanager.operators.simple import MapBatchesOperator

    return MapBatchesOperator(operation.function)


@operator_of.register(operations.Gather)
def _(operation: operations.Gather) -> Operator:
    from penstock.taskmanager.operators.gather import GatherOperator

    return GatherOperator(operation.size, operation.timeout_ms, operation.element_type)


@operator_of.register(operations.Project)
def _(operation: operations.Project) -> Operator:
    from penstock.taskmanager.operators.simple import ProjectOperator

    return ProjectOperator(operation.indexes)


@operator_of.register(operations.Select)
def _(operation: operations.Select) -> Operator:
    from penstock.taskmanager.operators.select import SelectOperator

    return SelectOperator(operation.columns, keeps=operation.keeps)


@operator_of.register(operations.TimestampsAndWatermarks)
def _(operation: operations.TimestampsAndWatermarks) -> Operator:
    from penstock.taskmanager.operators.event_time.watermarks import TimestampsAndWatermarksOperator

    return TimestampsAndWatermarksOperator(operation.strategy)


@operator_of.register(operations.Process)
def _(operation: operations.Process) -> Operator:
    from penstock.taskmanager.operators.process import KeyedProcessOperator, ProcessOperator

    if operation.key_selector is None:
        return ProcessOperator(operation.function)
    return KeyedProcessOperator(operation.function, operation.key_selector)


@operator_of.register(operations.AsyncWait)
def _(operation: operations.AsyncWait) -> Operator:
    from penstock.taskmanager.operators.async_io.async_wait import AsyncWaitOperator

    descriptor = AsyncFunctionDescriptor(
        operation.function,
        operation.timeout_ms,
        operation.capacity,
        operation.retry_strategy,
        operation.output_mode,
    )
    return AsyncWaitOperator(descriptor, operation.declared, operation.element_type)


@operator_of.register(operations.Reduce)
def _(operation: operations.Reduce) -> Operator:
    from penstock.taskmanager.operators.aggregate.reduce import ReduceOperator

    return ReduceOperator(operation.function, operation.key_selector, operation.element_type)


@operator_of.register(operations.RollingAggregate)
def _(operation: operations.RollingAggregate) -> Operator:
    from penstock.taskmanager.operators.aggregate.reduce import RollingAggregateOperator

    return RollingAggregateOperator(operation.kind, operation.field, operation.key_selector, operation.element_type)


@operator_of.register(operations.RollingFields)
def _(operation: operations.RollingFields) -> Operator:
    from penstock.taskmanager.operators.aggregate.rolling import RollingFieldsOperator

    return RollingFieldsOperator(operation.aggregate, operation.key_selector)


@operator_of.register(operations.Window)
def _(operation: operations.Window) -> Operator:
    from penstock.taskmanager.operators.window.operator import WindowOperator

    return WindowOperator(
        operation.assigner,
        operation.function,
        key_selector=operation.key_selector,
        trigger=operation.trigger,
        evictor=operation.evictor,
        allowed_lateness=operation.allowed_lateness_ms,
        late_tag=operation.late_tag,
    )


@operator_of.register(operations.CoMap)
def _(operation: operations.CoMap) -> Operator:
    from penstock.taskmanager.operators.two_inputs.co import CoMapOperator

    return CoMapOperator(operation.function, *operation.selectors)


@operator_of.register(operations.CoFlatMap)
def _(operation: operations.CoFlatMap) -> Operator:
    from penstock.taskmanager.operators.two_inputs.co import CoFlatMapOperator

    return CoFlatMapOperator(operation.function, *operation.selectors)


@operator_of.register(operations.CoProcess)
def _(operation: operations.CoProcess) -> Operator:
    from penstock.taskmanager.operators.two_inputs.co import CoProcessOperator

    return CoProcessOperator(operation.function, *operation.selectors)


@operator_of.register(operations.IntervalJoin)
def _(operation: operations.IntervalJoin) -> Operator:
    from penstock.taskmanager.operators.two_inputs.interval_join import IntervalJoinOperator

    left, right = operation.selectors
    return IntervalJoinOperator(
        operation.function,
        (left, right),
        lower_ms=operation.lower_ms,
        upper_ms=operation.upper_ms,
        element_types=operation.element_types,
        late_tags=operation.late_tags,
    )


@operator_of.register(operations.BroadcastProcess)
def _(operation: operations.BroadcastProcess) -> Operator:
    from penstock.taskmanager.operators.two_inputs.broadcast import (
        BroadcastProcessOperator,
        KeyedBroadcastProcessOperator,
    )

    if operation.key_selector is None:
        return BroadcastProcessOperator(operation.function, operation.descriptors)
    return KeyedBroadcastProcessOperator(operation.function, operation.descriptors, operation.key_selector)
