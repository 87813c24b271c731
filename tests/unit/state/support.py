"""Shared parts of the state tests: a storage in memory, a manual clock, and backends of every kind."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from penstock.common.errors import CorruptStateFile
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.backend import KeyedStateBackend
from penstock.state.factory import create_backend
from penstock.state.files import FileRef
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupRange, key_group_range
from penstock.state.owners import OPERATOR

KINDS = ["hashmap", "rocksdb"]
MAX_PARALLELISM = 16


class Clock:
    def __init__(self, now: int = 0) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


class Storage:
    """Writer and reader of state files in memory. Every file is immutable. Reads of a removed file fail."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.reads: list[str] = []
        self._numbers = count()  # several threads upload

    def write(self, content: bytes) -> FileRef:
        path = f"shared/{next(self._numbers)}"
        assert path not in self.files
        self.files[path] = bytes(content)
        return FileRef(path, len(content), f"crc32:{zlib.crc32(content):08x}")

    def upload(self, local_path: str) -> FileRef:
        return self.write(Path(local_path).read_bytes())

    def read(self, ref: FileRef) -> bytes:
        self.reads.append(ref.path)
        content = self.files[ref.path]
        found = f"crc32:{zlib.crc32(content):08x}"
        if (len(content), found) != (ref.size, ref.checksum):
            raise CorruptStateFile(f"state file {ref.path} has checksum {found}, expected {ref.checksum}")
        return content

    def download(self, ref: FileRef, local_path: str) -> None:
        Path(local_path).write_bytes(self.read(ref))


class Backends:
    """A factory of backends, which closes all of them at the end."""

    def __init__(self, kind: str, work_dir: Path) -> None:
        self.kind = kind
        self.work_dir = work_dir
        self.clock = Clock()
        self.storage = Storage()
        self._created: list[KeyedStateBackend] = []
        self._handles: dict[int, dict[str, Any]] = {}

    def create(
        self,
        groups: KeyGroupRange | None = None,
        *,
        kind: str | None = None,
        key_type: Any = None,
        max_parallelism: int = MAX_PARALLELISM,
        options: dict[str, Any] | None = None,
    ) -> Any:
        backend = create_backend(
            kind or self.kind,
            key_group_range=groups or KeyGroupRange(0, max_parallelism - 1),
            max_parallelism=max_parallelism,
            key_context=KeyContext(),
            clock=self.clock,
            work_dir=str(self.work_dir / f"b{len(self._created)}"),
            options=options or {},
            operator_name="the operator",
            key_type=key_type,
        )
        self._created.append(backend)
        return backend

    def snapshot(self, backend: KeyedStateBackend, checkpoint_id: int = 1, *, confirm: bool = True) -> dict[str, Any]:
        handle = backend.snapshot(checkpoint_id).run(self.storage)
        self._handles[checkpoint_id] = handle
        if confirm:
            backend.notify_checkpoint_complete(checkpoint_id)
        return handle

    def storage_of_checkpoint(self, checkpoint_id: int) -> list[dict[str, Any]]:
        """Return the files of a snapshot taken with `snapshot`."""
        files: list[dict[str, Any]] = self._handles[checkpoint_id]["files"]
        return files

    def restored(self, handles: list[dict[str, Any]], parallelism: int = 1, **how: Any) -> list[Any]:
        """Return the backends of all subtasks at a parallelism, restored from the handles."""
        kind = how.pop("kind", None)
        key_type = how.pop("key_type", None)
        backends = []
        for subtask in range(parallelism):
            groups = key_group_range(subtask, parallelism, MAX_PARALLELISM)
            backend = self.create(groups, kind=kind, key_type=key_type)
            backend.restore(handles, self.storage, **how)
            backends.append(backend)
        return backends

    def close(self) -> None:
        for backend in self._created:
            backend.close()


class Mean:
    """An aggregate function with a tuple as accumulator."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return (a[0] + b[0], a[1] + b[1])


VALUE = ValueStateDescriptor("value")
LIST = ListStateDescriptor("list")
MAP = MapStateDescriptor("map")
SUM = ReducingStateDescriptor("sum", lambda a, b: a + b, int)
MEAN = AggregatingStateDescriptor("mean", Mean())


def at(backend: Any, key: Any, namespace: Any = None) -> None:
    """Move the backend to a key and namespace."""
    backend.key_context.key = key
    backend.key_context.namespace = namespace


def content(backends: list[Any], descriptor: Any, owner: str = OPERATOR) -> dict[tuple[Any, Any], Any]:
    """Return (namespace, key) -> plain content of one state over all subtasks. Every key must be in its subtask."""
    found: dict[tuple[Any, Any], Any] = {}
    for backend in backends:
        state = backend.get_state(descriptor, owner)
        for namespace in list(backend.namespaces(descriptor.name)):
            for key in backend.keys(descriptor.name, namespace):
                at(backend, key, namespace)
                assert (namespace, key) not in found, "two subtasks have the same key"
                found[namespace, key] = plain(state)
    return found


def plain(state: Any) -> Any:
    if hasattr(state, "items"):
        return dict(state.items())
    return state.value() if hasattr(state, "value") else state.get()


def entries(iterator: Iterator[Any]) -> list[Any]:
    return sorted(iterator, key=repr)
