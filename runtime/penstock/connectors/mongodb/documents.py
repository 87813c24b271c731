"""Convert records to documents in MongoDB's format (BSON), and documents to records."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

import msgspec
import numpy as np

from penstock.common.time import Instant
from penstock.common.types import Row
from penstock.connectors.mongodb.client import package

_PLAIN = frozenset({str, int, float, bool, bytes, type(None), datetime, UUID})
_TO_MS = "datetime64[ms]"


@cache
def _options(*, reads: bool = False) -> Any:
    options = package("bson.codec_options")
    return options.CodecOptions(
        tz_aware=True,
        tzinfo=UTC,
        uuid_representation=package("bson.binary").UuidRepresentation.STANDARD,
        type_registry=options.TypeRegistry(_decoders()) if reads else options.TypeRegistry(),
    )


def stored_options() -> Any:
    """Return BSON options that keep values as the server stores them."""
    return _options()


def record_options() -> Any:
    """Return BSON options that convert values for records: ids to text, decimals to `Decimal`, integers to `int`, bytes to `bytes`, times
    to UTC."""
    return _options(reads=True)


def _decoders() -> list[Any]:
    bson, codecs = package("bson"), package("bson.codec_options")

    def decoder(kind: Any, transform: Any) -> Any:
        made = {"bson_type": kind, "transform_bson": lambda self, value: transform(value)}
        return type("Decoder", (codecs.TypeDecoder,), made)()

    return [
        decoder(bson.ObjectId, str),
        decoder(bson.Int64, int),
        decoder(bson.Decimal128, lambda value: value.to_decimal()),
        decoder(bson.Binary, bytes),
    ]


def encoded(document: Mapping[str, Any]) -> bytes:
    """Encode a document as BSON. A value without a BSON type is converted to a similar type, see `storable`.

    Raises:
        ValueError: a value has no representation in BSON. The message names it.
    """
    bson = package("bson")
    try:
        return bytes(bson.encode(document, codec_options=stored_options()))
    except (bson.errors.BSONError, TypeError, ValueError, OverflowError):
        plain = storable(document, "")
    try:
        return bytes(bson.encode(plain, codec_options=stored_options()))
    except (bson.errors.BSONError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error).removeprefix("Invalid document: ")) from error


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a record by name, or None if it has no fields."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Row):
        return None if value.get_field_names() is None else value.as_dict()
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: getattr(value, field) for name, field in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if hasattr(value, "model_dump"):  # pydantic models
        return dict(value.model_dump(by_alias=True))
    return None


def storable(value: Any, path: str) -> Any:
    """Convert a value for BSON, at any depth. In BSON, times have milliseconds, decimals have 34 digits, and integers have 8 bytes.

    Raises:
        ValueError: the value has no representation in BSON. The message contains the path of the value.
    """
    kind = type(value)
    if kind in _PLAIN:
        return _checked(value, path)
    if isinstance(value, Enum):
        return storable(value.value, path)
    if isinstance(value, np.generic | np.ndarray):
        return _of_numpy(value, path)
    if isinstance(value, str | bytes | bytearray | memoryview | int | float):
        return _checked(next(as_(value) for as_, kinds in _BASES if isinstance(value, kinds)), path)
    if isinstance(value, date):
        return _time_of(value)
    if isinstance(value, Instant):
        return datetime.fromtimestamp(value.to_epoch_milli() / 1000, UTC)
    if isinstance(value, Decimal):
        return _decimal(value, path)
    if kind.__module__.partition(".")[0] == "bson":
        return value
    if isinstance(value, list | tuple | set | frozenset) and not isinstance(value, Row):
        return [storable(item, f"{path}[{n}]") for n, item in enumerate(value)]
    fields = as_mapping(value)
    if fields is not None:
        return {_name(name, path): storable(item, f"{path}.{name}" if path else name) for name, item in fields.items()}
    if isinstance(value, Row):
        return [storable(item, f"{path}[{n}]") for n, item in enumerate(value)]
    raise ValueError(
        f"{path or 'the document'} is a {kind.__name__}, which has no BSON representation: {str(value)[:100]}"
    )


_BASES: tuple[tuple[Any, Any], ...] = (
    (str, str),
    (bytes, bytes | bytearray | memoryview),
    (bool, bool),
    (int, int),
    (float, float),
)


def _checked(value: Any, path: str) -> Any:
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ValueError(f"{path} is the number {str(value)[:60]}, but BSON's integers have 8 bytes")
    if type(value) is str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{path} is a text with a lone surrogate: {value[:60]!a}") from error
    return value


def _of_numpy(value: Any, path: str) -> Any:
    if isinstance(value, np.ndarray):
        return [storable(item, f"{path}[{n}]") for n, item in enumerate(value)]
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else storable(value.astype(_TO_MS).item(), path)
    if isinstance(value, np.timedelta64):
        raise ValueError(f"{path} is a {type(value).__name__}, which has no BSON representation: write a number")
    return storable(value.item(), path)


def _time_of(value: date) -> Any:
    """Convert a day to its midnight in UTC. A missing time (pandas' NaT) becomes null."""
    if value != value:
        return None
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day, tzinfo=UTC)


def _decimal(value: Decimal, path: str) -> Any:
    try:
        return package("bson").Decimal128(value)
    except ArithmeticError as error:
        raise ValueError(f"{path} is {str(value)[:60]}, but BSON's decimals have 34 digits") from error


def _name(name: Any, path: str) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{path or 'the document'} has the key {name!r}, but BSON's keys are text")
    return str(name)


def last_of(batch: bytes) -> tuple[int, bytes]:
    """Return the number of documents in a batch, and the last document.

    >>> last_of(b"\\x05\\0\\0\\0\\0" * 3)
    (3, b'\\x05\\x00\\x00\\x00\\x00')
    """
    begin = 0
    for count in itertools.count(1):
        end = begin + int.from_bytes(batch[begin : begin + 4], "little")
        if end >= len(batch):
            return count, batch[begin:]
        begin = end
    raise AssertionError("unreachable")
