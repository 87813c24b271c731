"""A job whose load grows and falls, with an active autoscaler, on a local cluster of Spark processes. See `test_autoscaling`.

    python -m tests.integration.engine.autoscaled_job FOLDER

A map that sleeps limits each subtask to 500 records per second, so the job needs few CPU cores.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from penstock.connectors.core.source import (
    ReadBounds,
    ReaderContext,
    Source,
    SourceReader,
    Split,
    SplitEnumerator,
    SplitReader,
)
from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.datastream.connectors.file_system import FileSink
from penstock.jobmanager.autoscaling.recording import replay
from penstock.jobmanager.process.session.embedded import EmbeddedExecutor
from penstock.records.batch import RowBatch
from tests.integration.engine.selfcheck.driver import configuration, environment, submitted
from tests.integration.engine.selfcheck.output import read

SPLITS = 8
PHASES = ((20.0, 300.0), (50.0, 1_000.0), (120.0, 100.0))
"""Duration in seconds and records per second of each phase."""
TOTAL = int(sum(seconds * rate for seconds, rate in PHASES)) // SPLITS * SPLITS
COST_S = 0.002


def due(seconds: float) -> int:
    """Return the number of records that have arrived at a time after the start."""
    count = 0.0
    for duration, rate in PHASES:
        count += rate * min(max(0.0, seconds), duration)
        seconds -= duration
    return min(TOTAL, int(count))


class Growing(Source):
    """A source with a rate that grows and falls. Its records arrive at their time, so unread ones are its lag."""

    def __init__(self, began: float) -> None:
        self.began = began

    def create_enumerator(self) -> SplitEnumerator:
        return Splits()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return Reader(self.began)


class Splits(SplitEnumerator):
    def discover(self) -> list[Split]:
        return [Split(str(number), {}) for number in range(SPLITS)]


class Reader(SourceReader):
    def __init__(self, began: float) -> None:
        self.began = began

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return Numbers(self.began, int(split.id), position or 0)


class Numbers(SplitReader):
    """A reader of every eighth number."""

    def __init__(self, began: float, first: int, count: int) -> None:
        self._began = began
        self._first = first
        self._count = count

    def _due(self) -> int:
        return due(time.time() - self._began) // SPLITS

    def read(self, bounds: ReadBounds) -> RowBatch | None:
        until = min(self._due(), self._count + max(1, bounds.max_records))
        if until <= self._count:
            return None
        numbers = [self._first + place * SPLITS for place in range(self._count, until)]
        self._count = until
        return RowBatch(numbers)

    @property
    def position(self) -> int:
        return self._count

    @property
    def finished(self) -> bool:
        return self._count >= TOTAL // SPLITS

    def lag(self) -> int:
        return self._due() - self._count

    def next_record_at(self) -> int | None:
        return None if self.finished else int(time.time() * 1000) + 50


def slow(number: int) -> dict[str, int]:
    time.sleep(COST_S)
    return {"number": number}


def main(folder: Path) -> None:
    """Run the job, and check its rescales and its output."""
    config = configuration("pipelined", folder.as_uri())
    config |= {
        "execution.checkpointing.interval": "2 s",
        "job.autoscaler.enabled": "true",
        "job.autoscaler.metrics.window": "15 s",
        "job.autoscaler.stabilization.interval": "2 s",
        "job.autoscaler.scale-down.interval": "30 s",
        "job.autoscaler.vertex.max-parallelism": "4",
        "penstock.autoscaler.max-lag": "10 s",
        "penstock.autoscaler.pause-budget": "0.05",
    }
    executor = EmbeddedExecutor()
    executor.session.on_line = None
    try:
        env = environment(config, 1)
        numbers = env.from_source(Growing(time.time()), None, "numbers").uid("numbers")
        sink = FileSink.for_row_format(f"{folder.as_uri()}/output", JsonLinesEncoder()).build()
        numbers.rebalance().map(slow).name("slow").uid("slow").sink_to(sink).uid("sink")
        driver = submitted(executor, env, "autoscaled")
        driver.wait_for(lambda: driver.master.parallelism >= 3, "the scale-up", 200)
        driver.wait_for(lambda: driver.master.parallelism <= 2, "the scale-down", 300)
        status = driver.master.autoscaler.describe()
        lines = list(driver.master.autoscaler.recording())
        driver.finished(300)
        rescales = [(r.old_parallelism, r.new_parallelism, r.trigger) for r in driver.master.history.rescales]
        print(json.dumps({"rescales": rescales, "pauses": [r.duration_ms for r in driver.master.history.rescales]}))
        assert driver.master.history.restarts == 0, driver.describe()
    except AssertionError as error:
        decisions = driver.master.autoscaler.describe()["decisions"]
        error.add_note("\n".join(f"{one['since']} {one['count']} x {one['message']}" for one in decisions))
        raise
    finally:
        executor.stop()
    assert all(trigger == "autoscaler" for _, _, trigger in rescales), rescales
    assert len(rescales) <= 5, rescales
    assert (status["mode"], status["maxParallelism"]) == ("active", 4), status
    reasons = {one["reason"] for one in status["decisions"]}
    assert {"SCALE_UP", "SCALE_DOWN"} <= reasons, reasons
    assert {"SCALE_UP", "SCALE_DOWN"} <= {one.reason.value for one in replay(lines, {})}
    found = sorted(record["number"] for record in read(f"{folder.as_uri()}/output"))
    assert found == list(range(TOTAL)), f"{len(found)} of {TOTAL} records, {len(set(found))} different ones"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
