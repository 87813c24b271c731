"""Texts of records for people, with a bound on their size and on the time that functions of the user take.

Problem. A record can be huge: `repr` of a dataclass with a large list builds the whole text, and holds the GIL until it is complete. A `__repr__` of
the user can also never return.

Solution. `Text` walks through containers and fields itself, and stops when the text is long enough. It calls `__repr__`
only for a class that defines its own. A separate thread makes the texts, and `texts` waits for the thread for a limited
time. The number of such threads is limited.
"""

from __future__ import annotations

import builtins
import ctypes
import dataclasses
import reprlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from penstock.common.stacks.edge_records import MAX_CHARS
from penstock.common.stacks.sampling import OWN_THREAD
from penstock.common.types import Row
from penstock.records.fields import shortened

TEXTS_S = 2.0
"""Time in seconds for all texts of an answer."""
_MAX_THREADS = 8
_MAX_ITEMS = 20
_MAX_DEPTH = 6
_CUT = "…"
_free = threading.BoundedSemaphore(_MAX_THREADS)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque, str)


class Text(reprlib.Repr):
    """The `repr` of one value in about `MAX_CHARS` characters.

    >>> Text()([1, {"a": ("b", 2.5)}])
    "[1, {'a': ('b', 2.5)}]"
    >>> len(Text()([["x" * 1_000_000] * 1000] * 1000)) < 3 * MAX_CHARS
    True
    """

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = _MAX_DEPTH
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = _MAX_ITEMS
        self.maxstring = self.maxother = self.maxlong = MAX_CHARS
        self._remaining_chars = MAX_CHARS

    def __call__(self, value: Any) -> str:
        return self.repr1(value, self.maxlevel)

    def repr1(self, x: Any, level: int) -> str:
        if self._remaining_chars <= 0:
            return _CUT
        before = self._remaining_chars
        text = super().repr1(x, level)
        self._remaining_chars = min(self._remaining_chars, before - len(text))
        return text

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        pairs = ((f"{self.repr1(key, level - 1)}: ", value) for key, value in x.items())
        return f"{{{self._parts(pairs, len(x), level)}}}"

    def repr_set(self, x: Any, level: int) -> str:
        return f"{{{self._parts((('', item) for item in x), len(x), level)}}}" if x else "set()"

    def repr_frozenset(self, x: Any, level: int) -> str:
        return f"frozenset({self.repr_set(x, level) if x else ''})"

    def repr_bytes(self, x: bytes | bytearray, level: int) -> str:
        return repr(x[:MAX_CHARS]) + (_CUT if len(x) > MAX_CHARS else "")

    def repr_instance(self, x: Any, level: int) -> str:
        kind = type(x)
        repr_method: Any = kind.__repr__
        fields = _fields(x)
        if fields is not None:
            named = ((f"{name}=" if name else "", value) for name, value in fields)
            text = f"{kind.__qualname__}({self._parts(named, None, level)})"
            return f"<{text}>" if kind is Row and x.get_field_names() is None else text
        for base in _CONTAINERS:  # a subclass that does not define its own text
            if isinstance(x, base) and repr_method is base.__repr__:
                return str(getattr(self, f"repr_{base.__name__}")(x, level))
        if isinstance(x, bytes | bytearray) and repr_method in (bytes.__repr__, bytearray.__repr__):
            return self.repr_bytes(x, level)
        return _cut(builtins.repr(x))

    def _parts(self, parts: Iterable[tuple[str, Any]], length: int | None, level: int) -> str:
        """Return the parts of a container or the fields of an object. `length` limits the number of items."""
        if level <= 0:
            return _CUT
        shown = []
        for head, value in parts if length is None else islice(parts, _MAX_ITEMS):
            if self._remaining_chars <= 0:
                break
            shown.append(head + self.repr1(value, level - 1))
        else:
            return ", ".join([*shown, _CUT] if length is not None and length > _MAX_ITEMS else shown)
        return ", ".join([*shown, _CUT])


def _fields(x: Any) -> Iterator[tuple[str, Any]] | None:
    """Return the names and values of an object's fields, or None if its class does not have a generated `repr`."""
    kind = type(x)
    repr_method: Any = kind.__repr__
    code = getattr(repr_method, "__code__", None)
    if dataclasses.is_dataclass(kind) and hasattr(repr_method, "__wrapped__"):
        return ((field.name, getattr(x, field.name)) for field in dataclasses.fields(x) if field.repr)
    if isinstance(x, tuple) and hasattr(kind, "_fields") and repr_method.__module__ == "collections":
        return zip(kind._fields, x, strict=False)
    if isinstance(x, msgspec.Struct) and repr_method is msgspec.Struct.__repr__:
        return ((name, getattr(x, name)) for name in kind.__struct_fields__)
    if code is not None and code.co_filename.startswith("<attrs generated"):
        return ((field.name, getattr(x, field.name)) for field in kind.__attrs_attrs__ if field.repr)
    return zip(x.get_field_names() or [""] * len(x), x, strict=False) if kind is Row else None


def texts(jobs: Sequence[Callable[[], Any]], kinds: Sequence[str]) -> list[str]:
    """Return the values of functions as texts, in at most `TEXTS_S` seconds. The functions are user code and may raise.

    Args:
        kinds: names of the values' types, which replace texts that are not ready in time.
    """
    found: list[str] = []
    if _free.acquire(blocking=False):
        is_over = threading.Event()
        thread = threading.Thread(target=_convert, args=(jobs, kinds, found, is_over), name=OWN_THREAD, daemon=True)
        thread.start()
        thread.join(TEXTS_S)
        is_over.set()
        if thread.is_alive() and thread.ident is not None:
            # A loop in Python code ends. A blocked call in C code keeps its thread.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    complete = found[:]
    return complete + [f"<{kind} without a text: its functions do not return>" for kind in kinds[len(complete) :]]


def _convert(
    jobs: Sequence[Callable[[], Any]], kinds: Sequence[str], found: list[str], is_over: threading.Event
) -> None:
    try:
        for job, kind in zip(jobs, kinds, strict=True):
            if is_over.is_set():
                return
            found.append(_text(job, kind))
    finally:
        _free.release()


def _text(job: Callable[[], Any], kind: str) -> str:
    try:
        text = Text()(job())
    except BaseException as error:  # SystemExit would end the thread without an answer
        text = f"<{kind} without a text: {shortened(error, MAX_CHARS)}>"
    return _cut(text.encode(errors="backslashreplace").decode())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}{_CUT}"
