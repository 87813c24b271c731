"""The connectors `print` and `blackhole`."""

from __future__ import annotations

from typing import Any

from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.sql.operators.rows import INSERT
from penstock.sql.plan.nodes import Column
from penstock.sql.tables.values import printed

KINDS = ("+I", "-U", "+U", "-D")


class RowText:
    """A function from a row or change to its text, as Flink prints it.

    >>> from penstock.sql.plan.types import SqlType
    >>> RowText((Column("a", SqlType("INTEGER")), Column("b", SqlType("DOUBLE"))), changelog=True)((2, (1, None)))
    '+U[1, null]'
    """

    def __init__(self, columns: tuple[Column, ...], *, changelog: bool) -> None:
        self._columns = columns
        self._changelog = changelog
        self._texts = [printed(column.type) for column in columns]

    def __getstate__(self) -> dict[str, Any]:
        return {"_columns": self._columns, "_changelog": self._changelog}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._texts = [printed(column.type) for column in self._columns]

    def __call__(self, value: Any) -> str:
        kind, row = value if self._changelog else (INSERT, value)
        texts = ["null" if field is None else text(field) for text, field in zip(self._texts, row, strict=True)]
        return f"{KINDS[kind]}[{', '.join(texts)}]"


class DiscardingSink(Sink):
    """A sink that discards its records."""

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return _Discarding()


class _Discarding(SinkWriter):
    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        """Do nothing."""
