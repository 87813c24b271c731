"""The shape of records: the fields that a format reads or writes, and the Python form of a record.

A shape is made from one of these declarations:

    NamedTuple, dataclass, TypedDict, msgspec Struct     records are instances of the class
    {"station": str, "celsius": float}                   records are dicts with these keys
    Types.ROW_NAMED([...], [...])                        records are `Row`s
    tuple[str, float], Types.TUPLE([...])                records are tuples; the fields are called f0, f1, …
    a pyarrow Schema                                     records are dicts

`record="tuple"`, `"dict"` or `"row"` selects another form of the same fields.
"""

from __future__ import annotations

import datetime
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from itertools import starmap
from typing import Any, Literal, NamedTuple, get_args, get_origin

import pyarrow as pa

from penstock.common.errors import InvalidJob, RecordFormatError
from penstock.common.type_info.declared_fields import DeclaredFields
from penstock.common.type_info.type_inference import ObjectTypeInfo, to_type_info
from penstock.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import Row
from penstock.connectors.formats.arrow_types import (
    ARRAYS,
    annotation_of,
    arrow_type,
    fields_of_class,
    is_optional,
    without_none,
)
from penstock.connectors.formats.columns.nested_values import Write, writer_of
from penstock.records.columns import rows_as_dicts, rows_as_rows, rows_as_tuples

TIME_OF_UTC = pa.timestamp("us", tz="UTC")
"""Type of fields in formats whose times are in UTC. Its values are datetimes with `datetime.UTC`."""
Form = Literal["tuple", "dict", "row", "class"]
Declaration = Any
"""A declaration of a record type; the module's docstring lists them."""


class Field(NamedTuple):
    """A field of a record.

    `type` is an annotation, type information, or the type of an Arrow column. An `optional` field may be None or missing.
    """

    name: str
    type: Any
    optional: bool


_PLAIN: dict[str, Callable[[pa.RecordBatch], list[Any]]] = {
    "tuple": rows_as_tuples,
    "dict": rows_as_dicts,
    "row": rows_as_rows,
}


class RecordShape:
    """The fields and the form of a format's records. A shape is picklable if its declaration is."""

    def __init__(self, fields: Iterable[Field], form: Form, cls: type | None = None, declared: Any = None) -> None:
        self.fields = tuple(fields)
        self.form: Form = form
        self.cls = cls
        self.declared = declared
        if not self.fields:
            raise InvalidJob("the record type has no fields", remedy="declare at least one field")

    @classmethod
    def of(cls, declaration: Declaration, record: str | None = None) -> RecordShape:
        """Return the shape of a declaration, with another record form if `record` names one.

        Raises:
            InvalidJob: the declaration is not a record type.
        >>> shape = RecordShape.of({"station": str, "celsius": float | None}, record="tuple")
        >>> shape.names, shape.form, shape.fields[1].optional
        (('station', 'celsius'), 'tuple', True)
        """
        shape = _shape_of(declaration)
        if record is None or record == shape.form:
            return shape
        if record not in ("tuple", "dict", "row"):
            raise InvalidJob(f"record={record!r} is not a form of records", remedy="write 'tuple', 'dict' or 'row'")
        other = RecordShape(shape.fields, typing.cast("Form", record))
        if isinstance(shape.declared, pa.Schema):
            other.declared = other.__dict__["schema"] = shape.declared
        return other

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def declared_fields(self) -> DeclaredFields:
        """Return the rule by which written records become values in the order of the fields.

        A record that names its fields may lack fields that are declared with `| None`, and the optional fields of a TypedDict.
        """
        optional = [f.name for f in self.fields if not isinstance(f.type, TypeInformation) and is_optional(f.type)]
        optional += getattr(self.cls, "__optional_keys__", ())
        has_names = not isinstance(self.declared, RowTypeInfo) or not self.declared.declared_fields.is_positional
        is_positional = self.names == tuple(f"f{n}" for n in range(len(self.fields))) and (
            not has_names or (self.form == "tuple" and self.cls is None)
        )
        return DeclaredFields(self.names, optional=optional, is_positional=is_positional)

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the fields as Arrow columns.

        Raises:
            InvalidJob: a field's type has no columns.
        """
        return pa.schema([pa.field(f.name, arrow_type(f.type, f.name), nullable=True) for f in self.fields])

    def with_zones(self, names: Iterable[str]) -> RecordShape:
        """Return this shape with times of UTC in these fields. The same names give the same object."""
        wanted = frozenset(names)
        if not wanted:
            return self
        shapes: dict[frozenset[str], RecordShape] = self.__dict__.setdefault("_zoned", {})
        if wanted not in shapes:
            fields = [f._replace(type=TIME_OF_UTC) if f.name in wanted else f for f in self.fields]
            shapes[wanted] = RecordShape(fields, self.form, self.cls)
        return shapes[wanted]

    @cached_property
    def nested_writers(self) -> list[Write | None]:
        """Return for each field the function that makes Arrow's form of its values, or None if the values already have this form."""
        return [writer_of(field.type, column.type) for field, column in zip(self.fields, self.schema, strict=True)]

    @property
    def has_columns(self) -> bool:
        try:
            return bool(self.schema)
        except InvalidJob:
            return False

    @cached_property
    def maker(self) -> Callable[[pa.RecordBatch], list[Any]]:
        """Return the function that makes records of columns: the `make_rows` of a ColumnBatch. Plain shapes of one form share a function."""
        kinds = [field.type for field in self.schema]
        is_plain = not any(pa.types.is_nested(k) or k == TIME_OF_UTC or getattr(k, "unit", "") == "ns" for k in kinds)
        if self.form in _PLAIN and is_plain:
            return _PLAIN[self.form]
        return RowMaker(self)

    def produced_type(self) -> TypeInformation | None:
        """Return the type information of the records."""
        if self.declared is not None and not isinstance(self.declared, pa.Schema):
            return to_type_info(self.declared)
        types = [to_type_info(without_none(f.type)) for f in self.fields]
        known = [ObjectTypeInfo(Any) if found is None else found for found in types]
        if self.form == "tuple":
            return TupleTypeInfo(known)
        return RowTypeInfo(known, self.names) if self.form == "row" else to_type_info(dict[str, Any])

    def __getstate__(self) -> dict[str, Any]:
        stored = ("fields", "form", "cls", "declared", *(("schema",) if isinstance(self.declared, pa.Schema) else ()))
        return {key: self.__dict__[key] for key in stored}


class RowMaker:
    """A maker of the records of a shape, from columns or tuples. It is picklable."""

    def __init__(self, shape: RecordShape) -> None:
        self.shape = shape
        self.from_tuples = _from_tuples(shape)
        self._conversions = [(n, c) for n, f in enumerate(shape.fields) if (c := _conversion(f.type)) is not None]

    def __call__(self, columns: pa.RecordBatch) -> list[Any]:
        lists = list(map(_values_of, columns.schema, columns.columns))
        for index, convert in self._conversions:
            lists[index] = [None if value is None else convert(value) for value in lists[index]]
        return self.from_tuples(zip(*lists, strict=True))

    def convert_tuples(self, values: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
        """Return tuples whose nested dicts are converted to the types of the fields (Rows)."""
        if not self._conversions:
            return values
        return map(self._convert_tuple, values)

    def _convert_tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items = list(value)
        for index, convert in self._conversions:
            if items[index] is not None:
                items[index] = convert(items[index])
        return tuple(items)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RowMaker, (self.shape,))


def _values_of(field: pa.Field, column: pa.Array) -> list[Any]:
    """Return a column's values.

    Raises:
        RecordFormatError: a time has parts of a microsecond, which Python's times do not have.
    """
    try:
        if getattr(field.type, "unit", "") == "ns":
            column = column.cast(_in_micros(field.type))
        found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
        return found
    except (pa.ArrowInvalid, ValueError) as error:
        raise RecordFormatError(
            f"column {field.name!r} of {field.type} has a value that Python cannot represent: {error}",
            remedy="declare the field as int to read nanoseconds since 1970, or use operators on columns",
        ) from error


def _in_micros(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")


def _shape_of(declaration: Declaration) -> RecordShape:
    if isinstance(declaration, RecordShape):
        return declaration
    if isinstance(declaration, pa.Schema):
        fields = [Field(f.name, annotation_of(f.type), optional=True) for f in declaration]
        shape = RecordShape(fields, "dict", declared=declaration)
        shape.__dict__["schema"] = declaration
        return shape
    if isinstance(declaration, Mapping):
        return RecordShape([Field(name, kind, is_optional(kind)) for name, kind in declaration.items()], "dict")
    if isinstance(declaration, RowTypeInfo):
        pairs = zip(declaration.get_field_names(), declaration.get_field_types(), strict=True)
        return RecordShape([Field(name, kind, optional=True) for name, kind in pairs], "row", declared=declaration)
    if isinstance(declaration, TupleTypeInfo):
        kinds = declaration.get_field_types()
        return RecordShape(
            [Field(f"f{n}", k, optional=True) for n, k in enumerate(kinds)], "tuple", declared=declaration
        )
    annotation = declaration.python_type if isinstance(declaration, TypeInformation) else declaration
    if get_origin(annotation) is tuple and Ellipsis not in get_args(annotation):
        args = get_args(annotation)
        return RecordShape(
            [Field(f"f{n}", a, is_optional(a)) for n, a in enumerate(args)], "tuple", declared=annotation
        )
    found = fields_of_class(annotation)
    if found is None:
        raise InvalidJob(
            f"{declaration!r} is not a record type: it has no fields",
            remedy="give a NamedTuple, dataclass, TypedDict, msgspec Struct, a dict of names and types, or Types.ROW_NAMED",
        )
    return RecordShape(
        [Field(name, kind, is_optional(kind)) for name, kind in found.items()], "class", annotation, annotation
    )


def _from_tuples(shape: RecordShape) -> Callable[[Iterable[tuple[Any, ...]]], list[Any]]:
    names = shape.names
    if shape.form == "tuple":
        return list
    if shape.form == "row":
        make_row = Row.maker(names)
        return lambda values: list(map(make_row, values))
    if shape.form == "dict" or typing.is_typeddict(shape.cls):
        return lambda values: [dict(zip(names, value, strict=True)) for value in values]
    cls: Any = shape.cls
    if issubclass(cls, tuple):
        # `_make` is a classmethod in Python; this is the same in C
        return lambda values: list(map(partial(tuple.__new__, cls), values))
    if _by_keyword(cls):
        return lambda values: [cls(**dict(zip(names, value, strict=True))) for value in values]
    return lambda values: list(starmap(cls, values))


def _by_keyword(cls: Any) -> bool:
    return any(p.kind is inspect.Parameter.KEYWORD_ONLY for p in inspect.signature(cls).parameters.values())


def _conversion(declared: Any) -> Callable[[Any], Any] | None:
    """Return the function that converts nested dicts (or lists of them) to the declared type, or None if no conversion is needed."""
    if isinstance(declared, TypeInformation):
        return _converter_of_read(declared) if _has_row(declared) else None
    if isinstance(declared, pa.DataType):
        return _in_utc if declared == TIME_OF_UTC else None
    return _to_classes(declared)


def _converter_of_read(declared: TypeInformation) -> Callable[[Any], Any]:
    """Return `convert` of a type for values that were read. Missing fields of a nested object become None."""
    return lambda value: declared.convert(_completed(declared, value))


def _completed(declared: TypeInformation, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(declared, RowTypeInfo) and isinstance(value, Mapping):
        pairs = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
        return {name: _completed(kind, value.get(name)) for name, kind in pairs}
    if isinstance(declared, ARRAYS) and isinstance(value, list):
        return [_completed(declared.element_type, item) for item in value]
    if isinstance(declared, MapTypeInfo) and isinstance(value, Mapping):
        return {key: _completed(declared.value_type, item) for key, item in value.items()}
    return value


def _in_utc(value: Any) -> Any:
    """Return the time with `datetime.UTC` in place of Arrow's own zone object."""
    return value.replace(tzinfo=datetime.UTC)


def _to_classes(declared: Any) -> Callable[[Any], Any] | None:
    """Return a function that makes an annotation's classes from Arrow's dicts, at any depth, or None if no conversion is needed."""
    annotation = without_none(declared)
    fields, origin, args = fields_of_class(annotation), get_origin(annotation), get_args(annotation)
    if fields is not None and not typing.is_typeddict(annotation):
        inner = {name: convert for name, kind in fields.items() if (convert := _to_classes(kind)) is not None}

        def to_class(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            return annotation(**{k: inner[k](v) if k in inner and v is not None else v for k, v in value.items()})

        return to_class
    convert = _to_classes(args[-1] if origin is dict else args[0]) if args and origin in (list, dict, tuple) else None
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return lambda values: tuple(map(convert, values)) if convert else tuple(values)
    if convert is None:
        return None
    if origin is dict:
        return lambda values: {key: convert(value) for key, value in values.items()}
    return lambda values: list(map(convert, values))


def _has_row(declared: TypeInformation) -> bool:
    if isinstance(declared, RowTypeInfo | TupleTypeInfo):
        return True
    if isinstance(declared, ARRAYS):
        return _has_row(declared.element_type)
    return isinstance(declared, MapTypeInfo) and _has_row(declared.value_type)
