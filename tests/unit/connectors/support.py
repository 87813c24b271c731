"""Helpers of the connector tests: reading a source to its end, and writers without a task."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.common.serialization import Encoder
from penstock.connectors.core.sink import SinkWriter, WriterContext
from penstock.connectors.core.source import ReadBounds, ReaderContext, Source, Split, SplitReader
from penstock.connectors.core.two_phase import TwoPhaseCommitSinkFunction
from penstock.connectors.file.source.file_source import FileSource

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.connectors.formats.record_format import RecordFormat
    from penstock.taskmanager.worker import ManualClock

TEXT = Encoder.simple_string_encoder()
START = 1_700_000_000_000
"""Start time of the clocks in ms."""
BOUNDS = ReadBounds(max_records=100, max_bytes=1 << 20)


def splits_of(source: Source) -> list[Split]:
    return source.create_enumerator().discover()


def open_split(source: Source, split: Split, position: Any = None) -> SplitReader:
    """Return a reader as in another process: the split and the position are converted to JSON and back."""
    travelled = Split(split.id, json.loads(json.dumps(split.properties)), split.size)
    reader = source.create_reader(ReaderContext(0, 1, "source"))
    return reader.open_split(travelled, json.loads(json.dumps(position)))


def read_all(reader: SplitReader, bounds: ReadBounds = BOUNDS) -> list[Any]:
    values: list[Any] = []
    while not reader.finished:
        batch = reader.read(bounds)
        if batch is not None:
            values += batch.rows().values
    reader.close()
    return values


def read_source(source: Source, bounds: ReadBounds = BOUNDS) -> list[Any]:
    return [value for split in splits_of(source) for value in read_all(open_split(source, split), bounds)]


def read_with_restarts(source: Source, split: Split, bounds: ReadBounds) -> tuple[list[Any], list[Any]]:
    """Return the records and rejected records if a new reader reads each batch, from the previous reader's position."""
    values: list[Any] = []
    rejected: list[Any] = []
    position: Any = None
    while True:
        reader = open_split(source, split, position)
        batch = reader.read(bounds)
        values += [] if batch is None else batch.rows().values
        rejected += reader.take_rejected()
        position = reader.position
        finished = reader.finished
        reader.close()
        if finished:
            return values, rejected


def writer_context(subtask: int = 0, parallelism: int = 1, attempt: int = 0, **options: Any) -> WriterContext:
    return WriterContext(subtask, parallelism, attempt, "sink", "job", **options)


def visible(directory: Path) -> list[Path]:
    """Return the files that a reader of the directory would see."""
    return sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.startswith("."))


def hidden(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob(".*") if p.is_file())


def snapshot(writer: SinkWriter, checkpoint_id: int) -> tuple[list[Any], list[Any]]:
    """Return committables and state at a barrier. The committables are converted to JSON and back."""
    committables = json.loads(json.dumps(writer.prepare_commit(checkpoint_id)))
    return committables, writer.snapshot_state(checkpoint_id)


class FileTransactions(TwoPhaseCommitSinkFunction):
    """A two-phase sink. A transaction is a file in a temporary directory, and the commit moves it to the target."""

    counter = 0

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def begin_transaction(self) -> Any:
        FileTransactions.counter += 1
        name = f"txn-{FileTransactions.counter}"
        (self.directory / "tmp").mkdir(exist_ok=True, parents=True)
        (self.directory / "tmp" / name).touch()
        return name

    def invoke(self, transaction: Any, value: Any, context: Any) -> None:
        with (self.directory / "tmp" / transaction).open("a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction: Any) -> None:
        with (self.directory / "tmp" / transaction).open("rb") as file:
            os.fsync(file.fileno())

    def commit(self, transaction: Any) -> None:
        (self.directory / "out").mkdir(exist_ok=True)
        if (self.directory / "tmp" / transaction).exists():
            (self.directory / "tmp" / transaction).rename(self.directory / "out" / transaction)

    def abort(self, transaction: Any) -> None:
        (self.directory / "tmp" / transaction).unlink(missing_ok=True)


def numbers_in(directory: Path) -> list[int]:
    """Return the numbers in text files with one number per line."""
    return sorted(int(line) for path in visible(directory) for line in path.read_text().split())


def task(clock: ManualClock) -> Any:
    """Return the part of an OperatorContext that a file writer uses."""
    return SimpleNamespace(clock=clock)


def source_of(format: RecordFormat, *paths: Path | str, **options: Any) -> FileSource:
    """Return a source of files in a format."""
    return FileSource(format, tuple(map(str, paths)), **options)
