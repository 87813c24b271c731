"""JSON lines: one JSON value per line. Blank lines are skipped.

One call of msgspec decodes a whole block, into objects with the declared fields, or into dicts if no fields are declared. The
call reads one JSON value after another and ignores line ends. So a quick check of the block makes sure that each line is one
object. A block with other values or blank lines is decoded line by line, at half the speed.

Values are checked against the declared types. A field of type `float` accepts `3`, and a field of type `int` refuses
`3.5`. A field that is not optional must exist. Undeclared fields are skipped, and are never parsed into objects.
"""

from __future__ import annotations

import dataclasses
import typing
from operator import attrgetter, itemgetter, methodcaller
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from penstock.common.errors import InvalidJob
from penstock.common.typeinfo import BasicType, BasicTypeInfo, MapTypeInfo, RowTypeInfo, TypeInformation
from penstock.connectors.formats.arrow_types import ARRAYS, fields_of_class
from penstock.connectors.formats.object_batch import ObjectBatch, ObjectColumns
from penstock.connectors.formats.record_format import MALFORMED_RECORDS, Decode, MalformedBlock, StreamFormat
from penstock.connectors.formats.shape import Declaration, RecordShape, RowMaker
from penstock.records.batch import Batch, RowBatch

if typing.TYPE_CHECKING:
    from collections.abc import Callable


_LINE_FEED, _CARRIAGE_RETURN, _OPEN, _CLOSE = b"\n\r{}"


def _bounded(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_LONG = _bounded(64)
_INTEGERS = {
    BasicType.BYTE: _bounded(8),
    BasicType.SHORT: _bounded(16),
    BasicType.INT: _bounded(32),
    BasicType.LONG: _LONG,
}


class JsonLinesFormat(StreamFormat):
    r"""A format that reads JSON lines.

    Args:
        fields: the record type (see `formats.shape`), or None for any JSON values in their Python types.
        record: another form for the same fields: "tuple", "dict" or "row".
        on_error: "fail" or "side-output" (to `error_tag`).
    >>> decode = JsonLinesFormat({"id": str, "celsius": float | None}, record="tuple").decoder(b"")
    >>> decode(b'{"id":"a","celsius":1.5,"x":0}\n{"id":"b"}\n').rows().values
    [('a', 1.5), ('b', None)]
    """

    what = "JSON line"

    def __init__(
        self,
        fields: Declaration = None,
        *,
        record: str | None = None,
        on_error: str = "fail",
        error_tag: Any = MALFORMED_RECORDS,
    ) -> None:
        super().__init__(on_error=on_error, error_tag=error_tag)
        self.shape = None if fields is None else RecordShape.of(fields, record)
        for field in () if self.shape is None else self.shape.fields:
            if (nested := _named_tuple_in(field.type)) is not None:
                raise InvalidJob(
                    f"field {field.name!r} of the JSON lines contains the NamedTuple {nested.__qualname__}. JSON lines read a nested "
                    "NamedTuple from an array, not from an object",
                    remedy=f"make {nested.__qualname__} a dataclass, a TypedDict or a msgspec Struct",
                )
        self.decoder(b"")

    def produced_type(self) -> Any:
        return None if self.shape is None else self.shape.produced_type()

    def decoder(self, header: bytes) -> Decode:
        if self.shape is None:
            return _checked(msgspec.json.Decoder(), RowBatch)
        form = _decoded_form(self.shape)
        decoder = msgspec.json.Decoder(form.annotation)
        if not self.shape.has_columns:
            return _checked(decoder, lambda objects: RowBatch(form.to_rows(objects)))
        kind = ObjectColumns(self.shape, form.getters, form.to_rows)
        return _checked(decoder, lambda objects: ObjectBatch(objects, kind))


def _named_tuple_in(annotation: Any, above: tuple[Any, ...] = ()) -> type | None:
    """Return a NamedTuple class that is the type or a part of it, or None."""
    if isinstance(annotation, TypeInformation):
        annotation = annotation.python_type
    if annotation in above:
        return None
    below = typing.get_args(annotation)
    if isinstance(annotation, type) and not below:
        if issubclass(annotation, tuple) and hasattr(annotation, "_fields"):
            return annotation
        below = tuple((fields_of_class(annotation) or {}).values())
    parts = (_named_tuple_in(part, (*above, annotation)) for part in below)
    return next((found for found in parts if found is not None), None)


def _checked(decoder: msgspec.json.Decoder[Any], to_batch: Callable[[list[Any]], Batch]) -> Decode:
    decode_lines, decode_one = decoder.decode_lines, decoder.decode

    def decode(data: bytes) -> Batch:
        try:
            objects = decode_lines(data)
            if not _is_object_per_line(data, len(objects)):
                objects = [decode_one(line) for line in data.split(b"\n") if line.strip()]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedBlock(str(error).replace("$[0]", "$")) from None
        return to_batch(objects)

    return decode


def _is_object_per_line(data: bytes, count: int) -> bool:
    """Return True only if each line of a block is one object. The block has decoded into `count` values.

    In JSON a `{` follows a `}` only at top level, and a string contains no line end. So if every line begins with `{` and ends
    with `}`, no value crosses a line end. If there are also as many values as lines, each line is one value.
    """
    content = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(content == _LINE_FEED)
    if not len(content) or content[-1] != _LINE_FEED:
        ends = np.append(ends, len(content))
    if len(ends) != count:
        return False
    before = content[ends - 1]
    if before[0] == _CARRIAGE_RETURN and (before == _CARRIAGE_RETURN).all():
        before = content[ends - 2]
    begins = content[ends[:-1] + 1]
    return bool(content[0] == _OPEN and (before == _CLOSE).all() and (begins == _OPEN).all())


class _Decoded(NamedTuple):
    """The class that msgspec decodes a record into, the functions that read its fields, and the function that makes records."""

    annotation: Any
    getters: list[Callable[[Any], Any]]
    to_rows: Callable[[list[Any]], list[Any]]


def _decoded_form(shape: RecordShape) -> _Decoded:
    cls: Any = shape.cls
    if typing.is_typeddict(cls):
        complete = not cls.__optional_keys__
        return _Decoded(cls, [itemgetter(n) if complete else methodcaller("get", n) for n in shape.names], _as_it_is)
    if shape.form == "class" and not _is_decoded_as_struct(cls):
        return _Decoded(cls, [attrgetter(name) for name in shape.names], _as_it_is)
    if shape.form == "dict":
        return _as_dicts(shape)
    return _as_structs(shape)


def _as_it_is(objects: list[Any]) -> list[Any]:
    return objects


def _as_dicts(shape: RecordShape) -> _Decoded:
    """Return a form that decodes into dicts. A missing optional field becomes None."""
    hints = {
        f.name: typing.NotRequired[json_type(f.type) | None] if f.optional else json_type(f.type) for f in shape.fields
    }
    annotation = typing.TypedDict("Record", hints)  # type: ignore[misc]
    optional = [f.name for f in shape.fields if f.optional]
    if not optional:
        return _Decoded(annotation, [itemgetter(name) for name in shape.names], _as_it_is)
    template, size = dict.fromkeys(shape.names), len(shape.fields)

    def to_rows(objects: list[Any]) -> list[Any]:
        return [value if len(value) == size else {**template, **value} for value in objects]

    getters: list[Callable[[Any], Any]] = [
        methodcaller("get", f.name) if f.optional else itemgetter(f.name) for f in shape.fields
    ]
    return _Decoded(annotation, getters, to_rows)


def _as_structs(shape: RecordShape) -> _Decoded:
    """Return a form that decodes into objects with C slots. On request the objects become tuples, Rows, NamedTuples or dataclasses."""
    names = [f"f{n}" for n in range(len(shape.fields))]
    defaults = _defaults(shape.cls)
    fields: list[Any] = []
    for name, field in zip(names, shape.fields, strict=True):
        annotation = json_type(field.type)
        if field.name in defaults:
            fields.append((name, annotation, defaults[field.name]))
        elif field.optional:
            fields.append((name, annotation | None, None))
        else:
            fields.append((name, annotation))
    rename = dict(zip(names, shape.names, strict=True))
    struct = msgspec.defstruct("Record", fields, rename=rename, gc=False, kw_only=True)
    maker = RowMaker(shape)
    getters: list[Callable[[Any], Any]] = [attrgetter(name) for name in names]
    get = attrgetter(*names)

    def to_rows(objects: list[Any]) -> list[Any]:
        tuples = map(get, objects) if len(names) > 1 else ((get(value),) for value in objects)
        return maker.from_tuples(maker.convert_tuples(tuples))

    return _Decoded(struct, getters, to_rows)


def _is_decoded_as_struct(cls: Any) -> bool:
    """Return True for a NamedTuple, which msgspec reads as an array, and a plain dataclass, which msgspec fills more slowly."""
    if issubclass(cls, tuple):
        return True
    return (
        dataclasses.is_dataclass(cls)
        and not hasattr(cls, "__slots__")
        and not hasattr(cls, "__post_init__")
        and all(field.init and not field.kw_only for field in dataclasses.fields(cls))
    )


def _defaults(cls: Any) -> dict[str, Any]:
    if cls is None:
        return {}
    if issubclass(cls, tuple):
        return dict(getattr(cls, "_field_defaults", {}))
    if not dataclasses.is_dataclass(cls):
        return {}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            found[field.name] = msgspec.field(default_factory=field.default_factory)
        elif field.default is not dataclasses.MISSING:
            found[field.name] = field.default
    return found


def json_type(declared: Any) -> Any:
    """Return the annotation by which msgspec checks a field. It limits integers to the range of their column."""
    if not isinstance(declared, TypeInformation):
        return _LONG if declared is int else declared
    if isinstance(declared, BasicTypeInfo):
        return _INTEGERS.get(declared.basic_type, declared.python_type)
    if isinstance(declared, RowTypeInfo):
        pairs = zip(declared.get_field_names(), declared.get_field_types(), strict=True)
        return typing.TypedDict("Row", {name: json_type(kind) | None for name, kind in pairs}, total=False)  # type: ignore[operator]
    if isinstance(declared, ARRAYS) and declared.python_type is not bytes:
        return list[json_type(declared.element_type) | None]  # type: ignore[misc]
    if isinstance(declared, MapTypeInfo):
        return dict[json_type(declared.key_type), json_type(declared.value_type) | None]  # type: ignore[misc]
    return declared.python_type
