"""Column syntax: conditions, new fields and aggregates by field names, evaluated on whole Arrow columns.

    from penstock.datastream.columns import col, count, mean

    warm = readings.filter(col("celsius") > 20)
    warm.key_by("station").agg(mean("celsius"), count())
    warm.key_by("station").window(daily).agg(mean("celsius"))
    warm.select("station", fahrenheit=col("celsius") * 9 / 5 + 32)

Sources of columns (Parquet, CSV, DataFrames) pass columns up to the aggregate, and no Python record is created. Records of any
other kind work too: their fields are converted to columns in batches. Combine conditions with `&`, `|` and `~`, and put each
comparison in parentheses: `(col("celsius") > 20) & col("station").isin(["KJFK"])`. `col` returns an expression of
`pyarrow.compute`, which has all methods of such an expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from penstock.records.fields import Field

__all__ = ["col", "count", "lit", "max", "mean", "min", "sum"]


class Expression(Protocol):
    """Type of a `pyarrow.compute.Expression`. Even without stubs for pyarrow, a type checker can distinguish this type from a function."""

    def cast(self, type: Any = None) -> Any: ...

    def is_null(self, nan_is_null: bool = False) -> Any: ...

    def isin(self, values: Any) -> Any: ...


def col(name: str) -> pc.Expression:
    """Return an expression for a field of the records. Tuples have the fields `f0`, `f1`, …, and plain values have the field `value`.

    >>> col("celsius") > 20
    <pyarrow.compute.Expression (celsius > 20)>
    """
    import pyarrow.compute as pc

    return pc.field(name)


def lit(value: Any) -> pc.Expression:
    """Return an expression with the same value for every record."""
    import pyarrow.compute as pc

    return pc.scalar(value)


def count(field: Field | None = None) -> FieldAggregate:
    """Return an aggregate that counts the records. If a field is given, it counts only the records in which the field is not None."""
    return FieldAggregate.count(field)


def mean(field: Field) -> FieldAggregate:
    """Return an aggregate with the arithmetic mean of a field. It skips None. See `FieldAggregate` for NaN, large integers and Decimals."""
    return FieldAggregate.mean(field)


def sum(field: Field) -> FieldAggregate:
    """Return an aggregate with the sum of a field. It skips None. Integers are exact at any size. Floats are added in order of arrival."""
    return FieldAggregate.sum(field)


def min(field: Field) -> FieldAggregate:
    """Return an aggregate with the smallest value of a field. It skips None. NaN is greater than every other number, and -0.0 is less
    than 0.0.
    """
    return FieldAggregate.min(field)


def max(field: Field) -> FieldAggregate:
    """Return an aggregate with the greatest value of a field. It skips None. The result is NaN if any value is NaN."""
    return FieldAggregate.max(field)
