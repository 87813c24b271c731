"""Operator state: state that belongs to a subtask and not to a key.

List state is split evenly over the subtasks of the new parallelism, in the order of the former subtasks. If there are fewer items than
subtasks, some subtasks start with an empty list. Every subtask gets all items of union list state. Broadcast state is the same everywhere,
so each subtask gets a copy from one former subtask.

A snapshot is JSON: {name: {"mode": "split" | "union" | "broadcast", "items": [base64 of the encoded item …], "schema":
…}}. The items of a broadcast state are alternating keys and values. Restored items are decoded at the first use of the
state, because its type is not known before. An unused state is unchanged in the next snapshot.

Each item is read with the schema that its snapshot names. The reason is that one former subtask may have migrated a
state that another subtask has not used. If a snapshot holds items of several schemas, "schemas" lists them in order of
the items, as [number of items, schema].
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from copy import copy
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, StateNameConflict
from penstock.state.decoding import decoding
from penstock.state.descriptors import BroadcastState, ListStateDescriptor
from penstock.state.encoding.keys import KeyCodec
from penstock.state.encoding.serializers import codec_for
from penstock.state.hashmap.handles import fresh
from penstock.state.owners import FUNCTION, OPERATOR, state_name_conflict
from penstock.state.registry import key_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.state.descriptors import Entries, MapStateDescriptor
    from penstock.state.encoding.codec import Codec
    from penstock.state.encoding.schema import Schema

SPLIT, UNION, BROADCAST = "split", "union", "broadcast"


class OperatorListState(list[Any]):
    """The live list of a subtask. It also has `ListState`'s methods.

    >>> state = OperatorListState([1]); state.add(2); list(state.get())
    [1, 2]
    """

    def get(self) -> list[Any]:
        return self

    def add(self, value: Any) -> None:
        self.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        self.extend(values)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all values."""
        self[:] = values


@dataclass
class _Stored:
    """A restored state that was not used yet."""

    mode: str
    items: list[tuple[str, Schema]]
    """Items, each with the schema of its encoding."""
    carries: bool
    """Whether this subtask's snapshots have the items. For unused union state, only the first subtask's snapshots have them."""

    def to_json(self) -> dict[str, Any]:
        runs = [(schema, [text for text, _ in run]) for schema, run in groupby(self.items, key=itemgetter(1))]
        stored = {"mode": self.mode, "items": [text for text, _ in self.items], "schema": runs[0][0] if runs else {}}
        return stored if len(runs) < 2 else {**stored, "schemas": [[len(texts), schema] for schema, texts in runs]}

    def readable(self, codec: Codec) -> Iterator[tuple[bytes, Codec]]:
        """Return the items as bytes, each with the codec that reads it."""
        readers: list[tuple[Schema, Codec]] = []
        for text, schema in self.items:
            reader = next((reader for known, reader in readers if known is schema), None)
            if reader is None:
                reader = codec.reader_of(schema)
                readers.append((schema, reader))
            yield b64decode(text), reader


@dataclass
class _Registered:
    mode: str
    codec: Codec
    owner: str
    keys: KeyCodec | None = None
    items: OperatorListState = field(default_factory=OperatorListState)
    mapping: dict[Any, Any] = field(default_factory=dict)

    def encoded(self) -> list[str]:
        if self.keys is None:
            return [_text(self.codec.encode(item)) for item in self.items]
        return [
            text
            for key, value in self.mapping.items()
            for text in (_text(self.keys.encode(key)), _text(self.codec.encode(value)))
        ]


class OperatorStateStore:
    """Operator state of one operator in one subtask (`backend.OperatorStateBackend`).

    >>> store = OperatorStateStore("count")
    >>> store.get_list_state("offsets", int).extend([1, 2, 3])
    >>> other = OperatorStateStore("count")
    >>> other.restore([store.snapshot()], subtask=1, parallelism=2)
    >>> other.get_list_state("offsets", int)
    [2, 3]
    """

    def __init__(self, operator_name: str = "") -> None:
        self._operator = operator_name
        self._registered: dict[str, _Registered] = {}
        self._stored: dict[str, _Stored] = {}
        self._owner = OPERATOR

    def for_functions(self) -> OperatorStateStore:
        """Return the same states for user code. User code may not use the operator's own states."""
        shared = copy(self)
        shared._owner = FUNCTION
        return shared

    def get_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """Return the live list. Change it in place. A descriptor has the name and the type.

        Raises:
            InvalidJob: the descriptor belongs to another kind of state, or has a time-to-live.
            StateNameConflict: the name is used with another mode or type.
            StateSchemaIncompatible: the restored items cannot be read as that type.
            StateTypeError: values of the type cannot be encoded.
        """
        return self._list(name, SPLIT, type_info)

    def get_union_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """Return a list as `get_list_state` does. After a restore, the list has the items of all subtasks. Keep your own items and drop the
        rest.
        """
        return self._list(name, UNION, type_info)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapBroadcastState:
        """Return broadcast state. It raises the errors of `get_list_state`."""
        name = descriptor.name
        keys = KeyCodec(descriptor.key_type_info, f"keys of broadcast state {name!r}", self._operator)
        key_schema(descriptor.key_type_info, keys.name, self._operator)
        state = self._register(name, BROADCAST, descriptor.type_info, keys)
        return MapBroadcastState(state.mapping, keys, descriptor.default)

    def _list(self, name: str | ListStateDescriptor, mode: str, type_info: Any) -> OperatorListState:
        if isinstance(name, ListStateDescriptor):
            if name.ttl_config is not None:
                raise InvalidJob(
                    f"operator state {name.name!r} has a time to live, but only keyed state supports it",
                    remedy="remove the time to live, and drop old values in the function",
                    operator=self._operator,
                )
            type_info, name = name.type_info, name.name
        if not isinstance(name, str):
            raise InvalidJob(
                f"operator list state takes a name and a type, or a ListStateDescriptor, got {name!r}",
                operator=self._operator,
            )
        return self._register(name, mode, type_info, None).items

    def _register(self, name: str, mode: str, type_info: Any, keys: KeyCodec | None) -> _Registered:
        codec = codec_for(type_info, state=name, operator=self._operator)
        known = self._registered.get(name)
        if known is not None:
            if known.owner != self._owner:
                raise state_name_conflict(f"operator state {name!r}", "records and positions", self._operator)
            self._check_mode(name, known.mode, mode)
            if known.codec.schema != codec.schema:
                raise StateNameConflict(
                    f"operator state {name!r} is registered twice with different types: {known.codec.schema} and {codec.schema}",
                    remedy="use another name for one of the states",
                    operator=self._operator,
                )
            return known
        state = _Registered(mode, codec, self._owner, keys)
        stored = self._stored.get(name)
        if stored is not None:
            self._check_mode(name, stored.mode, mode)
            with decoding(f"operator state {name!r}", operator=self._operator):
                encoded = stored.readable(codec)
                if keys is None:
                    state.items.extend(reader.decode(item) for item, reader in encoded)
                else:
                    for key, _ in encoded:
                        value, reader = next(encoded)
                        state.mapping[keys.decode(key)] = reader.decode(value)
            del self._stored[name]
        self._registered[name] = state
        return state

    def _check_mode(self, name: str, known: str, requested: str) -> None:
        if known != requested:
            raise StateNameConflict(
                f"operator state {name!r} is {known} state, but the function requests {requested} state",
                remedy="use another name for one of the states",
                operator=self._operator,
            )

    def check(self, name: str, item: Any) -> None:
        """Check that an item of this list state can be encoded.

        Raises:
            StateTypeError: the item cannot be encoded.
        """
        self._registered[name].codec.encode(item)

    def snapshot(self) -> dict[str, Any]:
        """Return the snapshot in the form that the module's docstring describes. Empty states are left out.

        Raises:
            StateTypeError: an item cannot be encoded.
        """
        states = {name: stored.to_json() for name, stored in self._stored.items() if stored.carries}
        for name, state in self._registered.items():
            states[name] = {"mode": state.mode, "items": state.encoded(), "schema": state.codec.schema}
        return {name: state for name, state in states.items() if state["items"]}

    def restore(self, snapshots: list[dict[str, Any]], subtask: int, parallelism: int) -> None:
        """Take this subtask's share. `snapshots` has the snapshots of all former subtasks, in order."""
        with decoding("the operator state", operator=self._operator):
            self._restore(snapshots, subtask, parallelism)

    def _restore(self, snapshots: list[dict[str, Any]], subtask: int, parallelism: int) -> None:
        for name in dict.fromkeys(name for snapshot in snapshots for name in snapshot):
            parts = [snapshot[name] for snapshot in snapshots if name in snapshot]
            mode = parts[0]["mode"]
            if mode == BROADCAST:
                parts = [parts[subtask % len(parts)]]
            items = [item for part in parts for item in _with_schemas(part)]
            if mode == SPLIT:
                items = even_part(items, subtask, parallelism)
            self._stored[name] = _Stored(mode, items, carries=mode != UNION or subtask == 0)


def even_part(items: list[Any], subtask: int, parallelism: int) -> list[Any]:
    """Return the subtask's contiguous part of the items. The parts of all subtasks cover the items and differ in length by at most one.

    >>> [even_part([1, 2, 3, 4, 5], subtask, 3) for subtask in range(3)]
    [[1], [2, 3], [4, 5]]
    """
    return items[subtask * len(items) // parallelism : (subtask + 1) * len(items) // parallelism]


def _with_schemas(part: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    """Yield the items of one snapshot, each with its schema."""
    runs = part.get("schemas") or [[len(part["items"]), part["schema"]]]
    return zip(part["items"], chain.from_iterable(repeat(schema, count) for count, schema in runs), strict=True)


def _text(data: bytes) -> str:
    return b64encode(data).decode()


class MapBroadcastState(BroadcastState[Any, Any]):
    """Broadcast state over a dictionary."""

    __slots__ = ("_default", "_keys", "_mapping")

    def __init__(self, mapping: dict[Any, Any], keys: KeyCodec, default: Any = None) -> None:
        self._mapping = mapping
        self._keys = keys
        self._default = default

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self._mapping:
            return self._mapping[key]
        return fresh(self._default) if default is None else default

    def put(self, key: Any, value: Any) -> None:
        self._mapping[key] = value

    def put_all(self, dict_value: Entries) -> None:
        self._mapping.update(dict_value)

    def remove(self, key: Any) -> None:
        self._mapping.pop(key, None)

    def contains(self, key: Any) -> bool:
        return key in self._mapping

    def items(self) -> Iterable[tuple[Any, Any]]:
        keys = self._keys.all_as_restored(self._mapping)
        return self._mapping.items() if keys is self._mapping else zip(keys, self._mapping.values(), strict=True)

    def keys(self) -> Iterable[Any]:
        keys = self._keys.all_as_restored(self._mapping)
        return self._mapping.keys() if keys is self._mapping else keys

    def values(self) -> Iterable[Any]:
        return self._mapping.values()

    def is_empty(self) -> bool:
        return not self._mapping

    def clear(self) -> None:
        self._mapping.clear()
