"""The workloads as Penstock programs.

    python penstock_readings.py w2 --data DIR --out DIR [--style functions] [--slots 2]

`columns` uses declarative functions if they exist: Arrow batches, field aggregates. `functions` calls Python for
every record. W4 has no declarative form. Results: `DIR/results` (W3, W4), and a summary on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.formats.encode import CsvEncoder
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.data_stream import DataStream
from penstock.datastream.formats.json import JsonLinesFormat
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import FieldAggregate, TumblingEventTimeWindows

WINDOW = timedelta(seconds=5)
RISE_MS = 1000


class Reading(NamedTuple):
    sensor_id: str
    ts: int
    temp: float


class NotedJsonLines(JsonLinesFormat):
    """A format of JSON lines whose readers record their start, which is the job's first work.

    Args:
        folder: folder for the record.
    """

    def __init__(self, folder: str, record: str | None) -> None:
        self.folder = ""
        super().__init__(Reading, record=record)
        self.folder = folder

    def decoder(self, header: bytes) -> Any:
        if self.folder:
            Path(self.folder, f"begin-{os.getpid()}-{time.time_ns()}").touch()
        return super().decoder(header)


class SummarySink(Sink):
    """A sink that counts records and adds up one field. Every subtask writes its summary to a file.

    Args:
        folder: folder for the summaries.
        column: the field's name if records are columns.
        position: its place if records are tuples.
    """

    def __init__(self, folder: str, column: str, position: int) -> None:
        self.folder = folder
        self.column = column
        self.position = position

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SummaryWriter(self, context)


class SummaryWriter(SinkWriter):
    def __init__(self, sink: SummarySink, context: WriterContext) -> None:
        self._path = Path(sink.folder, f"summary-{context.subtask}.json")
        self._column, self._position = sink.column, sink.position
        self._count = 0
        self._sum: float = 0

    def write_batch(self, batch: Any, watermark: int) -> None:
        if hasattr(batch, "columns"):
            self._count += len(batch)
            self._sum += pc.sum(batch.column(self._column)).as_py()
        else:
            self.write(batch.values, batch.timestamps, watermark)

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        position = self._position
        self._count += len(values)
        self._sum += sum([value[position] for value in values])

    def prepare_commit(self, checkpoint_id: int) -> list[Any]:
        self._path.write_text(json.dumps({"count": self._count, "sum": self._sum}))
        return []


@dataclass(frozen=True)
class Input:
    """The source of the readings: the files of `data`. `out` gets a record of the first open file."""

    env: StreamExecutionEnvironment
    data: str
    out: str

    def readings(self, strategy: WatermarkStrategy, record: str | None) -> DataStream:
        lines = NotedJsonLines(self.out, record)
        source = FileSource.for_record_stream_format(lines, f"{self.data}/big").build()
        return self.env.from_source(source, strategy, "readings")


def no_time() -> WatermarkStrategy:
    return WatermarkStrategy.no_watermarks()


def event_time(out_of_order: timedelta) -> WatermarkStrategy:
    return WatermarkStrategy.for_bounded_out_of_orderness(out_of_order).with_timestamp_assigner("ts")


# --- W1: parse, map, filter ---------------------------------------------------------------------------------------


def celsius_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    celsius = pc.divide(pc.multiply(pc.subtract(batch.column("temp"), 32), 5), 9)
    return batch.set_column(2, "temp", celsius)


def w1_columns(source: Input) -> DataStream:
    return source.readings(no_time(), "tuple").map_batches(celsius_columns).filter(pc.field("temp") > 20.0)


def w1_functions(source: Input) -> DataStream:
    return (
        source.readings(no_time(), "tuple")
        .map(lambda reading: (reading[0], reading[1], (reading[2] - 32) * 5 / 9))
        .filter(lambda reading: reading[2] > 20.0)
    )


# --- W2: running count and maximum by key -------------------------------------------------------------------------


def w2_columns(source: Input) -> DataStream:
    both = FieldAggregate.of(FieldAggregate.count(), FieldAggregate.max("temp"))
    return source.readings(no_time(), None).key_by("sensor_id").aggregate(both)


def combine(total: tuple[str, int, float], reading: tuple[str, int, float]) -> tuple[str, int, float]:
    highest, temp = total[2], reading[2]
    return total[0], total[1] + 1, highest if highest >= temp else temp


def w2_functions(source: Input) -> DataStream:
    return (
        source.readings(no_time(), "tuple")
        .map(lambda reading: (reading[0], 1, reading[2]), output_type=tuple[str, int, float])
        .key_by(0)
        .reduce(combine)
    )


class Running(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("running", tuple[int, float]))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        state, temp = self.state.value(), value[2]
        if state is None:
            state = (1, temp)
        else:
            state = (state[0] + 1, state[1] if state[1] >= temp else temp)
        self.state.update(state)
        yield value[0], *state


def w2_process(source: Input) -> DataStream:
    return source.readings(no_time(), "tuple").key_by(0).process(Running())


# --- W3: mean of five seconds of event time by key ----------------------------------------------------------------


class WithStart(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        for mean, count in elements:
            yield key, context.window().start, mean, count


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: Any, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value[2], accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] / accumulator[1], accumulator[1]

    def merge(self, acc_a: tuple[float, int], acc_b: tuple[float, int]) -> tuple[float, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def w3_columns(source: Input) -> DataStream:
    both = FieldAggregate.of(FieldAggregate.mean("temp"), FieldAggregate.count())
    stream = source.readings(event_time(timedelta(seconds=10)), None).key_by("sensor_id")
    return stream.window(TumblingEventTimeWindows.of(WINDOW)).aggregate(both, WithStart())


def w3_functions(source: Input) -> DataStream:
    stream = source.readings(event_time(timedelta(seconds=10)), "tuple").key_by(0)
    return stream.window(TumblingEventTimeWindows.of(WINDOW)).aggregate(Mean(), WithStart())


# --- W4: an alert when the temperature rose for a second -----------------------------------------------------------


class Rising(KeyedProcessFunction):
    """The state is the last temperature, and the moment at which the rise will have lasted a second."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", float))
        self.due = runtime_context.get_state(ValueStateDescriptor("due", int))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        alert = None
        sensor, ts, temp = value
        last, due = self.last.value(), self.due.value()
        self.last.update(temp)
        if due is not None and ts >= due:
            ctx.timer_service().delete_event_time_timer(due)
            self.due.clear()
            alert = ((sensor, due),)
            due = None
        if last is None or temp < last:
            if due is not None:
                ctx.timer_service().delete_event_time_timer(due)
                self.due.clear()
        elif due is None:
            due = ts + RISE_MS
            ctx.timer_service().register_event_time_timer(due)
            self.due.update(due)
        return alert

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        self.due.clear()
        yield ctx.get_current_key(), timestamp


def w4_functions(source: Input) -> DataStream:
    return source.readings(event_time(timedelta(0)), "tuple").key_by(0).process(Rising())


PROGRAMS = {
    ("w1", "columns"): w1_columns,
    ("w1", "functions"): w1_functions,
    ("w2", "columns"): w2_columns,
    ("w2", "functions"): w2_functions,
    ("w2", "process"): w2_process,
    ("w3", "columns"): w3_columns,
    ("w3", "functions"): w3_functions,
    ("w4", "functions"): w4_functions,
}
SUMMARIES = {"w1": ("temp", 2), "w2": ("count", 1)}


def build(env: StreamExecutionEnvironment, workload: str, style: str, data: str, out: str) -> None:
    """Build the job of a workload."""
    results = PROGRAMS[workload, style](Input(env, data, out))
    if workload in SUMMARIES:
        results.sink_to(SummarySink(out, *SUMMARIES[workload]))
        return
    results.sink_to(FileSink.for_row_format(f"{out}/results", CsvEncoder()).build())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload")
    arguments.add_argument("--data", required=True)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--style", default="columns")
    arguments.add_argument("--slots", type=int, default=2)
    arguments.add_argument("--setting", action="append", default=[], help="key=value")
    options = arguments.parse_args()
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", Path(options.out, "checkpoints").resolve().as_uri())
    configuration.set_string("restart-strategy.type", "none")
    # Throughput matters here, not latency: epochs as long as the checkpoint interval.
    configuration.set_string("penstock.epoch.target", "1s")
    for setting in options.setting:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(options.slots)
    env.enable_checkpointing(1000)
    build(env, options.workload, options.style, options.data, str(Path(options.out).resolve()))
    env.execute(options.workload)
    end = time.time()
    summaries = [json.loads(path.read_text()) for path in Path(options.out).glob("summary-*.json")]
    begin = min(int(path.name.rpartition("-")[2]) for path in Path(options.out).glob("begin-*")) / 1e9
    result = {"begin": begin, "end": end}
    if options.workload in SUMMARIES:
        result |= {name: sum(summary[name] for summary in summaries) for name in ("count", "sum")}
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
