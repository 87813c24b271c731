"""CSV: lines of separated values, read by Arrow's parser into columns.

Quotes follow RFC 4180: a quoted value may contain separators, line ends and doubled quotes. A quote in the middle of an
unquoted value stands for itself. To find where a block may be cut, quotes are counted; a value over more than 1 MiB is
not believed, and its lines are taken as records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.type_info.type_information import DecimalTypeInfo
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, Decode, MalformedBlock, StreamFormat
from penstock.connectors.formats.shape import Declaration, RecordShape
from penstock.records.batch import ColumnBatch

_LONGEST_QUOTED = 1 << 20


@dataclass(frozen=True)
class CsvDialect:
    """How values are separated. `quote` and `escape`: one character, or None to have none.

    `header`: "none": the first line is a record; "skip": it is left out; "names": it names the columns, in any order and
    with others among them; "strict": it must be the declared fields in their order.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_value: str | None = None
    """What stands for None. Unset: an empty value, except in str fields, where it is the empty string."""
    header: str = "none"
    allow_comments: bool = False
    """Lines that begin with `#` are left out."""
    array_separators: dict[str, str] = field(default_factory=dict)
    """By name of a list field: what separates its elements."""

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or not value.isascii()):
                raise InvalidJob(f"the CSV {name} must be one ASCII character, not {value!r}")
        if self.header not in ("none", "skip", "names", "strict"):
            raise InvalidJob(f"header={self.header!r}", remedy="write 'none', 'skip', 'names' or 'strict'")


class CsvFormat(StreamFormat):
    r"""Reads CSV.

    Args:
        fields: the columns in order and what records are (see `formats.shape`).
        dialect: separators, quotes, header.
        record: another form for the same fields: "tuple", "dict" or "row".
        on_error: "fail" or "side-output" (to `error_tag`).

    >>> format = CsvFormat({"id": str, "celsius": float | None}, CsvDialect(null_value="NA"), record="tuple")
    >>> format.decoder(b"")(b'a,1.5\n"b,c",NA\n').rows().values
    [('a', 1.5), ('b,c', None)]
    """

    what = "CSV line"

    def __init__(
        self,
        fields: Declaration,
        dialect: CsvDialect | None = None,
        *,
        record: str | None = None,
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
    ) -> None:
        super().__init__(on_error=on_error, error_tag=error_tag)
        self.shape = RecordShape.of(fields, record)
        self.dialect = dialect or CsvDialect()
        for found in self.shape.schema:
            if pa.types.is_nested(found.type) and not pa.types.is_list(found.type):
                raise InvalidJob(f"CSV field {found.name!r} cannot be {found.type}", remedy="use JSON lines or Parquet")

    @property
    def splittable(self) -> bool:
        return self.dialect.quote is None

    @property
    def header_lines(self) -> int:
        return 0 if self.dialect.header == "none" else 1

    def produced_type(self) -> Any:
        return self.shape.produced_type()

    def decoder(self, header: bytes) -> Decode:
        names = self._columns(header)
        schema, maker, dialect = self.shape.schema, self.shape.maker, self.dialect
        separators = {f.name: dialect.array_separators.get(f.name, ";") for f in schema if pa.types.is_list(f.type)}
        decimals = {f.name: f.type for f in self.shape.fields if isinstance(f.type, DecimalTypeInfo)}
        as_text = separators.keys() | decimals.keys()
        required = [n for n, f in enumerate(self.shape.fields) if not f.optional]
        parse = pa_csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            escape_char=dialect.escape or False,
            newlines_in_values=dialect.quote is not None,
        )
        convert = pa_csv.ConvertOptions(
            column_types={f.name: pa.string() if f.name in as_text else f.type for f in schema},
            include_columns=schema.names,
            null_values=["" if dialect.null_value is None else dialect.null_value],
            strings_can_be_null=dialect.null_value is not None,
        )

        def decode(data: bytes) -> ColumnBatch:
            if dialect.allow_comments and b"#" in data:
                data = b"".join(r for r in self.records(data) if not r.lstrip().startswith(b"#"))
            if not data.strip(b"\r\n"):
                return ColumnBatch(pa.RecordBatch.from_pylist([], schema), None, maker)
            read = pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names)
            try:
                table = pa_csv.read_csv(pa.BufferReader(data), read, parse, convert)
                columns = _with_lists(table, separators, schema) if separators else table
                columns = _with_decimals(columns, decimals, schema) if decimals else columns
            except (pa.ArrowInvalid, UnicodeDecodeError, InvalidOperation) as error:
                raise MalformedBlock(_told(error, dialect)) from None
            for index in required:
                if columns.column(index).null_count:
                    raise MalformedBlock(f"no value for {schema.names[index]!r}, which is not optional")
            return ColumnBatch(columns.combine_chunks().to_batches()[0], None, maker)

        return decode

    def _columns(self, header: bytes) -> list[str]:
        """Names of the file's columns in order. A file without a header line is empty: it has no records either."""
        declared = list(self.shape.names)
        if self.dialect.header in ("none", "skip") or not header:
            return declared
        text = header.decode("utf-8", "replace").rstrip("\r\n")
        quote = self.dialect.quote or ""
        found = [name.strip().strip(quote) if quote else name.strip() for name in text.split(self.dialect.delimiter)]
        missing = [name for name in declared if name not in found]
        if missing or (self.dialect.header == "strict" and found != declared):
            raise RecordFormatError(
                f"the CSV header has the columns {', '.join(found)}; declared are {', '.join(declared)}",
                remedy="declare the columns the file has, or header='skip' to go by position",
            )
        return found

    def last_record_end(self, data: bytes) -> int:
        end = data.rfind(b"\n")
        quote = (self.dialect.quote or "").encode()
        if not quote or quote not in data or len(data) > _LONGEST_QUOTED:
            return end + 1
        while end >= 0 and self._quotes(data, 0, end) % 2:
            end = data.rfind(b"\n", 0, end)
        return end + 1

    def records(self, data: bytes) -> list[bytes]:
        lines = super().records(data)
        quote = (self.dialect.quote or "").encode()
        if not quote or quote not in data:
            return lines
        records: list[bytes] = []
        open_lines: list[bytes] = []
        for line in lines:
            odd = self._quotes(line, 0, len(line)) % 2
            if open_lines:
                open_lines.append(line)
                if odd:
                    records.append(b"".join(open_lines))
                    open_lines = []
            elif odd:
                open_lines = [line]
            else:
                records.append(line)
        return records + open_lines

    def _quotes(self, data: bytes, start: int, end: int) -> int:
        assert self.dialect.quote is not None
        quote = self.dialect.quote.encode()
        escaped = data.count(self.dialect.escape.encode() + quote, start, end) if self.dialect.escape else 0
        return data.count(quote, start, end) - escaped


def _with_decimals(table: pa.Table, types: dict[str, DecimalTypeInfo], schema: pa.Schema) -> pa.Table:
    """Decimals of any number of digits, rounded to those of their type; Arrow reads none that it would have to round."""
    for name, kind in types.items():
        index = schema.get_field_index(name)
        values = [kind.convert(text or None) for text in table.column(index).to_pylist()]
        table = table.set_column(index, schema.field(index), pa.array(values, schema.field(index).type))
    return table


def _told(error: Exception, dialect: CsvDialect) -> str:
    text = str(error).splitlines()[0]
    if dialect.header == "skip" and "columns, got" in text:
        text += ' (columns go by their position here; CsvFormat with CsvDialect(header="names") goes by the names of the header)'
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
