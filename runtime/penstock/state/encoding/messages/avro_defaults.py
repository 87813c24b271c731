"""Defaults of Avro schemas as Python values.

In a schema's JSON, the default of a bytes field is text, and the default of a logical type is a number. fastavro returns these forms
unchanged.
"""

from __future__ import annotations

from typing import Any

from fastavro.read import LOGICAL_READERS

from penstock.common.errors import InvalidJob
from penstock.state.encoding.messages.avro_evolution import collect_named, plain


def load_defaults(parsed: Any) -> None:
    """Convert the defaults of all records in a schema that fastavro has parsed, in place.

    Raises:
        InvalidJob: a default is not a value of its logical type.
    """
    named: dict[str, Any] = {}
    collect_named(parsed, "", named)
    records = {id(one): one for one in named.values() if "fields" in one}
    fields = [field for record in records.values() for field in record["fields"] if "default" in field]
    for field, value in [
        (field, _loaded_field(field, named)) for field in fields
    ]:  # convert all defaults before the first is replaced: the conversion of a default may need the original form of another
        field["default"] = value


def _loaded_field(field: dict[str, Any], named: dict[str, Any]) -> Any:
    try:
        return _loaded(field["default"], field["type"], named)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidJob(
            f"field {field['name']!r} of an Avro schema has the default {field['default']!r}: {error}",
            remedy="correct the default",
        ) from error


def _loaded(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    schema = plain(schema, named)
    if isinstance(schema, list):  # Avro: a default belongs to the first branch
        return _loaded(value, schema[0], named) if value is not None else None
    kind = schema["type"]
    if kind in ("bytes", "fixed") and isinstance(value, str):
        value = value.encode("latin-1")
    elif kind in ("float", "double") and isinstance(value, int):
        value = float(value)
    elif kind == "array":
        value = [_loaded(one, schema["items"], named) for one in value]
    elif kind == "map":
        value = {key: _loaded(one, schema["values"], named) for key, one in value.items()}
    elif kind in ("record", "error"):
        fields = {field["name"]: value.get(field["name"], field.get("default")) for field in schema["fields"]}
        value = {field["name"]: _loaded(fields[field["name"]], field["type"], named) for field in schema["fields"]}
    load = LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return value if load is None else load(value, schema, None)
