"""The base of OVER aggregates: the accumulators of a key, and the result of a row."""

from __future__ import annotations

from typing import Any

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.sql.operators.aggregates import Aggregates
from penstock.sql.operators.retention import Retention
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.over import OverAggregate
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor


class OverFunction(KeyedProcessFunction):
    """An aggregate over the rows of a key. The rows that a later row can still need are in state by their time."""

    def __init__(self, node: OverAggregate) -> None:
        self._node = node
        self._aggregates = Aggregates(node.calls, retracts=node.preceding is not None)
        self._retention = Retention(node.ttl_ms)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._aggregates.open(runtime_context)
        self._accumulators = runtime_context.get_state(ValueStateDescriptor("accState"))
        self._rows = runtime_context.get_map_state(MapStateDescriptor("inputState"))
        self._retention.open(runtime_context)
        self._late = runtime_context.get_metrics_group().counter("numLateRecordsDropped")

    def close(self) -> None:
        self._aggregates.close()

    def _time(self, row: SqlRow) -> int:
        assert self._node.time_index is not None
        micros: int | None = row[self._node.time_index]
        if micros is None:
            raise ValueError("the event time of an OVER window is NULL. Filter the rows, or give them a time")
        return micros // 1000

    def _current(self) -> list[Any]:
        found: list[Any] | None = self._accumulators.value()
        return self._aggregates.create() if found is None else found

    def _add(self, accumulators: list[Any], row: SqlRow) -> None:
        self._aggregates.add(accumulators, row + self._node.constants)

    def _retract(self, accumulators: list[Any], row: SqlRow) -> None:
        self._aggregates.retract(accumulators, row + self._node.constants)

    def _result(self, accumulators: list[Any], row: SqlRow) -> SqlRow:
        return row + self._aggregates.results(accumulators)

    def _append(self, time: int, row: SqlRow) -> bool:
        """Keep a row. Return whether it is the first row with this time."""
        rows = self._rows.get(time)
        self._rows.put(time, [*rows, row] if rows else [row])
        return not rows
