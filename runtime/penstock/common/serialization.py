"""Schemas that convert records to bytes and back, for connectors to message systems and files.

A schema converts one record. Connectors call the `_batch` methods. A schema overrides these methods if it can convert
many records faster.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.type_info.flink_text import text_of
from penstock.common.typeinfo import PrimitiveArrayTypeInfo, RowTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class SerializationSchema(ABC):
    """A schema that converts a record to the bytes of a message."""

    @abstractmethod
    def serialize(self, element: Any, /) -> bytes:
        """Convert a record.

        Raises:
            RecordFormatError: the record does not fit the schema. The error names the record and the reason.
        """

    def serialize_batch(self, elements: Sequence[Any], /) -> list[bytes]:
        return list(map(self.serialize, elements))

    def validate(self) -> None:  # noqa: B027 - most schemas have nothing to check
        """Check before the job starts that a schema registry responds and would accept the schema.

        Raises:
            SinkError: the check failed.
        """


class DeserializationSchema(ABC):
    """A schema that converts the bytes of a message to a record."""

    @abstractmethod
    def deserialize(self, message: bytes, /) -> Any:
        """Return the record; None drops the message.

        Raises:
            RecordFormatError: the message does not fit the schema. The error names the message and the reason.
        """

    def deserialize_batch(self, messages: Sequence[bytes], /) -> list[Any]:
        return [record for record in map(self.deserialize, messages) if record is not None]

    def validate(self) -> None:  # noqa: B027 - most schemas have nothing to check
        """Check before the job starts that a schema registry responds.

        Raises:
            SourceError: the check failed.
        """

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the records; None means unknown."""
        return None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in an encoding.

    >>> SimpleStringSchema().serialize("é"), SimpleStringSchema("latin-1").deserialize(b"\\xe9")
    (b'\\xc3\\xa9', 'é')
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = _known_charset(charset)

    def serialize(self, element: Any) -> bytes:
        return str(element).encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        try:
            return message.decode(self._charset)
        except UnicodeDecodeError as error:
            raise RecordFormatError(
                f"{bytes(message)[:80]!r} is not {self._charset}: {error.reason} at byte {error.start}",
                remedy="set the charset of the messages",
            ) from None

    def get_produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes without conversion."""

    def serialize(self, element: Any) -> bytes:
        if not isinstance(element, bytes | bytearray | memoryview):
            raise RecordFormatError(
                f"{element!r} of type {type(element).__name__} is not bytes",
                remedy="map it to bytes, or use another schema",
            )
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        return bytes(message)

    def get_produced_type(self) -> TypeInformation:
        return PrimitiveArrayTypeInfo(Types.BYTE())


class _NoField(InvalidJob, ValueError):
    """An unknown field. It is a ValueError, too, as in PyFlink."""


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a Row or tuple, which must be bytes. None or a missing record becomes empty bytes.

    >>> RowFieldExtractorSchema(1).serialize(("key", b"value"))
    b'value'
    """

    def __init__(self, field_index: int) -> None:
        if isinstance(field_index, bool) or not isinstance(field_index, int) or field_index < 0:
            raise _NoField(f"Field index must be non-negative, an int, not {field_index!r}")
        self._field_index = field_index

    def get_field_index(self) -> int:
        return self._field_index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowFieldExtractorSchema) and other._field_index == self._field_index

    def __hash__(self) -> int:
        return hash((RowFieldExtractorSchema, self._field_index))

    def serialize(self, element: Any) -> bytes:
        if element is None:
            return b""
        try:
            field = element[self._field_index]
        except (IndexError, TypeError, KeyError):
            raise RecordFormatError(f"no field {self._field_index} in the record {element!r}") from None
        if field is None:
            return b""
        if isinstance(field, bytes | bytearray):
            return bytes(field)
        raise RecordFormatError(
            f"field {self._field_index} is {field!r} of type {type(field).__name__}, not bytes",
            remedy="map the field to bytes first: text.encode()",
        )


class Encoder(ABC):
    """A converter of records to the bytes of a row-wise file."""

    @abstractmethod
    def encode(self, element: Any, /) -> bytes:
        """Convert a record, including the separator before the next record."""

    def with_input_type(self, type_info: TypeInformation, /) -> Encoder:
        """Return this encoder for records of a declared type."""
        return self

    def encode_batch(self, elements: Sequence[Any], /) -> bytes:
        return b"".join(map(self.encode, elements))

    def format_name(self) -> str:
        """Name the format. A file keeps the format with which it was started."""
        return type(self).__qualname__

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder that writes each record as a line of text.

        >>> Encoder.simple_string_encoder().encode(21.5)
        b'21.5\\n'
        """
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """The text of each record and a line feed. The text is Flink's if the stream's type was declared, else Python's `str`.

    >>> SimpleStringEncoder().with_input_type(Types.TUPLE([Types.STRING(), Types.BOOLEAN()])).encode(("a", True))
    b'(a,true)\\n'
    """

    def __init__(self, charset_name: str = "UTF-8") -> None:
        self._charset = _known_charset(charset_name)
        self._type_info: TypeInformation | None = None

    def with_input_type(self, type_info: TypeInformation) -> Encoder:
        bound = SimpleStringEncoder(self._charset)
        bound._type_info = type_info
        return bound

    @functools.cached_property
    def _text(self) -> Callable[[Any], str]:
        return text_of(self._type_info)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_text"}

    def encode(self, element: Any) -> bytes:
        return f"{self._text(element)}\n".encode(self._charset)

    def encode_batch(self, elements: Sequence[Any]) -> bytes:
        return "".join([f"{text}\n" for text in map(self._text, elements)]).encode(self._charset)


class BulkWriterFactory(ABC):  # noqa: B024 - the writers differ by format
    """Factory of the writers for a bulk file format, such as Parquet."""


class RowDataBulkWriterFactory(BulkWriterFactory):
    """A bulk format whose records are Rows of one type."""

    def __init__(self, row_type: RowTypeInfo) -> None:
        self._row_type = row_type

    def get_row_type(self) -> RowTypeInfo:
        return self._row_type


def _known_charset(charset: str) -> str:
    try:
        "".encode(charset)
    except LookupError:
        raise InvalidJob(f"the charset {charset!r} does not exist", remedy="use for example UTF-8 or latin-1") from None
    return charset


__all__ = [
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringEncoder",
    "SimpleStringSchema",
]
