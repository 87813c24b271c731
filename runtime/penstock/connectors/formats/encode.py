"""How records become lines of a file: JSON lines, CSV, plain text, compressed if wanted.

Encoders work on a batch at a time. What they return can be appended to a file that holds earlier batches, also when it is
compressed: gzip and zstd files may consist of several members.
"""

from __future__ import annotations

import csv
import functools
import io
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import starmap
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import Encoder
from penstock.common.time import Instant
from penstock.common.type_info.flink_text import is_written_otherwise, text_of
from penstock.common.types import Row
from penstock.connectors.formats.arrow_types import ARRAYS
from penstock.connectors.formats.csv import CsvDialect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.typeinfo import TypeInformation

_LONGEST_LOOKED_AT = 24
_FINER = ("ns", "ps", "fs", "as")


class _Plain(str):
    """What never needs quotes: a number's text."""

    __slots__ = ()


_NUMBERS = (int, float, Decimal, np.number, _Plain)
COMPRESSIONS = {"gzip": ".gz", "zstd": ".zst"}
"""Codec -> what a file name then ends with."""
_LEVELS = {"gzip": 4, "zstd": 3}


class JsonLinesEncoder(Encoder):
    r"""One JSON value per line: dicts, Rows with names, NamedTuples, dataclasses, Structs and pydantic's models as objects.

    Args:
        fields: names for the fields of tuples and of Rows without names; tuples are arrays without them.

    >>> JsonLinesEncoder(["id", "n"]).encode_batch([("a", 1), ("b", 2)])
    b'{"id":"a","n":1}\n{"id":"b","n":2}\n'
    """

    suffix = ".jsonl"

    def __init__(self, fields: Sequence[str] | None = None) -> None:
        self._fields = None if fields is None else tuple(fields)
        self._struct = None if fields is None else _struct(tuple(fields))
        self._encode_lines = msgspec.json.Encoder(enc_hook=_plain, decimal_format="number").encode_lines

    def encode(self, element: Any) -> bytes:
        return self.encode_batch([element])

    def encode_batch(self, elements: Sequence[Any]) -> bytes:
        try:
            return self._encode_lines(self._objects(elements))
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise RecordFormatError(
                f"records such as {_shown(elements)} cannot be written as JSON: {error}",
                remedy="map them to dicts, tuples, dataclasses or NamedTuples of plain values",
            ) from error

    def _objects(self, elements: Sequence[Any]) -> Sequence[Any]:
        if not elements:
            return elements
        first = elements[0]
        if isinstance(first, Row):
            if self._struct is not None:
                return list(starmap(self._struct, elements))
            return [row.as_dict() if isinstance(row, Row) else row for row in elements]
        if isinstance(first, tuple):
            if hasattr(first, "_asdict"):
                return [value._asdict() if hasattr(value, "_asdict") else value for value in elements]
            if self._struct is not None:
                return list(starmap(self._struct, elements))
        return elements

    def __getstate__(self) -> dict[str, Any]:
        return {"fields": self._fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["fields"])  # type: ignore[misc]


class CsvEncoder(Encoder):
    r"""One CSV line per record: tuples, lists, Rows, NamedTuples by position; dicts and objects by name.

    Args:
        fields: names of the fields: what a header line says, and what is taken of dicts and objects.
        dialect: separators and quotes; a header line is written unless `header` is "none".
        types: of the fields; booleans and numbers are then written as Flink writes them, `true`, `1.0E10`, and texts are in quotes
            where Flink's are (`_flink_lines`).

    >>> CsvEncoder(["id", "n"]).encode_batch([("a,b", 1), ("c", None)])
    b'"a,b",1\nc,\n'
    """

    suffix = ".csv"

    def __init__(
        self,
        fields: Sequence[str] | None = None,
        dialect: CsvDialect | None = None,
        types: Sequence[TypeInformation] | None = None,
    ) -> None:
        self._types = types
        self._fields = None if fields is None else list(fields)
        self._dialect = dialect or CsvDialect()
        separators = self._dialect.array_separators
        self._lists = {n: separators[name] for n, name in enumerate(fields or ()) if name in separators}
        if self._dialect.header != "none" and fields is None:
            raise InvalidJob("a CSV header needs names", remedy="give the encoder its fields")

    def header(self) -> bytes:
        """What a file begins with."""
        return b"" if self._dialect.header == "none" else self._lines([self._fields or []])

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
                f"records such as {_shown(elements)} cannot be written as CSV: {error}",
                remedy="map them to tuples, or name the encoder's fields",
            ) from error

    @functools.cached_property
    def _texts(self) -> list[Callable[[Any], str] | None]:
        """What writes a field whose text is another one in Flink, or the items of such a list."""
        kinds = [kind.element_type if isinstance(kind, ARRAYS) else kind for kind in self._types or ()]
        return [text_of(kind) if is_written_otherwise(kind) else None for kind in kinds]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_texts"}

    def _values(self, elements: Sequence[Any]) -> Sequence[Any]:
        if not elements or isinstance(elements[0], tuple | list | Row):
            return elements
        if self._fields is None:
            raise InvalidJob(f"CSV of {type(elements[0]).__name__} needs names", remedy="give the encoder its fields")
        if isinstance(elements[0], dict):
            return [[value.get(name) for name in self._fields] for value in elements]
        return [[getattr(value, name) for name in self._fields] for value in elements]

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
        """A text of more than 24 characters is in quotes, as is one with a character that does not sort behind separator, quote and
        line end: it could be one of them, and Flink's writer (Jackson's) does not look closer. Quotes are doubled."""
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
            if len(text) <= _LONGEST_LOOKED_AT and not has_escape and (not text or min(text) >= safe):
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
    """A function from a record to its line, without the line end."""

    def __init__(self, function: Callable[[Any], str | bytes]) -> None:
        self._function = function

    def encode(self, element: Any) -> bytes:
        line = self._function(element)
        return (line.encode() if isinstance(line, str) else line) + b"\n"


class CompressedEncoder(Encoder):
    """What another encoder gives, compressed: "gzip" or "zstd", a member for each batch."""

    def __init__(self, encoder: Encoder, compression: str) -> None:
        if compression not in COMPRESSIONS:
            raise InvalidJob(f"compression={compression!r}", remedy=f"use one of {', '.join(COMPRESSIONS)}")
        self._encoder = encoder
        self._compression = compression

    def with_input_type(self, type_info: TypeInformation) -> Encoder:
        return CompressedEncoder(self._encoder.with_input_type(type_info), self._compression)

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
    """What a file of this encoder begins with; nothing for most."""
    header = getattr(encoder, "header", None)
    return bytes(header()) if callable(header) else b""


def suffix_of(encoder: Encoder) -> str:
    """What names of an encoder's files end with, unless the user says otherwise."""
    return str(getattr(encoder, "suffix", ""))


def _struct(fields: tuple[str, ...]) -> Any:
    names = [f"f{n}" for n in range(len(fields))]
    rename = dict(zip(names, fields, strict=True))
    return msgspec.defstruct("Record", [(name, Any) for name in names], rename=rename, gc=False)


def _plain(value: Any) -> Any:
    """What msgspec does not know by itself."""
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
        return _of_subclass(value)
    if hasattr(type(value), "model_dump"):  # pydantic's
        return value.model_dump()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _of_subclass(value: date | timedelta) -> Any:
    """Python's own of those of a subclass, such as pandas', whose NaT is not what it is, and which may have nanoseconds."""
    if value != value:
        return None
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if not isinstance(value, datetime) or getattr(value, "nanosecond", False):
        return value.isoformat()
    return datetime.combine(value.date(), value.timetz(), value.tzinfo)


def _plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """As Python's own would be written; nanoseconds, and years that Python has not, as numpy writes them."""
    if np.isnat(value):
        return None
    known = value.astype(f"{value.dtype.kind}8[us]") if np.datetime_data(value.dtype)[0] in _FINER else value
    found = known.item()
    if known == value and not isinstance(found, int):
        return found
    return str(value)


def _shown(elements: Sequence[Any]) -> str:
    text = repr(elements[0]) if elements else ""
    return text if len(text) <= 200 else f"{text[:200]}…"
