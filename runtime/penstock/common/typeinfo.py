"""Type information: the types of values in streams and state.

Types are optional in Penstock. PyFlink pickles values without a declared type. Penstock infers their type from
annotations and values (`penstock.common.type_info.type_inference`). It encodes known types compactly, and other values
by their Python class. Checkpoints and the exchange between operators never contain pickled values.

`Types` creates the type information that PyFlink programs use. A Python annotation is accepted in the same places:
`int`, `tuple[str, float]`, a dataclass, a NamedTuple, a TypedDict, a pydantic or msgspec model.

The stored form of a type is defined by `python_type`, the annotation with which `msgspec` encodes and decodes. A Row
has no such annotation: it is stored as a tuple, or as a `RowChange` if its kind is not INSERT. A type that contains a
Row returns False for `is_storable` and converts values with `to_storable` and `from_storable`.
"""

from __future__ import annotations

from penstock.common.type_info.composite_types import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    read_annotations_with,
)
from penstock.common.type_info.message_types import AvroTypeInfo
from penstock.common.type_info.type_factories import Types
from penstock.common.type_info.type_inference import to_type_info
from penstock.common.type_info.type_information import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)

__all__ = [
    "AvroTypeInfo",
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]

read_annotations_with(to_type_info)
