"""The uploads of one task for one checkpoint. They run in parallel, and their results are reported together.

Small files of all operators of the task go into one object (`MergedFileWriter`). A handle may name the object before
the object is stored. So an operator's result is reported only after all operators have written their files and the
object is stored. A checkpoint needs the results of all operators in any case. If the object cannot be stored, every
operator with state declines the checkpoint.
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
from penstock.connectors.core.sink import StagedCommittable
from penstock.functions.operator_context import OperatorContext
from penstock.state.backend import SnapshotUpload
from penstock.state.files import StateFileWriter as StateFiles
from penstock.taskmanager.local_state.files import LocalStateFiles
from penstock.taskmanager.protocol import SnapshotAck


class SnapshotUploads:
    """The uploads of a task. Call `submit` for each operator, then `seal`, from the task's thread. The executor does the work.

    Args:
        files: writes the task's files, or None if there is no storage.
        largest: maximum bytes of an object with several files; 0 means that files are not combined.
    """

    def __init__(self, executor: Executor, files: StateFileWriter | None, largest: int) -> None:
        self._executor = executor
        self._merged = MergedFileWriter(files, largest) if files is not None and largest else None
        self.files: StateFiles | None = self._merged or files
        """The writer of the operators' state."""
        self._lock = threading.Lock()
        self._running = 1
        """Number of running uploads, plus one until `seal`."""
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
        """Mark the end of the submissions."""
        if self._finish_one() and self._ended:
            self._executor.submit(self._finish)

    def _run(self, work: Callable[[], SnapshotAck], future: Future[SnapshotAck]) -> None:
        outcome: SnapshotAck | BaseException
        try:
            outcome = work()
        except BaseException as error:  # raised where the result is read
            outcome = error
        with self._lock:
            self._ended.append((future, outcome))
        if self._finish_one():
            self._finish()

    def _finish_one(self) -> bool:
        """Decrease the count, and return whether it reached 0."""
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
    """The frozen part of one operator in a checkpoint: its keyed state and its sink's staged content. `run` completes `ack`."""

    ack: SnapshotAck
    context: OperatorContext
    state: SnapshotUpload | None
    staged: list[StagedCommittable]
    local: LocalStateFiles | None
    """Keeps a copy of the state on this machine."""

    def run(self, files: StateFileWriter | None, state_files: StateFiles | None) -> SnapshotAck:
        """Write each staged content as one file to `files`.

        Write the state to `state_files`, which combines small files.
        """
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
        """Write the content to a file.

        If this fails, keep the content in the committable, because it then belongs to the next checkpoint.
        """
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
