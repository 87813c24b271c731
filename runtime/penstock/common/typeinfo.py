"""Type information: what a stream's or a state's values are.

Types are optional in Penstock. Where PyFlink pickles what it is not told the type of, Penstock infers types from
annotations and values (`penstock.common.type_info.type_inference`), encodes what it knows compactly, and encodes the rest by its
value; nothing is ever pickled into a checkpoint or onto the wire between operators.

`Types` makes the descriptions PyFlink programs use. Wherever one is taken, a Python annotation does as well: `int`,
`tuple[str, float]`, a dataclass, a NamedTuple, a TypedDict, a pydantic or msgspec model.

For storage a type answers with `python_type`, the annotation `msgspec` encodes and decodes with. Rows have no annotation
of their own: they are stored as tuples, and a type with a Row anywhere in it says so with `is_storable` and converts
with `to_storable` and `from_storable`.
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
