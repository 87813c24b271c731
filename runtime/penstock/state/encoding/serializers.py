"""How values of a state become bytes: msgpack through msgspec, never pickle.

A `Codec` serves one state. It encodes single values (the RocksDB backend) and whole columns of them (the hashmap
backend's files): one call into C per thousands of values is what keeps a checkpoint short. A column's first step is
`freeze`, done while processing stands still: what can change later is encoded at once, what cannot (numbers, strings,
tuples of them) is only referred to and encoded by the upload thread.

Without a declared type (`None` or `Any`) values may be anything `tagged` knows and come back with the same types; with
one, values are checked: what would not come back as declared is refused when it is stored or snapshotted, not found
out at a restore. Values of an Avro schema and Protobuf's messages are bytes of those formats within it (`messages`).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, get_args, get_origin

from penstock.common.type_info.message_types import AvroTypeInfo, is_message_class
from penstock.common.type_info.type_information import TypeInformation
from penstock.state.encoding.any_codec import AnyCodec, ScalarCodec
from penstock.state.encoding.messages.codecs import AvroCodec, ProtobufCodec
from penstock.state.encoding.tagged import SCALARS
from penstock.state.encoding.typed_codec import TypedCodec

if TYPE_CHECKING:
    from penstock.state.encoding.codec import Codec


def codec_for(type_info: Any, *, state: str, operator: str = "") -> Codec:
    """The codec of a state's values.

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
        annotation = _with_nones(type_info.python_type)
        conversion = None if type_info.is_storable else type_info
    if annotation is None or annotation is Any or annotation is object:
        return AnyCodec(state, operator)
    if is_message_class(annotation):
        return ProtobufCodec(annotation, state, operator)
    if annotation in SCALARS and conversion is None:
        return ScalarCodec(annotation, state, operator)
    return TypedCodec(annotation, state, operator, conversion=conversion)


def _with_nones(annotation: Any) -> Any:
    """None is a value of every part of a Flink type, which the annotation of its type information does not say."""
    origin = get_origin(annotation)
    if origin in (list, tuple):
        return types.GenericAlias(
            origin, tuple(part if part is ... else _with_nones(part) | None for part in get_args(annotation))
        )
    if origin is dict:
        key, value = get_args(annotation)
        return types.GenericAlias(dict, (key, _with_nones(value) | None))
    return annotation
