"""Examples of sources and sinks under failures, as whole jobs: their output, and how often it occurs."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from penstock.common.job_status import JobStatus
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.two_phase import TwoPhaseCommitSink
from penstock.connectors.core.write_ahead import FileCheckpointCommitter, GenericWriteAheadSink
from penstock.datastream.functions import (
    MapFunction,
    ProcessAllWindowFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
)
from penstock.datastream.streams.data_stream import DataStream
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import CRASH, JobHarness
from tests.unit.connectors.support import FileTransactions, visible

SECOND = 1000
RUN = 60
"""Length of the readings in seconds."""


# --- sources ------------------------------------------------------------------------------------------------------


class CountSource(SourceFunction):
    """A source of 0, 1, 2, …, up to the limit of the test."""

    until = 0

    def __init__(self) -> None:
        self.count = -1
        self.is_running = True

    def run(self, ctx: Any) -> None:
        while self.is_running:
            if self.count + 1 == CountSource.until:
                time.sleep(0.001)
                continue
            with ctx.get_checkpoint_lock():
                self.count += 1
                ctx.collect(self.count)

    def cancel(self) -> None:
        self.is_running = False


class ResettableCountSource(CountSource):
    def snapshot_state(self) -> int:
        return self.count

    def initialize_state(self, state: int | None) -> None:
        if state is not None:
            self.count = state


def counted(function: CountSource) -> list[int]:
    """Return the output up to 1,500, with a snapshot after 500 numbers and a crash after 1,000."""
    with JobHarness() as harness:
        numbers = harness.environment().add_source(function)
        harness.collect(numbers, "numbers")

        def count_until(number: int) -> None:
            CountSource.until = number
            deadline = time.monotonic() + 60
            while harness.outputs("numbers")[-1:] != [number - 1]:
                assert time.monotonic() < deadline
                harness.advance_processing_time(by=1)

        count_until(500)
        harness.snapshot()
        count_until(1000)
        harness.crash()
        count_until(1500)
        return harness.outputs("numbers")


def test_a_resettable_source_loses_and_repeats_nothing() -> None:
    assert counted(ResettableCountSource()) == list(range(1500))


def test_a_source_that_is_not_resettable_starts_from_the_beginning() -> None:
    """The output has the numbers before the snapshot, then all numbers from 0."""
    assert counted(CountSource()) == [*range(500), *range(1500)]


# --- sinks --------------------------------------------------------------------------------------------------------


class Upsert(SinkFunction):
    """A sink to a table with one row per sensor: it updates the row, or inserts it if it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        self.connection = sqlite3.connect(self.path, isolation_level=None)

    def invoke(self, value: tuple[str, float], context: Any) -> None:
        sensor, celsius = value
        found = self.connection.execute("UPDATE Temperatures SET temp = ? WHERE sensor = ?", (celsius, sensor))
        if not found.rowcount:
            self.connection.execute("INSERT INTO Temperatures VALUES (?, ?)", (sensor, celsius))

    def close(self) -> None:
        self.connection.close()


def test_upserts_leave_one_row_per_sensor(tmp_path: Path) -> None:
    """This also holds after a failure behind records that are already written."""
    with closing(sqlite3.connect(tmp_path / "temperatures.db")) as table:
        table.execute("CREATE TABLE Temperatures (sensor TEXT PRIMARY KEY, temp REAL)")
        with JobHarness() as harness:
            readings = harness.source("readings").map(lambda r: (r[0], (r[1] - 32) * 5 / 9))
            readings.add_sink(Upsert(tmp_path / "temperatures.db"))
            harness.push("readings", ("sensor_1", 32.0), ("sensor_2", 50.0))
            harness.snapshot()
            harness.push("readings", ("sensor_1", 68.0), ("sensor_3", 212.0))
            harness.run()
            harness.push("readings", CRASH, ("sensor_2", 41.0))
            harness.run()
            assert harness.restarts == 1
        rows = table.execute("SELECT * FROM Temperatures ORDER BY sensor").fetchall()
        assert rows == [("sensor_1", 20.0), ("sensor_2", 5.0), ("sensor_3", 100.0)]


class FailingMapper(MapFunction):
    """A function that forwards 16 records, then fails."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = 16

    def map(self, value: Any) -> Any:
        if not self.left:
            raise RuntimeError("16 records are enough")
        self.left -= 1
        return value


class Mean(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Iterator[tuple[str, float]]:
        temperatures = [temperature for _, _, temperature in elements]
        yield iso_time(context.window().end), sum(temperatures) / len(temperatures)


def iso_time(millis: int) -> str:
    return datetime.fromtimestamp(millis / SECOND, UTC).isoformat()


WINDOWS = [(iso_time((second + 1) * SECOND), second + 0.5) for second in range(RUN)]
"""The expected output: the mean temperature in second n is n + 0.5."""


class Played(NamedTuple):
    failures: int
    lines: list[str]


def play(attach: Callable[[DataStream], Any]) -> Played:
    """Run one minute of readings with the failing mapper, and emit the mean of each second over all sensors.

    A checkpoint is taken every 10 s.
    """
    settings = {
        "execution.checkpointing.interval": "10 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "0 s",
    }
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5 * SECOND).with_timestamp_assigner(lambda r, _: r[1])
    with JobHarness(configuration=settings) as harness:
        readings = harness.source("readings", strategy)
        means = readings.window_all(TumblingEventTimeWindows.of(SECOND)).process(Mean()).map(FailingMapper())
        attach(means)
        for now in range(0, RUN * SECOND, 100):
            second = now // SECOND
            harness.push("readings", ("sensor_1", now, second), ("sensor_2", now, second + 1.0))
            harness.advance_processing_time(by=100)
        harness.close("readings")
        harness.run()
        assert harness.status is JobStatus.FINISHED
        return Played(harness.restarts, harness.lines)


def test_plain_print_repeats_windows_after_each_failure() -> None:
    """This output needs an exactly-once sink, because a plain print repeats windows."""
    played = play(lambda means: means.print())
    times = Counter(played.lines)
    assert played.failures >= 3
    assert set(times) == set(map(str, WINDOWS))
    assert max(times.values()) > 1


class Burst(NamedTuple):
    time: int
    """Time of the checkpoint (ms)."""
    checkpoint_id: int
    windows: list[Any]


SENT: list[Burst] = []


class Bursts(GenericWriteAheadSink):
    def send_values(self, values: Sequence[Any], checkpoint_id: int, timestamp: int) -> bool:
        SENT.append(Burst(timestamp, checkpoint_id, list(values)))
        return True


def test_a_write_ahead_sink_writes_each_window_once_in_bursts(tmp_path: Path) -> None:
    """A burst arrives 10 s after the previous one, or after the failure between them, and at the end."""
    SENT.clear()
    sink = Bursts(FileCheckpointCommitter(str(tmp_path)), sink_id="job")
    assert play(lambda means: means.sink_to(sink)).failures == 4
    assert [window for burst in SENT for window in burst.windows] == WINDOWS
    assert [burst.time // SECOND for burst in SENT] == [10, 20, 32, 46, 58, 60]
    [notes] = tmp_path.iterdir()
    assert notes.name.startswith("job-")
    assert (notes / "0").read_text() == f"0x{SENT[-1].checkpoint_id:016x}"


def test_a_transactional_sink_writes_each_window_once(tmp_path: Path) -> None:
    assert play(lambda means: means.sink_to(TwoPhaseCommitSink(FileTransactions(tmp_path)))).failures >= 3
    lines = [line for file in visible(tmp_path / "out") for line in file.read_text().splitlines()]
    assert sorted(lines) == sorted(map(str, WINDOWS))
