"""Avro messages, one record each. Both sides know the schema, or a registry's id in the message names it.

If a registry is used (`formats.registry`), the id in a message names the *writer's* schema. The program gives the *reader's* schema.
Avro's rules decide about fields that only one of the two schemas has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from penstock.common.errors import PlatformError, RecordFormatError
from penstock.common.serialization import SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.formats.avro.columns import shape_of
from penstock.connectors.formats.avro.defaults import own_defaults
from penstock.connectors.formats.avro.exactness import check_of
from penstock.connectors.formats.avro.registered import avro_schema, registered
from penstock.connectors.formats.avro.schema import (
    AvroSchema,
    Convert,
    fastavro,
    is_recursive,
    row_type,
    to_dicts,
    to_rows,
)
from penstock.connectors.formats.message_format import DecodeMessages, MessageFormat, RecordBatches
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.formats.registry import HEAD, SchemaAbsent, SchemaRegistry, id_of

_SHOWN = 200
_SHALLOW = 2_000
"""Size in bytes up to which a message is safe for the C extension. Each nested record takes at least one byte, so the stack cannot overflow."""


class AvroMessages(MessageFormat):
    """A format of Avro messages.

    Args:
        schema: the reader's schema.
        rows: whether records are Rows instead of dicts.
        registry: the registry with the writers' schemas, whose ids are in the messages; None means that messages are written with `schema`.
    """

    def __init__(self, schema: AvroSchema, *, rows: bool = False, registry: SchemaRegistry | None = None) -> None:
        self._schema = schema
        self._rows = rows
        self._registry = registry
        self._type = row_type(schema) if rows else None
        self._writers: dict[int, tuple[Any, Callable[..., Any]]] = {}
        """Writers' schemas by id, each with the function that reads its records."""
        self._reads: tuple[Callable[[bytes], Any], Convert | None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _messages, (type(self), self._schema, self._rows, self._registry)

    def deserialize(self, message: bytes) -> Any:
        read, to_row = self._reads or self._reader()
        try:
            record = read(bytes(message))
            return record if to_row is None else to_row(record)
        except PlatformError:
            raise
        except Exception as error:  # damaged bytes make fastavro raise any kind of error
            raise RecordFormatError(
                f"malformed Avro message: {type(error).__name__}: {error}: {bytes(message)[:_SHOWN]!r}",
                remedy="check that reader and writer use this schema, and that either both or neither of them use a schema registry",
            ) from error

    def deserialize_batch(self, messages: Sequence[bytes]) -> list[Any]:
        read, to_row = self._reads or self._reader()
        try:
            records = list(map(read, messages))
            return records if to_row is None else list(map(to_row, records))
        except PlatformError:
            raise
        except Exception:  # decode message by message, to find the malformed one
            return super().deserialize_batch(messages)

    def batch_decoder(self) -> DecodeMessages:
        read, to_row = self._reads or self._reader()
        batches = RecordBatches(shape_of(self._schema, rows=self._rows), to_row)
        return lambda messages: batches.batch(list(map(read, messages)))

    def validate(self) -> None:
        if self._registry is not None:
            self._registry.ping()

    def get_produced_type(self) -> TypeInformation | None:
        return self._type

    def _reader(self) -> tuple[Callable[[bytes], Any], Convert | None]:
        schema = self._schema.parsed
        mend = own_defaults(schema)
        read_one = _reader_of(schema)

        def one(message: bytes) -> Any:
            data = BytesIO(message)
            record = read_one(data, schema, None)
            if data.tell() != len(message):
                raise MalformedBlock(f"{len(message) - data.tell()} bytes follow the record")
            return record

        def of_registry(message: bytes) -> Any:
            id = id_of(message)
            known = self._writers.get(id)
            if known is None:
                writer = self._writer(id)
                known = self._writers[id] = writer, _reader_of(writer)
            writer, read = known
            data = BytesIO(message)
            data.seek(HEAD.size)
            record = read(data, writer, None if writer is schema else schema)
            if data.tell() != len(message):
                raise MalformedBlock(f"{len(message) - data.tell()} bytes follow the record")
            return record if mend is None or writer is schema else mend(record)

        self._reads = one if self._registry is None else of_registry, to_rows(schema) if self._rows else None
        return self._reads

    def _writer(self, id: int) -> Any:
        assert self._registry is not None
        try:
            written = avro_schema(self._registry, id)
        except SchemaAbsent as error:
            raise MalformedBlock(error.message) from error
        return self._schema.parsed if written == self._schema else written.parsed


def _reader_of(written: Any) -> Callable[..., Any]:
    """Return the function that reads records of a writer's schema.

    Long messages of a recursive schema are read by fastavro's Python code, which limits the depth. The C extension does not: deep
    records would overflow the stack and crash the process.
    """
    quick: Callable[..., Any] = fastavro().schemaless_reader
    if not is_recursive(written):
        return quick
    careful = fastavro("fastavro._read_py").schemaless_reader

    def read(data: BytesIO, *schemas: Any) -> Any:
        return (quick if data.getbuffer().nbytes <= _SHALLOW else careful)(data, *schemas)

    return read


def _messages(kind: Any, schema: AvroSchema, rows: bool, registry: SchemaRegistry | None) -> Any:
    created = kind.__new__(kind)
    AvroMessages.__init__(created, schema, rows=rows, registry=registry)
    return created


class AvroMessageWriter(SerializationSchema):
    """A writer of Avro messages.

    Args:
        schema: the writer's schema. Records are dicts, Rows, or objects with its fields.
        registry: the registry whose schema id starts each message; None means that a message contains only the record.
        subject: the subject of the schema in the registry.
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
                remedy="write records with the schema's fields and types",
            ) from error

    def validate(self) -> None:
        if self._registry is not None:
            self._registry.check(self._subject, registered(self._schema))

    def _writer(self) -> Callable[[Any], bytes]:
        write = fastavro().schemaless_writer
        convert, check, schema = to_dicts(self._schema.parsed), check_of(self._schema.parsed), self._schema.parsed
        head = (
            b""
            if self._registry is None
            else HEAD.pack(0, self._registry.register(self._subject, registered(self._schema)))
        )

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
    created = kind.__new__(kind)
    AvroMessageWriter.__init__(created, schema, registry=registry, subject=subject)
    return created
