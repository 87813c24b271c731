"""Rolling aggregates of fields: for every record the key and the aggregates up to it.

Where `reduce` and the rolling `sum`, `min`, `max` give records back, this gives `(key, *aggregates)`, several of them in
one pass, and takes columns as columns: records are sorted by key within the batch, aggregated by running over each key's
stretch, and put back into their order. The hashmap backend keeps the accumulators as columns then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob
from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.records.columns import rows_as_tuples
from penstock.records.fields import field_of
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.encoding.packed_keys import PackedKeys
from penstock.taskmanager.operators.aggregate.rolling_columns import KeyStretches, running_aggregates
from penstock.taskmanager.operators.aggregate.stat_columns import (
    NotInColumns,
    StatShape,
    as_stats,
    is_integer,
    stats_of,
)
from penstock.taskmanager.operators.tables import Table, borrow
from penstock.taskmanager.operators.user_code import FunctionOperator, select_keys
from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


class RollingFieldsOperator(FunctionOperator):
    """Emits `(key, *aggregates)` for every record, with its timestamp.

    Args:
        aggregate: what to aggregate; each key keeps one accumulator, for ever (A24).
    """

    def __init__(self, aggregate: FieldAggregate, key_selector: Callable[[Any], Any]) -> None:
        if not isinstance(aggregate, FieldAggregate):
            raise InvalidJob(f"a rolling aggregate takes a FieldAggregate, not {aggregate!r}")
        super().__init__(aggregate, key_selector)

    def open(self) -> None:
        super().open()
        assert self.context.keyed_state is not None
        self._table = Table(self.context.keyed_state, ValueStateDescriptor("rolling"))
        self._key_field = field_of(self.key_selectors[0])

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        if isinstance(batch, ColumnBatch) and self._key_field is not None:
            stretches = KeyStretches.of(batch, self._key_field, self.fn)
            if stretches is not None and self._process_columns(batch, stretches):
                return
        rows = batch.rows()
        values = rows.values
        selector = self.key_selectors[0]
        assert selector is not None
        keys = select_keys(self.context, selector, values)
        aggregate: FieldAggregate = self.fn
        fresh, step, results = aggregate.create_accumulator(), aggregate.stepper(), aggregate.results
        table = borrow(self.context, self._table, keys, values)
        get = table.get
        out: list[Any] = []
        append = out.append
        iterator = iter(values)
        try:
            for _, key, value in zip(iterator, keys, aggregate.prepare(values), strict=True):
                accumulator = table[key] = step(value, get(key, fresh))
                append((key, *results(accumulator)))
        except Exception as error:
            self.fail(error, values, iterator)
        with self.context.named_in_errors():
            self._table.give_back(table, keys)
        self.output.emit(RowBatch(out, rows.timestamps))

    def _process_columns(self, batch: ColumnBatch, stretches: KeyStretches) -> bool:
        """False: the numbers have become too large for columns, and nothing was done."""
        try:
            columns = self._in_columns(stretches)
            if columns is None:
                columns = self._in_objects(stretches)
        except NotInColumns:
            return False
        self.output.emit(ColumnBatch(columns, batch.timestamps, rows_as_tuples))
        return True

    def _in_columns(self, stretches: KeyStretches) -> pa.RecordBatch | None:
        """None: the state is not, or these keys cannot be."""
        keys = PackedKeys.of_column(stretches.keys)
        if keys is None:
            return None
        shape = StatShape.of(self.fn, stretches.inputs)
        kept = self._table.columns(shape, len(keys))
        places = None if kept is None else kept.find(keys)
        if kept is None or places is None:
            return None
        columns, ends = running_aggregates(stretches, shape.split(kept.read(places)))
        kept.write(places, shape.joined(ends))
        return columns

    def _in_objects(self, stretches: KeyStretches) -> pa.RecordBatch:
        keys, aggregate = stretches.keys.to_pylist(), self.fn
        table = self._table.borrow(keys)
        get, fresh = table.get, aggregate.create_accumulator()
        before = [get(key, fresh) for key in keys]
        is_single = len(aggregate.fields) == 1
        by_field: list[Any] = [before] if is_single else list(zip(*before, strict=True))
        starts = [
            stats_of(stats, need, integers=is_integer(column))
            for stats, need, column in zip(by_field, aggregate.needs, stretches.inputs, strict=True)
        ]
        columns, ends = running_aggregates(stretches, starts)
        after: list[Any] = [as_stats(stats, old) for stats, old in zip(ends, by_field, strict=True)]
        table.update(zip(keys, after[0] if is_single else zip(*after, strict=True), strict=True))
        self._table.give_back(table, keys)
        return columns
