"""The types of composite values: lists, arrays, maps, tuples and rows.

Programs import the names from `penstock.common.typeinfo`, whose docstring gives the overview.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import GenericAlias
from typing import Any

from penstock.common.errors import InvalidJob
from penstock.common.type_info.declared_fields import DeclaredFields, FieldMismatch
from penstock.common.type_info.row_change import RowChange
from penstock.common.type_info.type_information import BasicType, BasicTypeInfo, TypeInformation
from penstock.common.types import Row, RowKind

_INSERT = RowKind.INSERT


class _ElementsTypeInfo(TypeInformation):
    """A sequence of values of one type."""

    def __init__(self, element_type: TypeInformation) -> None:
        self._element_type = _checked(element_type, type(self).__name__)

    @property
    def element_type(self) -> TypeInformation:
        return self._element_type

    @property
    def elem_type(self) -> TypeInformation:
        """PyFlink's name of `element_type`."""
        return self._element_type

    @property
    def python_type(self) -> Any:
        return GenericAlias(list, (self._element_type.python_type,))

    @property
    def is_storable(self) -> bool:
        return self._element_type.is_storable

    def to_storable(self, value: Any) -> Any:
        return value if value is None or self.is_storable else list(map(self._element_type.to_storable, value))

    def from_storable(self, value: Any) -> Any:
        return value if value is None or self.is_storable else list(map(self._element_type.from_storable, value))

    def _accepts(self, value: Any) -> bool:
        return _is_sequence(value) and all(map(self._element_type.accepts, value))

    def convert(self, value: Any) -> Any:
        return value if value is None else list(map(self._element_type.convert, value))

    def need_conversion(self) -> bool:
        return self._element_type.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return obj if obj is None else list(map(self._element_type.to_internal_type, obj))

    def from_internal_type(self, obj: Any) -> Any:
        return obj if obj is None else list(map(self._element_type.from_internal_type, obj))

    def _key(self) -> tuple[object, ...]:
        return (self._element_type,)


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """An array of numbers or booleans, a list in Python. An array of BYTE is `bytes`."""

    @property
    def python_type(self) -> Any:
        return bytes if self._is_bytes else super().python_type

    @property
    def _is_bytes(self) -> bool:
        return self._element_type == BasicTypeInfo(BasicType.BYTE)

    def _accepts(self, value: Any) -> bool:
        return isinstance(value, bytes | bytearray) if self._is_bytes else super()._accepts(value)

    def convert(self, value: Any) -> Any:
        return (value and bytes(value)) if self._is_bytes else super().convert(value)

    def to_internal_type(self, obj: Any) -> Any:
        return obj if self._is_bytes else super().to_internal_type(obj)

    def from_internal_type(self, obj: Any) -> Any:
        return obj if self._is_bytes else super().from_internal_type(obj)


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """An array of basic values that may be None."""


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """An array of any values of one type."""


class ListTypeInfo(_ElementsTypeInfo):
    """A list of values of one type.

    >>> ListTypeInfo(BasicTypeInfo.INT_TYPE_INFO()).python_type
    list[int]
    """


class MapTypeInfo(TypeInformation):
    """A dict with keys of one type and values of another.

    >>> from penstock.common.typeinfo import Types
    >>> Types.MAP(Types.STRING(), Types.DOUBLE()).python_type
    dict[str, float]
    """

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self._key_type_info = _checked(key_type_info, "MapTypeInfo")
        self._value_type_info = _checked(value_type_info, "MapTypeInfo")

    @property
    def key_type(self) -> TypeInformation:
        return self._key_type_info

    @property
    def value_type(self) -> TypeInformation:
        return self._value_type_info

    @property
    def python_type(self) -> Any:
        return GenericAlias(dict, (self._key_type_info.python_type, self._value_type_info.python_type))

    @property
    def is_storable(self) -> bool:
        return self._key_type_info.is_storable and self._value_type_info.is_storable

    def to_storable(self, value: Any) -> Any:
        if value is None or self.is_storable:
            return value
        return {self._key_type_info.to_storable(k): self._value_type_info.to_storable(v) for k, v in value.items()}

    def from_storable(self, value: Any) -> Any:
        if value is None or self.is_storable:
            return value
        return {self._key_type_info.from_storable(k): self._value_type_info.from_storable(v) for k, v in value.items()}

    def _accepts(self, value: Any) -> bool:
        return (
            isinstance(value, Mapping)
            and all(map(self._key_type_info.accepts, value.keys()))
            and all(map(self._value_type_info.accepts, value.values()))
        )

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        return {self._key_type_info.convert(k): self._value_type_info.convert(v) for k, v in value.items()}

    def need_conversion(self) -> bool:
        return self._key_type_info.need_conversion() or self._value_type_info.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        key, value = self._key_type_info.to_internal_type, self._value_type_info.to_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        key, value = self._key_type_info.from_internal_type, self._value_type_info.from_internal_type
        return {key(k): value(v) for k, v in obj.items()}

    def _key(self) -> tuple[object, ...]:
        return (self._key_type_info, self._value_type_info)


class _FieldsTypeInfo(TypeInformation):
    """A value with fields, each of which has a type. A subclass sets the attributes."""

    _field_types: list[TypeInformation]
    _fields: DeclaredFields
    """The names of the fields, and the way to read them from a value."""
    _make: Callable[[Iterable[Any]], Any]
    """Function from the values of the fields to a value of this type."""

    def get_field_types(self) -> list[TypeInformation]:
        return self._field_types

    @property
    def python_type(self) -> Any:
        return GenericAlias(tuple, tuple(field.python_type for field in self._field_types))

    def _accepts(self, value: Any) -> bool:
        items = _values_or_none(self._fields, value)
        return items is not None and all(
            field.accepts(item) for field, item in zip(self._field_types, items, strict=True)
        )

    def convert(self, value: Any) -> Any:
        if value is None:
            return None
        items = self._fields.values(value)
        return self._make(field.convert(item) for field, item in zip(self._field_types, items, strict=True))

    def need_conversion(self) -> bool:
        return True

    def to_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        items = self._fields.values(obj)
        return tuple(field.to_internal_type(item) for field, item in zip(self._field_types, items, strict=True))

    def from_internal_type(self, obj: Any) -> Any:
        if obj is None:
            return None
        return self._make(field.from_internal_type(item) for field, item in zip(self._field_types, obj, strict=True))


class TupleTypeInfo(_FieldsTypeInfo):
    """A tuple whose fields each have a type.

    >>> from penstock.common.typeinfo import Types
    >>> Types.TUPLE([Types.STRING(), Types.INT()]).python_type
    tuple[str, int]
    """

    _make = tuple

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._field_types = [_checked(field, type(self).__name__) for field in field_types]
        self._fields = DeclaredFields(_positions(len(self._field_types)), is_positional=True)

    @property
    def is_storable(self) -> bool:
        return all(field.is_storable for field in self._field_types)

    def to_storable(self, value: Any) -> Any:
        if value is None or self.is_storable:
            return value
        items = self._fields.values(value)
        return tuple(field.to_storable(item) for field, item in zip(self._field_types, items, strict=True))

    def from_storable(self, value: Any) -> Any:
        if value is None or self.is_storable:
            return value
        return tuple(field.from_storable(item) for field, item in zip(self._field_types, value, strict=True))

    def _accepts(self, value: Any) -> bool:
        return (_is_sequence(value) or isinstance(value, Row)) and super()._accepts(value)

    def _key(self) -> tuple[object, ...]:
        return (self._field_types,)

    def __str__(self) -> str:
        """Return PyFlink's text: `TupleTypeInfo(String, Integer)`."""
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"


class RowTypeInfo(_FieldsTypeInfo):
    """A `Row` whose fields have types and names. Without given names they are called f0, f1, ….

    >>> from penstock.common.typeinfo import Types
    >>> reading = Types.ROW_NAMED(["station", "celsius"], [Types.STRING(), Types.DOUBLE()])
    >>> reading.get_field_index("celsius"), reading.python_type
    (1, tuple[str, float])
    >>> reading.convert(("KJFK", 21.5)) == reading.convert({"celsius": 21.5, "station": "KJFK"})
    True
    """

    def __init__(self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None) -> None:
        self._field_types = [_checked(field, "RowTypeInfo") for field in field_types]
        if field_names is not None and len(field_names) != len(self._field_types):
            raise InvalidJob(
                f"a row type of {len(self._field_types)} field types got {len(field_names)} field names {list(field_names)!r}",
                remedy="pass one name for each type",
            )
        self._given_names = None if field_names is None else tuple(field_names)
        names = self.get_field_names()
        self._make = Row.maker(names)
        self._fields = DeclaredFields(names, is_positional=field_names is None)

    def get_field_names(self) -> list[str]:
        if self._given_names is None:
            return _positions(len(self._field_types))
        return list(self._given_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of the field, or -1 if no field has that name."""
        names = self.get_field_names()
        return names.index(field_name) if field_name in names else -1

    @property
    def is_storable(self) -> bool:
        return False

    def to_storable(self, value: Any) -> Any:
        if value is None:
            return None
        items = self._fields.values(value)
        fields = tuple(field.to_storable(item) for field, item in zip(self._field_types, items, strict=True))
        if isinstance(value, Row) and value._row_kind is not _INSERT:
            return RowChange(value._row_kind, fields)
        return fields

    def from_storable(self, value: Any) -> Any:
        if value is None:
            return None
        fields = value if type(value) is tuple else value.fields
        row = self._make(field.from_storable(item) for field, item in zip(self._field_types, fields, strict=True))
        if fields is not value:
            row.set_row_kind(value.kind)
        return row

    @property
    def declared_fields(self) -> DeclaredFields:
        """The fields and the way to read them from a record."""
        return self._fields

    def convert(self, value: Any) -> Any:
        """Return a record as a Row with this type's names: by name if the record names its fields, else by position.

        A Row keeps its kind.

        Raises:
            FieldMismatch: the record lacks a field or has an unknown one.
        """
        row = super().convert(value)
        if isinstance(value, Row):
            row.set_row_kind(value.get_row_kind())
        return row

    def _key(self) -> tuple[object, ...]:
        return (self._field_types, self._given_names)

    def __str__(self) -> str:
        """Return PyFlink's text: `RowTypeInfo(a: String, b: Integer)`."""
        pairs = zip(self.get_field_names(), self._field_types, strict=True)
        return f"RowTypeInfo({', '.join(f'{name}: {field}' for name, field in pairs)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (RowTypeInfo, (self._field_types, self._given_names))


class ExternalTypeInfo(TypeInformation):
    """The external form of a type, which is the same as the internal form."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = _checked(type_info, "ExternalTypeInfo")

    @property
    def inner(self) -> TypeInformation:
        return self._type_info

    @property
    def python_type(self) -> Any:
        return self._type_info.python_type

    @property
    def is_storable(self) -> bool:
        return self._type_info.is_storable

    def to_storable(self, value: Any) -> Any:
        return self._type_info.to_storable(value)

    def from_storable(self, value: Any) -> Any:
        return self._type_info.from_storable(value)

    def _accepts(self, value: Any) -> bool:
        return self._type_info.accepts(value)

    def convert(self, value: Any) -> Any:
        return self._type_info.convert(value)

    def need_conversion(self) -> bool:
        return self._type_info.need_conversion()

    def to_internal_type(self, obj: Any) -> Any:
        return self._type_info.to_internal_type(obj)

    def from_internal_type(self, obj: Any) -> Any:
        return self._type_info.from_internal_type(obj)

    def _key(self) -> tuple[object, ...]:
        return (self._type_info,)


def _positions(count: int) -> list[str]:
    return [f"f{position}" for position in range(count)]


def _values_or_none(fields: DeclaredFields, value: Any) -> Sequence[Any] | None:
    try:
        return fields.values(value)
    except FieldMismatch:
        return None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_reader: list[Callable[[Any], TypeInformation | None]] = []
"""The reader of annotations. Its module imports this module, so `penstock.common.typeinfo` passes the reader in."""


def read_annotations_with(reader: Callable[[Any], TypeInformation | None]) -> None:
    """Accept element types that are annotations: `ListTypeInfo(str)`. `penstock.common.typeinfo` calls this once."""
    _reader[:] = [reader]


def _checked(candidate: Any, owner: str) -> TypeInformation:
    if isinstance(candidate, TypeInformation):
        return candidate
    type_info = _reader[0](candidate) if _reader else None
    if type_info is None:
        raise InvalidJob(
            f"{owner} needs the type of its elements, got {candidate!r}",
            remedy="use for example Types.STRING() or str",
        )
    return type_info
