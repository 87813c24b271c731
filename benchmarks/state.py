"""The cost of state: access, key groups, timers, checkpoints and restores. `python -m benchmarks.state [--keys N]`.

The last line is one JSON object. Times of calls are CPU time of the thread in ns, because a busy machine changes them
only a little. Pauses of checkpoints are the synchronous part in ms, as CPU time and as wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.state.factory import create_backend, create_timer_service
from penstock.state.files import FileRef
from penstock.state.key_context import KeyContext
from penstock.state.key_groups import KeyGroupCache, KeyGroupRange, column_key_groups, keys_key_groups

MAX_PARALLELISM = 128
VALUE = ValueStateDescriptor("value", int)
PAIR = ValueStateDescriptor("pair")
TYPED_PAIR = ValueStateDescriptor("typed", tuple[int, float])


class Clock:
    def now_ms(self) -> int:
        return 0


class Files:
    """State files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    def write(self, content: bytes) -> FileRef:
        self._count += 1
        path = f"{self._count}-{time.monotonic_ns()}"
        (self._directory / path).write_bytes(content)
        return FileRef(path, len(content), f"crc32:{zlib.crc32(content):08x}")

    def upload(self, local_path: str) -> FileRef:
        return self.write(Path(local_path).read_bytes())

    def read(self, ref: FileRef) -> bytes:
        return (self._directory / ref.path).read_bytes()

    def download(self, ref: FileRef, local_path: str) -> None:
        shutil.copyfile(self._directory / ref.path, local_path)


@contextmanager
def backend(kind: str, work_dir: Path) -> Iterator[Any]:
    made = create_backend(
        kind,
        key_group_range=KeyGroupRange(0, MAX_PARALLELISM - 1),
        max_parallelism=MAX_PARALLELISM,
        key_context=KeyContext(),
        clock=Clock(),
        work_dir=str(work_dir / f"backend-{time.monotonic_ns()}"),
    )
    yield made
    made.close()


def per_call(call: Callable[[], Any], calls: int = 100_000) -> float:
    """Return the thread CPU time per call in ns, the best of three runs."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time_ns()
        for _ in range(calls):
            call()
        best = min(best, time.thread_time_ns() - start)
    return round(best / calls, 1)


def access(kind: str, work_dir: Path) -> dict[str, float]:
    """Measure one call of a handle, including the cost of the loop."""
    calls = 100_000 if kind == "hashmap" else 20_000
    with backend(kind, work_dir) as made:
        at = made.key_context
        at.key = "sensor_7"
        made.snapshot(1).run(Files(work_dir))
        made.notify_checkpoint_complete(1)
        value = made.get_state(VALUE)
        elements = made.get_state(ListStateDescriptor("list", int))
        entries = made.get_state(MapStateDescriptor("map", str, int))
        value.update(1)
        entries.put("a", 1)
        figures = {
            "value": per_call(value.value, calls),
            "update": per_call(lambda: value.update(5), calls),
            "list_add": per_call(lambda: elements.add(5), calls),
            "map_get": per_call(lambda: entries.get("a"), calls),
            "map_put": per_call(lambda: entries.put("a", 5), calls),
        }
        at.namespace = (0, 5000)
        value.update(1)
        return figures | {
            "value_in_window": per_call(value.value, calls),
            "update_in_window": per_call(lambda: value.update(5), calls),
        }


def key_groups() -> dict[str, float]:
    """Measure the ns per key, in batches of 10,000."""
    keys = [f"sensor_{i * 7919 % 1_000_000}" for i in range(10_000)]
    few = [f"sensor_{i % 1000}" for i in range(10_000)]
    texts, numbers = pa.array(keys), pa.array(range(10_000))
    cache = KeyGroupCache(MAX_PARALLELISM)
    runs: dict[str, Callable[[], Any]] = {
        "column_of_text": lambda: column_key_groups(texts, MAX_PARALLELISM),
        "column_of_numbers": lambda: column_key_groups(numbers, MAX_PARALLELISM),
        "list_of_text": lambda: keys_key_groups(keys, MAX_PARALLELISM),
        "cached": lambda: list(map(cache.__getitem__, few)),
    }
    return {name: round(per_call(run, 20) / 10_000, 1) for name, run in runs.items()}


def timers(work_dir: Path, count: int = 200_000) -> dict[str, float]:
    """Measure the ns per timer, all at different times and many at the same time."""
    figures = {}
    for name, spread in (("distinct", count), ("shared", 100)):
        with backend("hashmap", work_dir) as made:
            made.snapshot(1).run(Files(work_dir))
            made.notify_checkpoint_complete(1)
            service = create_timer_service(made)
            service.set_callbacks(lambda timestamp, key, namespace: None, lambda timestamp, key, namespace: None)
            at = made.key_context
            register = service.register_event_time_timer
            start = time.thread_time_ns()
            for i in range(count):
                at.key = i
                register(i % spread)
            middle = time.thread_time_ns()
            service.advance_watermark(count)
            figures[f"register_{name}"] = round((middle - start) / count, 1)
            figures[f"fire_{name}"] = round((time.thread_time_ns() - middle) / count, 1)
    return figures


class Checkpoints:
    """A backend full of keys, and checkpoints of it.

    Args:
        value_of: creates the value for a number.
    """

    def __init__(self, kind: str, work_dir: Path, keys: int, descriptor: Any, value_of: Callable[[int], Any]) -> None:
        self._files = Files(work_dir)
        self._checkpoint = 0
        self._random = random.Random(1)
        self._value_of = value_of
        self.keys = [f"sensor_{i}" for i in range(keys)]
        self.descriptor = descriptor
        self.context = backend(kind, work_dir)
        self.backend = self.context.__enter__()
        self._state = self.backend.get_state(descriptor)
        self.handle: dict[str, Any] = {}
        self.change(self.keys, 0)

    def change(self, keys: list[str], number: int) -> None:
        at, update, value_of = self.backend.key_context, self._state.update, self._value_of
        for key in keys:
            at.key = key
            update(value_of(number))

    def change_share(self, share: float) -> None:
        self.change(self._random.sample(self.keys, int(len(self.keys) * share)), self._checkpoint)

    def take(self) -> dict[str, float]:
        self._checkpoint += 1
        wall, start = time.perf_counter(), time.thread_time()
        upload = self.backend.snapshot(self._checkpoint)
        pause, pause_wall = time.thread_time() - start, time.perf_counter() - wall
        start, wall = time.process_time(), time.perf_counter()
        self.handle = upload.run(self._files)
        figures = {
            "pause_ms": round(pause * 1e3, 2),
            "pause_wall_ms": round(pause_wall * 1e3, 2),
            "upload_cpu_ms": round((time.process_time() - start) * 1e3, 1),
            "upload_wall_ms": round((time.perf_counter() - wall) * 1e3, 1),
            "bytes": self.handle["bytes_uploaded"],
            "files": len(self.handle["files"]),
        }
        self.backend.notify_checkpoint_complete(self._checkpoint)
        return figures

    def restore(self, kind: str, work_dir: Path) -> float:
        """Restore a checkpoint, and return the seconds of process CPU time."""
        with backend(kind, work_dir) as made:
            start = time.process_time()
            made.restore([self.handle], self._files)
            made.get_state(self.descriptor)
            return round(time.process_time() - start, 2)


def checkpoints(kind: str, work_dir: Path, keys: int) -> dict[str, Any]:
    """Take a full checkpoint, then many after changes of 1 %, then some after changes of 30 %."""
    result: dict[str, Any] = {"keys": keys}
    for name, descriptor, value_of in (
        ("numbers", VALUE, lambda i: i),
        ("typed_tuples", TYPED_PAIR, lambda i: (i, 0.5)),
        ("untyped_tuples", PAIR, lambda i: (i, 0.5)),
    ):
        run = Checkpoints(kind, work_dir, keys, descriptor, value_of)
        full = run.take()
        later = []
        for _ in range(40):
            run.change_share(0.01)
            later.append(run.take())
        churn = []
        for _ in range(6):
            run.change_share(0.3)
            churn.append(run.take())
        changed = sorted(figures["pause_ms"] for figures in later)
        result[name] = {
            "full": full,
            "one_percent_median": {"pause_ms": changed[len(changed) // 2], "bytes": later[len(later) // 2]["bytes"]},
            "one_percent_worst": {key: max(figures[key] for figures in later) for key in later[0]},
            "bytes_of_full": round(max(f["bytes"] for f in later) / full["bytes"], 4),
            "upload_cpu_of_full": round(
                sorted(f["upload_cpu_ms"] for f in later)[len(later) // 2] / full["upload_cpu_ms"], 4
            ),
            "thirty_percent_worst": {key: max(figures[key] for figures in churn) for key in churn[0]},
            "restore_cpu_s": run.restore(kind, work_dir),
        }
        run.context.__exit__(None, None, None)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="access, key_groups, timers, hashmap, rocksdb; separated by commas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-benchmark-") as directory:
        work_dir = Path(directory)
        measures: dict[str, Callable[[], Any]] = {
            "access": lambda: {kind: access(kind, work_dir) for kind in ("hashmap", "rocksdb")},
            "key_groups": key_groups,
            "timers": lambda: timers(work_dir),
            "hashmap": lambda: checkpoints("hashmap", work_dir, options.keys),
            "rocksdb": lambda: checkpoints("rocksdb", work_dir, options.keys // 5),
        }
        chosen = [name for name in measures if not options.only or name in options.only.split(",")]
        print(json.dumps({name: measures[name]() for name in chosen}))


if __name__ == "__main__":
    main()
