"""The workloads as a bytewax dataflow: `flow`. The environment has the settings: WORKLOAD, DATA, OUT.

bytewax has no event-time timers. In W4 it emits an alert with the reading after the time, which gives the same alerts.
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as windowing
import orjson
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition

WORKLOAD, DATA, OUT = os.environ["WORKLOAD"], os.environ["DATA"], os.environ["OUT"]
ALIGN = datetime(2023, 1, 1, tzinfo=UTC)
ALIGN_MS = int(ALIGN.timestamp() * 1000)


class Results(StatelessSinkPartition):
    """Summary of W1 and W2, lines of W3 and W4."""

    def __init__(self, worker: int) -> None:
        self.name = f"{os.getpid()}-{worker}"
        self.count, self.sum, self.begin = 0, 0, time.time()
        self.file = open(f"{OUT}/results/{self.name}.csv", "w") if WORKLOAD in ("w3", "w4") else None

    def write_batch(self, items):
        self.count += len(items)
        if self.file is not None:
            for item in items:
                self.file.write(",".join(map(str, item)) + "\n")
        elif WORKLOAD == "w1":
            self.sum += sum(item[2] for item in items)
        else:
            self.sum += sum(item[1][0] for item in items)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        summary = {"begin": self.begin, "end": time.time(), "count": self.count, "sum": self.sum}
        Path(OUT, f"summary-{self.name}.json").write_text(json.dumps(summary))


class ResultSink(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Results(worker_index)


def parse(line):
    reading = orjson.loads(line)
    return reading["sensor_id"], (reading["ts"], reading["temp"])


def parse_flat(line):
    reading = orjson.loads(line)
    return reading["sensor_id"], reading["ts"], reading["temp"]


def running(state, reading):
    temp = reading[1]
    state = (1, temp) if state is None else (state[0] + 1, state[1] if state[1] >= temp else temp)
    return state, state


def rising(state, reading):
    ts, temp = reading
    alerts = []
    if state is None:
        return (temp, None), alerts
    last, due = state
    if due is not None and ts >= due:
        alerts.append(due)
        due = None
    if temp < last:
        due = None
    elif due is None:
        due = ts + 1000
    return (temp, due), alerts


def window_line(keyed):
    sensor, (window, (total, count)) = keyed
    return sensor, ALIGN_MS + window * 5000, total / count, count


flow = Dataflow("readings")
stream = op.input("readings", flow, DirSource(Path(DATA) / "big", "*.jsonl", batch_size=1000))
if WORKLOAD == "w1":
    stream = op.map("parse", stream, parse_flat)
    stream = op.map("celsius", stream, lambda reading: (reading[0], reading[1], (reading[2] - 32) * 5 / 9))
    stream = op.filter("warm", stream, lambda reading: reading[2] > 20.0)
elif WORKLOAD == "w2":
    stream = op.stateful_map("running", op.map("parse", stream, parse), running)
elif WORKLOAD == "w3":
    clock = windowing.EventClock(
        lambda reading: datetime.fromtimestamp(reading[0] / 1000, UTC),
        wait_for_system_duration=timedelta(seconds=10),
    )
    windows = windowing.TumblingWindower(length=timedelta(seconds=5), align_to=ALIGN)
    means = windowing.fold_window(
        "means",
        op.map("parse", stream, parse),
        clock,
        windows,
        lambda: [0.0, 0],
        lambda total, reading: [total[0] + reading[1], total[1] + 1],
        lambda one, other: [one[0] + other[0], one[1] + other[1]],
        ordered=False,
    )
    stream = op.map("line", means.down, window_line)
elif WORKLOAD == "w4":
    stream = op.stateful_flat_map("rising", op.map("parse", stream, parse), rising)
op.output("results", stream, ResultSink())
