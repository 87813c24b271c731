"""A job in this process, without Spark: from a source to nothing, or from memory to a sink, with a checkpoint every half second.

The cost covers the job from the moment its tasks are open until it ends. It includes its checkpoints and their commits, but
not its start.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.connectors.cost import Cost, Watch
from benchmarks.connectors.records import Tally, Wrong, expect, rows
from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import ReaderContext, Source, SourceReader, Split, SplitEnumerator, SplitReader
from penstock.connectors.simple.sequence import RangeEnumerator, RangeReader
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.graph.executor import executing_on
from penstock.jobmanager.process.session.embedded import LocalClusterProvider
from penstock.jobmanager.process.session.session import Session
from penstock.records.batch import Batch, RowBatch

INTERVAL = "500 ms"
PATIENCE_S = 120.0
_POLL_S = 0.5


def read(source: Source, count: int, *, form: str = "readings") -> Cost:
    """Read this many records, and return the cost.

    A source without an end is cancelled when the next checkpoint is complete. Its records per second are counted up to
    the last record.

    Args:
        form: `readings`: dicts, whose times are added up; `rows`: records of any type, counted; `columns`: batches of columns, counted.

    Raises:
        Wrong: the records differ from the expected ones.
    """
    watch = Watch()
    arrived, last = _Arrived(count, form, watch), None
    with _kept(arrived) as key, _environment() as env, _session() as session:
        env.from_source(source, WatermarkStrategy.no_watermarks(), "in").sink_to(_Nowhere(key))
        with executing_on(session):
            if source.bounded:
                env.execute("read")
            else:
                client = env.execute_async("read")
                _wait(arrived.all, session, arrived)
                last = watch.stop(count)
                _wait(arrived.checkpointed, session, arrived)
                client.cancel().result()
        cost = watch.stop(count)
    arrived.check()
    return cost if last is None else replace(cost, wall_s=last.wall_s)


def _wait(event: threading.Event, session: Session, arrived: _Arrived) -> None:
    """Wait for an event of the job.

    Raises:
        Wrong: the job ended before the event, or the timeout passed.
    """
    (job,) = session.dispatcher.jobs()
    for _ in range(round(PATIENCE_S / _POLL_S)):
        if event.wait(_POLL_S):
            return
        if job.is_done:
            break
    raise Wrong(f"{arrived.tally.number} of {arrived.count} records came: {job.error or 'the timeout passed'}")


def write(sink: Sink, count: int) -> Cost:
    """Write this many readings, and return the cost. The caller checks that all of them arrived."""
    rows(count)
    watch = Watch()
    with _kept(watch) as key, _environment() as env, _session() as session:
        env.from_source(_Memory(count, key), WatermarkStrategy.no_watermarks(), "in").sink_to(sink)
        with executing_on(session):
            env.execute("write")
        return watch.stop(count)


def collect(count: int) -> Cost:
    """Collect this many readings with `execute_and_collect`, and return the cost."""
    rows(count)
    tally, watch = Tally(), Watch()
    with _kept(watch) as key, _environment() as env, _session() as session:
        stream = env.from_source(_Memory(count, key), WatermarkStrategy.no_watermarks(), "in")
        with executing_on(session):
            tally.take(list(stream.execute_and_collect("collect")))
        cost = watch.stop(count)
    tally.check(count)
    return cost


@contextmanager
def _environment() -> Iterator[StreamExecutionEnvironment]:
    with tempfile.TemporaryDirectory(prefix="penstock-connectors-") as folder:
        settings = {
            "penstock.runner": "in-process",
            "rest.port": "-1",
            "parallelism.default": "1",
            "penstock.epoch.target": INTERVAL,
            "restart-strategy.type": "none",
            "execution.checkpointing.interval": INTERVAL,
            "execution.checkpointing.dir": Path(folder, "checkpoints").as_uri(),
        }
        yield StreamExecutionEnvironment.get_execution_environment(Configuration(settings))


@contextmanager
def _session() -> Iterator[Session]:
    session = Session(LocalClusterProvider())
    session.on_line = None
    try:
        yield session
    finally:
        session.stop()


_things: dict[int, Any] = {}


@contextmanager
def _kept(thing: Any) -> Iterator[int]:
    """Yield a number for an object of this process. Tasks get copies of a program's objects, and find the original by this number."""
    key = id(thing)
    _things[key] = thing
    try:
        yield key
    finally:
        del _things[key]


class _Memory(Source):
    """A source of readings in batches from memory."""

    def __init__(self, count: int, watch: int) -> None:
        self.count, self.watch = count, watch

    def create_enumerator(self) -> SplitEnumerator:
        return RangeEnumerator(0, self.count, 1)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        values = rows(self.count)
        return _MemoryReader(lambda low, high: values[low:high], _things[self.watch])


class _MemoryReader(RangeReader):
    def __init__(self, values: Any, watch: Watch) -> None:
        super().__init__(values)
        self._watch = watch

    def open_split(self, split: Split, position: Any) -> SplitReader:
        """Restart the watch: the tasks are open, and the next step reads the first record."""
        self._watch.restart()
        return super().open_split(split, position)


class _Arrived:
    """The records that arrived at `_Nowhere`."""

    def __init__(self, count: int, form: str, watch: Watch) -> None:
        self.count, self.form, self.watch = count, form, watch
        self.tally = Tally()
        self.all = threading.Event()
        self.checkpointed = threading.Event()
        """An event: a checkpoint that covers all of the records is complete."""

    def take(self, batch: Batch) -> None:
        if self.form == "readings":
            self.tally.take(batch.rows().values)
        else:
            self.tally.number += len(batch if self.form == "columns" else batch.rows())
        if self.tally.number >= self.count:
            self.all.set()

    def check(self) -> None:
        if self.form == "readings":
            self.tally.check(self.count)
        expect(self.tally.number, self.count, "records read")


class _Nowhere(Sink):
    """A sink that counts the records."""

    def __init__(self, arrived: int) -> None:
        self._arrived = arrived

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return _Counting(_things[self._arrived])


class _Counting(SinkWriter):
    def __init__(self, arrived: _Arrived) -> None:
        self._arrived = arrived
        self._with_all: int | None = None
        arrived.watch.restart()

    def write_batch(self, batch: Batch, watermark: int) -> None:
        self._arrived.take(batch)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        self._arrived.take(RowBatch(values))

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        if self._with_all is None and self._arrived.all.is_set():
            self._with_all = checkpoint_id
        return []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if self._with_all is not None and checkpoint_id >= self._with_all:
            self._arrived.checkpointed.set()
