"""The aggregate calls of a node: their functions by name, and their accumulators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.datastream.functions import RuntimeContext
from penstock.sql.operators.aggregate_functions import (
    Accumulator,
    Aggregate,
    ArrayAggregate,
    Average,
    Collect,
    Count,
    Distinct,
    First,
    Lag,
    Last,
    ListAggregate,
    Maximum,
    Minimum,
    RetractableFirst,
    RetractableLast,
    RetractableListAggregate,
    RetractableMaximum,
    RetractableMinimum,
    SquaredDistances,
    Sum,
    SumOrZero,
    UserAggregate,
)
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import AggregateCall

FUNCTIONS: dict[str, type[Aggregate]] = {
    "ARRAY_AGG": ArrayAggregate,
    "COLLECT": Collect,
    "LISTAGG": ListAggregate,
    "WELFORD_M2": SquaredDistances,
    "COUNT": Count,
    "SUM": Sum,
    "SUM0": SumOrZero,
    "AVG": Average,
    "MIN": Minimum,
    "MAX": Maximum,
    "FIRST_VALUE": First,
    "LAST_VALUE": Last,
    "LAG": Lag,
    "ROW_NUMBER": Count,
}
"""Aggregates by Flink's names."""
SEVERAL = ("LISTAGG",)
"""Aggregates with several arguments."""
_RETRACTABLE: dict[str, type[Aggregate]] = {
    "LISTAGG": RetractableListAggregate,
    "MIN": RetractableMinimum,
    "MAX": RetractableMaximum,
    "FIRST_VALUE": RetractableFirst,
    "LAST_VALUE": RetractableLast,
}


def _aggregate(call: AggregateCall, *, retracts: bool) -> Aggregate:
    found = FUNCTIONS.get(call.function) if call.user is None else None
    if found is not None and retracts:
        found = _RETRACTABLE.get(call.function, found)
    aggregate = UserAggregate(call) if call.user is not None else found(call.type) if found is not None else None
    if aggregate is None or (retracts and not aggregate.can_retract):
        over = " over a table with updates" if aggregate is not None else ""
        raise InvalidJob(
            f"SQL: Penstock does not support the aggregate {call.function}{over}",
            remedy="define its method retract()" if call.user else f"use one of {', '.join(sorted(FUNCTIONS))}",
        )
    if len(call.arguments) > 1 and call.function not in SEVERAL and not aggregate.is_wide:
        raise InvalidJob(
            f"SQL: Penstock does not support {call.function} with {len(call.arguments)} arguments",
            remedy="use one argument, for example a concatenation of the columns",
        )
    if call.distinct and any(type.contains("MAP", "MULTISET") for type in call.argument_types):
        raise InvalidJob(
            f"SQL: Penstock does not support {call.function}(DISTINCT …) of the type {call.argument_types[0]}",
            remedy="CAST the argument to STRING",
        )
    if not call.distinct:
        return aggregate
    of_floats = bool(call.argument_types) and call.argument_types[0].name in ("DOUBLE", "FLOAT")
    found_distinct = Distinct(aggregate, of_floats=of_floats)
    found_distinct.is_wide = aggregate.is_wide
    return found_distinct


class Aggregates:
    """The aggregate calls of a node, over the rows of one key.

    Args:
        retracts: whether rows can be retracted.

    Raises:
        InvalidJob: Penstock does not have an aggregate, or it cannot retract rows.
    """

    def __init__(self, calls: tuple[AggregateCall, ...], *, retracts: bool) -> None:
        self.user_functions = [call.user for call in calls if call.user is not None]
        self._named = calls
        self._calls: list[tuple[Aggregate, _Argument, int]] = []
        for call in calls:
            aggregate = _aggregate(call, retracts=retracts)
            self._calls.append((aggregate, _Argument(call.arguments, aggregate.is_wide), call.filter))

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the functions of the program."""
        for function in self.user_functions:
            function.open(runtime_context)

    def close(self) -> None:
        for function in self.user_functions:
            function.close()

    def check_merge(self) -> None:
        """Check that accumulators can be merged.

        Raises:
            InvalidJob: a function cannot merge.
        """
        for (aggregate, _, _), call in zip(self._calls, self._named, strict=True):
            if not aggregate.can_merge:
                raise InvalidJob(
                    f"SQL: Penstock does not support the aggregate {call.function} over sessions",
                    remedy="use another aggregate, or TUMBLE windows",
                )

    def merge(self, accumulators: list[Accumulator], others: list[Accumulator]) -> None:
        """Add the values of other accumulators to the first ones."""
        for (aggregate, _, _), accumulator, other in zip(self._calls, accumulators, others, strict=True):
            aggregate.merge(accumulator, other)

    def create(self) -> list[Accumulator]:
        return [call[0].create() for call in self._calls]

    def add(self, accumulators: list[Accumulator], row: SqlRow) -> None:
        for (aggregate, argument_of, filter), accumulator in zip(self._calls, accumulators, strict=True):
            if filter < 0 or row[filter] is True:
                value = argument_of(row)
                if aggregate.takes_null or value is not None:
                    aggregate.add(accumulator, value)

    def retract(self, accumulators: list[Accumulator], row: SqlRow) -> None:
        for (aggregate, argument_of, filter), accumulator in zip(self._calls, accumulators, strict=True):
            if filter < 0 or row[filter] is True:
                value = argument_of(row)
                if aggregate.takes_null or value is not None:
                    aggregate.retract(accumulator, value)

    def results(self, accumulators: list[Accumulator]) -> SqlRow:
        return tuple([call[0].result(found) for call, found in zip(self._calls, accumulators, strict=True)])


@dataclass(frozen=True)
class _Argument:
    """The argument of a call. Several arguments are a tuple."""

    columns: tuple[int, ...]
    is_wide: bool

    def __call__(self, row: SqlRow) -> Any:
        columns = self.columns
        if len(columns) == 1 and not self.is_wide:
            return row[columns[0]]
        return tuple([row[column] for column in columns]) if columns or self.is_wide else 1
