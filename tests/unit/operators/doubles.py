"""Stand-ins for the state backend and the timers: dictionaries, no key groups, no snapshot."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from penstock.datastream.state import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    ReducingState,
    StateDescriptor,
    ValueState,
)
from penstock.state.backend import KeyContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class _Cell:
    def __init__(self, backend: MemoryBackend, descriptor: Any) -> None:
        self.at = backend.key_context
        self.descriptor = descriptor
        self.data = backend.data.setdefault(descriptor.name, {})

    def read(self) -> Any:
        return self.data.get(self.at.namespace, {}).get(self.at.key)

    def write(self, value: Any) -> None:
        if value is None:
            self.data.get(self.at.namespace, {}).pop(self.at.key, None)
        else:
            self.data.setdefault(self.at.namespace, {})[self.at.key] = value


class _Value(_Cell, ValueState[Any]):
    def value(self) -> Any:
        found = self.read()
        return self.descriptor.default if found is None else found

    def update(self, value: Any) -> None:
        self.write(value)

    def clear(self) -> None:
        self.write(None)


class _List(_Cell, ListState[Any]):
    def get(self) -> list[Any]:
        return list(self.read() or [])

    def add(self, value: Any) -> None:
        self.write([*self.get(), value])

    def add_all(self, values: Iterable[Any]) -> None:
        self.write([*self.get(), *values] or None)

    def update(self, values: Iterable[Any]) -> None:
        self.write(list(values) or None)

    def clear(self) -> None:
        self.write(None)


class _Map(_Cell, MapState[Any, Any]):
    def get(self, key: Any, default: Any = None) -> Any:
        return (self.read() or {}).get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self.write({**(self.read() or {}), key: value})

    def put_all(self, dict_value: Any) -> None:
        self.write({**(self.read() or {}), **dict_value})

    def remove(self, key: Any) -> None:
        self.write({k: v for k, v in (self.read() or {}).items() if k != key} or None)

    def contains(self, key: Any) -> bool:
        return key in (self.read() or {})

    def items(self) -> Any:
        return (self.read() or {}).items()

    def keys(self) -> Any:
        return (self.read() or {}).keys()

    def values(self) -> Any:
        return (self.read() or {}).values()

    def is_empty(self) -> bool:
        return not self.read()

    def clear(self) -> None:
        self.write(None)


class _Reducing(_Cell, ReducingState[Any]):
    def get(self) -> Any:
        return self.read()

    def add(self, value: Any) -> None:
        old = self.read()
        self.write(value if old is None else self.descriptor.reduce(old, value))

    def clear(self) -> None:
        self.write(None)


class _Aggregating(_Cell, AggregatingState[Any, Any]):
    def get(self) -> Any:
        old = self.read()
        return None if old is None else self.descriptor.get_agg_function().get_result(old)

    def add(self, value: Any) -> None:
        function, old = self.descriptor.get_agg_function(), self.read()
        self.write(function.add(value, function.create_accumulator() if old is None else old))

    def clear(self) -> None:
        self.write(None)


_KINDS = {"value": _Value, "list": _List, "map": _Map, "reducing": _Reducing, "aggregating": _Aggregating}


class MemoryBackend:
    def __init__(self) -> None:
        self.key_context = KeyContext()
        self.data: dict[str, dict[Any, dict[Any, Any]]] = {}

    def get_state(self, descriptor: StateDescriptor) -> Any:
        return _KINDS[descriptor.kind](self, descriptor)

    def namespaces(self, state_name: str) -> Iterator[Any]:
        return (namespace for namespace, table in self.data.get(state_name, {}).items() if table)

    def keys(self, state_name: str, namespace: Any = None) -> Iterator[Any]:
        return iter(self.data.get(state_name, {}).get(namespace, {}))

    def apply_to_all_keys(self, descriptor: StateDescriptor, fn: Callable[[Any, Any], None]) -> None:
        state = self.get_state(descriptor)
        for key in list(self.keys(descriptor.name)):
            self.key_context.key = key
            fn(key, state)

    def raw_table(self, descriptor: StateDescriptor) -> MemoryTable:
        return MemoryTable(self.data.setdefault(descriptor.name, {}))

    def entry_count(self) -> int:
        return sum(len(table) for tables in self.data.values() for table in tables.values())


class MemoryTable:
    def __init__(self, data: dict[Any, dict[Any, Any]]) -> None:
        self.data = data

    def get(self, key: Any, namespace: Any = None) -> Any:
        return self.data.get(namespace, {}).get(key)

    def put(self, key: Any, value: Any, namespace: Any = None) -> None:
        self.data.setdefault(namespace, {})[key] = value

    def remove(self, key: Any, namespace: Any = None) -> None:
        self.data.get(namespace, {}).pop(key, None)

    def mapping(self, namespace: Any = None) -> dict[Any, Any]:
        return self.data.setdefault(namespace, {})

    def touch(self, keys: Iterable[Any], namespace: Any = None) -> None:
        set(keys)

    def pop_namespace(self, namespace: Any) -> Iterator[tuple[Any, Any]]:
        return iter(self.data.pop(namespace, {}).items())


class MemoryTimers:
    def __init__(self, key_context: KeyContext, clock: Any) -> None:
        self.current_watermark = -(2**63)
        self._at = key_context
        self._clock = clock
        self._heaps: tuple[list[Any], list[Any]] = ([], [])
        self._live: tuple[dict[Any, None], dict[Any, None]] = ({}, {})
        self._number = 0

    def set_callbacks(self, on_event_time: Any, on_processing_time: Any) -> None:
        self._callbacks = (on_event_time, on_processing_time)

    def current_processing_time(self) -> int:
        return int(self._clock.now_ms())

    def _register(self, domain: int, timestamp: int) -> None:
        timer = (timestamp, self._at.key, self._at.namespace)
        if timer not in self._live[domain]:
            self._live[domain][timer] = None
            self._number += 1
            heapq.heappush(self._heaps[domain], (timestamp, self._number, timer))

    def _delete(self, domain: int, timestamp: int) -> None:
        self._live[domain].pop((timestamp, self._at.key, self._at.namespace), None)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._register(0, timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._register(1, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._delete(0, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._delete(1, timestamp)

    def _advance(self, domain: int, now: int) -> None:
        heap, live = self._heaps[domain], self._live[domain]
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            if timer in live:
                del live[timer]
                self._at.key, self._at.namespace = timer[1], timer[2]
                self._callbacks[domain](*timer)

    def advance_watermark(self, timestamp: int) -> None:
        self.current_watermark = timestamp
        self._advance(0, timestamp)

    def advance_processing_time(self, now: int) -> None:
        self._advance(1, now)

    def next_processing_time(self) -> int | None:
        return min((timer[0] for timer in self._live[1]), default=None)

    def event_time_timers(self) -> Iterator[tuple[int, Any, Any]]:
        return iter(self._live[0])


class _Broadcast(BroadcastState[Any, Any]):
    def __init__(self) -> None:
        self.entries: dict[Any, Any] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        return self.entries.get(key, default)

    def contains(self, key: Any) -> bool:
        return key in self.entries

    def items(self) -> Any:
        return self.entries.items()

    def keys(self) -> Any:
        return self.entries.keys()

    def values(self) -> Any:
        return self.entries.values()

    def is_empty(self) -> bool:
        return not self.entries

    def put(self, key: Any, value: Any) -> None:
        self.entries[key] = value

    def put_all(self, dict_value: Any) -> None:
        self.entries.update(dict_value)

    def remove(self, key: Any) -> None:
        self.entries.pop(key, None)

    def clear(self) -> None:
        self.entries.clear()


class MemoryOperatorState:
    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}
        self.broadcast: dict[str, _Broadcast] = {}

    def get_list_state(self, name: str, type_info: Any = None) -> list[Any]:
        return self.lists.setdefault(name, [])

    get_union_list_state = get_list_state

    def get_broadcast_state(self, descriptor: Any) -> _Broadcast:
        return self.broadcast.setdefault(descriptor.name, _Broadcast())
