"""Snapshots of a million keys in one subtask's backend: a full one compared with one after changes of 1 %.

The benchmark calls the backend like a task does. `pause`: how long processing stops (the synchronous part). `time`: CPU
time of everything, including uploads to the local disk.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.checkpoint.files.state_files import StateFileWriter
from penstock.checkpoint.store.retrying_store import Stores
from penstock.datastream.state import ValueStateDescriptor
from penstock.functions.operator_context import SystemClock
from penstock.state.backend import KeyedStateBackend
from penstock.state.encoding.packed_keys import PackedKeys
from penstock.state.factory import create_backend
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import key_group_range
from penstock.taskmanager.operators.aggregate.stat_columns import StatShape

CHANGED = 0.01
MAX_PARALLELISM = 128
SHAPE = StatShape((frozenset({"max"}),), (False,))


def checkpoint(records: int | None, repetitions: int) -> dict[str, Any]:
    keys = [f"s{key:07d}" for key in range(records or 1_000_000)]
    figures = {
        "hashmap": _measure("hashmap", keys, repetitions, _put),
        "hashmap-columns": _measure("hashmap", keys, repetitions, _write_columns),
        "rocksdb": _measure("rocksdb", keys, repetitions, _put),
    }
    return {
        "keys": len(keys),
        "changed": CHANGED,
        "systems": figures,
        "goal": {"bytes": 0.05, "time": 0.1, "pause_ms": 50},
    }


def _put(backend: KeyedStateBackend, keys: list[str], number: int) -> None:
    table = backend.raw_table(ValueStateDescriptor("running", tuple[int, float]))
    for key in keys:
        table.put(key, (number, 20.5), None)


def _write_columns(backend: KeyedStateBackend, keys: list[str], number: int) -> None:
    """Write columns like a running count and maximum."""
    columns = backend.raw_table(ValueStateDescriptor("rolling")).columns(SHAPE, len(keys))
    assert columns is not None
    places = columns.find(PackedKeys.of_list(keys))
    assert places is not None
    counts = np.full(len(keys), number)
    columns.write(places, [counts, counts, np.full(len(keys), 20.5)])


def _measure(
    kind: str, keys: list[str], repetitions: int, write: Callable[[KeyedStateBackend, list[str], int], None]
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as folder:
        backend = create_backend(
            kind,
            key_group_range=key_group_range(0, 1, MAX_PARALLELISM),
            max_parallelism=MAX_PARALLELISM,
            key_context=KeyContext(),
            clock=SystemClock(),
            work_dir=f"{folder}/local",
        )
        root = Path(folder, "job").as_uri()
        files = StateFileWriter(Stores().for_url(root), root)
        write(backend, keys, 1)
        full = _snapshot(backend, files, 1)
        part = keys[:: round(1 / CHANGED)]
        changes = []
        for number in range(max(1, repetitions)):
            write(backend, part, number + 2)
            changes.append(_snapshot(backend, files, number + 2))
        backend.close()
    change = {name: statistics.median(one[name] for one in changes) for name in full}
    return {
        "full": full,
        "changed": change,
        "bytes": round(change["bytes"] / full["bytes"], 4),
        "time": round(change["cpu_ms"] / full["cpu_ms"], 4),
        "pause_ms": round(max(full["pause_ms"], change["pause_ms"]), 2),
    }


def _snapshot(backend: KeyedStateBackend, files: StateFileWriter, number: int) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    upload = backend.snapshot(number)
    pause_ms = (time.perf_counter() - began) * 1e3
    handle = upload.run(files)
    cpu_ms = (time.process_time() - cpu) * 1e3
    backend.notify_checkpoint_complete(number)
    return {"bytes": float(handle.get("bytes_uploaded", 0)), "cpu_ms": round(cpu_ms, 1), "pause_ms": round(pause_ms, 2)}
