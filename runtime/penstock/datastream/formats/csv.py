"""CSV: rows in messages, and lines of files.

For files, use `CsvReaderFormat.for_schema` in a FileSource, and `CsvEncoder` or `CsvBulkWriters` in a FileSink. `CsvFormat` takes
any declaration of fields and returns records of any form. For messages, use the schemas with PyFlink's names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob
from penstock.common.program.one_time_warning import warn_no_effect
from penstock.common.serialization import SerializationSchema
from penstock.common.type_info.type_inference import to_type_info
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.connectors.formats.arrow_types import arrow_type
from penstock.connectors.formats.bulk import CsvWriterFactory
from penstock.connectors.formats.csv import CsvDialect, CsvFormat
from penstock.connectors.formats.encode import CsvEncoder
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, MalformedBlock
from penstock.datastream.formats.row_messages import RowMessages

__all__ = [
    "CsvBulkWriters",
    "CsvDialect",
    "CsvEncoder",
    "CsvFormat",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]


class CsvSchema:
    """Columns of CSV and their separators. `CsvSchema.builder()` returns its builder."""

    def __init__(self, row_type: RowTypeInfo, dialect: CsvDialect, *, has_header: bool = False) -> None:
        self.row_type = row_type
        self.dialect = dialect
        self.has_header = has_header
        """Whether the first line is a header. Readers skip it, and writers write it."""

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.row_type.get_field_names())

    def __len__(self) -> int:
        return self.size()

    def __repr__(self) -> str:
        return f"CsvSchema({', '.join(self.row_type.get_field_names())})"


class CsvSchemaBuilder:
    """PyFlink's builder of a `CsvSchema`.

    >>> schema = CsvSchema.builder().add_string_column("id").add_number_column("celsius", Types.DOUBLE()).build()
    >>> schema.size()
    2
    """

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._dialect = CsvDialect()
        self._has_header = False

    def build(self) -> CsvSchema:
        """Return the schema.

        Raises:
            InvalidJob: there are no columns.
        """
        if not self._columns:
            raise InvalidJob("a CSV schema needs at least one column", remedy="add columns before build()")
        row_type = RowTypeInfo(list(self._columns.values()), list(self._columns))
        return CsvSchema(row_type, self._dialect, has_header=self._has_header)

    def add_array_column(self, name: str, separator: str = ";", element_type: Any = None) -> CsvSchemaBuilder:
        """Add a column that contains a list. `separator` separates its elements, which are str by default."""
        self._add(name, Types.LIST(_type(element_type, Types.STRING())))
        return self._change(array_separators={**self._dialect.array_separators, name: separator})

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any = None) -> CsvSchemaBuilder:
        """Add a column of numbers. `number_type` is a type such as `Types.DOUBLE()` or `float`. Default: LONG."""
        return self._add(name, _type(number_type, Types.LONG()))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        return self._add(name, Types.STRING())

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        row_type = schema.row_type
        for name, kind in zip(row_type.get_field_names(), row_type.get_field_types(), strict=True):
            self._add(name, kind)
        return self._change(array_separators={**self._dialect.array_separators, **schema.dialect.array_separators})

    def clear_columns(self) -> CsvSchemaBuilder:
        self._columns.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        return self._change(allow_comments=allow)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        warn_no_effect(
            "set_any_property_name",
            "with a header, columns that the schema does not have are ignored; without a header, they are an error",
        )
        return self

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Do not split the array column at this position. Its lists have one element, which is the whole value."""
        return self._change(array_separators={**self._dialect.array_separators, list(self._columns)[index]: ""})

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator of all array columns that were added before."""
        return self._change(array_separators=dict.fromkeys(self._dialect.array_separators, separator))

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        return self._change(delimiter=char)

    def disable_escape_char(self) -> CsvSchemaBuilder:
        return self._change(escape=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        return self._change(escape=char)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        r"""Check the line separator. Readers accept both `\n` and `\r\n`, and writers write `\n`.

        Raises:
            InvalidJob: the separator is neither `\n` nor `\r\n`.
        """
        if separator not in ("\n", "\r\n"):
            raise InvalidJob(f"the line separator {separator!r} is not supported", remedy=r"use '\n' or '\r\n'")
        if separator != "\n":
            warn_no_effect("set_line_separator", r"readers take \n and \r\n, writers write \n")
        return self

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        return self._change(null_value=null_value)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        return self._change(quote=None)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        return self._change(quote=char)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        return self._change(header="skip" if skip else "none")

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Require that the header contains the columns of the schema in their order."""
        if strict:
            return self._change(header="strict")
        return self._change(header="skip") if self._dialect.header == "strict" else self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Treat the first line as a header.

        Columns are matched by position, as in PyFlink. `CsvFormat` with `header="names"` matches them by name.
        """
        self._has_header = use
        if use:
            return self if self._dialect.header == "strict" else self._change(header="skip")
        return self._change(header="none")

    def size(self) -> int:
        return len(self._columns)

    def _add(self, name: str, kind: TypeInformation) -> CsvSchemaBuilder:
        self._columns[name] = kind
        return self

    def _change(self, **changes: Any) -> CsvSchemaBuilder:
        self._dialect = replace(self._dialect, **changes)
        return self


def _type(declared: Any, default: TypeInformation) -> TypeInformation:
    return to_type_info(declared) or default


class CsvReaderFormat(CsvFormat):
    """Reader format that converts the columns of a CsvSchema to Rows."""

    @staticmethod
    def for_schema(schema: CsvSchema, *, on_error: str = "fail", error_tag: Any = MALFORMED_RECORDS) -> CsvReaderFormat:
        """Return the reader format of a schema.

        Args:
            on_error: "fail", or "side-output" to send malformed lines to `error_tag`.
        """
        return CsvReaderFormat(schema.row_type, schema.dialect, on_error=on_error, error_tag=error_tag)


class CsvBulkWriters:
    """Factory of CSV writers for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvWriterFactory:
        dialect = schema.dialect
        if dialect.header == "skip":
            dialect = replace(dialect, header="names" if schema.has_header else "none")
        row_type = schema.row_type
        return CsvWriterFactory(row_type, with_separators(row_type, dialect), row_type.get_field_types())


class CsvRowDeserializationSchema(RowMessages):
    """Deserialization schema that converts CSV lines to Rows.

    >>> row_type = Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.LONG()])
    >>> CsvRowDeserializationSchema.Builder(row_type).set_field_delimiter(";").build().deserialize(b"a;1")
    Row(id='a', n=1)
    """

    def __init__(self, row_type: RowTypeInfo, dialect: CsvDialect, *, ignore_parse_errors: bool = False) -> None:
        decode = CsvFormat(row_type, dialect).decoder(b"")
        super().__init__("CSV", row_type, decode, ignore_parse_errors=ignore_parse_errors)
        self._dialect = dialect

    def _row(self, message: bytes) -> Any:
        rows = self._decode(message).rows().values
        if len(rows) > 1:
            raise MalformedBlock(f"the message has {len(rows)} lines, and one is expected")
        return rows[0] if rows else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _csv_schema, (self._row_type, self._dialect, self._ignore_parse_errors)

    class Builder:
        def __init__(self, type_info: Any) -> None:
            self._row_type = _row_type(type_info)
            self._dialect = CsvDialect()
            self._ignore_parse_errors = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            return self._change(delimiter=delimiter)

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            return self._change(allow_comments=allow_comments)

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            return self._change(array_separators=dict.fromkeys(self._row_type.get_field_names(), delimiter))

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            return self._change(quote=c)

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            return self._change(escape=c)

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            return self._change(null_value=null_literal)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Skip malformed messages and log a warning."""
            self._ignore_parse_errors = ignore_parse_errors
            return self

        def _change(self, **changes: Any) -> CsvRowDeserializationSchema.Builder:
            self._dialect = replace(self._dialect, **changes)
            return self

        def build(self) -> CsvRowDeserializationSchema:
            return _csv_schema(self._row_type, self._dialect, self._ignore_parse_errors)


def _csv_schema(row_type: RowTypeInfo, dialect: CsvDialect, ignore: bool) -> CsvRowDeserializationSchema:
    return CsvRowDeserializationSchema(row_type, dialect, ignore_parse_errors=ignore)


class CsvRowSerializationSchema(SerializationSchema):
    """Serialization schema that converts Rows to CSV lines.

    >>> row_type = Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.LONG()])
    >>> CsvRowSerializationSchema.Builder(row_type).build().serialize(("a,b", 1))
    b'"a,b",1\\n'
    """

    def __init__(self, row_type: RowTypeInfo, dialect: CsvDialect, line_delimiter: str) -> None:
        self._row_type = row_type
        types = row_type.get_field_types()
        self._encoder = CsvEncoder(row_type.get_field_names(), with_separators(row_type, dialect), types)
        self._line_delimiter = line_delimiter.encode()

    def serialize(self, element: Any) -> bytes:
        row = self._row_type.convert(element)
        return self._encoder.encode(row).removesuffix(b"\n") + self._line_delimiter

    class Builder:
        def __init__(self, type_info: Any) -> None:
            self._row_type = _row_type(type_info)
            self._dialect = CsvDialect()
            self._line_delimiter = "\n"

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._change(delimiter=c)

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            self._line_delimiter = delimiter
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            return self._change(array_separators=dict.fromkeys(self._row_type.get_field_names(), delimiter))

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            return self._change(quote=None)

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._change(quote=c)

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._change(escape=c)

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            return self._change(null_value=s)

        def _change(self, **changes: Any) -> CsvRowSerializationSchema.Builder:
            self._dialect = replace(self._dialect, **changes)
            return self

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._row_type, self._dialect, self._line_delimiter)


def with_separators(row_type: RowTypeInfo, dialect: CsvDialect) -> CsvDialect:
    """Return the dialect with a separator for each list column and for no other column."""
    pairs = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    lists = [name for name, kind in pairs if pa.types.is_list(arrow_type(kind, name))]
    return replace(dialect, array_separators={name: dialect.array_separators.get(name, ";") for name in lists})


def _row_type(type_info: Any) -> RowTypeInfo:
    found = to_type_info(type_info)
    if not isinstance(found, RowTypeInfo):
        raise InvalidJob(f"{type_info!r} is not a row type", remedy="pass Types.ROW_NAMED(names, types)")
    return found
