"""GROUP BY without windows: a result for each key, which each row updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.aggregates import Aggregates
from penstock.sql.operators.rows import (
    DELETE,
    INSERT,
    RETRACTIONS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Change,
)
from penstock.sql.plan.nodes import GroupAggregate
from penstock.state.descriptors import ValueStateDescriptor


class GroupAggregateFunction(KeyedProcessFunction):
    """The changes of the results of each key, as in Flink.

    The state of a key is the number of its rows and the accumulators. A key without rows has no state.
    """

    def __init__(self, node: GroupAggregate, *, changelog: bool) -> None:
        self._node = node
        self._changelog = changelog
        self._aggregates = Aggregates(node.calls, retracts=changelog)

    def open(self, runtime_context: RuntimeContext) -> None:
        ttl = self._node.ttl_ms or None
        self._aggregates.open(runtime_context)
        self._state = runtime_context.get_state(ValueStateDescriptor("groupAggregateState", ttl=ttl))

    def close(self) -> None:
        self._aggregates.close()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Change]:
        kind, row = value if self._changelog else (INSERT, value)
        aggregates, state = self._aggregates, self._state.value()
        is_retraction = kind in RETRACTIONS
        is_first = state is None
        if state is None:
            if is_retraction:
                return
            state = [0, aggregates.create()]
        count, accumulators = state
        key = tuple([row[index] for index in self._node.grouping])
        before = () if is_first else aggregates.results(accumulators)
        if is_retraction:
            aggregates.retract(accumulators, row)
        else:
            aggregates.add(accumulators, row)
        count += -1 if is_retraction else 1
        if count <= 0:
            self._state.clear()
            if not is_first:
                yield DELETE, key + before
            return
        after = aggregates.results(accumulators)
        self._state.update([count, accumulators])
        if is_first:
            yield INSERT, key + after
        elif before != after or self._node.ttl_ms:
            if self._node.generate_update_before:
                yield UPDATE_BEFORE, key + before
            yield UPDATE_AFTER, key + after
