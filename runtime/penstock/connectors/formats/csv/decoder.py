"""Conversion of CSV blocks to columns, with Arrow's parser."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.common.type_info.type_information import DecimalTypeInfo
from penstock.connectors.formats.record_format import MalformedBlock, SuspiciousDecoder
from penstock.connectors.formats.shape import TIME_OF_UTC
from penstock.records.batch import ColumnBatch

if TYPE_CHECKING:
    from penstock.connectors.formats.csv.dialect import CsvDialect
    from penstock.connectors.formats.csv.records import RecordScanner
    from penstock.connectors.formats.shape import RecordShape

_TRUTH = frozenset({"true", "false", "1", "0"})
_SHOWN = 100
_DATETIME = pa.timestamp("us")


class RecordsOfFormat(Protocol):
    """The part of `CsvFormat` that finds the records in a block."""

    def scanner_for(self, data: bytes) -> RecordScanner | None: ...

    def records(self, data: bytes) -> list[bytes]: ...


class CsvDecoder(SuspiciousDecoder):
    """A decoder of the blocks of one file.

    Args:
        names: the file's columns, in their order. The values of declared columns that the file does not have are None.
    """

    def __init__(self, shape: RecordShape, dialect: CsvDialect, names: list[str], format: RecordsOfFormat) -> None:
        self._shape, self._dialect, self._names, self._format = shape, dialect, names, format
        schema = shape.schema
        self._separators = {
            f.name: dialect.array_separators.get(f.name, ";") for f in schema if pa.types.is_list(f.type)
        }
        self._decimals = {f.name: f.type for f in shape.fields if isinstance(f.type, DecimalTypeInfo)}
        self._times = [f.name for f, kind in zip(shape.fields, schema, strict=True) if kind.type == _DATETIME]
        self._zoned = False
        """Whether a time with an offset has been read."""
        as_text = self._separators.keys() | self._decimals.keys()
        self._types = {f.name: pa.string() if f.name in as_text else f.type for f in schema}
        self._parse = pa_csv.ParseOptions(**self._parse_options())

    def _parse_options(self) -> dict[str, Any]:
        dialect = self._dialect
        return {
            "delimiter": dialect.delimiter,
            "quote_char": dialect.quote or False,
            "escape_char": dialect.escape or False,
            "newlines_in_values": dialect.quote is not None,
        }

    def __call__(self, data: bytes) -> ColumnBatch:
        dialect, schema = self._dialect, self._shape.schema
        scanner = self._format.scanner_for(data)
        if scanner is not None:
            for reason in scanner.malformed(data).values():
                raise MalformedBlock(reason)
        if dialect.allow_comments and b"#" in data:
            data = b"".join(r for r in self._format.records(data) if not r.lstrip().startswith(b"#"))
        if not data.strip(b"\r\n"):
            return ColumnBatch(pa.RecordBatch.from_pylist([], schema), None, self._shape.maker)
        try:
            shape, columns = self._read(data)
        except (pa.ArrowInvalid, UnicodeDecodeError, InvalidOperation) as error:
            raise MalformedBlock(_explained(error, dialect)) from None
        for index, field in enumerate(self._shape.fields):
            if not field.optional and columns.column(index).null_count:
                raise MalformedBlock(f"{field.name!r} has no value, but is not optional")
        return ColumnBatch(columns.combine_chunks().to_batches()[0], None, shape.maker)

    def _read(self, data: bytes) -> tuple[RecordShape, pa.Table]:
        zoned: list[str] = []
        types = self._types
        try:
            if self._zoned:
                raise pa.ArrowInvalid("zone offset")
            table = self._table(data, types)
        except pa.ArrowInvalid as error:
            if not self._times or "zone offset" not in str(error):
                raise
            table = self._table(data, {**types, **dict.fromkeys(self._times, pa.string())})
            table, zoned = self._with_times(table)
        shape = self._shape.with_zones(zoned)
        schema = shape.schema
        table = _with_lists(table, self._separators, schema) if self._separators else table
        return shape, _with_decimals(table, self._decimals, schema) if self._decimals else table

    def _table(self, data: bytes, types: dict[str, pa.DataType]) -> pa.Table:
        read = pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names)
        dialect = self._dialect
        convert = pa_csv.ConvertOptions(
            column_types=types,
            include_columns=self._shape.schema.names,
            include_missing_columns=True,
            null_values=["" if dialect.null_value is None else dialect.null_value],
            strings_can_be_null=dialect.null_value is not None,
        )
        return pa_csv.read_csv(pa.BufferReader(data), read, self._parse, convert)

    def _with_times(self, table: pa.Table) -> tuple[pa.Table, list[str]]:
        """Return the table with texts parsed as times, and the names of the columns that have offsets.

        A column with offsets is in UTC. Times without an offset in such a column are read as UTC.
        """
        zoned = []
        empty = (None, "", self._dialect.null_value)
        for name in self._times:
            index = self._shape.schema.get_field_index(name)
            try:
                found = [
                    None if t in empty else datetime.datetime.fromisoformat(t) for t in table.column(index).to_pylist()
                ]
            except ValueError as error:
                raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
            kind = _DATETIME
            if any(time is not None and time.tzinfo is not None for time in found):
                kind = TIME_OF_UTC
                zoned.append(name)
                self._zoned = True
            table = table.set_column(index, pa.field(name, kind), pa.array(found, kind))
        return table, zoned

    def suspects(self, records: list[bytes]) -> dict[int, str | None]:
        found: dict[int, str | None] = {}
        places = []
        for place, record in enumerate(records):
            scanner = self._format.scanner_for(record)
            reasons = () if scanner is None else scanner.malformed(record).values()
            if reasons:
                found[place] = next(iter(reasons))
            elif record.strip(b"\r\n") and not (self._dialect.allow_comments and record.lstrip().startswith(b"#")):
                places.append(place)
        wrong: list[tuple[int | None, str]] = []

        def is_wrong(row: pa_csv.InvalidRow) -> str:
            text = row.text if len(row.text) <= _SHOWN else f"{row.text[:_SHOWN]}…"
            reason = f"CSV parse error: Expected {row.expected_columns} columns, got {row.actual_columns}: {text}"
            wrong.append((row.number, _explained(reason, self._dialect)))
            return "skip"

        parse = pa_csv.ParseOptions(**self._parse_options(), invalid_row_handler=is_wrong)
        data = b"".join(record if record.endswith(b"\n") else record + b"\n" for record in (records[n] for n in places))
        read = pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=self._names)
        convert = pa_csv.ConvertOptions(column_types=dict.fromkeys(self._names, pa.string()), strings_can_be_null=False)
        try:
            table = pa_csv.read_csv(pa.BufferReader(data), read, parse, convert) if data else None
        except pa.ArrowInvalid:
            return found  # for example, a text is not UTF-8
        if table is None or any(number is None for number, _ in wrong):
            return found
        skipped = {number - 1: reason for number, reason in wrong if number is not None}
        kept = [place for row, place in enumerate(places) if row not in skipped]
        if len(kept) != table.num_rows or len(skipped) + len(kept) != len(places):
            return found
        found.update((places[row], reason) for row, reason in skipped.items())
        for name, check in self._checks().items():
            if name in self._names:
                cells = table.column(self._names.index(name)).to_pylist()
                found.update((place, None) for place, cell in zip(kept, cells, strict=True) if not check(cell))
        return found

    def _checks(self) -> dict[str, Callable[[str], bool]]:
        """Return a check for each field. False means that a cell may be malformed. A check is approximate, so each result may be wrong."""
        null = self._dialect.null_value or ""
        checks: dict[str, Callable[[str], bool]] = {}
        for field, column in zip(self._shape.fields, self._shape.schema, strict=True):
            read = _reader_of(column.type)
            if read is not None or not field.optional:
                checks[field.name] = _check(read, null, optional=field.optional, is_text=column.type == pa.string())
        return checks


def _check(read: Callable[[str], Any] | None, null: str, *, optional: bool, is_text: bool) -> Callable[[str], bool]:
    def passes(cell: str) -> bool:
        if cell == null:
            return optional or (is_text and not null)
        try:
            return read is None or read(cell) is not None
        except (ValueError, ArithmeticError):
            return False

    return passes


def _reader_of(kind: pa.DataType) -> Callable[[str], Any] | None:
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_boolean(kind):
        return lambda cell: True if cell.lower() in _TRUTH else None
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat
    return datetime.date.fromisoformat if pa.types.is_date(kind) else None


def _with_decimals(table: pa.Table, types: dict[str, DecimalTypeInfo], schema: pa.Schema) -> pa.Table:
    """Return the table with decimals rounded to the scale of their type. Arrow refuses decimals that it would have to round."""
    for name, kind in types.items():
        index = schema.get_field_index(name)
        values = [kind.convert(text or None) for text in table.column(index).to_pylist()]
        table = table.set_column(index, schema.field(index), pa.array(values, schema.field(index).type))
    return table


def _explained(error: Exception | str, dialect: CsvDialect) -> str:
    text = str(error).splitlines()[0]
    if dialect.header == "skip" and "columns, got" in text:
        text += ' (columns are matched by position; CsvFormat with CsvDialect(header="names") matches them by name)'
    return text


def _with_lists(table: pa.Table, separators: dict[str, str], schema: pa.Schema) -> pa.Table:
    for name, separator in separators.items():
        index = schema.get_field_index(name)
        column = table.column(index)
        empty = pc.equal(column, "")
        parts = pc.split_pattern(column, separator) if separator else pc.split_pattern(column, "\0")
        nothing = pa.scalar([], pa.list_(pa.string()))
        lists = pc.if_else(empty, nothing, parts).cast(schema.field(index).type)
        table = table.set_column(index, schema.field(index), lists)
    return table
