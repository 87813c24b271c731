"""The stored form of a Row whose kind is not INSERT.

A Row of kind INSERT is stored as the array of its fields, like in older versions, which stored no kinds. Any other Row
is stored as a map of two entries: `k`, the number of the kind, and `f`, the array of the fields. The kind takes 6
bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect as mi

from penstock.common.types import RowKind

_NAMES = {"kind": "k", "fields": "f"}


class RowChange(msgspec.Struct, frozen=True, rename=_NAMES):
    """The kind and the storable fields of a Row.

    >>> msgspec.msgpack.encode(RowChange(RowKind.DELETE, ("KJFK",))).hex(" ", -1)
    '82 a1 6b 03 a1 66 91 a4 4b 4a 46 4b'
    """

    kind: RowKind
    fields: Any


def stored_row(fields: Any) -> Any:
    """Return the annotation of a stored Row, given the annotation of its fields as a tuple.

    >>> decode = msgspec.msgpack.Decoder(stored_row(tuple[str, int])).decode
    >>> decode(msgspec.msgpack.encode(("KJFK", 3)))
    ('KJFK', 3)
    >>> decode(msgspec.msgpack.encode(RowChange(RowKind.DELETE, ("KJFK", 3)))).kind
    <RowKind.DELETE: 3>
    """
    change = msgspec.defstruct(
        "RowChange", [("kind", RowKind), ("fields", fields)], bases=(RowChange,), frozen=True, rename=_NAMES
    )
    return fields | change


def is_row_change(info: mi.Type) -> bool:
    """Return whether this is the stored form of Rows whose kind is not INSERT."""
    return isinstance(info, mi.StructType) and issubclass(info.cls, RowChange)
