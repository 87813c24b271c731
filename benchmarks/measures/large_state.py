"""Large state in RocksDB: the written bytes and the pause of a checkpoint after a change, and the time of recovery and rescale.

A process for each slot calls its backend like a task does. It has local copies and a folder as checkpoint storage (`file://`, so
mostly the page cache). The figures exclude the starts of processes, and the steps of a job around a restore, which `recovery`
and `rescale` measure. `pause` is the time that processing stops at a barrier, and its CPU time, which a busy machine changes less.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from penstock.checkpoint.files.state_files import MergedFileWriter, StateFileReader, StateFileWriter
from penstock.checkpoint.store.retrying_store import Stores
from penstock.datastream.state import ValueStateDescriptor
from penstock.functions.operator_context import SystemClock
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import key_group_range, keys_key_groups
from penstock.state.rocksdb.backend import RocksDBStateBackend
from penstock.state.rocksdb.rows import family_name
from penstock.taskmanager.local_state.files import LocalStateFiles

DEFAULT_KEYS = 50_000_000
VALUE_BYTES = 100
CHANGED = 0.01
ROUNDS = 12
MAX_PARALLELISM = 128
CHUNK = 100_000
PROGRESS = 20
"""Number of progress messages during the load."""
STATE = ValueStateDescriptor("value", bytes)
COMPACTING = ("rocksdb.compaction-pending", "rocksdb.num-running-compactions", "rocksdb.num-running-flushes")
NOISE = os.urandom(1 << 20)
"""Random bytes. Values are parts of it, so that compression cannot make them smaller."""


def large_state(records: int | None, repetitions: int) -> dict[str, Any]:
    keys = records or DEFAULT_KEYS
    rounds = max(ROUNDS, repetitions)
    with tempfile.TemporaryDirectory(prefix="penstock-large-state-") as folder:
        with _slots(folder, 2) as slots:
            began = time.perf_counter()
            for begin, end in pairwise(np.linspace(0, keys, PROGRESS + 1).astype(int).tolist()):
                _all(slots, "load", begin, end)
                _log(f"{end:,} of {keys:,} keys after {time.perf_counter() - began:.0f} s")
            load_s = time.perf_counter() - began
            _all(slots, "settle")
            _log(f"no compaction is left after {time.perf_counter() - began:.0f} s")
            first = _checkpoint(slots, 1)
            _log(f"first checkpoint: {first}")
            later = []
            for number in range(2, rounds + 2):
                _all(slots, "change", keys, number)
                later.append(_checkpoint(slots, number))
                _log(f"checkpoint {number}: {later[-1]}")
            handles = _all(slots, "handle")
        shares = [one["bytes"] / first["bytes"] for one in later]
        recovery = {"disk_there": _restored(folder, 2, handles, disk="disk")}
        _log(f"restored, disk there: {recovery['disk_there']}")
        recovery["disk_gone"] = _restored(folder, 2, handles, disk="other-disk")
        _log(f"restored, disk gone: {recovery['disk_gone']}")
        shutil.rmtree(Path(folder, "other-disk"))
        rescaled, of_four = _rescaled(folder, 4, handles)
        _log(f"2 to 4 slots: {rescaled}")
        back, _ = _rescaled(folder, 2, of_four)
        _log(f"4 to 2 slots: {back}")
    return {
        "keys": keys,
        "load_s": round(load_s, 1),
        "first": first,
        "changed": later,
        "bytes_of_change": {
            "next": round(shares[0], 4),
            "mean": round(statistics.mean(shares), 4),
            "most": round(max(shares), 4),
        },
        "pause_ms": _worst(first, later, "pause_ms"),
        "pause_cpu_ms": _worst(first, later, "pause_cpu_ms"),
        "recovery": recovery,
        "rescale": {"2_to_4": rescaled, "4_to_2": back},
        "goal": {
            "bytes_of_change": 0.03,
            "pause_ms": 50,
            "disk_there_s": 10,
            "disk_gone_mb_s": 200,
            "2_to_4_s": 30,
        },
    }


def _log(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _checkpoint(slots: Sequence[_Process], number: int) -> dict[str, float]:
    taken = _all(slots, "checkpoint", number)
    _all(slots, "complete", number)
    return {
        "bytes": sum(one["bytes"] for one in taken),
        "pause_ms": round(max(one["pause_ms"] for one in taken), 1),
        "pause_cpu_ms": round(max(one["pause_cpu_ms"] for one in taken), 1),
        "upload_s": round(max(one["upload_s"] for one in taken), 1),
    }


def _worst(first: dict[str, float], later: list[dict[str, float]], name: str) -> dict[str, float]:
    found = [one[name] for one in later]
    return {"first": first[name], "median": statistics.median(found), "most": max(found)}


def _restored(folder: str, parallelism: int, handles: list[dict[str, Any]], disk: str) -> dict[str, float]:
    with _slots(folder, parallelism, disk) as slots:
        began = time.perf_counter()
        found = _all(slots, "restore", handles)
        seconds = time.perf_counter() - began
    size = sum(file["size"] for handle in handles for file in handle["files"])
    return {
        "seconds": round(seconds, 2),
        "mb": round(size / 1e6),
        "mb_s": round(size / 1e6 / seconds),
        "local_files": sum(one["used"] for one in found),
        "fetched_files": sum(one["fetched"] for one in found),
    }


def _rescaled(folder: str, parallelism: int, handles: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Measure a rescale of slots of the same TaskManager, and the checkpoint after it."""
    with _slots(folder, parallelism) as slots:
        began = time.perf_counter()
        found = _all(slots, "restore", handles)
        figures = {
            "seconds": round(time.perf_counter() - began, 2),
            "local_files": sum(one["used"] for one in found),
            "fetched_files": sum(one["fetched"] for one in found),
            "next_checkpoint": _checkpoint(slots, 1_000 + parallelism),
        }
        return figures, _all(slots, "handle")


class _Slot:
    """The parts of a slot that a task uses."""

    def __init__(self, folder: str, disk: str, index: int, parallelism: int, attempt: int) -> None:
        self._groups = key_group_range(index, parallelism, MAX_PARALLELISM)
        name = f"{attempt}-0-{index}"
        self._local = LocalStateFiles([f"{folder}/{disk}"], "job", attempt, f"0-{index}")
        self._backend = RocksDBStateBackend(
            key_group_range=self._groups,
            max_parallelism=MAX_PARALLELISM,
            key_context=KeyContext(),
            clock=SystemClock(),
            work_dir=f"{folder}/{disk}/state-{name}",
        )
        root = Path(folder, "storage").as_uri()
        stores = Stores()
        self._files = StateFileWriter(stores.for_url(root), root)
        self._reader = StateFileReader(stores, root)
        self._handle: dict[str, Any] = {}

    def load(self, begin: int, end: int) -> None:
        for start in range(begin, end, CHUNK):
            self._put(range(start, min(end, start + CHUNK)), 1)

    def settle(self) -> None:
        """Wait for compactions of the load, because their writes are not part of a change of 1 %."""
        family = self._backend._database.family(family_name(STATE.name))
        while any(family.property_int_value(name) for name in COMPACTING):
            time.sleep(0.2)

    def change(self, keys: int, number: int) -> None:
        self._put(random.Random(number).sample(range(keys), int(keys * CHANGED)), number)

    def _put(self, keys: Sequence[int], number: int) -> None:
        put = self._backend.raw_table(STATE).put
        listed = np.asarray(keys, np.int64)
        groups = keys_key_groups(listed.tolist(), MAX_PARALLELISM)
        own = listed[(groups >= self._groups.start) & (groups <= self._groups.end)]
        starts = (own * 7919 + number * 104_729) % (len(NOISE) - VALUE_BYTES)
        for key, start in zip(own.tolist(), starts.tolist(), strict=True):
            put(key, NOISE[start : start + VALUE_BYTES], None)

    def checkpoint(self, number: int) -> dict[str, float]:
        began, cpu = time.perf_counter(), time.thread_time()
        upload = self._backend.snapshot(number)
        paused, paused_cpu = time.perf_counter() - began, time.thread_time() - cpu
        merged = MergedFileWriter(self._files, 32 << 20)
        self._handle = upload.run(self._local.writer(merged, number))
        merged.finish()
        self._local.note(number, self._handle)
        seconds = time.perf_counter() - began - paused
        return {
            "pause_ms": paused * 1e3,
            "pause_cpu_ms": paused_cpu * 1e3,
            "upload_s": seconds,
            "bytes": self._handle["bytes_uploaded"],
        }

    def complete(self, number: int) -> None:
        self._backend.notify_checkpoint_complete(number)
        self._local.completed(number)

    def handle(self) -> dict[str, Any]:
        return self._handle

    def restore(self, handles: list[dict[str, Any]]) -> dict[str, int]:
        self._backend.restore(handles, self._local.reader(self._reader), owned=True)
        for handle in handles:
            self._local.note(0, handle)
        self._check()
        return {"used": self._local.used, "fetched": self._local.fetched}

    def _check(self) -> None:
        """Check that the restored state has the right keys, and no keys of other slots."""
        table = self._backend.raw_table(STATE)
        keys = list(range(1_000))
        for key, group in zip(keys, keys_key_groups(keys, MAX_PARALLELISM).tolist(), strict=True):
            if (table.get(key) is not None) != (group in self._groups):
                raise AssertionError(f"key {key} of key group {group} is wrong after the restore")


class _Process:
    """A slot in a separate process, which is killed at the end, like a lost worker."""

    def __init__(self, *where: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, where), daemon=True)
        self._process.start()
        self.answer()

    def ask(self, name: str, *arguments: Any) -> None:
        self._connection.send((name, arguments))

    def answer(self) -> Any:
        found = self._connection.recv()
        if isinstance(found, BaseException):
            raise found
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, where: tuple[Any, ...]) -> None:
    slot = _Slot(*where)
    connection.send(None)
    while True:
        name, arguments = connection.recv()
        try:
            connection.send(getattr(slot, name)(*arguments))
        except BaseException as error:
            connection.send(error)


def _all(slots: Sequence[_Process], name: str, *arguments: Any) -> list[Any]:
    """Call a function on all slots at the same time, and return the results."""
    for slot in slots:
        slot.ask(name, *arguments)
    return [slot.answer() for slot in slots]


@contextmanager
def _slots(folder: str, parallelism: int, disk: str = "disk") -> Iterator[list[_Process]]:
    attempt = time.monotonic_ns()
    slots: list[_Process] = []
    try:
        slots.extend(_Process(folder, disk, index, parallelism, attempt) for index in range(parallelism))
        yield slots
    finally:
        for slot in slots:
            slot.kill()
        for left in Path(folder, disk).glob(f"state-{attempt}-*"):  # the next slot of a worker would remove it
            shutil.rmtree(left)
