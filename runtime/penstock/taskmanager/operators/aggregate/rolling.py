"""Rolling aggregates of fields: for every record its key and the aggregates up to the record.

`reduce` and the rolling `sum`, `min` and `max` return records. This operator returns `(key, *aggregates)`, several
aggregates in one pass.

It processes columns as columns. It sorts the records of a batch by key, aggregates along the stretch of each key, and
restores the order. In this case, the hashmap backend keeps the accumulators as columns.
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
from penstock.taskmanager.operators.aggregate.stat_columns import NotColumnar, StatShape
from penstock.taskmanager.operators.migration import migrate_accumulators
from penstock.taskmanager.operators.tables import Table, borrow
from penstock.taskmanager.operators.user_code import FunctionOperator, select_keys
from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


class RollingFieldsOperator(FunctionOperator):
    """The operator that emits `(key, *aggregates)` for every record, with the timestamp of the record.

    Args:
        aggregate: the fields and their aggregates. The operator keeps one accumulator per key and never removes it.
    """

    def __init__(self, aggregate: FieldAggregate, key_selector: Callable[[Any], Any]) -> None:
        if not isinstance(aggregate, FieldAggregate):
            raise InvalidJob(f"a rolling aggregate needs a FieldAggregate, not {aggregate!r}")
        super().__init__(aggregate, key_selector)

    def open(self) -> None:
        super().open()
        assert self.context.keyed_state is not None
        self._table = Table(self.context.keyed_state, ValueStateDescriptor("rolling"))
        former = self.context.restored_meaning.get("aggregates")
        if former is not None:
            migrate_accumulators(self.context.keyed_state, ValueStateDescriptor("rolling"), former, self.fn)
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
            self._table.write_back(table, keys)
        self.output.emit(RowBatch(out, rows.timestamps))

    def _process_columns(self, batch: ColumnBatch, stretches: KeyStretches) -> bool:
        """Return False, without any change, if the numbers are too large for columns."""
        try:
            columns = self._process_as_columns(stretches)
            if columns is None:
                columns = self._process_as_objects(stretches)
        except NotColumnar:
            return False
        self.output.emit(ColumnBatch(columns, batch.timestamps, rows_as_tuples))
        return True

    def _process_as_columns(self, stretches: KeyStretches) -> pa.RecordBatch | None:
        """Return the results, or None if the backend or these keys do not support columns."""
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

    def _process_as_objects(self, stretches: KeyStretches) -> pa.RecordBatch:
        keys, shape = stretches.keys.to_pylist(), StatShape.of(self.fn, stretches.inputs)
        table = self._table.borrow(keys)
        get, fresh = table.get, self.fn.create_accumulator()
        columns, ends = running_aggregates(stretches, shape.by_field([get(key, fresh) for key in keys]))
        table.update(zip(keys, shape.accumulators_of(ends), strict=True))
        self._table.write_back(table, keys)
        return columns
