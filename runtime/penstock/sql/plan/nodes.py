"""Nodes of a compiled plan, in the order of their execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.sql.plan.rex import Rex, rex_of
from penstock.sql.plan.types import SqlType
from penstock.sql.plan.user_functions import UserFunction


@dataclass(frozen=True)
class Column:
    """A column of a table. `time`: `ROWTIME` or `PROCTIME` if the column is a time attribute."""

    name: str
    type: SqlType
    time: str = ""


@dataclass(frozen=True)
class TableInfo:
    """A table of the catalog, with its physical columns and its options."""

    name: str
    columns: tuple[Column, ...]
    options: dict[str, str]
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A node of the plan. `inputs`: ids of the nodes that it reads."""

    id: int
    inputs: tuple[int, ...]
    output: tuple[Column, ...]
    description: str


@dataclass(frozen=True)
class Scan(Node):
    table: TableInfo


@dataclass(frozen=True)
class Values(Node):
    rows: tuple[tuple[Rex, ...], ...]


@dataclass(frozen=True)
class WatermarkAssigner(Node):
    expression: Rex
    rowtime: int


@dataclass(frozen=True)
class Calc(Node):
    projection: tuple[Rex, ...]
    condition: Rex | None


@dataclass(frozen=True)
class Correlate(Node):
    """A join of each row with the rows of a table function. `condition` refers to the columns of the function."""

    call: Rex
    condition: Rex | None
    is_left: bool
    left_columns: int


@dataclass(frozen=True)
class Exchange(Node):
    """A hash exchange by `keys`. Without keys, one subtask receives all rows."""

    keys: tuple[int, ...]


@dataclass(frozen=True)
class Union(Node):
    pass


@dataclass(frozen=True)
class AggregateCall:
    """A call such as `SUM(DISTINCT x) FILTER (WHERE y)`. `filter`: index of the boolean column, or -1."""

    function: str
    arguments: tuple[int, ...]
    argument_types: tuple[SqlType, ...]
    filter: int
    distinct: bool
    type: SqlType
    user: UserFunction | None = None
    """The function of the program, if the aggregate is one."""


@dataclass(frozen=True)
class GroupAggregate(Node):
    grouping: tuple[int, ...]
    calls: tuple[AggregateCall, ...]
    generate_update_before: bool
    ttl_ms: int


@dataclass(frozen=True)
class SortField:
    """A column of ORDER BY."""

    index: int
    ascending: bool
    nulls_last: bool


@dataclass(frozen=True)
class Rank(Node):
    """The rows of each partition with the row numbers `first` to `last`."""

    partition: tuple[int, ...]
    order: tuple[SortField, ...]
    first: int
    last: int
    output_row_number: bool
    generate_update_before: bool
    ttl_ms: int
    unique_key: tuple[int, ...] = ()
    """Columns whose new row replaces the former row. Empty if former rows are retracted, or never change."""


@dataclass(frozen=True)
class Deduplicate(Node):
    keys: tuple[int, ...]
    rowtime: int | None
    keep_last: bool
    insert_only: bool
    generate_update_before: bool
    ttl_ms: int


@dataclass(frozen=True)
class Sink(Node):
    """The end of a stream in a table.

    Args:
        materializes: whether rows with several keys of the query can have the same primary key, so that the sink must keep them all.
        upsert_key: key of the query, or empty if it has none.
    """

    table: TableInfo
    materializes: bool = False
    upsert_key: tuple[int, ...] = ()
    ttl_ms: int = 0


@dataclass(frozen=True)
class Plan:
    """A plan with its nodes in the order of execution: every node follows its inputs."""

    nodes: tuple[Node, ...]
    flink_version: str
    identities: tuple[str, ...]
    """Identity of each node (see `identity_of`)."""

    def describe(self) -> str:
        """Return the descriptions of the nodes as text: each node above its inputs, with the sinks first."""
        nodes = {node.id: node for node in self.nodes}
        lines: list[str] = []
        shown: set[int] = set()

        def add(node: Node, depth: int) -> None:
            text = node.description or type(node).__name__
            if node.id in shown:
                lines.append(f"{'  ' * depth}(see above) {text}")
                return
            shown.add(node.id)
            lines.append(f"{'  ' * depth}{text}")
            for upstream in node.inputs:
                add(nodes[upstream], depth + 1)

        for node in self.nodes:
            if isinstance(node, Sink):
                add(node, 0)
        return "\n".join(lines) + "\n"


def refusal(what: str, remedy: str) -> InvalidJob:
    return InvalidJob(f"SQL: {what}", remedy=remedy)


def expression(node: dict[str, Any] | None) -> Rex | None:
    return None if node is None else rex_of(node)
