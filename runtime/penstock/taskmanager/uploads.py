"""The uploads of one task for one checkpoint: they run side by side and are answered for together.

Small files of all operators of the task go into one object (`MergedFileWriter`), and a handle may name it before it is
there. So no operator's answer is given until every one has written what it has and the object is put; a checkpoint needs
all of them in any case. If the object cannot be put, everyone who has state declines.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.files.codec import STAGED_FILE
from penstock.checkpoint.files.state_files import MergedFileWriter, StateFileWriter
from penstock.common.errors import PenstockError
from penstock.connectors.sink import StagedCommittable
from penstock.functions.operator_context import OperatorContext
from penstock.state.backend import SnapshotUpload
from penstock.state.backend import StateFileWriter as StateFiles
from penstock.taskmanager.local_state.files import LocalStateFiles
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


@dataclass
class OperatorUpload:
    """What one operator has for a checkpoint, frozen: its keyed state and what its sink has staged. `ack` is completed by `run`."""

    ack: SnapshotAck
    context: OperatorContext
    state: SnapshotUpload | None
    staged: list[StagedCommittable]
    local: LocalStateFiles | None
    """Where a copy of the state stays on this machine."""

    def run(self, files: StateFileWriter | None, state_files: StateFiles | None) -> SnapshotAck:
        """Staged content goes to `files`, one each; state goes where the small files of the task are put together."""
        started = time.perf_counter()
        ack = self.ack
        ack.committables += [self._stage(committable, files) for committable in self.staged]
        try:
            if self.state is not None and state_files is not None and not ack.error:
                with self.context.named_in_errors():
                    ack.keyed = self._write(self.state, state_files)
                ack.bytes_uploaded += int(ack.keyed.get("bytes_uploaded", 0))
                ack.state_bytes += sum(int(f["size"]) for f in ack.keyed.get("files", ()))
        except BaseException as error:  # the checkpoint fails, not the job
            self._decline(error)
        ack.async_ms = (time.perf_counter() - started) * 1e3
        return ack

    def _write(self, state: SnapshotUpload, state_files: StateFiles) -> dict[str, Any]:
        if self.local is None:
            return state.run(state_files)
        keyed = state.run(self.local.writer(state_files, self.ack.checkpoint_id))
        self.local.note(self.ack.checkpoint_id, keyed)
        return keyed

    def _stage(self, committable: StagedCommittable, files: StateFileWriter | None) -> dict[str, Any]:
        """Write the content to a file, or keep it in the committable when that fails: it belongs to the next checkpoint."""
        content = committable.content()
        if files is not None:
            try:
                ref = files.write(content)
            except Exception as error:
                self._decline(error)
            else:
                self.ack.bytes_uploaded += ref.size
                return committable.about | {STAGED_FILE: ref.to_json()}
        return committable.about | {"content": base64.b64encode(content).decode("ascii")}

    def _decline(self, error: BaseException) -> None:
        self.ack.error = f"{type(error).__name__}: {error}"
        self.ack.error_code = error.code if isinstance(error, PenstockError) else ""
