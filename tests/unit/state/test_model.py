"""Random programs compared with a plain model: writes, timers, confirmed and aborted snapshots, crashes and rescales.

After every confirmed checkpoint the storage keeps only the files of that checkpoint and of pending ones. The registry
of shared files does the same.

Small sizes make sure that every part of the code runs: several blocks and files, rounds of slices, merged logs, sorted
buckets.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.state.factory import create_timer_service
from penstock.state.key_groups import key_group
from tests.unit.state.support import LIST, MAP, MAX_PARALLELISM, SUM, VALUE, Backends, at, content

KEYS = [f"k{i}" for i in range(12)] + [(1, "a"), 7, 2.5, None]
NAMESPACES = [None, None, (0, 10), (10, 20)]
SIMPLE = st.integers(-5, 5) | st.text(max_size=3) | st.tuples(st.integers(0, 3), st.text(max_size=2))
VALUES = SIMPLE | st.lists(SIMPLE, max_size=3) | st.dictionaries(st.integers(0, 3), SIMPLE, max_size=2)

keys = st.sampled_from(KEYS)
namespaces = st.sampled_from(NAMESPACES)

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Folder in memory. On a disk, RocksDB would wait hundreds of times in each program, and no test needs durability."""

CROSS = st.booleans()
Model = dict[str, dict[Any, Any]]


def empty_model() -> Model:
    return {"value": {}, "list": {}, "map": {}, "sum": {}, "event": {}, "processing": {}}


class Machine(RuleBasedStateMachine):
    kind = "hashmap"

    def __init__(self) -> None:
        super().__init__()
        self._dir = tempfile.TemporaryDirectory(dir=MEMORY)
        self.made = Backends(self.kind, Path(self._dir.name))
        self.model = empty_model()
        self.checkpoint = 0
        self.confirmed: tuple[list[dict[str, Any]], Model] = ([], empty_model())
        self.under_way: list[tuple[int, list[Any], Model]] = []
        self.uploaded: dict[int, list[dict[str, Any]]] = {}
        self.watermark = -1000
        self._begin(self.made.restored([], 1))

    def teardown(self) -> None:
        self.made.close()
        self._dir.cleanup()

    def _begin(self, subtasks: list[Any]) -> None:
        self.subtasks = subtasks
        self.timers = [create_timer_service(backend) for backend in subtasks]
        self.fired: list[tuple[str, int, Any, Any]] = []
        for service in self.timers:
            service.set_callbacks(self._on("event"), self._on("processing"))
            service.current_watermark = self.watermark

    def _on(self, domain: str) -> Callable[[int, Any, Any], None]:
        return lambda timestamp, key, namespace: self.fired.append((domain, timestamp, key, namespace))

    def _to(self, key: Any, namespace: Any) -> Any:
        group = key_group(key, MAX_PARALLELISM)
        (backend,) = [b for b in self.subtasks if group in b.key_group_range]
        at(backend, key, namespace)
        return backend

    # --- writes ---

    @rule(key=keys, namespace=namespaces, value=VALUES)
    def put_value(self, key: Any, namespace: Any, value: Any) -> None:
        self._to(key, namespace).get_state(VALUE).update(copy.deepcopy(value))
        self.model["value"][namespace, key] = value

    @rule(key=keys, namespace=namespaces, value=VALUES, raw=st.booleans())
    def change_in_place(self, key: Any, namespace: Any, value: Any, raw: bool) -> None:
        backend = self._to(key, namespace)
        state = backend.get_state(VALUE)
        values = state.value()
        if isinstance(values, list):
            values.append(value)
            if raw:
                backend.raw_table(VALUE).put(key, values, namespace)
            else:
                state.update(values)
            self.model["value"][namespace, key] = copy.deepcopy(values)

    @rule(namespace=namespaces, values=st.dictionaries(keys, SIMPLE | st.none(), max_size=16))
    def change_live_dictionary(self, namespace: Any, values: dict[Any, Any]) -> None:
        for backend in self.subtasks:
            mine = [k for k in values if key_group(k, MAX_PARALLELISM) in backend.key_group_range]
            table = backend.raw_table(VALUE)
            live = table.mapping(namespace)
            for key in mine:
                value = values[key]
                model = self.model["value"]
                if value is None:
                    if live is None:
                        table.remove(key, namespace)
                    else:
                        live.pop(key, None)
                    model.pop((namespace, key), None)
                else:
                    if live is None:
                        table.put(key, value, namespace)
                    else:
                        live[key] = value
                    model[namespace, key] = value
            if live is not None:
                table.touch(mine, namespace)

    @rule(key=keys, namespace=namespaces, name=st.sampled_from(["value", "list", "map", "sum"]))
    def clear(self, key: Any, namespace: Any, name: str) -> None:
        descriptor = {"value": VALUE, "list": LIST, "map": MAP, "sum": SUM}[name]
        self._to(key, namespace).get_state(descriptor).clear()
        self.model[name].pop((namespace, key), None)

    @rule(namespace=st.sampled_from(NAMESPACES))
    def pop_namespace(self, namespace: Any) -> None:
        popped = {}
        for backend in self.subtasks:
            popped.update(dict(backend.raw_table(VALUE).pop_namespace(namespace)))
        expected = {k: v for (n, k), v in self.model["value"].items() if n == namespace}
        assert popped == expected
        for key in expected:
            del self.model["value"][namespace, key]

    @rule(key=keys, namespace=namespaces, values=st.lists(VALUES, min_size=1, max_size=3))
    def add_elements(self, key: Any, namespace: Any, values: list[Any]) -> None:
        state = self._to(key, namespace).get_state(LIST)
        state.add(copy.deepcopy(values[0]))
        state.add_all(copy.deepcopy(values[1:]))
        self.model["list"].setdefault((namespace, key), []).extend(values)

    @rule(key=keys, namespace=namespaces, values=st.lists(SIMPLE, max_size=3))
    def replace_elements(self, key: Any, namespace: Any, values: list[Any]) -> None:
        self._to(key, namespace).get_state(LIST).update(values)
        self.model["list"].pop((namespace, key), None)
        if values:
            self.model["list"][namespace, key] = list(values)

    @rule(
        key=keys, namespace=namespaces, new=st.dictionaries(st.integers(0, 6) | st.text(max_size=1), SIMPLE, max_size=4)
    )
    def put_entries(self, key: Any, namespace: Any, new: dict[Any, Any]) -> None:
        self._to(key, namespace).get_state(MAP).put_all(new)
        if new:
            self.model["map"].setdefault((namespace, key), {}).update(new)

    @rule(key=keys, namespace=namespaces, map_key=st.integers(0, 6))
    def remove_entry(self, key: Any, namespace: Any, map_key: int) -> None:
        self._to(key, namespace).get_state(MAP).remove(map_key)
        cell = self.model["map"].get((namespace, key), {})
        cell.pop(map_key, None)
        if not cell:
            self.model["map"].pop((namespace, key), None)

    @rule(key=keys, namespace=namespaces, value=st.integers(1, 5))
    def fold(self, key: Any, namespace: Any, value: int) -> None:
        self._to(key, namespace).get_state(SUM).add(value)
        self.model["sum"][namespace, key] = self.model["sum"].get((namespace, key), 0) + value

    # --- timers ---

    def _service(self, key: Any, namespace: Any) -> Any:
        return self.timers[self.subtasks.index(self._to(key, namespace))]

    @rule(key=keys, namespace=namespaces, timestamp=st.integers(0, 12), domain=st.sampled_from(["event", "processing"]))
    def register(self, key: Any, namespace: Any, timestamp: int, domain: str) -> None:
        getattr(self._service(key, namespace), f"register_{domain}_time_timer")(timestamp)
        self.model[domain][timestamp, key, namespace] = True

    @rule(key=keys, namespace=namespaces, timestamp=st.integers(0, 12), domain=st.sampled_from(["event", "processing"]))
    def delete(self, key: Any, namespace: Any, timestamp: int, domain: str) -> None:
        getattr(self._service(key, namespace), f"delete_{domain}_time_timer")(timestamp)
        self.model[domain].pop((timestamp, key, namespace), None)

    @rule(until=st.integers(0, 12), domain=st.sampled_from(["event", "processing"]))
    def advance(self, until: int, domain: str) -> None:
        self.fired = []
        for service in self.timers:
            start = len(self.fired)
            if domain == "event":
                service.advance_watermark(until)
            else:
                service.advance_processing_time(until)
            stamps = [timestamp for _, timestamp, _, _ in self.fired[start:]]
            assert stamps == sorted(stamps)
        due = {timer for timer in self.model[domain] if timer[0] <= until}
        assert sorted(map(repr, self.fired)) == sorted(repr((domain, *timer)) for timer in due)
        for timer in due:
            del self.model[domain][timer]

    # --- checkpoints ---

    @rule()
    def snapshot(self) -> None:
        self.checkpoint += 1
        uploads = [backend.snapshot(self.checkpoint) for backend in self.subtasks]
        self.under_way.append((self.checkpoint, uploads, copy.deepcopy(self.model)))

    def _upload(self, index: int) -> tuple[int, list[dict[str, Any]], Model]:
        checkpoint, uploads, model = self.under_way[index]
        if checkpoint not in self.uploaded:
            self.uploaded[checkpoint] = [upload.run(self.made.storage) for upload in uploads]
        return checkpoint, self.uploaded[checkpoint], model

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def upload_only(self, data: st.DataObject) -> None:
        self._upload(data.draw(st.integers(0, len(self.under_way) - 1)))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        """Complete a checkpoint, and abort older pending ones, as the coordinator does."""
        index = data.draw(st.integers(0, len(self.under_way) - 1))
        checkpoint, handles, model = self._upload(index)
        for backend in self.subtasks:
            backend.notify_checkpoint_complete(checkpoint)
        self.under_way = self.under_way[index + 1 :]
        for other, _, _ in self.under_way:  # they may refer to files that are removed with the previous checkpoint
            for backend in self.subtasks:
                backend.notify_checkpoint_aborted(other)
        self.under_way = []
        self.confirmed = (handles, model)
        self._collect_garbage()

    @rule(times=st.integers(1, 12))
    def checkpoint_some_times(self, times: int) -> None:
        for _ in range(times):
            self.snapshot()
            checkpoint, handles, model = self._upload(-1)
            for backend in self.subtasks:
                backend.notify_checkpoint_complete(checkpoint)
            self.under_way = []
            self.confirmed = (handles, model)
            self._collect_garbage()
            self.fold(KEYS[times % len(KEYS)], None, 1)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), uploaded=st.booleans())
    def abort(self, data: st.DataObject, uploaded: bool) -> None:
        index = data.draw(st.integers(0, len(self.under_way) - 1))
        if uploaded:
            self._upload(index)
        checkpoint, _, _ = self.under_way.pop(index)
        for backend in self.subtasks:
            backend.notify_checkpoint_aborted(checkpoint)
        self.uploaded.pop(checkpoint, None)
        self._collect_garbage()

    def _collect_garbage(self) -> None:
        referred = [self.confirmed[0], *(self.uploaded.get(checkpoint, []) for checkpoint, _, _ in self.under_way)]
        kept = {file["path"] for handles in referred for handle in handles for file in handle["files"]}
        for path in set(self.made.storage.files) - kept:
            self.made.storage.files[path] = b"removed"

    @rule(parallelism=st.sampled_from([1, 1, 2, 3, 16]), owned=st.booleans(), cross=CROSS, registers=st.booleans())
    def crash(self, parallelism: int, owned: bool, cross: bool, registers: bool) -> None:
        handles, model = self.confirmed
        kind = {"hashmap": "rocksdb", "rocksdb": "hashmap"}[self.made.kind] if cross else self.made.kind
        self.made.kind = kind
        for backend in self.subtasks:
            backend.close()
        self.under_way = []
        self.uploaded = {}
        self.model = copy.deepcopy(model)
        self._begin(self.made.restored(handles, parallelism, kind=kind, owned=owned))
        if registers:
            self.compare()

    @invariant()
    def timers_are_right(self) -> None:
        for domain in ("event", "processing"):
            found = sorted(
                repr(timer) for service in self.timers for timer in getattr(service, f"{domain}_time_timers")()
            )
            assert found == sorted(map(repr, self.model[domain]))
        earliest = min((t[0] for t in self.model["processing"]), default=None)
        assert min((t for s in self.timers if (t := s.next_processing_time()) is not None), default=None) == earliest

    @rule()
    def compare(self) -> None:
        for descriptor in (VALUE, LIST, MAP, SUM):
            assert content(self.subtasks, descriptor) == self.model[descriptor.name]

    @rule(parallelism=st.sampled_from([1, 3]), cross=CROSS)
    def inspect_confirmed(self, parallelism: int, cross: bool) -> None:
        handles, model = self.confirmed
        kind = {"hashmap": "rocksdb", "rocksdb": "hashmap"}[self.made.kind] if cross else self.made.kind
        subtasks = self.made.restored(handles, parallelism, kind=kind)
        for descriptor in (VALUE, LIST, MAP, SUM):
            assert content(subtasks, descriptor) == model[descriptor.name]
        for backend in subtasks:
            backend.close()


class RocksDBMachine(Machine):
    kind = "rocksdb"


@pytest.mark.usefixtures("small_sizes")
@pytest.mark.parametrize(
    ("machine", "examples"),
    [
        (Machine, 20),
        (RocksDBMachine, 10),
        pytest.param(Machine, 100, marks=pytest.mark.slow),
        pytest.param(RocksDBMachine, 30, marks=pytest.mark.slow),
    ],
)
def test_backends_behave_like_the_model(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None))
