"""Sinks that serialize each record into the body of a message."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.serialization import Encoder, SerializationSchema
from penstock.connectors.core.sink import Sink

_SHOWN = 200


class MessageSink(Sink):
    """A sink of messages.

    Args:
        schema: the serializer of bodies: a schema, or an encoder of lines such as `JsonLinesEncoder`, which encodes batches.
    """

    def __init__(self, schema: SerializationSchema | Encoder) -> None:
        check_serializer(schema)
        self.schema = schema

    def with_input_type(self, type_info: Any) -> Sink:
        if not isinstance(self.schema, Encoder):
            return self
        typed = copy.copy(self)
        typed.schema = self.schema.with_input_type(type_info)
        return typed

    def bodies(self, records: Sequence[Any]) -> list[bytes]:
        """Return the bodies of the records' messages.

        Raises:
            RecordFormatError: a record does not fit the schema, or the serializer returns something other than bytes.
        """
        bodies: list[bytes] = []
        for body, record in zip(serialized(self.schema, records), records, strict=True):
            if not isinstance(body, bytes):
                raise RecordFormatError(
                    f"the serializer returned {short_repr(body)} for {short_repr(record)}, which is not bytes",
                    remedy="return bytes, and filter out records without a message before the sink",
                )
            bodies.append(body)
        return bodies


def check_serializer(schema: Any) -> None:
    """Check that `serialized` supports the schema.

    Raises:
        InvalidJob: the schema is neither a `SerializationSchema` nor an `Encoder`.
    """
    if not isinstance(schema, SerializationSchema | Encoder):
        raise InvalidJob(
            f"{schema!r} is not a serializer of messages",
            remedy="pass a SerializationSchema such as SimpleStringSchema(), or JsonLinesEncoder()",
        )


def serialized(schema: SerializationSchema | Encoder, records: Sequence[Any]) -> list[bytes | None]:
    """Return the records as bytes. A line has no line end.

    Raises:
        RecordFormatError: a record does not match the schema.
    """
    if isinstance(schema, SerializationSchema):
        return list(schema.serialize_batch(records))
    lines = schema.encode_batch(records).split(b"\n")
    if len(lines) == len(records) + 1 and not lines[-1]:
        del lines[-1]
        return list(lines)
    return [schema.encode(record).removesuffix(b"\n") for record in records]


def short_repr(value: Any) -> str:
    """Return the beginning of a value's representation, for an error."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
