"""Classes of the user's script, which travel to the workers by value: cloudpickle copies the contents of a class.

* msgspec removes the definitions of a struct's fields when it creates the class, so a copy of the class would have no fields. This
  module creates the class again from its fields and settings. The methods follow as cloudpickle sends them, because they may refer to
  the class itself.
* Annotations that are text need the imports of the script, which a worker does not have. This module sends the objects that the
  annotations name.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, ForwardRef

import msgspec
from pyspark.cloudpickle import cloudpickle

_META = type(msgspec.Struct)
_RECREATED = frozenset(
    [
        "__module__",
        "__qualname__",
        "__annotations__",
        "__slots__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__post_init__",
        "__match_args__",
        "__orig_bases__",
        "__parameters__",
        "__abstractmethods__",
        "_abc_impl",
        "__msgspec_cache__",
    ]
)
_SETTINGS = [
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
]


def reduced_class(cls: Any, by_value: Callable[[Any], Any]) -> Any:
    """Return how a pickler's `reducer_override` creates the class again.

    Args:
        by_value: cloudpickle's own function. It returns NotImplemented for an object that is found by name or is not a class.
    """
    if isinstance(cls, _META) and not cloudpickle._should_pickle_by_reference(cls):
        return _reduced_struct(cls)
    reduced = by_value(cls)
    if isinstance(cls, type) and isinstance(reduced, tuple) and "__annotations__" in vars(cls):
        attributes = reduced[2][0]  # a copy, pickled after the class: the attributes may refer to the class
        attributes["__annotations__"] = _annotations(cls)
    return reduced


def _reduced_struct(cls: Any) -> Any:
    body = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        **{name: attribute for name, attribute in vars(cls).items() if name == "__post_init__"},
    }
    own_fields = [name for name in inspect.get_annotations(cls) if name in cls.__struct_fields__]
    state = {
        name: each for name, each in vars(cls).items() if name not in _RECREATED and name not in cls.__struct_fields__
    }
    made_of = (
        type(cls),
        cls.__name__,
        cloudpickle._get_bases(cls),
        _settings(cls, own_fields),
        body,
        _fields(cls, own_fields),
        cloudpickle._get_or_create_tracker_id(cls),
    )
    return (
        _create_class,
        made_of,
        (state | {"__annotations__": _annotations(cls)}, {}),
        None,
        None,
        cloudpickle._class_setstate,
    )


def _settings(cls: Any, own_fields: list[str]) -> dict[str, Any]:
    settings = {name: getattr(cls.__struct_config__, name) for name in _SETTINGS}
    by_keyword = set(cls.__struct_fields__) - set(cls.__match_args__)
    return {name: value for name, value in settings.items() if value is not None} | {
        "kw_only": not by_keyword.isdisjoint(own_fields)
    }


def _fields(cls: Any, own_fields: list[str]) -> dict[str, tuple[str, Any, Any]]:
    """Return for each of the class's own fields its encoded name, its default, and its default factory."""
    names, defaults = cls.__struct_fields__, cls.__struct_defaults__
    by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    encoded = dict(zip(names, cls.__struct_encode_fields__, strict=True))
    fields = {}
    for name in own_fields:
        default = by_name.get(name, msgspec.NODEFAULT)
        factory = getattr(default, "factory", None) if type(default).__name__ == "Factory" else None
        known = default is not msgspec.NODEFAULT and factory is None
        fields[name] = (encoded[name], (default,) if known else (), factory)
    return fields


def _annotations(cls: Any) -> dict[str, Any]:
    return {name: _resolved(cls, annotation) for name, annotation in inspect.get_annotations(cls).items()}


def _resolved(cls: Any, annotation: Any) -> Any:
    """Return the object that an annotation names in the class's module, or the annotation if the name is not known."""
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
    if not isinstance(text, str):
        return annotation
    try:
        return eval(text, dict(vars(cls)), vars(sys.modules[cls.__module__]))  # a field may be named like its type
    except Exception:  # the annotation stays text; code that needs the type resolves it
        return annotation


def _create_class(
    meta: Any,
    name: str,
    bases: tuple[Any, ...],
    settings: dict[str, Any],
    body: dict[str, Any],
    fields: dict[str, tuple[str, Any, Any]],
    tracker_id: str,
) -> Any:
    defaults = {}
    for field, (encoded, default, factory) in fields.items():
        given = {"default": default[0]} if default else {} if factory is None else {"default_factory": factory}
        defaults[field] = msgspec.field(name=encoded, **given)
    body["__annotations__"] = dict.fromkeys(fields, Any)
    cls = types.new_class(name, bases, {"metaclass": meta, **settings}, lambda space: space.update(body | defaults))
    return cloudpickle._lookup_class_or_track(tracker_id, cls)
