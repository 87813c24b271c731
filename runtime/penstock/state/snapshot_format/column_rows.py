"""Rows of accumulators that are frozen as columns. An encoder converts them to Python objects, one block at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from penstock.state.key_groups import column_key_groups
from penstock.state.snapshot_format.rows import PUT, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.packed_keys import PackedKeys

    Column = npt.NDArray[Any]


class AccumulatorShape(Protocol):
    """The conversion between accumulators and columns of numbers. Shapes are compared with `==`."""

    @property
    def is_flat(self) -> bool:
        """Return whether an accumulator is a flat tuple of numbers."""
        ...

    @property
    def fresh(self) -> Sequence[float]:
        """Return the value of each column for a new key: an int for a column of int64, a float for one of float64."""
        ...

    def columns(self, accumulators: Sequence[Any]) -> list[Column] | None:
        """Return the columns; None if an accumulator would not be restored equal and with the same types."""
        ...

    def accumulators(self, columns: Sequence[Column]) -> list[Any]: ...


@dataclass(frozen=True)
class ColumnRows:
    """The `rows.FrozenRows` of a PUT in the namespace None."""

    op: ClassVar[int] = PUT
    counts: ClassVar[list[int] | None] = None

    keys: PackedKeys
    shape: AccumulatorShape
    columns: list[Column]
    groups: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def sorted_by_group(self, max_parallelism: int) -> ColumnRows:
        if self.groups is not None:
            return self
        groups = column_key_groups(self.keys.to_column(), max_parallelism)
        order = np.argsort(groups.astype(np.uint16), kind="stable")
        columns = [column[order] for column in self.columns]
        return ColumnRows(self.keys.take(order), self.shape, columns, groups[order])

    def slice(self, start: int, stop: int) -> ColumnRows:
        cut = slice(start, stop)
        groups = None if self.groups is None else self.groups[cut]
        return ColumnRows(self.keys[cut], self.shape, [column[cut] for column in self.columns], groups)

    def objects(self, codec: Codec) -> Rows:
        values = self.shape.accumulators(self.columns)
        frozen = values if self.shape.is_flat else codec.freeze(values)
        return Rows(PUT, self.keys.to_list(), values=frozen, groups=self.groups)
