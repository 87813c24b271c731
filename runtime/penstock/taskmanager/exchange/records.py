"""Encoding of records between processes of one job. A received record equals the sent one and has the same type, at any depth.

Python's fast formats do not guarantee this. marshal writes every object with the buffer protocol (numpy's scalars and arrays,
`bytearray`, `array`) as plain bytes. msgpack and JSON replace subclasses with their bases and tuples with lists. pickle keeps
the exact type, and follows an object's own pickle methods. So all three forms use pickle:

* `PLAIN`: exact builtin values (None, bool, int, float, str, bytes, bytearray, and list, tuple, dict, set, frozenset of
  them). It omits pickle's memo of objects already written. The memo is most of pickle's cost: without it, pickle is
  faster than marshal. An object that several records share becomes separate copies.
* `FIELDS`: records of a single class that consist of their fields only (NamedTuples, Structs, dataclasses; `classes`).
  This form has the class once, and the fields as `PLAIN`.
* `OBJECTS`: everything else. Classes that cannot be imported go by value (cloudpickle). The form refuses objects that would
  change their type: cloudpickle would write a `memoryview` as bytes and an open file as its text.

Buffers only travel between processes of one job that authenticate each other. Stored data is never pickled.
"""

from __future__ import annotations

import io
import pickle
from functools import lru_cache
from typing import Any, NoReturn

from penstock.taskmanager.exchange.classes import field_form

PLAIN, FIELDS, OBJECTS = range(3)

_CLASSES = 64
"""Number of record classes in each cache. A class from the program's script goes by value, which takes 1 ms for each buffer."""

_PROTOCOL = pickle.HIGHEST_PROTOCOL


class _NotPlain(Exception):
    """The signal that a value is not an exact builtin value."""


class _PlainPickler(pickle.Pickler):
    """A pickler that raises for every object that is not an exact builtin value."""

    def reducer_override(self, obj: Any) -> NoReturn:
        raise _NotPlain


def encode_records(values: list[Any]) -> tuple[int, bytes]:
    """Return the form and the bytes.

    Raises:
        Exception: any error that pickling raises for a record that cannot be sent, usually `TypeError`.
    """
    try:
        return PLAIN, _plain(values)
    except (_NotPlain, ValueError, RecursionError):  # ValueError, RecursionError: a record contains itself
        pass
    cls: Any = type(values[0])
    form = field_form(cls)
    if form is not None and {cls}.issuperset(map(type, values)):
        try:
            rows = form.take(values)
            fields = None if rows is None else _plain(rows)
        except (_NotPlain, ValueError, RecursionError):
            fields = None
        if fields is not None:
            name = _encode_class(cls)
            return FIELDS, b"".join((len(name).to_bytes(4, "little"), name, fields))
    return OBJECTS, encode_object(values)


def decode_records(form: int, data: memoryview) -> list[Any]:
    """Return the records, with the classes of this process.

    Raises:
        Exception: any error that the creation of an object raises.
    """
    if form == FIELDS:
        start = 4 + int.from_bytes(data[:4], "little")
        fields = field_form(_decode_class(bytes(data[4:start])))
        assert fields is not None
        return fields.make(pickle.loads(data[start:]))
    values: list[Any] = pickle.loads(data)
    return values


def _plain(values: list[Any]) -> bytes:
    out = io.BytesIO()
    pickler = _PlainPickler(out, _PROTOCOL)
    pickler.fast = True
    pickler.dump(values)
    return out.getvalue()


@lru_cache(_CLASSES)
def _encode_class(cls: Any) -> bytes:
    return encode_object(cls)


@lru_cache(_CLASSES)
def _decode_class(name: bytes) -> Any:
    return pickle.loads(name)


def encode_object(value: Any) -> bytes:
    """Return any object as bytes. Classes go by name if every process can import them, else by value."""
    try:
        return pickle.dumps(value, _PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        from penstock.taskmanager.code.pickler import (
            RecordPickler,
            dumps,
        )  # imported here because it imports pyspark, which is slow

        return dumps(value, RecordPickler)
