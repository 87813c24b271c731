"""Conversion of a row's images, before and after a change, to `Row`s of the declared fields."""

from __future__ import annotations

import datetime
import typing
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from penstock.common.errors import InvalidJob
from penstock.common.types import Row, RowKind
from penstock.connectors.formats.arrow_types import fields_of_class
from penstock.connectors.formats.json_lines import json_type
from penstock.connectors.formats.record_format import MalformedBlock
from penstock.connectors.formats.shape import Field, RecordShape, RowMaker

TIME_UNITS = {"ms": 1_000, "us": 1}
_EPOCH = datetime.datetime(1970, 1, 1)
_DAY_ZERO = datetime.date(1970, 1, 1)
UNAVAILABLE = "__debezium_unavailable_value"
"""Text that Debezium writes for a large value that the log omits."""


class RowImages:
    """A converter of JSON objects to Rows.

    Args:
        shape: the shape of the fields.
        names: the fields of the Rows. The fields of the shape come first, then additional fields.
        lax: whether numbers and booleans may be strings.
        time_unit: unit of times that are numbers, "ms" or "us"; "" means that such times are refused.
    """

    def __init__(self, shape: RecordShape, names: Sequence[str], *, lax: bool, time_unit: str) -> None:
        kinds = {field.name: field.type for field in shape.schema} if shape.has_columns else {}
        self._times = [
            (n, _time_of(kind, time_unit)) for n, f in enumerate(shape.fields) if _is_time(kind := kinds.get(f.name))
        ]
        whole = [(f"f{n}", _annotation(f, kinds)) for n, f in enumerate(shape.fields)]
        rename = {f"f{n}": f.name for n, f in enumerate(shape.fields)}
        strict: list[Any] = [
            (name, kind | None, None) if field.optional else (name, kind)
            for (name, kind), field in zip(whole, shape.fields, strict=True)
        ]
        self._whole = msgspec.defstruct("Image", strict, rename=rename, gc=False, kw_only=True)
        part: list[Any] = [(name, kind | None, None) for name, kind in whole]
        self._part = msgspec.defstruct("Image", part, rename=rename, gc=False)
        self.has_decimals = any(_holds_decimals(f.type) for f in shape.fields)
        self._others = [f.name for f in shape.fields if self.has_decimals and not _holds_decimals(f.type)]
        self._load = partial(msgspec.convert, strict=not lax, builtin_types=())
        get = attrgetter(*rename)
        self._get: Callable[[Any], tuple[Any, ...]] = get if len(rename) > 1 else lambda image: (get(image),)
        self._convert = RowMaker(shape).convert_tuples
        self._make = Row.maker(names)

    def row(self, image: Mapping[str, Any], kind: RowKind, extra: tuple[Any, ...], *, whole: bool = True) -> Row:
        """Return the Row of an image.

        Args:
            image: the JSON object. If `has_decimals`, its numbers with a point are Decimals, because floats would be rounded.
            whole: whether fields that are not optional must exist.
            extra: values of the additional fields.

        Raises:
            MalformedBlock: a value does not have its field's type.
        """
        if self._others:
            image = {**image, **{name: with_floats(image[name]) for name in self._others if name in image}}
        try:
            values = list(self._get(self._load(image, self._whole if whole else self._part)))
            for index, load in self._times:
                if values[index] is not None:
                    values[index] = load(values[index])
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise MalformedBlock(f"{kind}: {error}") from None
        [converted] = self._convert([tuple(values)])
        row = self._make((*converted, *extra))
        row.set_row_kind(kind)
        return row


def row_shapes(fields: Any, metadata: Mapping[str, str]) -> tuple[RecordShape, RecordShape]:
    """Return the shape of a table's fields, and the shape of the records, which end with the metadata.

    Raises:
        InvalidJob: no fields are declared, or a name is used twice.
    """
    shape = RecordShape.of(fields, "row")
    twice = [name for name in metadata if name in shape.names]
    if twice:
        raise InvalidJob(f"metadata {', '.join(twice)} are also fields of the table", remedy="give them other names")
    more = [Field(name, Any, optional=True) for name in metadata]
    return shape, RecordShape([*shape.fields, *more], "row")


def with_floats(value: Any) -> Any:
    """Return a JSON value with floats instead of Decimals."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: with_floats(one) for name, one in value.items()}
    return [with_floats(one) for one in value] if isinstance(value, list) else value


def _holds_decimals(declared: Any, above: tuple[Any, ...] = ()) -> bool:
    annotation = json_type(declared)
    if annotation is Decimal:
        return True
    if annotation in above:
        return False
    below = typing.get_args(annotation)
    if isinstance(annotation, type) and not below:
        below = tuple((fields_of_class(annotation) or {}).values())
    return any(_holds_decimals(part, (*above, annotation)) for part in below)


def _annotation(field: Field, kinds: Mapping[str, pa.DataType]) -> Any:
    return int | str if _is_time(kinds.get(field.name)) else json_type(field.type)


def _is_time(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_temporal(kind) and not pa.types.is_duration(kind))


def _time_of(kind: pa.DataType, unit: str) -> Callable[[int | str], Any]:
    """Return the function that reads a time from ISO 8601 text or a number. A number counts days for dates, else `unit`."""
    if pa.types.is_date(kind):
        return lambda value: (
            datetime.date.fromisoformat(value) if isinstance(value, str) else _DAY_ZERO + datetime.timedelta(value)
        )
    is_time = pa.types.is_time(kind)

    def load(value: int | str) -> Any:
        if isinstance(value, str):
            if is_time:
                return datetime.time.fromisoformat(value)
            found = datetime.datetime.fromisoformat(value)
            return found if found.tzinfo is None else found.astimezone(datetime.UTC).replace(tzinfo=None)
        if not unit:
            raise ValueError(f"a time is the number {value}, but its unit is not known: set time_unit='ms' or 'us'")
        at = _EPOCH + datetime.timedelta(microseconds=value * TIME_UNITS[unit])
        return at.time() if is_time else at

    return load
