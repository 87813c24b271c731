"""The codecs of state values. They use msgpack through msgspec, and never pickle.

A `Codec` serves one state. It encodes single values (the RocksDB backend) and whole columns of values (the hashmap
backend's files). One call into C for thousands of values keeps a checkpoint short. The first step for a column is
`freeze`, which runs while processing is stopped. It encodes mutable values immediately. For immutable values (numbers,
strings, tuples of them), it only keeps references, and the upload thread encodes the values.

Without a declared type (`None` or `Any`), values of all types that `tagged` supports keep their type. Values of a
declared type are checked. A value that would not have the declared type after a restore is refused when it is stored or
snapshotted. Values of an Avro schema and Protobuf messages are bytes of these formats inside msgpack (`messages`).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, get_args, get_origin

from penstock.common.type_info.composite_types import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from penstock.common.type_info.message_types import AvroTypeInfo, is_message_class
from penstock.common.type_info.row_change import stored_row
from penstock.common.type_info.type_information import TypeInformation
from penstock.state.encoding.any_codec import AnyCodec, ScalarCodec
from penstock.state.encoding.messages.codecs import AvroCodec, ProtobufCodec
from penstock.state.encoding.tagged import SCALARS
from penstock.state.encoding.typed_codec import TypedCodec

if TYPE_CHECKING:
    from penstock.state.encoding.codec import Codec


def codec_for(type_info: Any, *, state: str, operator: str = "") -> Codec:
    """Return the codec of a state's values.

    Args:
        type_info: type information, a Python annotation, or None for any builtin value.

    Raises:
        StateTypeError: values of that type cannot be encoded.

    >>> codec = codec_for(tuple[int, float], state="mean")
    >>> codec.decode(codec.encode((3, 4.5)))
    (3, 4.5)
    """
    if isinstance(type_info, AvroTypeInfo):
        return AvroCodec(type_info.text, state, operator)
    conversion: TypeInformation | None = None
    annotation = type_info
    if isinstance(type_info, TypeInformation):
        annotation = _stored_form(type_info)
        conversion = None if type_info.is_storable else type_info
    if annotation is None or annotation is Any or annotation is object:
        return AnyCodec(state, operator)
    if is_message_class(annotation):
        return ProtobufCodec(annotation, state, operator)
    if annotation in SCALARS and conversion is None:
        return ScalarCodec(annotation, state, operator)
    return TypedCodec(annotation, state, operator, conversion=conversion)


def _stored_form(type_info: TypeInformation, *, nones: bool = True) -> Any:
    """Return the annotation of the result of `to_storable` for a type that contains a Row.

    Args:
        nones: whether parts of a value may be None. Parts of keys may not be None.
    """
    if isinstance(type_info, ExternalTypeInfo):
        return _stored_form(type_info.inner, nones=nones)
    if type_info.is_storable:
        return _with_optional_parts(type_info.python_type) if nones else type_info.python_type
    if isinstance(type_info, MapTypeInfo):
        key, value = _stored_form(type_info.key_type, nones=False), _stored_form(type_info.value_type, nones=nones)
        return types.GenericAlias(dict, (key, value | None if nones else value))
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        fields = [_stored_form(field, nones=nones) for field in type_info.get_field_types()]
        form = types.GenericAlias(tuple, tuple(field | None if nones else field for field in fields))
        return stored_row(form) if isinstance(type_info, RowTypeInfo) else form
    assert isinstance(type_info, ListTypeInfo | BasicArrayTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo)
    element = _stored_form(type_info.element_type, nones=nones)
    return types.GenericAlias(list, (element | None if nones else element,))


def _with_optional_parts(annotation: Any) -> Any:
    """Return the annotation with None allowed in every part. A Flink type allows None there, but its annotation does not."""
    origin = get_origin(annotation)
    if origin in (list, tuple):
        return types.GenericAlias(
            origin, tuple(part if part is ... else _with_optional_parts(part) | None for part in get_args(annotation))
        )
    if origin is dict:
        key, value = get_args(annotation)
        return types.GenericAlias(dict, (key, _with_optional_parts(value) | None))
    return annotation
