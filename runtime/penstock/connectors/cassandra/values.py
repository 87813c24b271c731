"""Convert Python's values to the bytes of a column.

The driver would convert `"false"` to true, and 3 to three zero bytes. It would convert `2.5` to the decimal 2.5 or 2.50000000000000004.
Instead, this module converts values by the column's type. If a column cannot store a value, the error names the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AnySet
from typing import Any

from penstock.connectors.cassandra.scalars import SCALARS, Misfit, checked, is_missing

Encode = Callable[[Any], bytes]
UNSET = False
"""Value of a parameter whose column stays unchanged."""


class Parameters:
    """The parameters of a prepared statement. They convert a record's values to the bytes that the driver sends."""

    def __init__(self, prepared: Any, *, saves_null: bool = True) -> None:
        self.names = tuple(column.name for column in prepared.column_metadata)
        self._keys = frozenset(prepared.routing_key_indexes or ())
        protocol = prepared.protocol_version
        self._types = [column.type for column in prepared.column_metadata]
        self._encoders = [_encoder(kind, protocol) for kind in self._types]
        self._saves_null = saves_null

    def encode(self, values: tuple[Any, ...] | list[Any]) -> list[Any]:
        """Return bytes, None, or UNSET for each value.

        Raises:
            Misfit: a value does not fit its column, or the number of values is wrong.
        """
        if len(values) != len(self.names):
            raise Misfit(
                f"it has {len(values)} values, but the statement takes {len(self.names)}: {', '.join(self.names)}"
            )
        found: list[Any] = []
        for index, value in enumerate(values):
            if value is None or is_missing(value):
                if index in self._keys:
                    raise Misfit(f"column {self.names[index]!r} of the partition key is None")
                found.append(None if self._saves_null else UNSET)
                continue
            try:
                found.append(self._encoders[index](value))
            except Exception as error:
                kind = self._types[index].cql_parameterized_type().replace("varchar", "text")
                text = f"column {self.names[index]!r} is {kind}, not {type(value).__name__} {str(value)[:80]!r}"
                raise Misfit(text if isinstance(error, Misfit) and not str(error) else f"{text}: {error}") from error
        return found


def _encoder(kind: Any, protocol: int) -> Encode:
    adapt = _adapter(kind)
    if adapt is None:
        return lambda value: kind.serialize(value, protocol)
    return lambda value: kind.serialize(adapt(value), protocol)


def _adapter(kind: Any) -> Callable[[Any], Any] | None:
    """Return the type's conversion, or None if values need no conversion."""
    name = kind.typename
    if name in ("frozen",):
        return _adapter(kind.subtypes[0])
    if name in ("list", "set"):
        return _collection(kind.subtypes[0], name)
    if name == "map":
        key, value = (_of(part) for part in kind.subtypes)
        return lambda given: {
            _not_none(key(k), name): _not_none(value(v), name) for k, v in checked(given, Mapping).items()
        }
    if name == "tuple":
        parts = [_of(part) for part in kind.subtypes]
        return lambda given: _each(parts, given)
    if getattr(kind, "fieldnames", None) and hasattr(kind, "mapped_class"):  # a user-defined type
        return _user_type(kind)
    if name.endswith("VectorType"):
        part = _of(kind.subtype)
        return lambda given: [_not_none(part(value), "vector") for value in _sequence(given)]
    return SCALARS.get(name)


def _of(kind: Any) -> Callable[[Any], Any]:
    adapt = _adapter(kind)
    return lambda value: None if value is None or is_missing(value) else value if adapt is None else adapt(value)


def _collection(part: Any, name: str) -> Callable[[Any], Any]:
    adapt = _of(part)

    def adapted(given: Any) -> tuple[Any, ...]:
        return tuple(_not_none(adapt(value), name) for value in _sequence(given))

    return adapted


def _not_none(value: Any, name: str) -> Any:
    if value is None:
        raise Misfit(f"a {name} must not contain None")
    return value


def _sequence(given: Any) -> Any:
    if hasattr(given, "tolist") and hasattr(given, "dtype"):
        return given.tolist() if given.dtype.kind in "biufUS" else list(given)
    return checked(given, (list, tuple, AnySet))


def _each(parts: list[Callable[[Any], Any]], given: Any) -> tuple[Any, ...]:
    values = tuple(checked(given, (list, tuple)))
    if len(values) != len(parts):
        raise Misfit(f"it has {len(values)} items, not {len(parts)}")
    return tuple(part(value) for part, value in zip(parts, values, strict=True))


def _user_type(kind: Any) -> Callable[[Any], Any]:
    names = list(kind.fieldnames)
    parts = [_of(part) for part in kind.subtypes]

    def adapted(given: Any) -> tuple[Any, ...]:
        if isinstance(given, Mapping):
            strange = sorted(set(given) - set(names))
            if strange:
                raise Misfit(f"it has no field {', '.join(map(repr, strange))}")
            return tuple(part(given.get(name)) for part, name in zip(parts, names, strict=True))
        if isinstance(given, tuple | list) and not hasattr(given, "_fields"):
            return _each(parts, given)
        return tuple(part(getattr(given, name)) for part, name in zip(parts, names, strict=True))

    return adapted
