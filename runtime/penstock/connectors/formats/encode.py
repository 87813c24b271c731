"""Encoders: they write records as lines of a file (JSON lines, CSV, plain text), optionally compressed.

Encoders encode a batch at a time. A file can contain the results of several batches one after the other. This is also true
for compressed files, because gzip and zstd files may consist of several members.
"""

from __future__ import annotations

import csv
import functools
import io
import uuid
from datetime import date, datetime, timedelta
from datetime import time as dt_time
from decimal import Decimal
from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import Encoder
from penstock.common.time import Instant
from penstock.common.type_info.declared_fields import DeclaredFields, FieldMismatch
from penstock.common.type_info.flink_text import differs_from_python, text_of
from penstock.common.types import Row
from penstock.connectors.formats.arrow_types import ARRAYS
from penstock.connectors.formats.csv import CsvDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.typeinfo import TypeInformation

_MAX_UNQUOTED_LENGTH = 24
_UNITS_BELOW_MICROSECOND = ("ns", "ps", "fs", "as")


class _Plain(str):
    """A text that never needs quotes, such as the text of a number."""

    __slots__ = ()


_VALUES = attrgetter("_values")
_NUMBERS = (int, float, Decimal, np.number, _Plain)
COMPRESSIONS = {"gzip": ".gz", "zstd": ".zst"}
"""Codec -> suffix of the file names."""
_LEVELS = {"gzip": 4, "zstd": 3}


class JsonLinesEncoder(Encoder):
    r"""An encoder of one JSON value per line.

    Dicts, Rows with names, NamedTuples, dataclasses, Structs and pydantic's models become objects.

    Args:
        fields: the declared fields. They name the values of tuples and of Rows without names. Without declared fields,
            these records become arrays. Records that name their fields must have exactly the declared fields.
    >>> JsonLinesEncoder(["id", "n"]).encode_batch([("a", 1), ("b", 2)])
    b'{"id":"a","n":1}\n{"id":"b","n":2}\n'
    """

    suffix = ".jsonl"

    def __init__(self, fields: Sequence[str] | None = None) -> None:
        self._fields = None if fields is None else DeclaredFields(fields)
        self._struct = None if fields is None else _struct(tuple(fields))
        self._encode_lines = msgspec.json.Encoder(enc_hook=_plain, decimal_format="number").encode_lines

    def encode(self, element: Any) -> bytes:
        return self.encode_batch([element])

    def encode_batch(self, elements: Sequence[Any]) -> bytes:
        try:
            objects = self._objects(elements)
            lines: bytes = self._encode_lines(objects)
            if (b"N" in lines and b"NaN" in lines) or (b"I" in lines and b"Infinity" in lines):
                lines = self._encode_lines([_finite(msgspec.to_builtins(one, **_TO_PLAIN)) for one in objects])
            return lines
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise RecordFormatError(
                f"records such as {_shown(elements, error)} cannot be written as JSON: {error}",
                remedy="map them to dicts, tuples, dataclasses or NamedTuples of plain values",
            ) from error

    def _objects(self, elements: Sequence[Any]) -> Sequence[Any]:
        if not elements:
            return elements
        if self._fields is not None:
            return self._declared(elements, self._fields)
        first = elements[0]
        if isinstance(first, Row):
            return list(map(_as_object, elements))
        if isinstance(first, tuple) and hasattr(first, "_asdict"):
            make = _as_object if len(set(map(type, elements))) > 1 else type(first)._asdict
            return list(map(make, elements))
        return elements

    def _declared(self, elements: Sequence[Any], fields: DeclaredFields) -> Sequence[Any]:
        """Return objects with the declared fields. Records that name other fields are an error."""
        assert self._struct is not None
        kinds = set(map(type, elements))
        if kinds == {dict}:
            if fields.are_names_of(elements):
                return elements
        elif kinds <= {tuple, list} or fields.are_in_order(elements, kinds):
            try:
                return list(starmap(self._struct, map(_VALUES, elements) if Row in kinds else elements))
            except TypeError:
                pass  # a record has another number of values; the line below raises an error that names it
        return list(starmap(self._struct, map(fields.values, elements)))

    def __getstate__(self) -> dict[str, Any]:
        return {"fields": None if self._fields is None else self._fields.names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["fields"])  # type: ignore[misc]


def _as_object(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict()
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value


class CsvEncoder(Encoder):
    r"""An encoder of one CSV line per record.

    Args:
        fields: the declared fields, in the order of the columns. Records that name their fields must have exactly these fields,
            and are written by name. Tuples, lists and Rows without names are written by position (see `DeclaredFields`).
            None: all records are written by position.
        dialect: separators and quotes. A header line is written unless `header` is "none".
        types: the types of the fields. Booleans and numbers are then written as Flink writes them: `true`, `1.0E10`.
            Texts have quotes where Flink writes quotes (`_flink_lines`).
    >>> CsvEncoder(["id", "n"]).encode_batch([("a,b", 1), ("c", None)])
    b'"a,b",1\nc,\n'
    """

    suffix = ".csv"

    def __init__(
        self,
        fields: Sequence[str] | DeclaredFields | None = None,
        dialect: CsvDialect | None = None,
        types: Sequence[TypeInformation] | None = None,
    ) -> None:
        self._types = types
        self._fields = fields if fields is None or isinstance(fields, DeclaredFields) else DeclaredFields(fields)
        names = () if self._fields is None else self._fields.names
        self._dialect = dialect or CsvDialect()
        separators = self._dialect.array_separators
        self._lists = {n: separators[name] for n, name in enumerate(names) if name in separators}
        if self._dialect.header != "none" and fields is None:
            raise InvalidJob("a CSV header needs the names of fields", remedy="pass the fields to the encoder")

    def format_name(self) -> str:
        names = "" if self._fields is None else ",".join(self._fields.names)
        return f"{super().format_name()}({names}; {self._dialect})"

    def header(self) -> bytes:
        """Return the header line of a file, or no bytes if files have no header."""
        return (
            b"" if self._dialect.header == "none" else self._lines([list(self._fields.names if self._fields else ())])
        )

    def encode(self, element: Any) -> bytes:
        return self.encode_batch([element])

    def encode_batch(self, elements: Sequence[Any]) -> bytes:
        try:
            values = self._values(elements)
            if self._types is not None:
                values = [list(map(_flink_text, row, self._texts)) for row in values]
            return self._lines([self._join_lists(row) for row in values] if self._lists else values)
        except (TypeError, ValueError, KeyError, AttributeError, csv.Error) as error:
            raise RecordFormatError(
                f"records such as {_shown(elements, error)} cannot be written as CSV: {error}",
                remedy="map them to tuples, or pass the fields to the encoder",
            ) from error

    @functools.cached_property
    def _texts(self) -> list[Callable[[Any], str] | None]:
        """Return, for each field, the function that writes Flink's text if it differs from Python's text. It also writes items of lists."""
        kinds = [kind.element_type if isinstance(kind, ARRAYS) else kind for kind in self._types or ()]
        return [text_of(kind) if differs_from_python(kind) else None for kind in kinds]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_texts"}

    def _values(self, elements: Sequence[Any]) -> Sequence[Any]:
        if self._fields is not None:
            kinds = {element.__class__ for element in elements}
            if kinds <= {tuple, list} and self._fields.fit(elements):
                return elements
            return list(zip(*self._fields.lists(elements), strict=True))
        for element in elements:
            if not isinstance(element, tuple | list | Row):
                raise InvalidJob(
                    f"a {type(element).__name__} cannot become a line of CSV without the names of its fields",
                    remedy="pass the fields to the encoder",
                )
        return elements

    def _join_lists(self, row: Sequence[Any]) -> list[Any]:
        return [
            self._lists[n].join(map(str, value)) if n in self._lists and value is not None else value
            for n, value in enumerate(row)
        ]

    def _lines(self, rows: Sequence[Any]) -> bytes:
        dialect = self._dialect
        if self._types is not None and dialect.quote is not None:
            return self._flink_lines(rows)
        if dialect.null_value is not None:
            rows = [[dialect.null_value if value is None else value for value in row] for row in rows]
        out = io.StringIO()
        csv.writer(
            out,
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            escapechar=dialect.escape,
            quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
            lineterminator="\n",
        ).writerows(rows)
        return out.getvalue().encode()

    def _flink_lines(self, rows: Sequence[Any]) -> bytes:
        """Return lines with quotes where Flink's writer (Jackson's) puts them.

        A text of more than 24 characters gets quotes. So does a text with a character that does not sort after the separator,
        the quote and the line end. Jackson then assumes that the character may be one of these three. Quotes are doubled.
        """
        delimiter, quote, escape = self._dialect.delimiter, self._dialect.quote or "", self._dialect.escape
        missing = self._dialect.null_value or ""
        safe = chr(max(map(ord, (delimiter, quote, "\r"))) + 1)

        def cell(value: Any) -> str:
            if isinstance(value, _NUMBERS):
                return str(value)
            if value is None:
                return missing
            text = str(value)
            has_escape = escape is not None and escape in text
            if len(text) <= _MAX_UNQUOTED_LENGTH and not has_escape and (not text or min(text) >= safe):
                return text
            if escape is not None:
                text = text.replace(escape, escape * 2)
            return quote + text.replace(quote, quote * 2) + quote

        return "".join(delimiter.join(map(cell, row)) + "\n" for row in rows).encode()


def _flink_text(value: Any, text: Callable[[Any], str] | None) -> Any:
    if text is None or value is None:
        return value
    if isinstance(value, list | tuple):
        return [None if item is None else text(item) for item in value]
    return _Plain(text(value))


class FunctionEncoder(Encoder):
    """An encoder that calls a function from a record to its line, without the line end."""

    def __init__(self, function: Callable[[Any], str | bytes]) -> None:
        self._function = function

    def encode(self, element: Any) -> bytes:
        line = self._function(element)
        return (line.encode() if isinstance(line, str) else line) + b"\n"


class CompressedEncoder(Encoder):
    """An encoder that compresses another encoder's output with "gzip" or "zstd", one member for each batch."""

    def __init__(self, encoder: Encoder, compression: str) -> None:
        if compression not in COMPRESSIONS:
            raise InvalidJob(
                f"compression={compression!r} is not supported", remedy=f"use one of {', '.join(COMPRESSIONS)}"
            )
        self._encoder = encoder
        self._compression = compression

    def with_input_type(self, type_info: TypeInformation) -> Encoder:
        return CompressedEncoder(self._encoder.with_input_type(type_info), self._compression)

    def format_name(self) -> str:
        return f"{self._compression} of {self._encoder.format_name()}"

    def header(self) -> bytes:
        header = header_of(self._encoder)
        return self._compressed(header) if header else b""

    def encode(self, element: Any) -> bytes:
        return self._compressed(self._encoder.encode(element))

    def encode_batch(self, elements: Sequence[Any]) -> bytes:
        return self._compressed(self._encoder.encode_batch(elements))

    def _compressed(self, data: bytes) -> bytes:
        return pa.Codec(self._compression, _LEVELS[self._compression]).compress(data, asbytes=True)  # type: ignore[no-any-return]


def header_of(encoder: Encoder) -> bytes:
    """Return the header of this encoder's files; most encoders have no header."""
    header = getattr(encoder, "header", None)
    return bytes(header()) if callable(header) else b""


def suffix_of(encoder: Encoder) -> str:
    """Return the default suffix of this encoder's file names."""
    return str(getattr(encoder, "suffix", ""))


def _struct(fields: tuple[str, ...]) -> Any:
    names = [f"f{n}" for n in range(len(fields))]
    rename = dict(zip(names, fields, strict=True))
    return msgspec.defstruct("Record", [(name, Any) for name in names], rename=rename, gc=False)


def _finite(value: Any) -> Any:
    """Return a JSON value with None for Decimals that JSON cannot represent. msgspec does the same for floats."""
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return list(map(_finite, value)) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Return a value that msgspec can encode, for a type that msgspec does not know."""
    if isinstance(value, Row):
        return list(value) if value.get_field_names() is None else value.as_dict()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _plain_time(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return list(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Instant):
        return value.to_epoch_milli()
    if isinstance(value, date | timedelta):
        return _builtin_time(value)
    if hasattr(type(value), "model_dump"):  # pydantic's
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _builtin_time(value: date | timedelta) -> Any:
    """Return a value of Python's own class for a subclass such as pandas'. Return None for NaT, and a text for nanoseconds."""
    if value != value:
        return None
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if not isinstance(value, datetime) or getattr(value, "nanosecond", False):
        return value.isoformat()
    return datetime.combine(value.date(), value.timetz(), value.tzinfo)


def _plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """Return Python's own value, or numpy's text for nanoseconds and for years that Python does not support."""
    if np.isnat(value):
        return None
    known = (
        value.astype(f"{value.dtype.kind}8[us]")
        if np.datetime_data(value.dtype)[0] in _UNITS_BELOW_MICROSECOND
        else value
    )
    found = known.item()
    if known == value and not isinstance(found, int):
        return found
    return str(value)


def _shown(elements: Sequence[Any], error: Exception) -> str:
    record = error.record if isinstance(error, FieldMismatch) else elements[0] if elements else ""
    text = repr(record)
    return text if len(text) <= 200 else f"{text[:200]}…"


_TO_PLAIN: dict[str, Any] = {
    "builtin_types": (Decimal, datetime, date, timedelta, dt_time, uuid.UUID, bytes, bytearray, memoryview),
    "enc_hook": _plain,
}
"""Arguments that convert records to builtins before `_finite` checks their numbers."""
