"""Sentinels: objects that are compared by identity, such as `dataclasses.MISSING`.

Pickle writes such an object as an instance of its class, so the copy is not the sentinel. For example, `MISSING` marks
a field without a default value. If it were copied, each field of a dataclass that travels by value would have a default
value. This module pickles a sentinel as its name in its module.

An object counts as a sentinel if it has no state, no pickle method, and a name in a module that the other
process imports.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

_HEAP_TYPE = 1 << 9
"""The flag `Py_TPFLAGS_HEAPTYPE`: a `class` statement created the class."""

_PICKLED_BY = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")


def reduced_sentinel(value: Any, own_modules: Iterable[str]) -> Any:
    """Return how a pickler's `reducer_override` finds the sentinel again, or NotImplemented if the value is not a sentinel.

    Args:
        own_modules: modules that the other process does not import, because they travel by value.

    >>> import dataclasses
    >>> reduced_sentinel(dataclasses.MISSING, ())[1][:2]
    ('dataclasses', 'MISSING')
    >>> reduced_sentinel(ValueError(), ())
    NotImplemented
    """
    cls = type(value)
    if not _is_stateless(value, cls):
        return NotImplemented
    place = _importable_name(value, cls, frozenset(own_modules) | {"__main__", "__mp_main__"})
    return NotImplemented if place is None else (named, (*place, cls))


def named(module: str, name: str, cls: type) -> Any:
    """Return the object with this name in the module, or a new object if the module does not have the name."""
    found = vars(import_module(module)).get(name, cls)
    return cls() if found is cls else found


def _is_stateless(value: Any, cls: type) -> bool:
    if cls is object:
        return True
    if any(getattr(cls, name, None) is not getattr(object, name, None) for name in _PICKLED_BY):
        return False
    if getattr(value, "__dict__", None):
        return False
    return all(
        base is object or (base.__flags__ & _HEAP_TYPE and not vars(base).get("__slots__")) for base in cls.__mro__
    )


def _importable_name(value: Any, cls: type, own_modules: frozenset[str]) -> tuple[str, str] | None:
    """Return module and name. Most sentinels are in the module of their class; a plain `object()` may be in any module."""
    modules = list(sys.modules.items()) if cls is object else [(cls.__module__, sys.modules.get(cls.__module__))]
    for module_name, module in modules:
        if module is not None and module_name not in own_modules:
            name = _name_in(value, module)
            if name is not None:
                return module_name, name
    return None


def _name_in(value: Any, module: ModuleType) -> str | None:
    names = getattr(module, "__dict__", None)
    if not isinstance(names, dict):
        return None
    return next((name for name, each in list(names.items()) if each is value and isinstance(name, str)), None)
