"""Record-wise operators: map, flat_map, filter, project, and functions on whole Arrow batches.

On a keyed stream, map, flat_map and filter take a key selector if their function uses keyed state. These operators then
set the current key for each record.
"""

from __future__ import annotations

import logging
from itertools import compress, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.common.errors import InvalidJob, UserFunctionError
from penstock.common.types import Row
from penstock.graph.operations import Filter
from penstock.graph.operator import Operator
from penstock.records.batch import Batch, ColumnBatch, RowBatch
from penstock.records.columns import ColumnsOf, rows_as_dicts, rows_as_rows, rows_as_tuples
from penstock.records.fields import shortened
from penstock.records.kinds import wide
from penstock.taskmanager.operators.event_time.timestamps import column_times
from penstock.taskmanager.operators.user_code import FunctionOperator, function_name, raise_user_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

logger = logging.getLogger(__name__)

TIMESTAMP_COLUMN = "_timestamp"
"""Name of the column of event times (int64, ms) that functions on Arrow batches get in addition to the fields."""
_POSITION_COLUMN = "_position"


class MapOperator(FunctionOperator):
    """The operator that emits one result for each record, with the timestamp of the record."""

    method = "map"

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        rows = batch.rows()
        values = rows.values
        iterator = iter(values)
        try:
            out = list(map(self._call, self.records(values, iterator)))
        except Exception as error:
            self.fail(error, values, iterator)
        self.output.emit(RowBatch(out, rows.timestamps))


class FilterOperator(FunctionOperator):
    """The operator that keeps the records for which the function is true.

    The function may also be a `pyarrow.compute.Expression` over the fields. Columns then remain columns.
    """

    method = "filter"

    def __init__(self, fn: Any, key_selector: Callable[[Any], Any] | None = None) -> None:
        self._is_expression = Filter(fn).is_expression
        if self._is_expression:
            self.fn = fn
            self._columns_of = ColumnsOf(keeps_records=True)
        else:
            super().__init__(fn, key_selector)

    def open(self) -> None:
        if not self._is_expression:
            super().open()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if self._is_expression:
            self._filter_by_expression(batch)
            return
        rows = batch.rows()
        values = rows.values
        iterator = iter(values)
        try:
            keep = list(map(self._call, self.records(values, iterator)))
        except Exception as error:
            self.fail(error, values, iterator)
        try:
            kept = values if all(keep) else list(compress(values, keep))
        except Exception as error:
            self._refuse_answer(error, keep, values)
        if len(kept) == len(values):
            self.output.emit(batch)
        elif kept:
            timestamps = rows.timestamps
            self.output.emit(RowBatch(kept, None if timestamps is None else list(compress(timestamps, keep))))

    def _refuse_answer(self, error: Exception, answers: list[Any], values: list[Any]) -> NoReturn:
        """Raise an error that names the first answer without a truth value, such as an array. The search runs only after a
        failure."""
        for answer, value in zip(answers, values, strict=True):
            try:
                bool(answer)
            except Exception as doubt:
                problem = f"{function_name(self.fn)} returned {shortened(answer)} for {shortened(value)}, and bool() of the result"
                raise_user_error(
                    self.context,
                    doubt,
                    problem,
                    "return True or False. For an array, return array.any() or array.all()",
                )
        raise_user_error(self.context, error, f"{function_name(self.fn)} on a batch of {len(values)} records")

    def _filter_by_expression(self, batch: Batch) -> None:
        if not len(batch):
            return
        if (
            isinstance(batch, ColumnBatch)
            and not batch.travels_as_columns(wanted=True)
            and not batch.changed_values()
            and self._filter_by_plain_columns(batch)
        ):
            return
        for part, columns in self._columns_of.parts(batch):
            self._filter_columns(part, columns)

    def _filter_columns(self, batch: Batch, columns: pa.RecordBatch) -> None:
        """Filter the records. `columns` are the columns of the batch, which may have wider types."""
        import numpy as np
        import pyarrow as pa

        try:
            kept = columns.append_column(_POSITION_COLUMN, pa.array(np.arange(len(batch)))).filter(self.fn)
        except (pa.ArrowException, TypeError) as error:
            raise_user_error(self.context, error, f"filter {self.fn} on the columns {', '.join(columns.schema.names)}")
        if kept.num_rows == len(batch):
            self.output.emit(batch)
        elif kept.num_rows:
            at = kept.column(kept.num_columns - 1).to_numpy()
            self.output.emit(_at(batch, kept.remove_column(kept.num_columns - 1), at))

    def _filter_by_plain_columns(self, batch: ColumnBatch) -> bool:
        """Filter without nested columns, which are expensive to make. Return False if the expression needs them."""
        import numpy as np
        import pyarrow as pa

        plain = [index for index, field in enumerate(batch.schema) if not pa.types.is_nested(field.type)]
        positions = pa.array(np.arange(len(batch)))
        try:
            kept = wide(batch.select(plain)).append_column(_POSITION_COLUMN, positions).filter(self.fn)
        except (pa.ArrowException, TypeError):
            return False
        if kept.num_rows == len(batch):
            self.output.emit(batch)
        elif kept.num_rows:
            self.output.emit(batch.take(kept.column(kept.num_columns - 1).to_numpy()))
        return True


class FlatMapOperator(FunctionOperator):
    """The operator that emits zero or more results for each record.

    The function returns or yields any iterable, or None.
    """

    method = "flat_map"
    _is_first_batch = True
    _has_warned = False

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if self._is_first_batch:
            self._is_first_batch = False
            flat_map(self, self._warn_of_split_tuple, batch.rows(), input_index)
        else:
            flat_map(self, self._call, batch.rows(), input_index)

    def _warn_of_split_tuple(self, value: Any) -> Any:
        """Call the function. Warn if it returns a tuple of different types, which is probably meant as one record."""
        result = self._call(value)
        if result.__class__ is tuple and not self._has_warned and len({field.__class__ for field in result}) > 1:
            self._has_warned = True
            logger.warning(
                "%s at %s returned the tuple %s, and flat_map emits each of its fields as a record. To emit one record, use map, or "
                "return [the tuple]",
                function_name(self.fn),
                self.context.user_location,
                shortened(result),
            )
        return result


def flat_map(operator: FunctionOperator, call: Callable[[Any], Any], rows: RowBatch, input_index: int) -> None:
    """Emit the values that `call` returns or yields for every record, each with the timestamp of the record."""
    values, timestamps = rows.values, rows.timestamps
    iterator = iter(values)
    records = operator.records(values, iterator, input_index)
    out: list[Any] = []
    extend = out.extend
    stamps: list[int] = []
    stamp = stamps.extend
    try:
        if timestamps is None:
            for result in map(call, records):
                if result is not None:
                    extend(result)
        else:
            size = 0
            for value, timestamp in zip(records, timestamps, strict=False):
                result = call(value)
                if result is not None:
                    extend(result)
                    grown = len(out)
                    stamp(repeat(timestamp, grown - size))
                    size = grown
    except Exception as error:
        operator.fail(error, values, iterator, input_index)
    if out:
        operator.output.emit(RowBatch(out, None if timestamps is None else stamps))


class ProjectOperator(Operator):
    """The operator that keeps the fields at these positions of tuples, Rows, dicts or columns.

    Args:
        indexes: positions of the fields, in the order of the result.
    """

    def __init__(self, indexes: Iterable[int]) -> None:
        self._indexes = tuple(indexes)
        if not self._indexes:
            raise InvalidJob("project needs at least one field", remedy="pass the positions of the fields to keep")

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        by_columns = isinstance(batch, ColumnBatch) and batch.make_rows in (rows_as_tuples, rows_as_rows, rows_as_dicts)
        if isinstance(batch, ColumnBatch) and by_columns and batch.travels_as_columns(wanted=True):
            try:
                columns = batch.select(self._indexes)
            except IndexError as error:
                raise_user_error(self.context, error, f"project {self._indexes} of {batch!r}")
            self.output.emit(ColumnBatch(columns, batch.timestamps, batch.make_rows))
            return
        rows = batch.rows()
        values = rows.values
        get: Callable[[Any], Any] = itemgetter(*self._indexes)
        try:
            if values and isinstance(values[0], dict):
                names = get(list(values[0])) if len(self._indexes) > 1 else (list(values[0])[self._indexes[0]],)
                self.output.emit(RowBatch([{name: row[name] for name in names} for row in values], rows.timestamps))
                return
            out = list(map(get, values)) if len(self._indexes) > 1 else list(zip(map(get, values), strict=True))
            if values and isinstance(values[0], Row):
                out = [self._row(row, fields) for row, fields in zip(values, out, strict=True)]
        except (TypeError, KeyError, IndexError) as error:
            raise_user_error(self.context, error, f"project {self._indexes} of records like {shortened(values[0])}")
        self.output.emit(RowBatch(out, rows.timestamps))

    def _row(self, row: Row, fields: tuple[Any, ...]) -> Row:
        names = row.get_field_names()
        projected = Row.of(fields, None if names is None else [names[index] for index in self._indexes])
        projected.set_row_kind(row.get_row_kind())
        return projected


class MapBatchesOperator(FunctionOperator):
    """A function from Arrow record batch to Arrow record batch. It may drop, add and reorder records.

    If the records have event times, the function gets them as the int64 column `_timestamp` (ms). If the result has
    this column, the column sets the times of the records. Otherwise, the number of records must be the same, and each
    record keeps its time.

    The types of columns made of Python records do not depend on the boundaries of batches (`ColumnsOf`). If the type of
    a field changes within a batch, the function is called separately for the records after the change.

    Args:
        fn: `pa.RecordBatch -> pa.RecordBatch`. It may also return a `pa.Table`, or None for no records.
        make_rows: makes Python records of the result, for operators that do not support columns. The default makes
            dicts.
    """

    method = "map_batches"

    def __init__(
        self,
        fn: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | None],
        make_rows: Callable[[pa.RecordBatch], list[Any]] = rows_as_dicts,
    ) -> None:
        super().__init__(fn)
        self._make_rows = make_rows
        self._columns_of = ColumnsOf()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        for part, columns in self._columns_of.parts(batch):
            self._map_columns(part, columns)

    def _map_columns(self, batch: Batch, columns: pa.RecordBatch) -> None:
        """Call the function on the columns of these records and emit its result."""
        import pyarrow as pa

        if batch.timestamps is not None:
            columns = columns.append_column(TIMESTAMP_COLUMN, pa.array(batch.timestamps, pa.int64()))
        try:
            result = self._call(columns)
        except Exception as error:
            raise_user_error(
                self.context,
                error,
                f"{function_name(self.fn)} on a batch of {len(batch)} records with the columns {', '.join(columns.schema.names)}",
            )
        for part in result.to_batches() if isinstance(result, pa.Table) else (result,):
            if part is not None and part.num_rows:
                self.output.emit(self._with_timestamps(wide(part), batch))

    def _with_timestamps(self, result: pa.RecordBatch, batch: Batch) -> ColumnBatch:
        import numpy as np

        if batch.timestamps is None:
            return ColumnBatch(result, None, self._make_rows)
        position = result.schema.get_field_index(TIMESTAMP_COLUMN)
        if position >= 0:
            with self.context.named_in_errors():
                timestamps = column_times(ColumnBatch(result, None, self._make_rows), TIMESTAMP_COLUMN)
            return ColumnBatch(result.remove_column(position), timestamps, self._make_rows)
        if result.num_rows == len(batch):
            return ColumnBatch(result, np.asarray(batch.timestamps, np.int64), self._make_rows)
        raise UserFunctionError(
            f"{function_name(self.fn)} returned {result.num_rows} records for {len(batch)} and dropped their event times",
            remedy=f"keep the column {TIMESTAMP_COLUMN!r} in the result",
            operator=self.context.name,
            location=self.context.user_location,
        )


def _at(batch: Batch, columns: pa.RecordBatch, positions: npt.NDArray[np.int64]) -> Batch:
    """Return the records at these positions, in the form and with the types of the batch. `columns`: columns of these records."""
    if isinstance(batch, ColumnBatch):
        if not batch.travels_as_columns(wanted=True) or columns.schema != batch.schema:
            return batch.take(positions)
        timestamps = None if batch.timestamps is None else batch.timestamps[positions]
        return ColumnBatch(columns, timestamps, batch.make_rows)
    values, stamps, at = batch.values, batch.timestamps, positions.tolist()
    return RowBatch([values[i] for i in at], None if stamps is None else [stamps[i] for i in at])
