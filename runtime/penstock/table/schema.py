"""`Schema` and `TableDescriptor`: the columns and options of a table. They become the statement CREATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock.common.errors import InvalidJob
from penstock.table.expression import Expression, as_expression
from penstock.table.types import quoted, sql_type


class SchemaColumn(NamedTuple):
    """A column. `kind`: `physical`, `computed` or `metadata`. `text`: its type, or the expression that computes it."""

    name: str
    kind: str
    text: str
    metadata_key: str | None = None
    is_virtual: bool = False

    @property
    def sql(self) -> str:
        if self.kind == "computed":
            return f"{quoted(self.name)} AS {self.text}"
        if self.kind == "physical":
            return f"{quoted(self.name)} {self.text}"
        key = "" if self.metadata_key is None else f" FROM {_text(self.metadata_key)}"
        return f"{quoted(self.name)} {self.text} METADATA{key}{' VIRTUAL' if self.is_virtual else ''}"


def _text(value: str) -> str:
    return as_expression(value).sql


def _expression(value: Any) -> str:
    """Return the text of an expression. A Python text is already SQL."""
    return value.sql if isinstance(value, Expression) else str(value)


@dataclass(frozen=True)
class Schema:
    """The columns, watermark and primary key of a table. `Schema.new_builder()` creates one."""

    columns: tuple[SchemaColumn, ...] = ()
    watermarks: tuple[tuple[str, str], ...] = ()
    keys: tuple[str, ...] = ()

    @staticmethod
    def new_builder() -> Schema.Builder:
        return Schema.Builder()

    def clauses(self) -> str:
        """Return the text between the brackets of CREATE TABLE.

        >>> Schema.new_builder().column("a", "INT NOT NULL").primary_key("a").build().clauses()
        '`a` INT NOT NULL, PRIMARY KEY (`a`) NOT ENFORCED'
        """
        parts = [column.sql for column in self.columns]
        parts += [f"WATERMARK FOR {quoted(name)} AS {text}" for name, text in self.watermarks]
        if self.keys:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, self.keys))}) NOT ENFORCED")
        return ", ".join(parts)

    class Builder:
        """Builder of a schema."""

        def __init__(self) -> None:
            self._schema = Schema()

        def _add(self, column: SchemaColumn) -> Schema.Builder:
            self._schema = replace(self._schema, columns=(*self._schema.columns, column))
            return self

        def column(self, column_name: str, data_type: Any) -> Schema.Builder:
            return self._add(SchemaColumn(column_name, "physical", sql_type(data_type)))

        def column_by_expression(self, column_name: str, expr: Any) -> Schema.Builder:
            return self._add(SchemaColumn(column_name, "computed", _expression(expr)))

        def column_by_metadata(
            self, column_name: str, data_type: Any, metadata_key: str | None = None, is_virtual: bool = False
        ) -> Schema.Builder:
            return self._add(SchemaColumn(column_name, "metadata", sql_type(data_type), metadata_key, is_virtual))

        def from_fields(self, field_names: list[str], field_data_types: list[Any]) -> Schema.Builder:
            for name, type in zip(field_names, field_data_types, strict=True):
                self.column(name, type)
            return self

        def from_row_data_type(self, data_type: Any) -> Schema.Builder:
            return self.from_fields(list(data_type.get_field_names()), list(data_type.get_field_types()))

        def from_schema(self, origin_schema: Schema) -> Schema.Builder:
            found = self._schema
            self._schema = Schema(
                found.columns + origin_schema.columns,
                found.watermarks + origin_schema.watermarks,
                found.keys or origin_schema.keys,
            )
            return self

        def watermark(self, column_name: str, watermark_expr: Any) -> Schema.Builder:
            found = (column_name, _expression(watermark_expr))
            self._schema = replace(self._schema, watermarks=(*self._schema.watermarks, found))
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            self._schema = replace(self._schema, keys=column_names)
            return self

        def build(self) -> Schema:
            return self._schema


@dataclass(frozen=True)
class TableDescriptor:
    """A table: its schema and the options of its connector. `TableDescriptor.for_connector(name)` creates a builder."""

    schema: Schema
    options: dict[str, str] = field(default_factory=dict)
    comment: str = ""

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        return TableDescriptor.Builder({"connector": connector})

    def create(self, path: str, *, is_temporary: bool, ignore_if_exists: bool = False) -> str:
        """Return the statement that creates the table."""
        options = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in self.options.items())
        temporary = "TEMPORARY " if is_temporary else ""
        exists = "IF NOT EXISTS " if ignore_if_exists else ""
        comment = f" COMMENT {_text(self.comment)}" if self.comment else ""
        return f"CREATE {temporary}TABLE {exists}{path} ({self.schema.clauses()}){comment} WITH ({options})"

    class Builder:
        """Builder of a table."""

        def __init__(self, options: dict[str, str]) -> None:
            self._options = options
            self._schema: Schema | None = None
            self._comment = ""

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            self._schema = schema
            return self

        def option(self, key: str, value: Any) -> TableDescriptor.Builder:
            self._options[str(key)] = str(value).lower() if isinstance(value, bool) else str(value)
            return self

        def format(self, format: str) -> TableDescriptor.Builder:
            return self.option("format", format)

        def comment(self, comment: str) -> TableDescriptor.Builder:
            self._comment = comment
            return self

        def build(self) -> TableDescriptor:
            if self._schema is None:
                raise InvalidJob("SQL: the table has no schema", remedy="call schema(Schema.new_builder()….build())")
            return TableDescriptor(self._schema, dict(self._options), self._comment)
