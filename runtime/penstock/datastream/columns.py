"""Column syntax: conditions, new fields and aggregates by the names of fields, carried out on whole Arrow columns.

    from penstock.datastream.columns import col, count, mean

    warm = readings.filter(col("celsius") > 20)
    warm.key_by("station").agg(mean("celsius"), count())
    warm.key_by("station").window(daily).agg(mean("celsius"))
    warm.select("station", fahrenheit=col("celsius") * 9 / 5 + 32)

What comes as columns (Parquet, CSV, DataFrames) stays columns from the source to the aggregate; no record is made. Records of any
kind do as well: their fields are read into columns, batch by batch. `&`, `|` and `~` connect conditions, in brackets:
`(col("celsius") > 20) & col("station").isin(["KJFK"])`; `col` gives an expression of `pyarrow.compute`, with all that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from penstock.records.fields import Field

__all__ = ["col", "count", "lit", "max", "mean", "min", "sum"]


class Expression(Protocol):
    """A `pyarrow.compute.Expression`, told from a function by a type checker without pyarrow's types, too."""

    def cast(self, type: Any = None) -> Any: ...

    def is_null(self, nan_is_null: bool = False) -> Any: ...

    def isin(self, values: Any) -> Any: ...


def col(name: str) -> pc.Expression:
    """A field of the records: `f0`, `f1`, … of tuples, `value` of plain values.

    >>> col("celsius") > 20
    <pyarrow.compute.Expression (celsius > 20)>
    """
    import pyarrow.compute as pc

    return pc.field(name)


def lit(value: Any) -> pc.Expression:
    """The same value for every record."""
    import pyarrow.compute as pc

    return pc.scalar(value)


def count(field: Field | None = None) -> FieldAggregate:
    """The number of records; of those whose field is not None, if one is given."""
    return FieldAggregate.count(field)


def mean(field: Field) -> FieldAggregate:
    """The arithmetic mean of a field, without None."""
    return FieldAggregate.mean(field)


def sum(field: Field) -> FieldAggregate:
    """The sum of a field, without None."""
    return FieldAggregate.sum(field)


def min(field: Field) -> FieldAggregate:
    """The least value of a field, without None."""
    return FieldAggregate.min(field)


def max(field: Field) -> FieldAggregate:
    """The greatest value of a field, without None."""
    return FieldAggregate.max(field)
