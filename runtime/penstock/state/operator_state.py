"""Operator state: what belongs to a subtask and to no key (S10-S13).

List state is split evenly over the subtasks of the new parallelism, in the order of the former subtasks; with fewer items
than subtasks some start empty. Union list state goes to every subtask whole. Broadcast state is the same everywhere: each
subtask gets a copy of one of the former ones.

A snapshot is JSON: {name: {"mode": "split" | "union" | "broadcast", "items": [base64 of the encoded item …], "schema": …}};
a broadcast state's items are keys and values in turns. Restored items are decoded when the state is first asked for,
because only then its type is known; a state nobody asks for stays in the next snapshot as it is.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.common.errors import InvalidJob, StateNameConflict
from penstock.state.descriptors import BroadcastState, ListStateDescriptor
from penstock.state.encoding.keys import KeyCodec
from penstock.state.encoding.serializers import codec_for
from penstock.state.hashmap.handles import fresh
from penstock.state.registry import key_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.state.descriptors import Entries, MapStateDescriptor
    from penstock.state.encoding.codec import Codec

SPLIT, UNION, BROADCAST = "split", "union", "broadcast"


class OperatorListState(list[Any]):
    """The live list of a subtask; a list, with `ListState`'s methods for those who are used to them.

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
        """Holds these values and no others from now on."""
        self[:] = values


@dataclass
class _Stored:
    """A state nobody has asked for since the restore."""

    mode: str
    items: list[str]
    schema: dict[str, Any]
    carries: bool
    """Whether this subtask's snapshots hold the items; of union state the first subtask's do, not everybody's."""


@dataclass
class _Registered:
    mode: str
    codec: Codec
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

    def get_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """The live list; change it in place. A descriptor has the name and the type.

        Raises:
            InvalidJob: the descriptor is another state's, or has a time to live.
            StateNameConflict: the name stands for another mode or type.
            StateSchemaIncompatible: the restored items cannot be read as that type.
            StateTypeError: values of the type cannot be encoded.
        """
        return self._list(name, SPLIT, type_info)

    def get_union_list_state(self, name: str | ListStateDescriptor, type_info: Any = None) -> OperatorListState:
        """As `get_list_state`; after a restore it holds the items of all subtasks, so keep your own and drop the rest."""
        return self._list(name, UNION, type_info)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapBroadcastState:
        """Raises as `get_list_state`."""
        name = descriptor.name
        keys = KeyCodec(descriptor.key_type_info, f"keys of broadcast state {name!r}", self._operator)
        key_schema(descriptor.key_type_info, keys.what, self._operator)
        state = self._register(name, BROADCAST, descriptor.type_info, keys)
        return MapBroadcastState(state.mapping, descriptor.default)

    def _list(self, name: str | ListStateDescriptor, mode: str, type_info: Any) -> OperatorListState:
        if isinstance(name, ListStateDescriptor):
            if name.ttl_config is not None:
                raise InvalidJob(
                    f"operator state {name.name!r} has a time to live, which only keyed state has",
                    remedy="leave the time to live away, and drop what is too old yourself",
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
            self._check_mode(name, known.mode, mode)
            if known.codec.schema != codec.schema:
                raise StateNameConflict(
                    f"operator state {name!r} is registered twice with different types: {known.codec.schema} and {codec.schema}",
                    remedy="give each state of an operator a name of its own",
                    operator=self._operator,
                )
            return known
        state = _Registered(mode, codec, keys)
        stored = self._stored.get(name)
        if stored is not None:
            self._check_mode(name, stored.mode, mode)
            reader = codec.reader_of(stored.schema)
            encoded = map(b64decode, stored.items)
            if keys is None:
                state.items.extend(map(reader.decode, encoded))
            else:
                state.mapping.update((keys.decode(key), reader.decode(next(encoded))) for key in encoded)
            del self._stored[name]
        self._registered[name] = state
        return state

    def _check_mode(self, name: str, known: str, asked: str) -> None:
        if known != asked:
            raise StateNameConflict(
                f"operator state {name!r} is {known} state and is asked for as {asked} state",
                remedy="give each state of an operator a name of its own",
                operator=self._operator,
            )

    def check(self, name: str, item: Any) -> None:
        """Encode the item as one of this list state's.

        Raises:
            StateTypeError: it cannot be encoded.
        """
        self._registered[name].codec.encode(item)

    def snapshot(self) -> dict[str, Any]:
        """See the module's head; empty states are left out.

        Raises:
            StateTypeError: an item cannot be encoded.
        """
        states = {
            name: {"mode": stored.mode, "items": stored.items, "schema": stored.schema}
            for name, stored in self._stored.items()
            if stored.carries
        }
        for name, state in self._registered.items():
            states[name] = {"mode": state.mode, "items": state.encoded(), "schema": state.codec.schema}
        return {name: state for name, state in states.items() if state["items"]}

    def restore(self, snapshots: list[dict[str, Any]], subtask: int, parallelism: int) -> None:
        """Take this subtask's share of the snapshots of all former subtasks, which come in order."""
        for name in dict.fromkeys(name for snapshot in snapshots for name in snapshot):
            parts = [snapshot[name] for snapshot in snapshots if name in snapshot]
            mode, schema = parts[0]["mode"], parts[0]["schema"]
            items = [item for part in parts for item in part["items"]]
            if mode == SPLIT:
                items = even_share(items, subtask, parallelism)
            elif mode == BROADCAST:
                items = parts[subtask % len(parts)]["items"]
            self._stored[name] = _Stored(mode, list(items), schema, carries=mode != UNION or subtask == 0)


def even_share(items: list[Any], subtask: int, parallelism: int) -> list[Any]:
    """A contiguous part; the parts of all subtasks cover the items and differ in length by one at most.

    >>> [even_share([1, 2, 3, 4, 5], subtask, 3) for subtask in range(3)]
    [[1], [2, 3], [4, 5]]
    """
    return items[subtask * len(items) // parallelism : (subtask + 1) * len(items) // parallelism]


def _text(data: bytes) -> str:
    return b64encode(data).decode()


class MapBroadcastState(BroadcastState[Any, Any]):
    """Broadcast state over a dictionary."""

    __slots__ = ("_default", "_mapping")

    def __init__(self, mapping: dict[Any, Any], default: Any = None) -> None:
        self._mapping = mapping
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
        return self._mapping.items()

    def keys(self) -> Iterable[Any]:
        return self._mapping.keys()

    def values(self) -> Iterable[Any]:
        return self._mapping.values()

    def is_empty(self) -> bool:
        return not self._mapping

    def clear(self) -> None:
        self._mapping.clear()
