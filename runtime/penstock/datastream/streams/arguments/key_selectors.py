"""Key selectors: the arguments of `key_by`, converted to a callable from record to key. A plain field also keeps its name.

A field is one of these:

- a name: the key of a dict or TypedDict, the field of a Row, or an attribute
- a position, which for a tuple can also be written `f1`, `1` or `_2`
- a dotted path of names
- `*` or `_` for the whole record
- a list of such fields, for a key of several fields

If the type of the stream is known, the getter is a C function of the standard library. An unknown field is then an error at
once, before the job starts.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.program.user_location import refusal
from penstock.common.type_info.type_inference import ObjectTypeInfo, result_type
from penstock.common.typeinfo import ListTypeInfo, MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.datastream.functions import KeySelector
from penstock.datastream.streams.arguments.checks import checked_function
from penstock.functions.function import Function
from penstock.records.fields import getter_for, position_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Field = str | int


class SelectedKey(NamedTuple):
    """Key selector with the type of its keys. `field` is set if the key is one plain field of the record."""

    selector: Callable[[Any], Any]
    field: Field | None
    key_type: TypeInformation | None


def selected_key(key_selector: Any, type_info: TypeInformation | None, operation: str = "key_by") -> SelectedKey:
    """Return the key selector for a stream of this type.

    Raises:
        InvalidJob: the argument is not a key selector, or it names a field that the type does not have.

    >>> selected_key(["a", "b"], None).selector({"a": 1, "b": 2})
    (1, 2)
    >>> selected_key("city.name", None).selector({"city": {"name": "Delft"}})
    'Delft'
    """
    if isinstance(key_selector, list | tuple):
        return _several_fields(key_selector, type_info, operation)
    if isinstance(key_selector, str) and key_selector in ("*", "_"):
        return SelectedKey(_whole, None, type_info)
    if isinstance(key_selector, str | int) and not isinstance(key_selector, bool):
        getter, key_type = _getter(key_selector, type_info, operation)
        plain = isinstance(key_selector, int) or "." not in key_selector
        return SelectedKey(getter, key_selector if plain else None, key_type)
    checked_function(key_selector, KeySelector, operation=operation, arguments=1, methods=("get_key",))
    if hasattr(key_selector, "get_key"):
        if getattr(type(key_selector), "open", Function.open) is not Function.open:
            raise refusal(
                f"{type(key_selector).__name__} has an open(), but key selectors are not opened, because they must return the "
                "same key everywhere",
                "compute the key in a map() before key_by",
            )
        return SelectedKey(key_selector.get_key, None, result_type(key_selector, "get_key"))
    return SelectedKey(key_selector, None, result_type(key_selector, "__call__"))


def _whole(value: Any) -> Any:
    """Return the record as its own key, for the wildcard."""
    return value


def _several_fields(fields: Sequence[Any], type_info: TypeInformation | None, operation: str) -> SelectedKey:
    if not fields or not all(isinstance(field, str | int) and not isinstance(field, bool) for field in fields):
        raise refusal(f"{operation} takes a list of field names or positions, got {list(fields)!r}")
    if len(fields) == 1:
        return selected_key(fields[0], type_info, operation)
    pairs = [_getter(field, type_info, operation) for field in fields]
    types = [key_type for _, key_type in pairs]
    key_type = None if None in types else TupleTypeInfo([t for t in types if t is not None])
    getters = [getter for getter, _ in pairs]
    if all(type(getter) is itemgetter for getter in getters):
        return SelectedKey(itemgetter(*[getter.__reduce__()[1][0] for getter in getters]), None, key_type)
    if all(type(getter) is attrgetter for getter in getters) and all(isinstance(field, str) for field in fields):
        return SelectedKey(attrgetter(*map(str, fields)), None, key_type)
    return SelectedKey(SeveralFields(getters), None, key_type)


def _getter(
    field: Field, type_info: TypeInformation | None, operation: str
) -> tuple[Callable[[Any], Any], TypeInformation | None]:
    """Return the fastest getter of a field for values of a type, and the type of the field."""
    if isinstance(field, str) and "." in field:
        return _path_getter(field.split("."), type_info, operation)
    if isinstance(type_info, MapTypeInfo):
        return itemgetter(field), type_info.value_type
    if isinstance(type_info, RowTypeInfo | ObjectTypeInfo) and type_info.get_field_names():
        names, types = type_info.get_field_names(), type_info.get_field_types()
        position = _position(field, names, operation)
        if isinstance(type_info, RowTypeInfo):
            return itemgetter(position), types[position]
        getter = itemgetter if type_info.is_mapping else attrgetter
        return getter(names[position]), types[position]
    if isinstance(type_info, TupleTypeInfo):
        types = type_info.get_field_types()
        position = _position(field, [f"f{index}" for index in range(len(types))], operation)
        return itemgetter(position), types[position]
    if isinstance(type_info, ListTypeInfo) and isinstance(field, int):
        return itemgetter(field), type_info.element_type
    return FieldOf(field), None


def _path_getter(
    names: Sequence[str], type_info: TypeInformation | None, operation: str
) -> tuple[Callable[[Any], Any], TypeInformation | None]:
    getters = []
    for name in names:
        getter, type_info = _getter(name, type_info, operation)
        getters.append(getter)
    return FieldPath(getters), type_info


def _position(field: Field, names: Sequence[str], operation: str) -> int:
    if isinstance(field, str) and field in names:
        return names.index(field)
    if isinstance(field, str) and (place := position_of(field)) is not None:
        field = place
    if isinstance(field, int) and -len(names) <= field < len(names):
        return field % len(names)
    raise refusal(
        f"{operation} names the field {field!r}, but the stream's values have the fields {', '.join(names)}",
        "use one of these fields",
    )


class FieldOf:
    """Getter of a field by name or position, for values of any class. The class of the value determines how the field is read."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._shape: type | None = None
        self._get: Callable[[Any], Any] = itemgetter(field)

    def __call__(self, value: Any) -> Any:
        if value.__class__ is self._shape:
            return self._get(value)
        self._get = getter_for(self.field, value)
        self._shape = value.__class__
        return self._get(value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (FieldOf, (self.field,))

    def __repr__(self) -> str:
        return f"FieldOf({self.field!r})"


class FieldPath:
    """Getter of a nested field, such as `city.name`."""

    __slots__ = ("getters",)

    def __init__(self, getters: Sequence[Callable[[Any], Any]]) -> None:
        self.getters = tuple(getters)

    def __call__(self, value: Any) -> Any:
        for getter in self.getters:
            value = getter(value)
        return value


class SeveralFields:
    """Getter of a tuple of fields."""

    __slots__ = ("getters",)

    def __init__(self, getters: Sequence[Callable[[Any], Any]]) -> None:
        self.getters = tuple(getters)

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return tuple([getter(value) for getter in self.getters])
