"""Batches: what flows between the operators of one stage.

A record never travels alone inside a stage. Operators hand each other *batches*, because a Python function call
costs about as much as the work most user functions do; one call per batch and operator makes that cost vanish, and
it lets an operator that understands columns work on a whole Arrow record batch without touching a Python object.

Two physical forms, one meaning:

* `RowBatch`: a list of Python values and, if the records have event time, a list of timestamps of the same length.
* `ColumnBatch`: an Arrow record batch and an int64 numpy array of timestamps. An operator that does not know columns
  calls `rows()` and gets the same records as a `RowBatch`; the conversion is done at most once.

Order inside a batch is the order of arrival and must be kept by operators that do not shuffle.
Timestamps are event time in ms since the epoch (`flink-features` T3); `None` means the records carry none.
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
_MOST_PARTS = 16
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
        """The records from `begin` to `end` (excluded)."""
        timestamps = None if self.timestamps is None else self.timestamps[begin:end]
        return RowBatch(self.values[begin:end], timestamps)

    def approximate_bytes(self) -> int:
        """What the records take in memory, by the look of three of them."""
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
        make_rows: turns the record batch into the list of Python values an operator on rows expects (tuples, dicts,
            Rows, dataclasses: whatever the stream's type says). Must be picklable.
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
        """One column; a batch whose columns are not made yet makes this one only. Raises KeyError."""
        return self.columns.column(name)

    def find(self, field: Field) -> pa.Array | None:
        """The column of a field, by name or position, and no other; None if there is none."""
        index = self.schema.get_field_index(field) if isinstance(field, str) else field
        return self.column_at(index) if 0 <= index < len(self.schema) else None

    def column_at(self, index: int) -> pa.Array:
        """The column at this position, and no other."""
        return self.columns.column(index)

    def select(self, indexes: Iterable[int]) -> pa.RecordBatch:
        """The columns at these positions, and no others. Raises IndexError."""
        return self.columns.select(list(indexes))

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self.columns.schema

    def with_timestamps(self, timestamps: npt.NDArray[np.int64] | None) -> ColumnBatch:
        """The same records with other event times."""
        return ColumnBatch(self.columns, timestamps, self.make_rows)

    def slice(self, begin: int, end: int) -> ColumnBatch:
        """The records from `begin` to `end` (excluded)."""
        timestamps = None if self.timestamps is None else self.timestamps[begin:end]
        return ColumnBatch(self.columns.slice(begin, end - begin), timestamps, self.make_rows)

    def take(self, positions: npt.NDArray[np.int64]) -> ColumnBatch:
        """The records at these positions, in their order."""
        import pyarrow as pa

        timestamps = None if self.timestamps is None else self.timestamps[positions]
        return ColumnBatch(self.columns.take(pa.array(positions)), timestamps, self.make_rows)

    def goes_with(self, other: ColumnBatch) -> bool:
        """Whether `joined` takes it: the same columns, and times in both or in none."""
        return (
            type(self) is type(other)
            and (self.timestamps is None) == (other.timestamps is None)
            and self.make_rows is other.make_rows
            and self.schema.equals(other.schema, check_metadata=True)
        )

    def joined(self, others: Sequence[ColumnBatch]) -> ColumnBatch:
        """These records and those of others that go with them, in order."""
        import pyarrow as pa

        columns = pa.concat_batches([self.columns, *(other.columns for other in others)])
        return ColumnBatch(columns, joined_timestamps([self, *others]), self.make_rows)

    def goes_as_columns(self, *, wanted: bool) -> bool:
        """Whether columns are the cheaper form to send to another process; `wanted`: somebody there takes columns."""
        return True

    def approximate_bytes(self) -> int:
        """What the columns take in memory."""
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
    """Of all, if the first has some."""
    import numpy as np

    times = [batch.timestamps for batch in batches if batch.timestamps is not None]
    return np.concatenate(times) if times else None


def _approximate_bytes(value: Any, depth: int = _DEEPEST) -> int:
    """Of one value and what it holds; of long collections by the look of their first parts."""
    try:
        own = sys.getsizeof(value)
        if type(value) in _PLAIN:
            return own
        if isinstance(value, (tuple, list, set, frozenset)):
            parts: Any = value
        elif isinstance(value, dict):
            parts = value.values()
        else:
            own += int(getattr(value, "nbytes", 0))
            parts = getattr(value, "__dict__", {}).values()
        looked_at = list(islice(parts, _MOST_PARTS)) if depth else []
        return own + sum(_approximate_bytes(part, depth - 1) for part in looked_at) * len(parts) // max(
            1, len(looked_at)
        )
    except Exception:  # a class of the user's may answer anything
        return _UNKNOWN_BYTES
