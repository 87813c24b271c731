"""Several field aggregates at once: their results and result types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.common.program.user_location import refusal
from penstock.common.type_info.type_inference import inferred
from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, Types
from penstock.functions.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from penstock.windowing.aggregates import FieldAggregate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.common.typeinfo import TypeInformation
    from penstock.records.fields import Field


class KeyAndAggregates(ProcessWindowFunction[Any, Any, Any, Any]):
    """Window function that adds the key to the result of aggregates: `(key, *aggregates)`.

    Args:
        several: whether the result contains several aggregates. A single aggregate is not unpacked, even if its value is a tuple.
    """

    def __init__(self, *, several: bool) -> None:
        self._several = several

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> list[tuple[Any, ...]]:
        return [(key, *(result if self._several else (result,))) for result in elements]


class OnlyAggregates(ProcessAllWindowFunction[Any, Any, Any]):
    """Window function that returns the aggregates without a key. The result is a tuple even for one aggregate."""

    def __init__(self, *, several: bool) -> None:
        self._several = several

    def process(self, context: Any, elements: Iterable[Any]) -> list[tuple[Any, ...]]:
        return [result if self._several else (result,) for result in elements]


def all_of(aggregates: tuple[FieldAggregate, ...]) -> FieldAggregate:
    for aggregate in aggregates:
        if not isinstance(aggregate, FieldAggregate):
            raise refusal(
                f"agg takes aggregates of fields, got {aggregate!r}",
                'for example mean("celsius") or count() of penstock.datastream.columns',
            )
    if not aggregates:
        raise refusal("agg without an aggregate", 'for example agg(mean("celsius"))')
    return FieldAggregate.of(*aggregates)


def aggregated_type(
    key: TypeInformation | None, record: TypeInformation | None, aggregate: FieldAggregate
) -> TypeInformation | None:
    """Return the type of `(key, *aggregates)`, or None if a part of it is unknown."""
    parts = [key, *(_part_type(kind, field, record) for kind, field in aggregate.parts)]
    known = [part for part in parts if part is not None]
    return inferred(TupleTypeInfo(known)) if len(known) == len(parts) else None


def _part_type(kind: str, field: Field | None, record: TypeInformation | None) -> TypeInformation | None:
    if kind == "count":
        return Types.LONG()
    if kind == "mean":
        return Types.DOUBLE()
    if not isinstance(record, TupleTypeInfo | RowTypeInfo) or field is None:
        return None
    types = record.get_field_types()
    if isinstance(field, str):
        names = record.get_field_names() if isinstance(record, RowTypeInfo) else []
        return types[names.index(field)] if field in names else None
    return types[field] if field < len(types) else None
