"""Types of values that are stored as messages: Avro values by a schema, Protobuf values by a generated class."""

from __future__ import annotations

import json
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.program.extras import import_extra
from penstock.common.type_info.type_information import TypeInformation


class AvroValue:
    """Annotation of the values of an Avro schema. It has no instances."""


class AvroTypeInfo(TypeInformation):
    """Values of an Avro schema. Records are dicts, and logical types are Python values.

    Args:
        schema: JSON text, parsed JSON, or an `AvroSchema`.

    Raises:
        InvalidJob: the value is not a schema, or fastavro is not installed.
    """

    def __init__(self, schema: Any) -> None:
        avro = import_extra("fastavro", "avro", "Avro")
        given = getattr(schema, "text", schema)
        try:
            parsed = json.loads(given) if isinstance(given, str) else given
            self.text = json.dumps(parsed, separators=(",", ":"))
            avro.parse_schema(json.loads(self.text))
        except Exception as error:  # fastavro raises many kinds for bad JSON, bad schemas and unknown names
            raise InvalidJob(
                f"not an Avro schema: {error}: {str(given)[:200]}", remedy="pass a schema as JSON text"
            ) from error

    @property
    def python_type(self) -> type:
        return AvroValue

    def _accepts(self, value: Any) -> bool:
        return True

    def _key(self) -> tuple[object, ...]:
        return (self.text,)

    def __repr__(self) -> str:
        return f"Types.AVRO({self.text!r})"


def is_message_class(annotation: Any) -> bool:
    """Return whether the annotation is a class that protoc has generated.

    >>> is_message_class(dict)
    False
    """
    descriptor = getattr(annotation, "DESCRIPTOR", None) if isinstance(annotation, type) else None
    return hasattr(descriptor, "fields_by_number") and hasattr(annotation, "FromString")
