"""The uploads of one task for one checkpoint: they run side by side and are answered for together.

Small files of all operators of the task go into one object (`MergedFileWriter`), and a handle may name it before it is
there. So no operator's answer is given until every one has written what it has and the object is put; a checkpoint needs
all of them in any case. If the object cannot be put, everyone who has state declines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future

from penstock.checkpoint.files.state_files import MergedFileWriter, StateFileWriter
from penstock.common.errors import PenstockError
from penstock.state.backend import StateFileWriter as StateFiles
from penstock.taskmanager.protocol import SnapshotAck


class SnapshotUploads:
    """`submit` for each operator, then `seal`. Driven by the task's thread; the work is the executor's.

    Args:
        files: where the task's files go; None: nowhere.
        largest: bytes of an object with several files; 0: nothing is put together.
    """

    def __init__(self, executor: Executor, files: StateFileWriter | None, largest: int) -> None:
        self._executor = executor
        self._merged = MergedFileWriter(files, largest) if files is not None and largest else None
        self.files: StateFiles | None = self._merged or files
        """What the work writes state with."""
        self._lock = threading.Lock()
        self._running = 1
        """Of the work, and one more until it is sealed."""
        self._ended: list[tuple[Future[SnapshotAck], SnapshotAck | BaseException]] = []

    def submit(self, work: Callable[[], SnapshotAck]) -> Future[SnapshotAck]:
        if self._merged is None:
            return self._executor.submit(work)
        future: Future[SnapshotAck] = Future()
        with self._lock:
            self._running += 1
        self._executor.submit(self._run, work, future)
        return future

    def seal(self) -> None:
        """Nothing more is submitted."""
        if self._leave() and self._ended:
            self._executor.submit(self._finish)

    def _run(self, work: Callable[[], SnapshotAck], future: Future[SnapshotAck]) -> None:
        outcome: SnapshotAck | BaseException
        try:
            outcome = work()
        except BaseException as error:  # belongs to whoever asks for the result
            outcome = error
        with self._lock:
            self._ended.append((future, outcome))
        if self._leave():
            self._finish()

    def _leave(self) -> bool:
        """Whether this was the last."""
        with self._lock:
            self._running -= 1
            return self._running == 0

    def _finish(self) -> None:
        failure: Exception | None = None
        try:
            if self._merged is not None:
                self._merged.finish()
        except Exception as error:  # the checkpoint fails, not the job
            failure = error
        for future, outcome in self._ended:
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
                continue
            if failure is not None and outcome.keyed is not None:
                _decline(outcome, failure)
            future.set_result(outcome)


def _decline(ack: SnapshotAck, error: Exception) -> None:
    ack.keyed = None
    ack.error = f"{type(error).__name__}: {error}"
    ack.error_code = error.code if isinstance(error, PenstockError) else ""
