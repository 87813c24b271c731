"""Codec of a declared type: msgspec encodes and checks the values."""

from __future__ import annotations

import types
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import msgspec
from msgspec import Raw
from msgspec import inspect as mi
from msgspec.msgpack import Decoder, Encoder, Ext

from penstock.common.errors import StateSchemaIncompatible, StateTypeError
from penstock.common.type_info.row_change import RowChange
from penstock.state.encoding import schema_adaptation as adapt
from penstock.state.encoding.codec import NATIVE, Codec, are_frozen, join_column, split_column
from penstock.state.encoding.key_hash import is_model
from penstock.state.encoding.schema import Schema, UnknownType, describe, without_names
from penstock.state.encoding.tagged import MODEL, Unencodable, pack, plain_scalar, tag, type_name, unpack, untag
from penstock.state.encoding.typed_tags import TaggedKey, compile_tagger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.common.type_info.type_information import TypeInformation


class TypedCodec(Codec):
    """The codec of a declared type. msgspec encodes and checks its values."""

    def __init__(
        self, annotation: Any, state: str, operator: str, *, conversion: TypeInformation | None = None
    ) -> None:
        super().__init__(state, operator)
        self._annotation = annotation
        self._conversion = conversion
        try:
            self.schema = describe(annotation)
            self._info = mi.type_info(annotation)
            self._decoder = Decoder(annotation, ext_hook=untag, dec_hook=_dec_hook)
            self._list_decoder = Decoder(types.GenericAlias(list, (annotation,)), ext_hook=untag, dec_hook=_dec_hook)
        except UnknownType as error:
            raise StateTypeError(
                f"state {state!r} is declared with a type that cannot be encoded: {error}",
                remedy="make the class a dataclass, NamedTuple, pydantic model or msgspec struct",
                operator=operator,
            ) from None
        except (TypeError, NameError) as error:
            raise StateTypeError(
                f"state {state!r} is declared with a type that cannot be encoded: {annotation!r}: {error}",
                remedy="use a type whose values can be distinguished, for example one dataclass or None",
                operator=operator,
            ) from None
        self._encode = Encoder(enc_hook=_enc_hook).encode
        self._tagger = compile_tagger(self._info)
        self._classes = _classes(annotation)
        self._is_immutable = self._classes is not None and is_immutable(self._info)

    def encode(self, value: Any) -> bytes:
        data = self._encode_unchecked(value)
        self._check(data, value)
        return data

    def _encode_unchecked(self, value: Any) -> bytes:
        try:
            if self._conversion is not None:
                value = self._conversion.to_storable(value)
            if self._classes is not None and type(value) not in self._classes and not _is_substitute(value):
                raise self._type_error(value, f"the value is a {type_name(type(value))}")
            return self._encode(value if self._tagger is None else self._tagger(value))
        except Unencodable as error:
            reason = f"{type_name(type(error.value))} has no encoding{error.reason and ': ' + error.reason}"
            raise self._type_error(error.value, reason) from None
        except OverflowError:
            raise self._type_error(value, "an integer is beyond 64 bits") from None
        except RecursionError:
            raise self._type_error(type(value), "it contains itself") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise self._type_error(value, str(error)) from error

    def _check(self, data: bytes, value: Any) -> None:
        try:
            self._decoder.decode(data)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise self._type_error(value, str(error)) from None

    def _type_error(self, value: Any, reason: str) -> StateTypeError:
        declared = self._annotation if self._conversion is None else self._conversion.python_type
        name = getattr(declared, "__name__", None) if isinstance(declared, type) else None
        return self.error(
            value,
            f"it is declared as {name or declared} and {reason}",
            "store values of the declared type, or declare the type of the stored values",
        )

    def decode(self, data: bytes | memoryview) -> Any:
        value = self._decoder.decode(data)
        return value if self._conversion is None else self._conversion.from_storable(value)

    def freeze(self, values: list[Any]) -> list[Any]:
        if self._tagger is None and self._conversion is None and (self._is_immutable or are_frozen(values)):
            return values
        encode = self._encode_unchecked
        return [Raw(encode(value)) for value in values]

    def encode_column(self, frozen: Sequence[Any]) -> tuple[int, bytes]:
        """Encode the column, and decode the result as a check. A value that cannot be restored must fail this checkpoint, not a restore."""
        classes = self._classes
        if self._is_immutable and classes is not None and not classes.issuperset(map(type, frozen)):
            return join_column([self._encode_frozen(value) for value in frozen])
        try:
            data = self._encode(frozen)
            self._list_decoder.decode(data)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError):
            return join_column([self._encode_frozen(value) for value in frozen])
        return NATIVE, data

    def _encode_frozen(self, value: Any) -> bytes:
        if type(value) is not Raw:
            return self.encode(value)
        data = bytes(value)
        self._check(data, unpack(data))
        return data

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        values: list[Any] = self._list_decoder.decode(data)
        return values if self._conversion is None else list(map(self._conversion.from_storable, values))

    def reader_of(self, old: Schema) -> Codec:
        super().reader_of(old)
        if without_names(old) != without_names(self.schema) and adapt.needs_adapting(old, self.schema):
            return _AdaptingCodec(self, old)
        return self


_decode_raw = Decoder(ext_hook=lambda code, data: TaggedKey(Ext(code, bytes(data)))).decode
"""Decoder without types. An extension may be the key of a dictionary. The encoder writes each extension again
unchanged."""


class _AdaptingCodec(TypedCodec):
    """A codec that decodes records stored as arrays with an older schema."""

    def __init__(self, target: TypedCodec, old: Schema) -> None:
        super().__init__(target._annotation, target.state, target.operator, conversion=target._conversion)
        self._old = old
        if adapt.has_records_as_keys(old):
            raise StateSchemaIncompatible(
                f"state {self.state!r} cannot be read as the program declares it: the fields of a NamedTuple or array-like struct "
                "changed. Its value also has a dictionary with dataclasses or structs as keys",
                remedy="keep the fields and their order, and add new fields at the end of another class. Or use a new state name for "
                "the new type, and copy the values in the function",
                operator=self.operator,
            )

    def decode(self, data: bytes | memoryview) -> Any:
        return super().decode(self._encode(adapt.adapt(_decode_raw(data), self._old, self._info)))

    def decode_column(self, code: int, data: bytes | memoryview) -> list[Any]:
        return list(map(self.decode, split_column(code, data)))


def _classes(annotation: Any) -> frozenset[type] | None:
    """Return the possible classes of a value. None means that they are not known."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        parts = [_classes(part) for part in get_args(annotation)]
        return None if None in parts else frozenset(chain.from_iterable(part for part in parts if part is not None))
    cls = origin or annotation
    if cls is None:
        return frozenset({type(None)})
    if isinstance(cls, type) and issubclass(cls, RowChange):
        return frozenset({RowChange})
    if not isinstance(cls, type) or getattr(cls, "__total__", None) is not None:
        return None
    return frozenset({cls, int}) if cls is float else frozenset({cls})


_IMMUTABLE = (
    mi.NoneType,
    mi.BoolType,
    mi.IntType,
    mi.FloatType,
    mi.StrType,
    mi.BytesType,
    mi.DateTimeType,
    mi.DateType,
    mi.TimeType,
    mi.TimeDeltaType,
    mi.UUIDType,
    mi.DecimalType,
    mi.EnumType,
    mi.LiteralType,
)


def is_immutable(info: mi.Type, outer: tuple[Any, ...] = ()) -> bool:
    """Return whether values of that type are immutable in all parts.

    Args:
        outer: enclosing classes, for types that contain themselves.

    >>> is_immutable(mi.type_info(tuple[str, float | None])), is_immutable(mi.type_info(tuple[list[int], int]))
    (True, False)
    """
    if isinstance(info, _IMMUTABLE):
        return True
    if isinstance(info, mi.Metadata):
        return is_immutable(info.type, outer)
    if isinstance(info, mi.TupleType):
        return all(is_immutable(item, outer) for item in info.item_types)
    if isinstance(info, mi.VarTupleType | mi.FrozenSetType):
        return is_immutable(info.item_type, outer)
    if isinstance(info, mi.UnionType):
        return all(is_immutable(member, outer) for member in info.types)
    if not isinstance(info, mi.StructType | mi.DataclassType | mi.NamedTupleType):
        return False
    if info.cls in outer:
        return True
    if isinstance(info, mi.StructType) and not info.cls.__struct_config__.frozen:
        return False
    if isinstance(info, mi.DataclassType) and not getattr(
        getattr(info.cls, "__dataclass_params__", None), "frozen", False
    ):
        return False
    return all(is_immutable(field.type, (*outer, info.cls)) for field in info.fields)


def _is_substitute(value: Any) -> bool:
    """Return whether the value is a numpy scalar, which stands for a Python number."""
    return type(value).__module__ == "numpy"


def _enc_hook(value: Any) -> Any:
    if type(value) is TaggedKey:
        return value.tagged
    if is_model(type(value)):
        return Ext(MODEL, pack(_dumped(value)))
    return tag(plain_scalar(value))


def _dumped(model: Any) -> dict[str, Any]:
    """Return the content of a model. A value of type `Any` is unchanged, because pydantic would convert a record to a dict."""
    dumped: dict[str, Any] = _plain(model.model_dump(round_trip=True))
    for name, field in type(model).model_fields.items():
        part = getattr(model, name)
        if _contains_any(field.annotation):
            dumped[name] = part
        elif is_model(type(part)):
            dumped[name] = _dumped(part)
    return dumped | (model.model_extra or {})


def _contains_any(annotation: Any) -> bool:
    return annotation is Any or annotation is object or any(map(_contains_any, get_args(annotation)))


def _plain(value: Any) -> Any:
    """Return the content of a model with values instead of enum members. pydantic creates the members from their values."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(map(_plain, value))
    if kind is dict:
        return {_plain(key): _plain(item) for key, item in value.items()}
    return _plain(value.value) if issubclass(kind, Enum) else value


def _dec_hook(annotation: Any, value: Any) -> Any:
    cls = get_origin(annotation) or annotation
    if isinstance(value, cls):
        return value
    if is_model(cls):
        known = cls.model_fields if cls.model_config.get("extra") == "forbid" else value
        return cls.model_validate({k: v for k, v in value.items() if k in known}, by_name=True, by_alias=False)
    constructor: Callable[[Any], Any] = cls
    return constructor(value)
