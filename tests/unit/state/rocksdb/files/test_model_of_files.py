"""Look-ups, scans and snapshots compared with a plain model, over random writes, flushes, compactions and rescales.

A look-up uses the first file that has the row, and a scan uses the newest version of the row. They differ if the order
of the files is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import StorageError
from penstock.state.factory import create_timer_service
from penstock.state.key_groups import KeyGroupCache, KeyGroupRange, key_group_range
from penstock.state.rocksdb.database import Database, scan
from penstock.state.rocksdb.rows import STATE
from tests.unit.state.support import LIST, MAP, MAX_PARALLELISM, VALUE, Backends, at

GROUPS = KeyGroupCache(MAX_PARALLELISM)
KEYS = range(60)
MAP_KEYS = ["a", "b", "c"]
STEPS = 30
WRITES = ["update", "update", "update", "clear", "add", "update list", "clear list", "put", "put", "remove", "timer"]


@dataclass
class Model:
    value: dict[int, str] = field(default_factory=dict)
    list: dict[int, Any] = field(default_factory=dict)
    map: dict[int, Any] = field(default_factory=dict)
    timers: set[tuple[int, int]] = field(default_factory=set)


class RandomJob:
    """The subtasks of one operator, and their expected state."""

    def __init__(self, backends: Backends, seed: int) -> None:
        self.random = random.Random(seed)
        self.backends = backends
        self.model = Model()
        self.kept: list[tuple[list[dict[str, Any]], Model]] = []
        self.checkpoint_id = self.written = 0
        self.subtasks = self.restored([], 2, owned=True)

    def restored(self, handles: list[dict[str, Any]], parallelism: int, *, owned: bool) -> list[Any]:
        subtasks = []
        for subtask in range(parallelism):
            backend = self.backends.create(
                key_group_range(subtask, parallelism, MAX_PARALLELISM), options={"writebuffer.size": "64kb"}
            )
            backend.restore(handles, self.backends.storage, owned=owned)
            for descriptor in (VALUE, LIST, MAP):
                backend.get_state(descriptor)
            subtasks.append(backend)
        return subtasks

    def write(self, key: int, operation: str) -> None:
        backend = next(backend for backend in self.subtasks if GROUPS[key] in backend.key_group_range)
        value, elements, entries = (backend.get_state(descriptor) for descriptor in (VALUE, LIST, MAP))
        self.written += 1
        text, map_key, model = f"{self.written} " * 20, self.random.choice(MAP_KEYS), self.model
        at(backend, key)
        if operation == "update":
            value.update(text)
            model.value[key] = text
        elif operation == "clear":
            value.clear()
            model.value.pop(key, None)
        elif operation == "add":
            elements.add(text)
            model.list[key] = [*model.list.get(key, []), text]
        elif operation == "update list":
            elements.update([text, "second"])
            model.list[key] = [text, "second"]
        elif operation == "clear list":
            elements.clear()
            model.list.pop(key, None)
        elif operation == "put":
            entries.put(map_key, text)
            model.map[key] = {**model.map.get(key, {}), map_key: text}
        elif operation == "remove":
            entries.remove(map_key)
            model.map[key] = {k: v for k, v in model.map.get(key, {}).items() if k != map_key}
        else:
            create_timer_service(backend).register_event_time_timer(self.written)
            model.timers.add((self.written, key))

    def write_some(self) -> None:
        if self.random.random() < 0.5:
            for _ in range(self.random.randint(1, 60)):
                self.write(self.random.choice(KEYS), self.random.choice(WRITES))
            return
        ends = sorted(self.random.choices(range(MAX_PARALLELISM), k=2))
        operation = self.random.choice(WRITES)
        for key in KEYS:
            if ends[0] <= GROUPS[key] <= ends[1]:
                self.write(key, operation)

    def write_small_files(self) -> None:
        """Write files that mostly contain one row. RocksDB moves such files between levels without a change."""
        hot = self.random.sample(KEYS, self.random.choice([1, 1, 2]))
        operations = self.random.choice([["update"], ["update", "clear"], ["put", "remove"]])
        for _ in range(self.random.randint(2, 9)):
            for key in hot[: self.random.randint(1, 2)]:
                self.write(key, self.random.choice(operations))
            for backend in self.subtasks:
                backend._database.begin_flush()

    def compact(self) -> None:
        for backend in self.subtasks:
            first, last = sorted(self.random.choices(range(MAX_PARALLELISM), k=2))
            names = [name for name in backend._database.families if name.startswith(STATE)]
            backend._database.compact({name: [KeyGroupRange(first, last)] for name in names})

    def snapshot(self) -> None:
        """Take one or two snapshots at a time, with writes directly after them. Some are confirmed, some aborted."""
        taken = []
        for _ in range(self.random.randint(1, 2)):
            self.checkpoint_id += 1
            uploads = [backend.snapshot(self.checkpoint_id) for backend in self.subtasks]
            taken.append((self.checkpoint_id, uploads, deepcopy(self.model)))
            self.write_some()
        for checkpoint_id, uploads, model in taken:
            chance = self.random.random()
            handles = None
            with suppress(StorageError):  # files of the snapshot may have been compacted with later ones
                handles = [upload.run(self.backends.storage) for upload in uploads] if chance < 0.9 else None
            if handles is not None:
                self.kept = [*self.kept[-3:], (handles, model)]
            for backend in self.subtasks:
                if handles is None:
                    backend.notify_checkpoint_aborted(checkpoint_id)
                elif chance < 0.8:
                    backend.notify_checkpoint_complete(checkpoint_id)

    def restore(self) -> None:
        if not self.kept:
            return
        handles, model = self.kept[-1] if self.random.random() < 0.7 else self.random.choice(self.kept)
        parallelism = self.random.choice([1, 1, 2, 2, 3, 4, 5, len(handles)])
        for backend in self.subtasks:
            backend.close()
        self.subtasks = self.restored(handles, parallelism, owned=self.random.random() < 0.7)
        self.model = deepcopy(model)
        self.check()
        if self.random.random() < 0.3:
            self.compact()
            self.check()

    def check(self) -> None:
        model = self.model
        timers = []
        for backend in self.subtasks:
            for name, family in backend._database.families.items():
                for row, data in scan(family, b"", b"\xff" * 4):
                    assert family.get(row) == data, f"a look-up in {name} gives another row than a scan"
            value, elements, entries = (backend.get_state(descriptor) for descriptor in (VALUE, LIST, MAP))
            own = [key for key in KEYS if GROUPS[key] in backend.key_group_range]
            for key in own:
                at(backend, key)
                of_key = model.map.get(key, {})
                assert value.value() == model.value.get(key)
                assert elements.get() == model.list.get(key, [])
                assert dict(entries.items()) == of_key
                assert {k: entries.get(k) for k in MAP_KEYS if entries.contains(k)} == of_key
            assert sorted(backend.keys("value")) == [key for key in own if key in model.value]
            timers += [(timestamp, key) for timestamp, key, _ in backend.event_time_timers.timers()]
        assert sorted(timers) == sorted(model.timers)

    def run(self) -> None:
        steps = [self.write_some, self.write_small_files, self.snapshot, self.restore, self.compact]
        for step in self.random.choices(steps, [3, 5, 5, 4, 1], k=STEPS):
            step()
        for _ in range(3):
            self.restore()


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Backends]:
    made = Backends("rocksdb", tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("seed", [6, 9, 23, 30])
def test_look_ups_scans_and_snapshots_equal_those_of_the_model(
    backends: Backends, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    make = Database._make_options
    files = random.Random(seed).choice([2, 4, 8])

    def with_small_levels(self: Database) -> Any:
        options = make(self)
        options.set_target_file_size_base(4 << 10)
        if not self._one_step:
            options.set_max_bytes_for_level_base(8 << 10)
            options.set_max_bytes_for_level_multiplier(2)
            options.set_level_zero_file_num_compaction_trigger(files)
        return options

    monkeypatch.setattr(Database, "_make_options", with_small_levels)
    RandomJob(backends, seed).run()
