"""What records look like: the fields a format reads or writes, and the Python form of a record.

A shape is made from whatever a user may declare:

    NamedTuple, dataclass, TypedDict, msgspec Struct     records are instances of the class
    {"station": str, "celsius": float}                   records are dicts with these keys
    Types.ROW_NAMED([...], [...])                        records are `Row`s
    tuple[str, float], Types.TUPLE([...])                records are tuples; the fields are called f0, f1, …
    a pyarrow Schema                                     records are dicts

`record="tuple"`, `"dict"` or `"row"` asks for another form of the same fields; tuples are the cheapest.
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

from penstock.common.errors import InvalidJob
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
from penstock.records.columns import rows_as_dicts, rows_as_rows, rows_as_tuples

TIME_OF_UTC = pa.timestamp("us", tz="UTC")
"""Of formats whose times are in UTC: a field of this type has datetimes of `datetime.UTC`."""
Form = Literal["tuple", "dict", "row", "class"]
Declaration = Any
"""See the module's head."""


class Field(NamedTuple):
    """`type`: an annotation, type information, or the type of an Arrow column. `optional`: may be None or missing."""

    name: str
    type: Any
    optional: bool


_PLAIN: dict[str, Callable[[pa.RecordBatch], list[Any]]] = {
    "tuple": rows_as_tuples,
    "dict": rows_as_dicts,
    "row": rows_as_rows,
}


class RecordShape:
    """Fields and form of the records of a format. Picklable if the declaration is."""

    def __init__(self, fields: Iterable[Field], form: Form, cls: type | None = None, declared: Any = None) -> None:
        self.fields = tuple(fields)
        self.form: Form = form
        self.cls = cls
        self.declared = declared
        if not self.fields:
            raise InvalidJob("a record type without fields", remedy="declare at least one field")

    @classmethod
    def of(cls, declaration: Declaration, record: str | None = None) -> RecordShape:
        """The shape of a declaration, with another record form if `record` asks for one.

        Raises:
            InvalidJob: not a record type.

        >>> shape = RecordShape.of({"station": str, "celsius": float | None}, record="tuple")
        >>> shape.names, shape.form, shape.fields[1].optional
        (('station', 'celsius'), 'tuple', True)
        """
        shape = _shape_of(declaration)
        if record is None or record == shape.form:
            return shape
        if record not in ("tuple", "dict", "row"):
            raise InvalidJob(f"records cannot be {record!r}", remedy="ask for 'tuple', 'dict' or 'row'")
        other = RecordShape(shape.fields, typing.cast("Form", record))
        if isinstance(shape.declared, pa.Schema):
            other.declared = other.__dict__["schema"] = shape.declared
        return other

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def schema(self) -> pa.Schema:
        """The fields as Arrow columns.

        Raises:
            InvalidJob: a field's type has no columns.
        """
        return pa.schema([pa.field(f.name, arrow_type(f.type, f.name), nullable=True) for f in self.fields])

    @property
    def has_columns(self) -> bool:
        try:
            return bool(self.schema)
        except InvalidJob:
            return False

    @cached_property
    def maker(self) -> Callable[[pa.RecordBatch], list[Any]]:
        """Makes records out of columns: the `make_rows` of a ColumnBatch. One of the operators' own where that does."""
        is_plain = not any(pa.types.is_nested(field.type) or field.type == TIME_OF_UTC for field in self.schema)
        if self.form in _PLAIN and is_plain:
            return _PLAIN[self.form]
        return RowMaker(self)

    def produced_type(self) -> TypeInformation | None:
        """Type information of the records."""
        if self.declared is not None and not isinstance(self.declared, pa.Schema):
            return to_type_info(self.declared)
        types = [to_type_info(without_none(f.type)) for f in self.fields]
        known = [ObjectTypeInfo(Any) if found is None else found for found in types]
        if self.form == "tuple":
            return TupleTypeInfo(known)
        return RowTypeInfo(known, self.names) if self.form == "row" else to_type_info(dict[str, Any])

    def __getstate__(self) -> dict[str, Any]:
        given = ("fields", "form", "cls", "declared", *(("schema",) if isinstance(self.declared, pa.Schema) else ()))
        return {key: self.__dict__[key] for key in given}


class RowMaker:
    """Makes the records of a shape out of columns or tuples. Picklable."""

    def __init__(self, shape: RecordShape) -> None:
        self.shape = shape
        self.from_tuples = _from_tuples(shape)
        self._conversions = [(n, c) for n, f in enumerate(shape.fields) if (c := _conversion(f.type)) is not None]

    def __call__(self, columns: pa.RecordBatch) -> list[Any]:
        lists = [column.to_pylist(maps_as_pydicts="strict") for column in columns.columns]
        for index, convert in self._conversions:
            lists[index] = [None if value is None else convert(value) for value in lists[index]]
        return self.from_tuples(zip(*lists, strict=True))

    def convert_tuples(self, values: Iterable[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
        """Tuples whose nested dicts become what the fields' types say (Rows)."""
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
    """What makes a nested dict (or the list of one) what the type says; None where nothing is to be done."""
    if isinstance(declared, TypeInformation):
        return declared.convert if _has_row(declared) else None
    if isinstance(declared, pa.DataType):
        return _in_utc if declared == TIME_OF_UTC else None
    return _to_classes(declared)


def _in_utc(value: Any) -> Any:
    """Arrow gives a zone of its own."""
    return value.replace(tzinfo=datetime.UTC)


def _to_classes(declared: Any) -> Callable[[Any], Any] | None:
    """Makes the classes an annotation names of the dicts that Arrow gives, at any depth."""
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
