"""The context that a source function emits to, and the lock under which it emits.

Records wait for the reader in a queue of bounded length. While the reader holds the checkpoint
lock, the function's state and the queue are consistent.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.functions.record_functions import SourceFunction

if TYPE_CHECKING:
    from types import TracebackType

_CAPACITY = 10_000

Mark = tuple[int, int]
"""A watermark among records: the number of records before it, and its event time in ms."""


@dataclass
class Taken:
    """The output of a source function: records with timestamps, the watermarks among them, and whether it is idle now."""

    values: list[Any]
    timestamps: list[int | None]
    marks: list[Mark]
    idle: bool

    def add(self, more: Taken) -> None:
        """Append output that was taken later."""
        before = len(self.values)
        self.marks += [(before + index, watermark) for index, watermark in more.marks]
        self.values += more.values
        self.timestamps += more.timestamps
        self.idle = more.idle


class CheckpointLock:
    """A lock that the function holds while it changes its state and emits. A request of the reader has priority over the function."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._free = threading.Event()
        self._free.set()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> CheckpointLock:
        thread = threading.get_ident()
        if self._owner != thread:
            self._free.wait()
        self._lock.acquire()
        self._owner = thread
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    def request(self) -> None:
        """Make the function wait before it takes the lock again."""
        self._free.clear()

    def try_acquire(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=timeout)

    def release_request(self) -> None:
        self._lock.release()
        self._free.set()


class QueueContext(SourceFunction.SourceContext):
    """The context that `run` gets. It is thread-safe.

    Args:
        instance: the index of this copy of a parallel function.
        instances: the number of copies.
    """

    def __init__(self, instance: int = 0, instances: int = 1) -> None:
        self.instance = instance
        self.instances = instances
        self.lock = CheckpointLock()
        self._changed = threading.Condition()
        self._values: deque[Any] = deque()
        self._timestamps: deque[int | None] = deque()
        self._marks: list[Mark] = []
        self._idle = False
        self._stopped = False

    def collect(self, value: Any) -> None:
        """Emit a record without a timestamp. This blocks while the queue is full."""
        self._emit(value, None)

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        """Emit a record with its event time in ms."""
        self._emit(value, timestamp)

    def emit_watermark(self, timestamp: int) -> None:
        """Declare that no record at or before `timestamp` (ms, or an object with `timestamp`) follows.

        The watermark keeps its place between the records that were emitted before it and the records that are emitted
        after it.
        """
        with self._changed:
            mark = (len(self._values), int(getattr(timestamp, "timestamp", timestamp)))
            if self._marks and self._marks[-1][0] == mark[0]:
                self._marks[-1] = mark
            else:
                self._marks.append(mark)
            self._idle = False

    def mark_as_temporarily_idle(self) -> None:
        """Mark the source as idle: event time advances without this source until its next record."""
        with self._changed:
            self._idle = True

    def get_checkpoint_lock(self) -> CheckpointLock:
        return self.lock

    def close(self) -> None:
        """Close the context when the reader is closed. After this call `collect` no longer blocks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take(self, timeout: float = 0.0) -> Taken:
        """Return all records that wait, and empty the queue. Wait up to `timeout` seconds for the first record."""
        with self._changed:
            if timeout and not self._values and not self._stopped:
                self._changed.wait(timeout)
            taken = Taken(list(self._values), list(self._timestamps), self._marks, self._idle)
            self._values.clear()
            self._timestamps.clear()
            self._marks = []
            self._changed.notify_all()
            return taken

    def _emit(self, value: Any, timestamp: int | None) -> None:
        with self._changed:
            while len(self._values) >= _CAPACITY and not self._stopped:
                self._changed.wait()
            self._values.append(value)
            self._timestamps.append(timestamp)
            self._idle = False
            if len(self._values) == 1:
                self._changed.notify_all()
