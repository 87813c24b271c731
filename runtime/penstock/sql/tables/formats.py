"""The formats `json` and `csv` of tables: from bytes to rows and back."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.common.errors import RecordFormatError
from penstock.common.serialization import SerializationSchema
from penstock.datastream.functions import FlatMapFunction, RuntimeContext
from penstock.sql.operators.rows import SqlRow
from penstock.sql.plan.nodes import Column
from penstock.sql.tables.options import TableOptions
from penstock.sql.tables.values import csv_writer, json_writer, reader

if TYPE_CHECKING:
    from penstock.datastream.connectors.kafka import ConsumerRecord

_SHOWN = 200


class Format(ABC):
    """A format of rows. One message or line is one row.

    Args:
        ignores_errors: whether rows that cannot be read are skipped.
    """

    def __init__(self, columns: tuple[Column, ...], *, ignores_errors: bool) -> None:
        self._columns = columns
        self._ignores_errors = ignores_errors
        self._prepare()

    def _prepare(self) -> None:
        self._readers = [reader(column.type) for column in self._columns]

    def __getstate__(self) -> dict[str, Any]:
        return {"_columns": self._columns, "_ignores_errors": self._ignores_errors, **self._settings()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _settings(self) -> dict[str, Any]:
        return {}

    def read(self, data: str | bytes | None) -> SqlRow | None:
        """Return the row, or None if the row is empty or skipped. A message of Kafka without a value is empty, as in Flink.

        Raises:
            RecordFormatError: the row cannot be read.
        """
        if data is None:
            return None
        try:
            return self._parsed(_text_of(data))
        except RecordFormatError as error:
            if self._ignores_errors:
                return None
            raise RecordFormatError(f"{error.message}, in the row {data[:_SHOWN]!r}", remedy=error.remedy) from error

    @abstractmethod
    def _parsed(self, text: str) -> SqlRow | None: ...

    @abstractmethod
    def write(self, row: SqlRow) -> str:
        """Return the row as text without a line end."""


def _text_of(data: str | bytes) -> str:
    try:
        return data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise RecordFormatError(f"this is not UTF-8: {error}", remedy="check the producer of the table") from error


class JsonFormat(Format):
    """JSON objects. Fields that are not columns are ignored.

    Args:
        needs_all_fields: whether a missing field is an error. If not, it is NULL.
        is_iso: whether timestamps are written with a T between date and time. Both forms can be read.
    """

    def __init__(
        self,
        columns: tuple[Column, ...],
        *,
        ignores_errors: bool,
        needs_all_fields: bool = False,
        is_iso: bool = False,
    ) -> None:
        self._needs_all_fields = needs_all_fields
        self._is_iso = is_iso
        super().__init__(columns, ignores_errors=ignores_errors)

    def _settings(self) -> dict[str, Any]:
        return {"_needs_all_fields": self._needs_all_fields, "_is_iso": self._is_iso}

    def _prepare(self) -> None:
        super()._prepare()
        self._fields = list(zip((column.name for column in self._columns), self._readers, strict=True))
        separator = "T" if self._is_iso else " "
        self._writers = [(column.name, json_writer(column.type, separator)) for column in self._columns]
        is_exact = any(column.type.contains("DECIMAL") for column in self._columns)
        self._decoder = json.JSONDecoder(parse_float=Decimal if is_exact else None)

    def _parsed(self, text: str) -> SqlRow | None:
        if not text.strip():
            return None
        try:
            found = self._decoder.decode(text)
        except (ValueError, RecursionError) as error:
            raise RecordFormatError(f"this is not JSON: {error}", remedy="check the producer of the table") from error
        if not isinstance(found, dict):
            raise RecordFormatError("this is not a JSON object", remedy="check the producer of the table")
        if self._needs_all_fields and (missing := [name for name, _ in self._fields if name not in found]):
            raise RecordFormatError(
                f"the field {missing[0]!r} is missing",
                remedy="check the producer of the table, or set 'json.fail-on-missing-field' to 'false'",
            )
        get = found.get
        return tuple([read(get(name)) for name, read in self._fields])

    def write(self, row: SqlRow) -> str:
        fields = []
        for (name, write), value in zip(self._writers, row, strict=True):
            text = "null" if value is None else _json_text(write(value))
            fields.append(f"{json.dumps(name)}:{text}")
        return "{" + ",".join(fields) + "}"


def _json_text(value: Any) -> str:
    """Return the JSON of a value. Decimals have all of their digits."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, list):
        return f"[{','.join(map(_json_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join([f'{json.dumps(key)}:{_json_text(part)}' for key, part in value.items()])}}}"
    return json.dumps(value, ensure_ascii=False)


class CsvFormat(Format):
    """Fields in the order of the columns. The text of NULL is an option; by default an empty field without quotes is NULL."""

    def __init__(
        self, columns: tuple[Column, ...], *, ignores_errors: bool, delimiter: str = ",", null: str = ""
    ) -> None:
        self._delimiter = delimiter
        self._null = null
        super().__init__(columns, ignores_errors=ignores_errors)

    def _prepare(self) -> None:
        super()._prepare()
        self._writers = [csv_writer(column.type) for column in self._columns]

    def _settings(self) -> dict[str, Any]:
        return {"_delimiter": self._delimiter, "_null": self._null}

    def _parsed(self, text: str) -> SqlRow | None:
        if not text:
            return None
        try:
            fields = next(csv.reader([text], delimiter=self._delimiter))
        except csv.Error as error:
            raise RecordFormatError(f"this is not CSV: {error}", remedy="check the producer of the table") from error
        if len(fields) != len(self._readers):
            raise RecordFormatError(
                f"the row has {len(fields)} fields instead of {len(self._readers)}",
                remedy="check the producer of the table",
            )
        return tuple(
            [None if field == self._null else read(field) for read, field in zip(self._readers, fields, strict=True)]
        )

    def write(self, row: SqlRow) -> str:
        texts = [self._null if value is None else write(value) for write, value in zip(self._writers, row, strict=True)]
        out = io.StringIO()
        csv.writer(out, delimiter=self._delimiter, lineterminator="").writerow(texts)
        return out.getvalue()


def format_of(options: TableOptions, prefix: str = "") -> Format:
    """Return the format that the options `format` and `FORMAT.*` describe.

    Args:
        prefix: another place of the options, such as `value.`.
    """
    columns = options.table.columns
    name = options.get(f"{prefix}format") or options.required("format")
    own = f"{prefix}{name}." if options.get(f"{prefix}format") else f"{name}."
    if name == "json":
        ignores = options.flag(f"{own}ignore-parse-errors", default=False)
        needs_all = options.flag(f"{own}fail-on-missing-field", default=False)
        if ignores and needs_all:
            raise options.refusal(
                f"'{own}fail-on-missing-field' and '{own}ignore-parse-errors' are both true",
                "set one of them to 'false'",
            )
        is_iso = options.choice(f"{own}timestamp-format.standard", ("SQL", "ISO-8601"), "SQL") == "ISO-8601"
        return JsonFormat(columns, ignores_errors=ignores, needs_all_fields=needs_all, is_iso=is_iso)
    if name == "csv":
        nested = next((column for column in columns if column.type.is_nested), None)
        if nested is not None:
            raise options.refusal(
                f"CSV cannot contain the column {nested.name} of the type {nested.type}", "use the format json"
            )
        return CsvFormat(
            columns,
            ignores_errors=options.flag(f"{own}ignore-parse-errors", default=False),
            delimiter=options.get(f"{own}field-delimiter", ",") or ",",
            null=options.get(f"{own}null-literal", "") or "",
        )
    raise options.refusal(f"the format '{name}' is not supported", "use json or csv")


class ReadRows(FlatMapFunction):
    """The rows of lines."""

    def __init__(self, format: Format) -> None:
        self._format = format

    def open(self, runtime_context: RuntimeContext) -> None:
        self._read = self._format.read

    def flat_map(self, value: str) -> list[SqlRow]:
        row = self._read(value)
        return [] if row is None else [row]


class RowMessages(SerializationSchema):
    """The rows of messages. It must be picklable."""

    def __init__(self, format: Format) -> None:
        self._format = format

    def row_of(self, message: ConsumerRecord) -> SqlRow | None:
        return self._format.read(message.value)

    def serialize(self, element: SqlRow) -> bytes:
        return self._format.write(element).encode()
