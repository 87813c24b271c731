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
HIGH, LOW = 1_000.0, 40.0
"""Records per second. A subtask can process at most 500 of them, so the high rate needs three subtasks. On a busy machine it can
process only 100.
"""
COST_S = 0.002
READ_S = 0.2
"""Time in seconds between two reads of the file with the rate."""


class Load:
    """A rate of arrivals that `main` changes when it has seen the start and a rescale. So the test needs no fast machine.

    The file has a line with time and rate for each change. The rate of the last change is 0.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        path.touch()
        self._read_at = 0.0
        self._changes: list[tuple[float, float]] = []

    def change(self, rate: float) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{time.time()} {rate}\n")

    def due(self) -> int:
        """Return the number of records that have arrived."""
        now, changes = time.time(), self._known()
        ends = [at for at, _ in changes[1:]] + [now][: len(changes)]
        return int(sum(rate * max(0.0, end - at) for (at, rate), end in zip(changes, ends, strict=True)))

    @property
    def is_over(self) -> bool:
        changes = self._known()
        return bool(changes) and changes[-1][1] == 0.0

    def _known(self) -> list[tuple[float, float]]:
        if time.monotonic() - self._read_at > READ_S:
            lines = Path(self._path).read_text(encoding="utf-8").splitlines()
            self._changes = [(float(at), float(rate)) for at, rate in (line.split() for line in lines)]
            self._read_at = time.monotonic()
        return self._changes


class Growing(Source):
    """A source with a rate that grows and falls. Its records arrive at their time, so unread ones are its lag."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def create_enumerator(self) -> SplitEnumerator:
        return Splits()

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return Reader(self.load)


class Splits(SplitEnumerator):
    def discover(self) -> list[Split]:
        return [Split(str(number), {}) for number in range(SPLITS)]


class Reader(SourceReader):
    def __init__(self, load: Load) -> None:
        self.load = load

    def open_split(self, split: Split, position: Any) -> SplitReader:
        return Numbers(self.load, int(split.id), position or 0)


class Numbers(SplitReader):
    """A reader of every eighth number."""

    def __init__(self, load: Load, first: int, count: int) -> None:
        self._load = load
        self._first = first
        self._count = count

    def _due(self) -> int:
        return self._load.due() // SPLITS

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
        return self._load.is_over and self._count >= self._due()

    def lag(self) -> int:
        return max(0, self._due() - self._count)

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
        "penstock.autoscaler.pause-budget": "0.2",
    }
    load, executor = Load(folder / "rate"), EmbeddedExecutor()
    executor.session.on_line = None
    try:
        env = environment(config, 1)
        numbers = env.from_source(Growing(load), None, "numbers").uid("numbers")
        sink = FileSink.for_row_format(f"{folder.as_uri()}/output", JsonLinesEncoder()).build()
        numbers.rebalance().map(slow).name("slow").uid("slow").sink_to(sink).uid("sink")
        driver = submitted(executor, env, "autoscaled")
        driver.wait_for(lambda: driver.master.autoscaler.describe()["decisions"], "the first sample", 300)
        load.change(HIGH)
        driver.wait_for(lambda: driver.master.parallelism >= 3, "the scale-up", 600)
        load.change(LOW)
        driver.wait_for(lambda: driver.master.parallelism <= 2, "the scale-down", 900)
        status = driver.master.autoscaler.describe()
        lines = list(driver.master.autoscaler.recording())
        load.change(0.0)
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
    found = [record["number"] for record in read(f"{folder.as_uri()}/output")]
    assert len(found) >= load.due() - SPLITS
    for split in range(SPLITS):
        of_split = sorted(number for number in found if number % SPLITS == split)
        assert of_split == list(range(split, split + SPLITS * len(of_split), SPLITS)), (
            f"split {split}: lost or repeated"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
