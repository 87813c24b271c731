"""Reads state out of a checkpoint or savepoint, without the program that wrote it."""

from __future__ import annotations

import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.checkpoint.files.state_files import StateFileReader
from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.checkpoint.store.retrying_store import Stores
from penstock.cli.errors import UsageError
from penstock.cli.state_types import annotation_of
from penstock.state.backend import KeyContext, KeyGroupRange
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.encoding.any_codec import AnyCodec
from penstock.state.factory import create_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.checkpoint.savepoint.snapshots import Snapshot
    from penstock.state.descriptors import State, StateDescriptor

Row = dict[str, Any]


class SnapshotState:
    """The state of one operator in a snapshot.

    Raises:
        SnapshotNotFound, SnapshotTorn: see `checkpoint.savepoint.snapshots.resolve`.
        UsageError: no operator of that uid has state in it; names those that have.
    """

    def __init__(self, path: str, uid: str, options: Mapping[str, Any] | None = None) -> None:
        self._stores = Stores(options)
        self.snapshot: Snapshot = resolve(path, stores=self._stores)
        self.uid = uid
        manifest = self.snapshot.manifest
        self.source = manifest.sources.get(uid)
        found = manifest.states.get(uid)
        if found is None and self.source is None:
            known = ", ".join(sorted({*manifest.states, *manifest.sources})) or "none"
            raise UsageError(f"{path} holds no state of an operator '{uid}'", remedy=f"it has state of: {known}")
        self._keyed = [] if found is None else found.keyed
        self._operator = [] if found is None else found.operator

    def names(self) -> dict[str, str]:
        """Name of each state -> what it is, such as `keyed value` or `operator split`."""
        kinds = {name: f"keyed {info['kind']}" for name, info in self._keyed_infos().items()}
        for part in self._operator:
            kinds |= {name: f"operator {stored['mode']}" for name, stored in part.items()}
        if self.source is not None:
            kinds["splits"] = "source positions"
        return kinds

    def rows(self, name: str) -> Iterator[Row]:
        """The entries of a state: `key`, `namespace` (windows only) and `value`; of operator state `subtask` and `value`.

        Raises:
            UsageError: the operator has no state of that name; names those that it has.
        """
        if name in self._keyed_infos():
            return self._keyed_rows(name)
        if any(name in part for part in self._operator):
            return self._operator_rows(name)
        if name == "splits" and self.source is not None:
            return (dict(msgspec.to_builtins(split)) for split in self.source.splits)
        known = ", ".join(self.names()) or "none"
        raise UsageError(f"operator '{self.uid}' has no state '{name}'", remedy=f"it has: {known}")

    def _keyed_infos(self) -> dict[str, dict[str, Any]]:
        infos: dict[str, dict[str, Any]] = {}
        for handle in self._keyed:
            infos |= {name: info for name, info in handle["states"].items() if info["kind"] != "timer"}
        return infos

    def _keyed_rows(self, name: str) -> Iterator[Row]:
        manifest = self.snapshot.manifest
        at = KeyContext()
        key_schema = self._keyed[0].get("key_schema") or {"type": "any"}
        limit = next((o.max_parallelism for o in manifest.operators if o.uid == self.uid), manifest.max_parallelism)
        backend = create_backend(
            "hashmap",
            key_group_range=KeyGroupRange(0, limit - 1),
            max_parallelism=limit,
            key_context=at,
            clock=_Now(),
            operator_name=self.uid,
            key_type=annotation_of(key_schema),
        )
        backend.restore(self._keyed, StateFileReader(self._stores, self.snapshot.base_url))
        state = backend.get_state(_descriptor(name, self._keyed_infos()[name]))
        for namespace in list(backend.namespaces(name)):
            for key in backend.keys(name, namespace):
                at.key, at.namespace = key, namespace
                row: Row = {"key": plain(key)}
                if namespace is not None:
                    row["namespace"] = plain(namespace)
                row["value"] = plain(_value(state))
                yield row

    def _operator_rows(self, name: str) -> Iterator[Row]:
        decode = AnyCodec(name, self.uid).decode
        for subtask, part in enumerate(self._operator):
            stored = part.get(name, {"mode": "", "items": []})
            values = [plain(decode(b64decode(item))) for item in stored["items"]]
            if stored["mode"] == "broadcast":
                for key, value in zip(values[::2], values[1::2], strict=True):
                    yield {"subtask": subtask, "key": key, "value": value}
            else:
                yield from ({"subtask": subtask, "value": value} for value in values)


def plain(value: Any) -> Any:
    """The value with builtins only, as JSON can hold it, but for the keys of dictionaries."""
    return msgspec.to_builtins(value, enc_hook=str)


def _descriptor(name: str, info: Mapping[str, Any]) -> StateDescriptor:
    type_ = annotation_of(info["schema"])
    match info["kind"]:
        case "list":
            return ListStateDescriptor(name, type_)
        case "map":
            return MapStateDescriptor(name, annotation_of(info.get("map_key_schema") or {"type": "any"}), type_)
        case "reducing":
            return ReducingStateDescriptor(name, lambda first, _: first, type_)
        case "aggregating":
            return AggregatingStateDescriptor(name, _Accumulator(), type_)
        case _:
            return ValueStateDescriptor(name, type_)


def _value(state: State) -> Any:
    read = getattr(state, "value", None) or getattr(state, "get", None)
    items = getattr(state, "items", None)
    if items is not None:
        return dict(items())
    assert read is not None
    return read()


class _Accumulator:
    """An aggregate function that shows the accumulator itself."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, one: Any, other: Any) -> Any:
        return one


class _Now:
    def now_ms(self) -> int:
        return int(time.time() * 1000)
