"""Records as bytes, between processes of one job: what arrives is equal to what was sent and of the same type, at any depth.

Python's fast formats do not promise that. marshal writes whatever has the buffer protocol (numpy's scalars and arrays,
`bytearray`, `array`) as plain bytes; msgpack and JSON take subclasses for their bases and tuples for lists. pickle goes by
the exact type, and where an object says how it is to be made again, by that. So all three forms are pickle's:

* `PLAIN`: builtin values exactly (None, bool, int, float, str, bytes, bytearray, and list, tuple, dict, set, frozenset of
  them). Without the memo of objects already written, which is most of pickle's cost, it takes less time than marshal did.
  What records share they do not share behind the exchange.
* `FIELDS`: records that are all of one class and no more than their fields (NamedTuples, Structs, dataclasses; `classes`): the
  class once, the fields as `PLAIN`.
* `OBJECTS`: everything else. Classes that cannot be imported go by value (cloudpickle), but nothing goes that would become
  something else: cloudpickle's ways to write a `memoryview` as bytes and an open file as its text are closed.

Buffers live between processes of one job that authenticate each other; nothing at rest is pickled.
"""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from functools import cache, lru_cache
from typing import Any, NoReturn

from penstock.taskmanager.exchange.classes import field_form

PLAIN, FIELDS, OBJECTS = range(3)

_CLASSES = 64
"""Of records, that are kept: a class that was defined in the program's script goes by value, a millisecond for each buffer."""

_PROTOCOL = pickle.HIGHEST_PROTOCOL


class _NotPlain(Exception):
    """An object turned up."""


class _PlainPickler(pickle.Pickler):
    """Asked about every object that is no builtin value exactly."""

    def reducer_override(self, obj: Any) -> NoReturn:
        raise _NotPlain


def encode_records(values: list[Any]) -> tuple[int, bytes]:
    """The form and the bytes.

    Raises:
        Exception: whatever pickling raises for a record that cannot be sent; `TypeError` for most.
    """
    try:
        return PLAIN, _plain(values)
    except (_NotPlain, ValueError, RecursionError):  # the latter two: a record that contains itself
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
    """The records, of the classes that this process knows.

    Raises:
        Exception: whatever the making of an object raises.
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
    """Any object; classes by name where they have one that every process knows, else by value."""
    try:
        return pickle.dumps(value, _PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        out = io.BytesIO()
        _by_value_pickler()(out, _PROTOCOL).dump(value)
        return out.getvalue()


@cache
def _by_value_pickler() -> type[pickle.Pickler]:
    """For lambdas, and classes made inside functions. Made when first needed: importing pyspark takes its time."""
    from pyspark import cloudpickle

    from penstock.taskmanager.script_classes import reduced_class

    class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = ChainMap(
            dict.fromkeys((memoryview, io.TextIOWrapper), refuse_to_pickle), cloudpickle.Pickler.dispatch_table
        )

        def reducer_override(self, obj: Any) -> Any:
            return reduced_class(obj, super().reducer_override)

    return ByValuePickler


def refuse_to_pickle(value: Any) -> NoReturn:
    """For a `dispatch_table`."""
    raise TypeError(f"cannot pickle {type(value).__name__!r} object")
