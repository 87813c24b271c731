"""A keyed job under a load that follows a plan. The sink records the latency of a sample of the records.

    python penstock_load.py --out DIR --phases 20x50000,10x100000 [--keys 100000] [--checkpoint-seconds 2] [--runner pipelined]

A phase is `SECONDSxRATE`. A rate of 0 is the highest possible one. The sink appends pairs of doubles to `DIR/latency-*` for one
of every `--sample` records: the moment it arrived, and the moment it was due. `begin` of the result is the start of the first phase.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from array import array
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.sink import Sink, SinkWriter, WriterContext
from penstock.connectors.core.source import ReadBounds, ReaderContext, SourceReader, Split, SplitReader
from penstock.connectors.simple.datagen import DataGeneratorSource, GeneratorReader, GeneratorSplitReader
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.functions.operator_context import Clock
from penstock.records.batch import RowBatch

Phases = list[tuple[float, float]]


class Plan:
    """The moment at which each record is due (s after the start)."""

    def __init__(self, phases: Phases, share: float) -> None:
        self.steps: list[tuple[float, float, float]] = []
        """Begin (s), rate (records/s), records before it."""
        begin = before = 0.0
        for seconds, rate in phases:
            self.steps.append((begin, rate * share, before))
            begin, before = begin + seconds, before + rate * share * seconds
        self.end, self.count = begin, int(before)

    def due_by(self, now: float) -> int:
        begin, rate, before = next(step for step in reversed(self.steps) if now >= step[0] or not step[0])
        return min(self.count, int(before + (now - begin) * rate))

    def due(self, number: int) -> float:
        begin, rate, before = next(step for step in reversed(self.steps) if number >= step[2] and step[1])
        return begin + (number - before) / rate


class LoadReader(GeneratorSplitReader):
    """A reader of records (key, moment due) by plan. Without a rate, a record is due when it is read."""

    def __init__(self, plan: Plan, origin: float, keys: int, indexes: range, clock: Clock) -> None:
        super().__init__(lambda index: index, indexes, None, clock)
        self._plan = plan
        self._origin = origin
        self._keys = keys

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        now = time.time() - self._origin
        plan, made = self._plan, self._emitted
        if not plan.count:
            until = made + bounds.max_records if now < plan.end else made
        else:
            until = min(made + bounds.max_records, plan.due_by(now))
        if until <= made or now < 0:
            return None
        indexes, keys = self._indexes[made:until], self._keys
        if not plan.count:
            values = [(index % keys, now + self._origin) for index in indexes]
        else:
            first, last = (self._origin + plan.due(number) for number in (made, until - 1))
            step = (last - first) / max(1, until - 1 - made)
            values = [(index % keys, first + step * n) for n, index in enumerate(indexes)]
        self._emitted = until
        return RowBatch(values)

    def next_record_at(self) -> int | None:
        now = time.time() - self._origin
        if now >= self._plan.end and self._emitted >= self._plan.count:
            return self._clock.now_ms() + 1000
        due = self._plan.due(self._emitted) if self._plan.count > self._emitted else max(now, 0)
        return math.ceil((self._origin + due) * 1000)


class LoadReaders(GeneratorReader):
    def __init__(self, source: LoadSource, context: ReaderContext) -> None:
        super().__init__(source, context)
        self._source = source

    def open_split(self, split: Split, position: Any) -> SplitReader:
        source, found = self._source, split.properties
        indexes = range(found["start"] if position is None else position, found["end"], found["step"])
        return LoadReader(Plan(source.phases, found["share"]), source.origin(), source.keys, indexes, self._clock)


class LoadSource(DataGeneratorSource):
    """A source whose subtasks all start at the same moment: two seconds after the first of them opens its split."""

    def __init__(self, phases: Phases, keys: int, out: str) -> None:
        super().__init__(lambda index: index)
        self.phases = phases
        self.keys = keys
        self.out = out

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return LoadReaders(self, context)

    def origin(self) -> float:
        try:
            with open(f"{self.out}/origin", "x") as file:
                file.write(str(time.time() + 2))
        except FileExistsError:
            time.sleep(0.2)
        return float(Path(self.out, "origin").read_text())


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: tuple[int, float], ctx: Any) -> Iterator[tuple[float, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[1], count


class SamplingSink(Sink):
    def __init__(self, folder: str, sample: int) -> None:
        self.folder = folder
        self.sample = sample

    def create_writer(self, context: WriterContext, restored: list[Any]) -> SinkWriter:
        return SamplingWriter(Path(self.folder, f"latency-{context.subtask}-{os.getpid()}"), self.sample)


class SamplingWriter(SinkWriter):
    def __init__(self, path: Path, sample: int) -> None:
        self._file = path.open("ab", buffering=0)
        self._sample = sample
        self._skip = 0

    def write(self, values: list[Any], timestamps: list[int] | None, watermark: int) -> None:
        now = time.time()
        chosen = values[self._skip :: self._sample]
        self._skip = (self._skip - len(values)) % self._sample
        pairs = array("d")
        for due, _ in chosen:
            pairs.extend((now, due))
        self._file.write(pairs.tobytes())

    def close(self) -> None:
        self._file.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--phases", required=True)
    arguments.add_argument("--keys", type=int, default=100_000)
    arguments.add_argument("--sample", type=int, default=16)
    arguments.add_argument("--runner", default="pipelined")
    arguments.add_argument("--slots", type=int, default=2)
    arguments.add_argument("--checkpoint-seconds", type=float, default=2)
    options = arguments.parse_args()
    out = Path(options.out).resolve()
    phases = [(float(seconds), float(rate)) for seconds, rate in (one.split("x") for one in options.phases.split(","))]
    configuration = Configuration()
    configuration.set_string("penstock.runner", options.runner)
    configuration.set_string("restart-strategy.type", "none")
    configuration.set_string("execution.checkpointing.dir", (out / "checkpoints").as_uri())
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(options.slots)
    env.enable_checkpointing(timedelta(seconds=options.checkpoint_seconds))
    source = LoadSource(phases, options.keys, str(out))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "load").key_by(lambda value: value[0])
    stream.process(Counting()).sink_to(SamplingSink(str(out), options.sample))
    client = env.execute_async("load")
    while not (out / "origin").exists():
        if client.get_job_status().result(10).name in ("FAILED", "FINISHED", "CANCELED"):
            raise SystemExit("the job ended before its first record")
        time.sleep(0.05)
    time.sleep(0.2)
    begin = float((out / "origin").read_text())
    until = begin + sum(seconds for seconds, _ in phases)
    time.sleep(max(0.0, until - time.time()))
    end = time.time()
    client.cancel().result(60)
    print("RESULT " + json.dumps({"begin": begin, "end": end}), flush=True)


if __name__ == "__main__":
    main()
