"""Batches: the units in which records flow between the operators of one stage.

Operators exchange *batches* and never single records. A Python function call costs about as much as the work of most
user functions. One call per batch and operator makes that cost negligible. An operator that works on columns can also
process a whole Arrow record batch without creating Python objects.

A batch has one of two physical forms with the same meaning:

* `RowBatch`: a list of Python values and, if the records have event time, a list of timestamps of the same length.
* `ColumnBatch`: an Arrow record batch and an int64 numpy array of timestamps. An operator that does not work on columns
  calls `rows()` and gets the same records as a `RowBatch`. The conversion is done at most once.

The order inside a batch is the order of arrival. Operators that do not shuffle must keep this order. Timestamps are event time in ms since
the epoch. `None` means that the records have no event time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from penstock.records.fields import Field

_DEEPEST = 4
_MAX_PARTS = 16
_UNKNOWN_BYTES = 64
_PLAIN = frozenset({str, bytes, bytearray, int, float, bool, type(None)})

MIN_TIMESTAMP = -(2**63)
"""Watermark before any event time is known (Flink's Long.MIN_VALUE)."""
MAX_TIMESTAMP = 2**63 - 1
"""The final watermark: no record follows (Flink's Long.MAX_VALUE)."""


class RowBatch:
    """Records as Python objects. `timestamps` has the length of `values`, or is None."""

    __slots__ = ("timestamps", "values")

    def __init__(self, values: list[Any], timestamps: list[int] | None = None) -> None:
        self.values = values
        self.timestamps = timestamps

    def __len__(self) -> int:
        return len(self.values)

    def rows(self) -> RowBatch:
        return self

    def slice(self, begin: int, end: int) -> RowBatch:
        """Return the records from `begin` to `end` (excluded)."""
        timestamps = None if self.timestamps is None else self.timestamps[begin:end]
        return RowBatch(self.values[begin:end], timestamps)

    def approximate_bytes(self) -> int:
        """Return an estimate of the memory of the records, from a sample of three."""
        count = len(self.values)
        if not count:
            return 0
        looked_at = {0, count // 2, count - 1}
        return sum(_approximate_bytes(self.values[n]) for n in looked_at) * count // len(looked_at)

    def __repr__(self) -> str:
        return f"RowBatch({self.values!r}, {self.timestamps!r})"


class ColumnBatch:
    """Records as an Arrow record batch.

    Args:
        columns: one Arrow column per field, all of one length.
        timestamps: int64 array of event times in ms, of the same length, or None.
        make_rows: converts the record batch to the list of Python values that an operator on rows expects (tuples,
            dicts, Rows, dataclasses, according to the stream's type). Must be picklable.
    """

    __slots__ = ("_rows", "columns", "make_rows", "timestamps")

    def __init__(
        self,
        columns: pa.RecordBatch,
        timestamps: npt.NDArray[np.int64] | None,
        make_rows: Callable[[pa.RecordBatch], list[Any]],
    ) -> None:
        self.columns = columns
        self.timestamps = timestamps
        self.make_rows = make_rows
        self._rows: RowBatch | None = None

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return one column. If the columns are not created yet, only this column is created. Raise KeyError if it does not exist."""
        return self.columns.column(name)

    def find(self, field: Field) -> pa.Array | None:
        """Return the column of a field, by name or position, without creating other columns. Return None if the field does not exist."""
        index = self.schema.get_field_index(field) if isinstance(field, str) else field
        return self.column_at(index) if 0 <= index < len(self.schema) else None

    def column_at(self, index: int) -> pa.Array:
        """Return the column at this position without creating other columns."""
        return self.columns.column(index)

    def select(self, indexes: Iterable[int]) -> pa.RecordBatch:
        """Return the columns at these positions without creating other columns. Raise IndexError if a position does not exist."""
        return self.columns.select(list(indexes))

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.columns.schema

    def with_timestamps(self, timestamps: npt.NDArray[np.int64] | None) -> ColumnBatch:
        """Return the same records with other event times."""
        return ColumnBatch(self.columns, timestamps, self.make_rows)

    def slice(self, begin: int, end: int) -> ColumnBatch:
        """Return the records from `begin` to `end` (excluded)."""
        timestamps = None if self.timestamps is None else self.timestamps[begin:end]
        return ColumnBatch(self.columns.slice(begin, end - begin), timestamps, self.make_rows)

    def take(self, positions: npt.NDArray[np.int64]) -> ColumnBatch:
        """Return the records at these positions, in their order."""
        import pyarrow as pa

        timestamps = None if self.timestamps is None else self.timestamps[positions]
        return ColumnBatch(self.columns.take(pa.array(positions)), timestamps, self.make_rows)

    def has_same_columns_as(self, other: ColumnBatch) -> bool:
        """Return whether `joined` accepts the batch: its columns are the same, and both batches have timestamps or neither has."""
        return (
            type(self) is type(other)
            and (self.timestamps is None) == (other.timestamps is None)
            and self.make_rows is other.make_rows
            and self.schema.equals(other.schema, check_metadata=True)
        )

    def joined(self, others: Sequence[ColumnBatch]) -> ColumnBatch:
        """Return these records and those of the other batches, in order. Each of them must satisfy `has_same_columns_as`."""
        import pyarrow as pa

        columns = pa.concat_batches([self.columns, *(other.columns for other in others)])
        return ColumnBatch(columns, joined_timestamps([self, *others]), self.make_rows)

    def travels_as_columns(self, *, wanted: bool) -> bool:
        """Return whether columns are the cheaper form for the transfer to another process. `wanted`: whether a receiver works on columns."""
        return True

    def changed_values(self) -> dict[str, Sequence[Any]]:
        """Return by field the values that functions on rows see, for fields whose columns have other values. This class has no such fields."""
        return {}

    def approximate_bytes(self) -> int:
        """Return the memory of the columns."""
        return int(self.columns.nbytes)

    def rows(self) -> RowBatch:
        if self._rows is None:
            timestamps = None if self.timestamps is None else self.timestamps.tolist()
            self._rows = RowBatch(self.make_rows(self.columns), timestamps)
        return self._rows

    def __repr__(self) -> str:
        return f"ColumnBatch({self.columns.num_rows} rows of {self.columns.schema.names})"


Batch = RowBatch | ColumnBatch


def joined_timestamps(batches: Iterable[ColumnBatch]) -> npt.NDArray[np.int64] | None:
    """Return the timestamps of all batches, or None if the first batch has none."""
    import numpy as np

    times = [batch.timestamps for batch in batches if batch.timestamps is not None]
    return np.concatenate(times) if times else None


def _approximate_bytes(value: Any, depth: int = _DEEPEST) -> int:
    """Return an estimate of the memory of a value and its content. Long collections are estimated from their first items."""
    try:
        size = sys.getsizeof(value)
        if type(value) in _PLAIN:
            return size
        if isinstance(value, (tuple, list, set, frozenset)):
            parts: Any = value
        elif isinstance(value, dict):
            parts = value.values()
        else:
            size += int(getattr(value, "nbytes", 0))
            parts = getattr(value, "__dict__", {}).values()
        looked_at = list(islice(parts, _MAX_PARTS)) if depth else []
        return size + sum(_approximate_bytes(part, depth - 1) for part in looked_at) * len(parts) // max(
            1, len(looked_at)
        )
    except Exception:  # a user's class may return anything
        return _UNKNOWN_BYTES
