"""`select` and `with_columns`: fields by expressions of pyarrow.compute, on whole columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.graph.operator import Operator
from penstock.records.batch import ColumnBatch
from penstock.records.columns import ColumnsOf, rows_as_dicts
from penstock.taskmanager.operators.user_code import raise_user_error

if TYPE_CHECKING:
    from penstock.records.batch import Batch


class SelectOperator(Operator):
    """Makes records of the fields that the expressions give; as rows they are dicts.

    Args:
        columns: name and expression of each field.
        keeps: whether the fields that the records had come first; one of the same name is replaced.
    """

    def __init__(self, columns: tuple[tuple[str, Any], ...], *, keeps: bool) -> None:
        self._columns = columns
        self._keeps = keeps
        self._columns_of = ColumnsOf()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

        if not len(batch):
            return
        columns = batch.columns if isinstance(batch, ColumnBatch) else self._columns_of(batch.values)
        chosen = {name: pc.field(name) for name in columns.schema.names} if self._keeps else {}
        chosen.update(self._columns)
        source = Declaration("table_source", TableSourceNodeOptions(pa.Table.from_batches([columns])))
        project = Declaration("project", ProjectNodeOptions(list(chosen.values()), list(chosen)))
        try:
            table = Declaration.from_sequence([source, project]).to_table(use_threads=False)
        except (pa.ArrowException, TypeError) as error:
            raise_user_error(
                self.context,
                error,
                f"select {', '.join(chosen)} of the columns {', '.join(columns.schema.names)}",
                "name columns of the stream, and use what pyarrow.compute can do with their types",
            )
        (result,) = table.combine_chunks().to_batches()
        times = None if batch.timestamps is None else np.asarray(batch.timestamps, np.int64)
        self.output.emit(ColumnBatch(result, times, rows_as_dicts))
