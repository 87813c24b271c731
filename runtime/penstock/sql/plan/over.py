"""The OVER aggregate of a compiled plan, and its reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sql.expressions.compiler import literal
from penstock.sql.plan.nodes import AggregateCall, Column, Node, refusal
from penstock.sql.plan.rex import Literal, rex_of
from penstock.sql.plan.source import Reader, Source, calls_of, order_of


@dataclass(frozen=True)
class OverAggregate(Node):
    """The rows with aggregates over the rows before them.

    Args:
        time_index: column of the event time, or None for processing time.
        is_rows: whether the frame counts rows (ROWS) and not a range of time (RANGE).
        preceding: number of rows before the row, or length of the range in ms. None means unbounded.
        constants: values of the columns after the columns of the input. Calls can use them as arguments.
    """

    partition: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    time_index: int | None
    is_rows: bool
    preceding: int | None
    constants: tuple[Any, ...]
    ttl_ms: int


def _over(source: Source, base: dict[str, Any]) -> Node:
    spec, columns = source.raw["overSpec"], source.inputs[0]
    if len(spec["groups"]) != 1:
        raise refusal("OVER aggregates with different windows are not supported", "use one window in each query")
    (group,) = spec["groups"]
    literals = [rex for rex in map(rex_of, spec["constants"]) if isinstance(rex, Literal)]
    constants = tuple(literal(rex.value, rex.type, source.zone) for rex in literals)
    if len(constants) != len(spec["constants"]):
        raise refusal("an OVER window with an expression is not supported", "use constants as bounds and arguments")
    order = order_of(group["orderBy"])
    kind = columns[order[0].index].time if len(order) == 1 and order[0].ascending else ""
    if kind not in ("ROWTIME", "PROCTIME"):
        raise refusal("an OVER window that is not ordered by a time attribute is not supported", "ORDER BY the time")
    if group["upperBound"]["kind"] != "CURRENT_ROW":
        raise refusal("an OVER window that ends after or before its row is not supported", "end it with CURRENT ROW")
    all_columns = columns + tuple(Column(f"$c{i}", rex.type) for i, rex in enumerate(literals))
    return OverAggregate(
        **base,
        partition=tuple(spec["partition"]["fields"]),
        calls=calls_of(group["aggCalls"], all_columns),
        time_index=order[0].index if kind == "ROWTIME" else None,
        is_rows=group["isRows"],
        preceding=_preceding(group["lowerBound"], all_columns, constants),
        constants=constants,
        ttl_ms=source.ttl_ms,
    )


def _preceding(bound: dict[str, Any], columns: tuple[Column, ...], constants: tuple[Any, ...]) -> int | None:
    if bound["kind"] == "UNBOUNDED_PRECEDING":
        return None
    if bound["kind"] == "CURRENT_ROW":
        return 0
    if bound["kind"] != "BOUNDED_WINDOW" or not bound["isPreceding"]:
        raise refusal(f"an OVER window that starts at {bound['kind']} is not supported", "start it with … PRECEDING")
    index = bound["offset"]["inputIndex"]
    if columns[index].type.name == "INTERVAL_MONTHS":
        raise refusal("an OVER window over a range of months is not supported", "write the range in days")
    found: int = constants[index - len(columns)]  # the constants are the last columns
    return found


READERS = {"over-aggregate": Reader(_over)}
