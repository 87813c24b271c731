"""What the tests of connectors share: reading a source to its end, writers without a task."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.common.serialization import Encoder
from penstock.connectors.sink import SinkWriter, WriterContext
from penstock.connectors.source import ReadBounds, ReaderContext, Source, Split, SplitReader
from penstock.connectors.two_phase import TwoPhaseCommitSinkFunction

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.taskmanager.worker import ManualClock

TEXT = Encoder.simple_string_encoder()
START = 1_700_000_000_000
"""What the clocks show at first (ms)."""
BOUNDS = ReadBounds(max_records=100, max_bytes=1 << 20)


def splits_of(source: Source) -> list[Split]:
    return source.create_enumerator().discover()


def open_split(source: Source, split: Split, position: Any = None) -> SplitReader:
    """A reader in a process of its own: the split and the position have travelled as JSON."""
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
    """Records and rejected records when every batch is read by a new reader, opened at the position of the one before."""
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
    """Files a reader of the directory would see."""
    return sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.startswith("."))


def hidden(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob(".*") if p.is_file())


def snapshot(writer: SinkWriter, checkpoint_id: int) -> tuple[list[Any], list[Any]]:
    """Committables and state of a barrier; committables have travelled as JSON."""
    committables = json.loads(json.dumps(writer.prepare_commit(checkpoint_id)))
    return committables, writer.snapshot_state(checkpoint_id)


class FileTransactions(TwoPhaseCommitSinkFunction):
    """E51: a transaction is a file in a temporary directory that commit moves to the target."""

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
    """What a reader of text files with a number a line would see."""
    return sorted(int(line) for path in visible(directory) for line in path.read_text().split())


def task(clock: ManualClock) -> Any:
    """The part of an OperatorContext that a file writer uses."""
    return SimpleNamespace(clock=clock)
