"""Types of values that are stored as messages: Avro's by a schema, Protobuf's by a generated class."""

from __future__ import annotations

import json
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.extras import module_of_extra
from penstock.common.type_info.type_information import TypeInformation


class AvroValue:
    """Stands for values of an Avro schema where an annotation is asked for. Nothing else has such values."""


class AvroTypeInfo(TypeInformation):
    """Values of an Avro schema: records are dicts, logical types Python's values.

    Args:
        schema: JSON text, what JSON gives of it, or an `AvroSchema`.

    Raises:
        InvalidJob: it is no schema, or fastavro is not installed.
    """

    def __init__(self, schema: Any) -> None:
        avro = module_of_extra("fastavro", "avro", "Avro")
        given = getattr(schema, "text", schema)
        try:
            told = json.loads(given) if isinstance(given, str) else given
            self.text = json.dumps(told, separators=(",", ":"))
            avro.parse_schema(json.loads(self.text))
        except Exception as error:  # of many kinds, for what is no JSON, no schema, or names what is not there
            raise InvalidJob(
                f"not an Avro schema: {error}: {str(given)[:200]}", remedy="give a schema as JSON text"
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
    """Whether it is a class that protoc has generated.

    >>> is_message_class(dict)
    False
    """
    descriptor = getattr(annotation, "DESCRIPTOR", None) if isinstance(annotation, type) else None
    return hasattr(descriptor, "fields_by_number") and hasattr(annotation, "FromString")
