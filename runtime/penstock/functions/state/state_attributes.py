"""Keyed state as attributes of a function's class, instead of descriptors and an `open` method:

    class Alarm(KeyedProcessFunction):
        count = value_state(int, default=0, ttl=timedelta(hours=1))
        last = map_state(str, float)

        def process_element(self, reading, ctx):
            self.count += 1
            self.last[reading.sensor] = reading.value

The attribute has the name of the state. A function reads and writes a value as a plain attribute, for the current key. None means no value,
and `del` clears the value. For lists and maps, the attribute is PyFlink's handle. An assignment to the attribute replaces the content of
the list or map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from penstock.common.errors import KeyedStateNotAvailable
from penstock.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.common.time import TimeLike
    from penstock.functions.function import RuntimeContext
    from penstock.state.descriptors import ListState, MapState, StateTtlConfig

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
_HANDLES = "_state_handles"


class StateAttribute:
    """The attribute that `value_state`, `list_state` and `map_state` return. `getter`: the runtime context's method for this kind of state."""

    getter = ""

    def __init__(self, make: Callable[..., StateDescriptor], *types: Any, **options: Any) -> None:
        self._make = make
        self._types = types
        self._options = options
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def descriptor(self) -> StateDescriptor:
        return self._make(self._name, *self._types, **self._options)

    def open(self, function: Any, context: RuntimeContext) -> None:
        """Create the state handle of this function."""
        vars(function).setdefault(_HANDLES, {})[self._name] = getattr(context, self.getter)(self.descriptor)

    def _handle(self, function: Any) -> Any:
        handle = vars(function).get(_HANDLES, {}).get(self._name)
        if handle is None:
            raise KeyedStateNotAvailable(
                f"state {self._name!r} of {type(function).__qualname__} is available only after the function is opened",
                remedy="use it in open(), and in the methods that process records and timers",
            )
        return handle

    def __get__(self, function: Any, owner: type | None = None) -> Any:
        return self if function is None else self._handle(function)


class _ValueAttribute(StateAttribute):
    getter = "get_state"

    def __get__(self, function: Any, owner: type | None = None) -> Any:
        return self if function is None else self._handle(function).value()

    def __set__(self, function: Any, value: Any) -> None:
        handle = self._handle(function)
        if value is None:
            handle.clear()
        else:
            handle.update(value)

    def __delete__(self, function: Any) -> None:
        self._handle(function).clear()


class _ListAttribute(StateAttribute):
    getter = "get_list_state"

    def __set__(self, function: Any, values: Any) -> None:
        self._handle(function).update(list(values))


class _MapAttribute(StateAttribute):
    getter = "get_map_state"

    def __set__(self, function: Any, values: Any) -> None:
        handle, values = self._handle(function), dict(values)
        handle.clear()
        handle.put_all(values)


@overload
def value_state(of: type[T], *, default: T, ttl: TimeLike | StateTtlConfig | None = None) -> T: ...
@overload
def value_state(
    of: type[T] | None = None, *, default: None = None, ttl: TimeLike | StateTtlConfig | None = None
) -> T | None: ...
def value_state(of: Any = None, *, default: Any = None, ttl: TimeLike | StateTtlConfig | None = None) -> Any:
    """Return an attribute for one value per key. It reads as `default` before the first write."""
    return _ValueAttribute(ValueStateDescriptor, of, default=default, ttl=ttl)


def list_state(of: type[T] | Any = None, *, ttl: TimeLike | StateTtlConfig | None = None) -> ListState[T]:
    """Return an attribute for one list per key."""
    return cast("ListState[T]", _ListAttribute(ListStateDescriptor, of, ttl=ttl))


def map_state(
    keys: type[K] | Any = None, values: type[V] | Any = None, *, ttl: TimeLike | StateTtlConfig | None = None
) -> MapState[K, V]:
    """Return an attribute for one dict per key."""
    return cast("MapState[K, V]", _MapAttribute(MapStateDescriptor, keys, values, ttl=ttl))


def state_attributes(function: Any) -> Iterator[StateAttribute]:
    """Yield the state attributes of the function's class and its base classes."""
    seen: set[str] = set()
    for cls in type(function).__mro__:
        for name, attribute in vars(cls).items():
            if name not in seen and isinstance(attribute, StateAttribute):
                yield attribute
            seen.add(name)
