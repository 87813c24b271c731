"""A job that only reads files. Tests run its coordinator, source operators and checkpoints step by step."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.checkpoint.files.manifest import SourceState
from penstock.connectors.file.source.enumerator import FileEnumerator
from penstock.connectors.file.source.file_source import FileSource
from penstock.functions.operator_context import OperatorContext
from penstock.jobmanager.coordinators.source_coordinator import SourceCoordinator
from penstock.taskmanager.operators.connectors.source import SourceOperator
from penstock.testing.operator_run import CollectingOutput

if TYPE_CHECKING:
    from penstock.connectors.core.source import Source
    from penstock.taskmanager.worker import ManualClock

FAR = 1 << 62


class TimedFileSource(FileSource):
    """A source whose enumerator uses the clock of the test to forget files."""

    clock: ManualClock

    def create_enumerator(self) -> FileEnumerator:
        return FileEnumerator(
            self.paths, {}, self.discovery_interval_ms, self.split_size, now_ms=lambda: self.clock.now_ms()
        )


def operator_of(source: Source, clock: Any, strategy: Any = None) -> tuple[SourceOperator, CollectingOutput]:
    """Return a source operator and the list that receives its records."""
    operator, output = SourceOperator(source, strategy), CollectingOutput()
    context = OperatorContext("files", "files", 0, 1, 1, 0, clock, operator_state=cast("Any", SimpleNamespace()))
    operator.setup(context, output)
    return operator, output


class FileJob:
    """A job with several attempts. `records` has the records of the last checkpoint and those read since."""

    def __init__(self, source: Source, clock: ManualClock, parallelism: int = 1) -> None:
        self.clock = clock
        self.parallelism = parallelism
        self.coordinator = SourceCoordinator("files", source)
        self.records: list[Any] = []
        self.checkpoint: tuple[bytes | None, list[Any]] = (None, [])
        self._tasks: list[tuple[SourceOperator, CollectingOutput]] = []
        self.restart()

    def restart(self) -> None:
        """Restart from the last checkpoint."""
        manifest, self.records = self.checkpoint[0], list(self.checkpoint[1])
        restored = None if manifest is None else msgspec.json.decode(manifest, type=SourceState)
        self.coordinator.start_attempt(self.parallelism, restored)
        self._tasks = [operator_of(self.coordinator.source, self.clock) for _ in range(self.parallelism)]

    def epoch(self, max_records: int = 0) -> None:
        """List the files if the interval is over, and read."""
        self.coordinator.discover(self.clock.now_ms())
        assignments = self.coordinator.take_assignments()
        for subtask, (operator, output) in enumerate(self._tasks):
            operator.assign(assignments.get(subtask, []), ends=self.coordinator.ends_without_splits)
            operator.begin_epoch(max_records)
            for _ in operator.read(FAR):
                pass
            self.records += [value for value, _ in output.records]
            output.records.clear()
            self.coordinator.on_progress(subtask, operator.progress())

    def take_checkpoint(self) -> bytes:
        """Take a checkpoint and return the source's part of the manifest."""
        manifest = msgspec.json.encode(self.coordinator.snapshot())
        assert json.loads(manifest)
        self.checkpoint = (manifest, list(self.records))
        return manifest
