"""Avro in messages: one record each, with the schema known to both sides or named by an id of a schema registry.

**The wire format of Confluent's registry**: a zero byte, the schema's id (32 bits, big-endian), the record. The id is of the
*writer's* schema, which is asked of the registry once; what the program has given is the *reader's*, and Avro's rules say what
becomes of fields that only one of them has. A registry that does not answer is an error of the platform's and
not of a message: the job fails over, nothing goes to a side output. One that knows no such id is an answer: the message is malformed,
else a few bytes of a stranger's would end the job for ever.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from penstock.common.errors import PlatformError, RecordFormatError
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.avro.exactness import check_of
from penstock.connectors.formats.avro.registry import SchemaAbsent, SchemaRegistry
from penstock.connectors.formats.avro.schema import AvroSchema, fastavro, is_recursive, row_type, to_dicts, to_rows
from penstock.connectors.formats.record_format import MalformedBlock

_HEAD = struct.Struct(">bI")
_SHOWN = 200
_SHALLOW = 2_000
"""Bytes of a message that cannot hold records within each other so deep that the process's stack ends: each takes a byte at least."""


class AvroMessages(DeserializationSchema):
    """
    Args:
        schema: the reader's.
        rows: records are Rows, and not dicts.
        registry: messages name their writer's schema; None: they are written with `schema`.
    """

    def __init__(self, schema: AvroSchema, *, rows: bool = False, registry: SchemaRegistry | None = None) -> None:
        self._schema = schema
        self._rows = rows
        self._registry = registry
        self._type = row_type(schema) if rows else None
        self._writers: dict[int, tuple[Any, Callable[..., Any]]] = {}
        """Schema, and what reads it."""
        self._read: Callable[[bytes], Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _messages, (type(self), self._schema, self._rows, self._registry)

    def deserialize(self, message: bytes) -> Any:
        read = self._read or self._reader()
        try:
            return read(bytes(message))
        except PlatformError:
            raise
        except Exception as error:  # damaged bytes make fastavro raise whatever comes of them
            raise RecordFormatError(
                f"malformed Avro message: {type(error).__name__}: {error}: {bytes(message)[:_SHOWN]!r}",
                remedy="check that it was written with this schema, and with or without a registry as it is read",
            ) from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> list[Any]:
        read = self._read or self._reader()
        try:
            return list(map(read, messages))
        except PlatformError:
            raise
        except Exception:  # message by message, to find out which
            return super().deserialize_batch(messages)

    def get_produced_type(self) -> TypeInformation | None:
        return self._type

    def _reader(self) -> Callable[[bytes], Any]:
        convert = to_rows(self._schema.parsed) if self._rows else None
        schema = self._schema.parsed
        read_one = _reader_of(schema)

        def one(message: bytes) -> Any:
            data = BytesIO(message)
            record = read_one(data, schema, None)
            if data.tell() != len(message):
                raise MalformedBlock(f"{len(message) - data.tell()} bytes follow the record")
            return record if convert is None else convert(record)

        def of_registry(message: bytes) -> Any:
            if len(message) < _HEAD.size or message[0]:
                raise MalformedBlock("it does not begin with a schema's id")
            id = _HEAD.unpack_from(message)[1]
            known = self._writers.get(id)
            if known is None:
                writer = self._writer(id)
                known = self._writers[id] = writer, _reader_of(writer)
            writer, read = known
            data = BytesIO(message)
            data.seek(_HEAD.size)
            record = read(data, writer, None if writer is schema else schema)
            if data.tell() != len(message):
                raise MalformedBlock(f"{len(message) - data.tell()} bytes follow the record")
            return record if convert is None else convert(record)

        self._read = one if self._registry is None else of_registry
        return self._read

    def _writer(self, id: int) -> Any:
        assert self._registry is not None
        try:
            written = self._registry.schema(id)
        except SchemaAbsent as error:
            raise MalformedBlock(error.message) from error
        return self._schema.parsed if written == self._schema else written.parsed


def _reader_of(written: Any) -> Callable[..., Any]:
    """What reads records of the schema. Of one that holds itself, long messages are read by Python's own code: the
    extension knows no end of depth but that of the process."""
    quick: Callable[..., Any] = fastavro().schemaless_reader
    if not is_recursive(written):
        return quick
    careful = fastavro("fastavro._read_py").schemaless_reader

    def read(data: BytesIO, *schemas: Any) -> Any:
        return (quick if data.getbuffer().nbytes <= _SHALLOW else careful)(data, *schemas)

    return read


def _messages(kind: Any, schema: AvroSchema, rows: bool, registry: SchemaRegistry | None) -> Any:
    made = kind.__new__(kind)
    AvroMessages.__init__(made, schema, rows=rows, registry=registry)
    return made


class AvroMessageWriter(SerializationSchema):
    """
    Args:
        schema: the writer's; records are dicts, Rows, or objects with its fields.
        registry: messages begin with the schema's id; None: they are the record alone.
        subject: under which the registry has the schema, or gets it.
    """

    def __init__(self, schema: AvroSchema, *, registry: SchemaRegistry | None = None, subject: str = "") -> None:
        self._schema = schema
        self._registry = registry
        self._subject = subject
        self._write: Callable[[Any], bytes] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _writer, (type(self), self._schema, self._registry, self._subject)

    def serialize(self, element: Any) -> bytes:
        write = self._write or self._writer()
        try:
            return write(element)
        except Exception as error:
            raise RecordFormatError(
                f"{str(element)[:_SHOWN]} does not fit the Avro schema: {type(error).__name__}: {error}",
                remedy="give records with the schema's fields and types",
            ) from error

    def _writer(self) -> Callable[[Any], bytes]:
        write = fastavro().schemaless_writer
        convert, check, schema = to_dicts(self._schema.parsed), check_of(self._schema.parsed), self._schema.parsed
        head = b"" if self._registry is None else _HEAD.pack(0, self._registry.register(self._subject, self._schema))

        def one(element: Any) -> bytes:
            data = BytesIO()
            data.write(head)
            record = element if convert is None else convert(element)
            if check is not None:
                check(record)
            write(data, schema, record, strict_allow_default=True)
            return data.getvalue()

        self._write = one
        return one


def _writer(kind: Any, schema: AvroSchema, registry: SchemaRegistry | None, subject: str) -> Any:
    made = kind.__new__(kind)
    AvroMessageWriter.__init__(made, schema, registry=registry, subject=subject)
    return made
