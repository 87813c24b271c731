"""CSV: lines of separated values, read by Arrow's parser into columns.

Quotes follow RFC 4180: a quoted value may contain separators, line ends and doubled quotes. A quote in the middle of an
unquoted value stands for itself. The module `records` finds records, and quotes that are not closed. Arrow never
receives a record with such a quote.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.connectors.formats.csv.decoder import CsvDecoder
from penstock.connectors.formats.csv.dialect import CsvDialect
from penstock.connectors.formats.csv.records import RecordScanner
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, Decode, StreamFormat
from penstock.connectors.formats.shape import Declaration, RecordShape


class CsvFormat(StreamFormat):
    r"""A format that reads CSV.

    Args:
        fields: the columns in order, and the type of the records (see `formats.shape`).
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
        return CsvDecoder(self.shape, self.dialect, self._columns(header), self)

    def _columns(self, header: bytes) -> list[str]:
        """Return the names of the file's columns in order. An empty `header` in a dialect with a header means that the file is empty."""
        declared = list(self.shape.names)
        if self.dialect.header in ("none", "skip") or not header:
            return declared
        text = header.decode("utf-8", "replace").rstrip("\r\n")
        quote = self.dialect.quote or ""
        found = [name.strip().strip(quote) if quote else name.strip() for name in text.split(self.dialect.delimiter)]
        optional = self.shape.declared_fields.optional
        missing = [name for name in declared if name not in found and name not in optional]
        if missing or (self.dialect.header == "strict" and found != declared):
            raise RecordFormatError(
                f"the CSV header has the columns {', '.join(found)}, but the job declares {', '.join(declared)}",
                remedy="declare the columns that the file has, or use header='skip' to match columns by position",
            )
        return found

    @cached_property
    def _scanner(self) -> RecordScanner | None:
        dialect = self.dialect
        if dialect.quote is None:
            return None
        return RecordScanner(dialect.delimiter, dialect.quote, dialect.escape, comments=dialect.allow_comments)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_scanner"}

    def scanner_for(self, data: bytes) -> RecordScanner | None:
        """Return the scanner that finds the records of a text, or None if each line is a record."""
        scanner = self._scanner
        return None if scanner is None or str(self.dialect.quote).encode() not in data else scanner

    def last_record_end(self, data: bytes, *, is_last: bool = False) -> int:
        scanner = self.scanner_for(data)
        if scanner is None:
            return super().last_record_end(data, is_last=is_last)
        return scanner.last_end(data, is_last=is_last)

    def records(self, data: bytes) -> list[bytes]:
        scanner = self.scanner_for(data)
        if scanner is None:
            return super().records(data)
        ends = scanner.scan(data, is_last=True).ends
        return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
