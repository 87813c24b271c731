"""The workloads in PyFlink's DataStream API with Python functions, in thread mode."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import orjson
from flink_settings import flink_configuration
from flink_times import log_into, run_times

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("workload")
arguments.add_argument("--data", required=True)
arguments.add_argument("--out", required=True)
options = arguments.parse_args()
OUT = Path(options.out).resolve()
log_into(OUT / "log")
(OUT / "results").mkdir()

from pyflink.common import Duration, Time, Types, WatermarkStrategy  # noqa: E402
from pyflink.common.watermark_strategy import TimestampAssigner  # noqa: E402
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment  # noqa: E402
from pyflink.datastream.connectors.base import Sink  # noqa: E402
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat  # noqa: E402
from pyflink.datastream.functions import AggregateFunction, MapFunction, ProcessWindowFunction  # noqa: E402
from pyflink.datastream.state import ValueStateDescriptor  # noqa: E402
from pyflink.datastream.window import TumblingEventTimeWindows  # noqa: E402
from pyflink.java_gateway import get_gateway  # noqa: E402

READING = Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])


def parse(line):
    reading = orjson.loads(line)
    return reading["sensor_id"], reading["ts"], reading["temp"]


def write_summary(**summary) -> None:
    Path(OUT, f"summary-{os.getpid()}-{time.time_ns()}.json").write_text(json.dumps(summary))


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Summary(MapFunction):
    def open(self, runtime_context):
        self.count, self.sum = 0, 0.0

    def map(self, value):
        self.count += 1
        self.sum += value[2]
        return value

    def close(self):
        write_summary(count=self.count, sum=self.sum)


class Running(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("running", Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
        self.state = runtime_context.get_state(descriptor)
        self.count, self.sum = 0, 0

    def process_element(self, value, ctx):
        state, temp = self.state.value(), value[2]
        count, highest = (1, temp) if state is None else (state[0] + 1, state[1] if state[1] >= temp else temp)
        self.state.update((count, highest))
        self.count += 1
        self.sum += count
        yield value[0], count, highest

    def close(self):
        write_summary(count=self.count, sum=self.sum)


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0.0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[2], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithStart(ProcessWindowFunction):
    def process(self, key, context, elements):
        for total, count in elements:
            yield key, context.window().start, total / count, count


class Lines(MapFunction):
    def open(self, runtime_context):
        self.file = open(f"{OUT}/results/{os.getpid()}-{time.time_ns()}.csv", "w", buffering=1 << 16)

    def map(self, value):
        self.file.write(",".join(map(str, value)) + "\n")
        return 0

    def close(self):
        self.file.close()


class Rising(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.DOUBLE()))
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value, ctx):
        sensor, ts, temp = value
        last, due = self.last.value(), self.due.value()
        self.last.update(temp)
        if due is not None and ts >= due:
            ctx.timer_service().delete_event_time_timer(due)
            self.due.clear()
            yield sensor, due
            due = None
        if last is None or temp < last:
            if due is not None:
                ctx.timer_service().delete_event_time_timer(due)
                self.due.clear()
        elif due is None:
            ctx.timer_service().register_event_time_timer(ts + 1000)
            self.due.update(ts + 1000)

    def on_timer(self, timestamp, ctx):
        self.due.clear()
        yield ctx.get_current_key(), timestamp


def discard(stream) -> None:
    stream.sink_to(Sink(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))


configuration = flink_configuration(OUT)
configuration.set_string("python.execution-mode", "thread")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_python_executable(sys.executable)
files = [f"file://{path.resolve()}" for path in sorted(Path(options.data, "big").glob("*.jsonl"))]
source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *files).build()
stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "readings").map(parse, output_type=READING)
if options.workload in ("w3", "w4"):
    lag = Duration.of_millis(10_000 if options.workload == "w3" else 0)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(lag).with_timestamp_assigner(EventTime())
    stream = stream.assign_timestamps_and_watermarks(strategy)
if options.workload == "w1":
    stream = stream.map(lambda r: (r[0], r[1], (r[2] - 32) * 5 / 9), output_type=READING)
    discard(stream.filter(lambda r: r[2] > 20.0).map(Summary(), output_type=READING))
else:
    keyed = stream.key_by(lambda r: r[0], key_type=Types.STRING())
    if options.workload == "w2":
        discard(keyed.process(Running(), output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])))
    elif options.workload == "w3":
        means = keyed.window(TumblingEventTimeWindows.of(Time.seconds(5))).aggregate(
            Mean(),
            window_function=WithStart(),
            accumulator_type=Types.TUPLE([Types.DOUBLE(), Types.LONG()]),
            output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE(), Types.LONG()]),
        )
        discard(means.map(Lines(), output_type=Types.INT()))
    else:
        alerts = keyed.process(Rising(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        discard(alerts.map(Lines(), output_type=Types.INT()))
env.execute(options.workload)
ended = time.time()
result = run_times(OUT / "log")
result["end"] = result["end"] or ended
summaries = [json.loads(path.read_text()) for path in OUT.glob("summary-*.json")]
if summaries:
    result |= {name: sum(summary[name] for summary in summaries) for name in ("count", "sum")}
print("RESULT " + json.dumps(result), flush=True)
