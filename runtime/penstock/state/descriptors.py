"""State as a user function sees it: descriptors define the name and type of a state, and handles read and write the state.

A function gets a handle from its runtime context in `open()` and uses it for every record. The handle always refers to
the state of the record's key. Descriptors take a type (type information, an annotation such as `tuple[int, float]`, a
dataclass …) or none. Without a type, any builtin value can be stored.

    class CountPerKey(KeyedProcessFunction):
        def open(self, runtime_context):
            self.count = runtime_context.get_state(ValueStateDescriptor("count", int, default=0, ttl=timedelta(days=1)))

        def process_element(self, value, ctx):
            self.count.update(self.count.value() + 1)

Every backend implements the handle classes here. The classes in this module hold no data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from penstock.common.errors import InvalidJob
from penstock.state.ttl.config import CleanupStrategies, StateTtlConfig

if TYPE_CHECKING:
    from penstock.common.time import TimeLike

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "CleanupStrategies",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")

Entries = Mapping[Any, Any] | Iterable[tuple[Any, Any]]
"""Argument of `MapState.put_all`. PyFlink accepts only pairs, although its annotation names a dict."""

StateKind = Literal["value", "list", "map", "reducing", "aggregating"]


class State(ABC):
    """A handle of keyed state."""

    __slots__ = ()

    @abstractmethod
    def clear(self) -> None:
        """Remove the state of the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @abstractmethod
    def value(self) -> T | None:
        """Return the value. An empty state returns the descriptor's default, or None."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace the value. None removes the value. After a change in place, call `update`, because only this call records the change."""


class AppendingState(State, Generic[IN, OUT]):
    """State to which elements are added."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> OUT | None: ...

    @abstractmethod
    def add(self, value: IN) -> None: ...


class MergingState(AppendingState[IN, OUT]):
    """State that can be merged with another state of its kind, as merging windows require."""

    __slots__ = ()


class ReducingState(MergingState[T, T]):
    """State that folds its elements to one value of their type, with the descriptor's function. The value is None before the first element."""

    __slots__ = ()


class AggregatingState(MergingState[IN, OUT]):
    """State that folds its elements to an accumulator, with the descriptor's aggregate function. The value is None before the first
    element.
    """

    __slots__ = ()


class ListState(MergingState[T, Iterable[T]]):
    """A list per key. Appending is cheap, and the next checkpoint writes only the new elements."""

    __slots__ = ()

    @abstractmethod
    def get(self) -> list[T]:
        """Return a copy of the elements, in order. For an empty state, the list is empty."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace all elements."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None: ...

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _ReadableMap(State, Generic[K, V]):
    """The read methods of a map."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: K, default: V | None = None) -> V | None: ...

    @abstractmethod
    def contains(self, key: K) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]: ...

    @abstractmethod
    def keys(self) -> Iterable[K]: ...

    @abstractmethod
    def values(self) -> Iterable[V]: ...

    @abstractmethod
    def is_empty(self) -> bool: ...

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __len__(self) -> int:
        return sum(1 for _ in self.keys())

    def __bool__(self) -> bool:
        return not self.is_empty()


class _WritableMap(_ReadableMap[K, V]):
    """The write methods of a map."""

    __slots__ = ()

    @abstractmethod
    def put(self, key: K, value: V) -> None: ...

    @abstractmethod
    def put_all(self, dict_value: Entries) -> None:
        """Put every entry of a dict, or of pairs of key and value."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the entry, if it exists."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableMap[K, V]):
    """A dict per key, read and written entry by entry. A checkpoint writes only the entries that changed.

    `state[key]` of a missing key is the descriptor's default, or None, as in PyFlink. For example, `counts[url] += 1`
    works with `MapStateDescriptor("counts", str, int, default=0)`. Do not change the map during an iteration. Copy its
    entries to a list first.
    """

    __slots__ = ()

    def update(self, other: Mapping[K, V]) -> None:
        self.put_all(other)

    def pop(self, key: K, default: V | None = None) -> V | None:
        """Remove the entry and return its value, or `default`."""
        if not self.contains(key):
            return default
        value = self.get(key)
        self.remove(key)
        return value

    def setdefault(self, key: K, default: V) -> V | None:
        if not self.contains(key):
            self.put(key, default)
        return self.get(key)


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """Broadcast state in `process_element`. It is read-only, because it must be the same on every subtask."""

    __slots__ = ()


class BroadcastState(ReadOnlyBroadcastState[K, V], _WritableMap[K, V]):
    """Broadcast state in `process_broadcast_element`. Every subtask must make the same changes."""

    __slots__ = ()


class OperatorStateStore(ABC):
    """Access to operator state, which belongs to the subtask and not to a key."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]: ...


class StateDescriptor(ABC):
    """Name and type of a state. The name is unique in its operator, and a restore finds the state by its name.

    Args:
        name: not empty.
        type_info: type of the values: type information, an annotation, or None for any builtin value.
        ttl: how long an entry lives after a write.

    Raises:
        InvalidJob: the name is empty, or the ttl is not a positive length of time.
    """

    kind: ClassVar[StateKind]

    def __init__(self, name: str, type_info: Any = None, *, ttl: TimeLike | StateTtlConfig | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidJob(
                f"a state needs a name, got {name!r}",
                remedy="give the descriptor a name that is unique in its operator",
            )
        self.name = name
        self.type_info = type_info
        self.ttl_config: StateTtlConfig | None = None
        self._queryable_name = ""
        if ttl is not None:
            self.enable_time_to_live(StateTtlConfig.of(ttl))

    def get_name(self) -> str:
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        self.ttl_config = ttl_config if ttl_config.is_enabled() else None

    def set_queryable(self, queryable_state_name: str) -> None:
        """Let clients look up keyed state by this name, which is unique in the job (see `docs/state.md`).

        Raises:
            InvalidJob: the name is empty, or the state already has a name for clients.

        >>> count = ValueStateDescriptor("count", int)
        >>> count.set_queryable("clicks"); count.get_queryable_state_name(), count.is_queryable()
        ('clicks', True)
        """
        if not isinstance(queryable_state_name, str) or not queryable_state_name:
            raise InvalidJob(
                f"state {self.name!r} cannot be queryable as {queryable_state_name!r}",
                remedy="give a name that is unique in the job",
            )
        if self._queryable_name:
            raise InvalidJob(
                f"state {self.name!r} is queryable already, as {self._queryable_name!r}",
                remedy="set the queryable name once",
            )
        self._queryable_name = queryable_state_name

    def is_queryable(self) -> bool:
        return bool(self._queryable_name)

    def get_queryable_state_name(self) -> str:
        """Return the name for clients, or an empty text if the state is not queryable."""
        return self._queryable_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info!r})"


class ValueStateDescriptor(StateDescriptor):
    """Descriptor of value state. `default` is the value of a key without state.

    >>> ValueStateDescriptor("count", int, default=0).default
    0
    """

    kind = "value"

    def __init__(
        self,
        name: str,
        value_type_info: Any = None,
        *,
        default: Any = None,
        ttl: TimeLike | StateTtlConfig | None = None,
    ) -> None:
        super().__init__(name, value_type_info, ttl=ttl)
        self.default = default


class ListStateDescriptor(StateDescriptor):
    """Descriptor of list state, and of operator list state."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: Any = None, *, ttl: TimeLike | StateTtlConfig | None = None) -> None:
        super().__init__(name, elem_type_info, ttl=ttl)


class MapStateDescriptor(StateDescriptor):
    """Descriptor of map state and of broadcast state. `default` is the value of a missing key."""

    kind = "map"

    def __init__(
        self,
        name: str,
        key_type_info: Any = None,
        value_type_info: Any = None,
        *,
        default: Any = None,
        ttl: TimeLike | StateTtlConfig | None = None,
    ) -> None:
        super().__init__(name, value_type_info, ttl=ttl)
        self.key_type_info = key_type_info
        self.default = default


class ReducingStateDescriptor(StateDescriptor):
    """Descriptor of reducing state.

    Args:
        reduce_function: a callable (a, b) -> c or a `ReduceFunction`.
    """

    kind = "reducing"

    def __init__(
        self,
        name: str,
        reduce_function: Any,
        type_info: Any = None,
        *,
        ttl: TimeLike | StateTtlConfig | None = None,
    ) -> None:
        super().__init__(name, type_info, ttl=ttl)
        if not callable(reduce_function) and not callable(getattr(reduce_function, "reduce", None)):
            raise InvalidJob(
                f"reducing state {name!r} needs a function, got {reduce_function!r}",
                remedy="give a callable (a, b) -> c or a ReduceFunction",
            )
        self._reduce_function = reduce_function

    def get_reduce_function(self) -> Any:
        return self._reduce_function

    @property
    def reduce(self) -> Callable[[Any, Any], Any]:
        method = getattr(self._reduce_function, "reduce", None)
        return self._reduce_function if method is None else method  # type: ignore[no-any-return]


class AggregatingStateDescriptor(StateDescriptor):
    """Descriptor of aggregating state.

    Args:
        agg_function: an `AggregateFunction` (create_accumulator, add, get_result, merge).
        state_type_info: type of the accumulator.
    """

    kind = "aggregating"

    def __init__(
        self,
        name: str,
        agg_function: Any,
        state_type_info: Any = None,
        *,
        ttl: TimeLike | StateTtlConfig | None = None,
    ) -> None:
        super().__init__(name, state_type_info, ttl=ttl)
        missing = [
            m for m in ("create_accumulator", "add", "get_result") if not callable(getattr(agg_function, m, None))
        ]
        if missing:
            raise InvalidJob(
                f"the function of aggregating state {name!r} has no {', '.join(missing)}: {agg_function!r}",
                remedy="give an AggregateFunction",
            )
        self._agg_function = agg_function

    def get_agg_function(self) -> Any:
        return self._agg_function
