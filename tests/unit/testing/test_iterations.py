"""Iterations: feedback records return exactly once after crashes, rescaling and restores, and bounded jobs end."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.savepoint.snapshots import resolve
from penstock.common.errors import InvalidJob, PenstockError
from penstock.common.job_status import JobStatus
from penstock.common.typeinfo import Types
from penstock.connectors.simple.feedback import INLINE_BYTES
from penstock.datastream import AsyncDataStream, StreamExecutionEnvironment
from penstock.datastream.functions import AsyncFunction, KeyedProcessFunction
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import ValueStateDescriptor
from penstock.graph.job_graph_builder import JobGraphBuilder
from penstock.jobmanager.job.requests import Operation
from penstock.testing import JobHarness
from penstock.testing.snapshot import JobSnapshot

HELD = "PENSTOCK_TEST_HELD"
"""Name of a variable. While it is set, rows circulate without being processed."""
ROUNDS = OutputTag("rounds", Types.TUPLE([Types.LONG(), Types.LONG()]))


class Collatz(KeyedProcessFunction):
    """A function that computes a number's Collatz sequence to 1. Its state counts the visits of each number."""

    def open(self, runtime_context: Any) -> None:
        self._met = runtime_context.get_state(ValueStateDescriptor("met", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if HELD in os.environ:
            yield value
            return
        met = (self._met.value() or 0) + 1
        self._met.update(met)
        yield ROUNDS, (value, met)
        if value > 1:
            yield value // 2 if value % 2 == 0 else 3 * value + 1


def way(number: int) -> list[int]:
    numbers = [number]
    while numbers[-1] > 1:
        last = numbers[-1]
        numbers.append(last // 2 if last % 2 == 0 else 3 * last + 1)
    return numbers


def expected(numbers: list[int]) -> Counter[tuple[int, int]]:
    met = Counter(step for number in numbers for step in way(number))
    return Counter((value, count) for value, most in met.items() for count in range(1, most + 1))


def declared(harness: JobHarness) -> None:
    numbers = harness.source("numbers", type_info=Types.LONG())
    iteration = numbers.iterate().uid("again")
    stepped = iteration.key_by(lambda number: number).process(Collatz(), Types.LONG()).uid("collatz")
    iteration.close_with(stepped)
    harness.collect(stepped.get_side_output(ROUNDS), "rounds")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_bounded_job_ends_when_no_record_circulates(parallelism: int) -> None:
    with JobHarness(parallelism) as harness:
        declared(harness)
        harness.push("numbers", *range(1, 40))
        harness.close("numbers")
        assert Counter(harness.outputs("rounds")) == expected(list(range(1, 40)))
        assert harness.status is JobStatus.FINISHED


def steps(harness: JobHarness, count: int) -> None:
    harness._start()
    harness._start()
    for _ in range(count):
        harness._driver._has_work()  # passes the pushed records in
        harness._driver._step()


def checkpointed(harness: JobHarness) -> str:
    """Return the location of a checkpoint that contains circulating rows."""
    os.environ[HELD] = "yes"
    number = harness._driver.request(Operation("checkpoint")).result
    assert harness._driver.master.parts.sources["again"].has_splits
    del os.environ[HELD]
    return harness._driver.master.checkpoints.location(number)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_crashes_and_rescaling_neither_lose_nor_repeat_records(backend: str) -> None:
    with JobHarness(2, backend=backend) as harness:
        declared(harness)
        harness.push("numbers", *range(1, 20))
        for round_, parallelism in enumerate((3, 1, 4)):
            steps(harness, 7)
            checkpointed(harness)
            steps(harness, 5)
            harness.crash()
            steps(harness, 4)
            harness._driver.request(Operation("rescale", {"parallelism": parallelism}))
            harness.push("numbers", 100 + round_)
        harness.close("numbers")
        assert Counter(harness.outputs("rounds")) == expected([*range(1, 20), 100, 101, 102])
        assert harness.restarts == 3
        assert harness.status is JobStatus.FINISHED


def test_a_snapshot_contains_the_circulating_rows() -> None:
    with JobHarness(2) as harness:
        declared(harness)
        harness.push("numbers", 27, 97)
        steps(harness, 20)
        snapshot = JobSnapshot(
            checkpointed(harness), harness._driver.outputs.all(), harness._journal, 0, harness._folder
        )
        whole = Counter(harness.outputs("rounds"))
        assert whole == expected([27, 97])
        harness.restore(snapshot, 3)
        assert Counter(harness.outputs("rounds")) == whole


def test_rows_too_large_for_manifests_are_stored_in_files(tmp_path: Path) -> None:
    def cut(text: str) -> str:
        return text if HELD in os.environ else text[:-1]

    with JobHarness(2, configuration={"execution.checkpointing.dir": tmp_path.as_uri()}) as harness:
        iteration = harness.source("texts", type_info=Types.STRING()).iterate().uid("again")
        shorter = iteration.rebalance().map(cut, Types.STRING())
        iteration.close_with(shorter.filter(lambda text: len(text) > 3 * INLINE_BYTES))
        harness.collect(shorter.filter(lambda _: HELD not in os.environ).map(len), "lengths")
        harness.push("texts", "x" * (3 * INLINE_BYTES + 5), "y" * (3 * INLINE_BYTES + 2))
        steps(harness, 2)
        location = checkpointed(harness)
        splits = resolve(location).manifest.sources["again"].splits
        assert sum(len(split.files) for split in splits) >= 1
        assert all("content" not in split.properties for split in splits if split.files)
        harness.crash()
        beyond = sorted(length - 3 * INLINE_BYTES for length in harness.outputs("lengths"))
        assert beyond == sorted([*range(5), *range(2)])
        harness.close("texts")
        harness.run()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > INLINE_BYTES] == []


class Echo(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(0.05)
        return [value - 1]


def test_pending_records_of_an_async_function_still_circulate() -> None:
    with JobHarness(2) as harness:
        iteration = harness.source("numbers", type_info=Types.LONG()).iterate()
        lower = AsyncDataStream.unordered_wait(iteration, Echo(), 10_000)
        iteration.close_with(lower.filter(lambda number: number > 0))
        harness.collect(lower, "numbers")
        harness.push("numbers", 4, 2)
        harness.close("numbers")
        assert Counter(harness.outputs("numbers")) == Counter([3, 2, 1, 0, 1, 0])


def test_gathered_records_circulate_after_their_timeout() -> None:
    with JobHarness() as harness:
        iteration = harness.source("numbers", type_info=Types.LONG()).iterate()
        lower = iteration.gather(10, timedelta(seconds=1)).flat_map(lambda numbers: [n - 1 for n in numbers])
        iteration.close_with(lower.filter(lambda number: number > 0))
        harness.collect(lower, "numbers")
        harness.push("numbers", 3, 2)
        harness.close("numbers")
        harness.advance_processing_time(by=10_000)
        assert Counter(harness.outputs("numbers")) == Counter([2, 1, 1, 0, 0])
        assert harness.status is JobStatus.FINISHED


def test_timestamps_circulate_and_the_clock_is_that_of_the_input() -> None:
    with JobHarness() as harness:
        iteration = harness.source("numbers", type_info=Types.LONG()).iterate()
        lower = iteration.map(lambda number: number - 1)
        iteration.close_with(lower.filter(lambda number: number > 0))
        harness.collect(lower, "numbers")
        harness.push("numbers", 2, timestamp=5)
        harness.push("numbers", 1, timestamp=7)
        harness.advance_watermark("numbers", 6)
        assert sorted(harness.outputs_with_timestamps("numbers")) == [(0, 5), (0, 7), (1, 5)]
        assert harness.watermark("numbers") == 6


def test_nested_iterations_end() -> None:
    with JobHarness(2) as harness:
        outer = harness.source("numbers", type_info=Types.LONG()).iterate()
        inner = outer.iterate()
        lower = inner.map(lambda number: number - 1)
        inner.close_with(lower.filter(lambda number: number % 3 != 0))
        thirds = lower.filter(lambda number: number % 3 == 0)
        outer.close_with(thirds.filter(lambda number: number > 0))
        harness.collect(thirds, "thirds")
        harness.push("numbers", 8)
        harness.close("numbers")
        assert harness.outputs("thirds") == [6, 3, 0]
        assert harness.status is JobStatus.FINISHED


@dataclass
class Job:
    tries: int


def test_objects_circulate_by_their_type_and_others_are_refused_by_name() -> None:
    with JobHarness() as harness:
        jobs = harness.source("jobs", type_info=Job)
        iteration = jobs.iterate()
        tried = iteration.map(lambda job: Job(job.tries + 1), output_type=Job)
        iteration.close_with(tried.filter(lambda job: job.tries < 3))
        harness.collect(tried, "jobs")
        harness.push("jobs", Job(0))
        assert harness.outputs("jobs") == [Job(1), Job(2), Job(3)]
    with JobHarness() as harness:
        iteration = harness.source("jobs").iterate()
        tried = iteration.map(lambda job: Job(job.tries + 1))
        iteration.close_with(tried.filter(lambda job: job.tries < 3))
        harness.collect(tried, "jobs")
        harness.push("jobs", Job(0))
        with pytest.raises(PenstockError, match=r"Job.*") as refused:
            harness.run()
        assert "feedback stream" in str(refused.value)


def test_wrong_iterations_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1, 2])
    iteration = numbers.iterate()
    with pytest.raises(InvalidJob, match="does not come from this iteration"):
        iteration.close_with(numbers)
    with pytest.raises(InvalidJob, match="cannot be closed with"):
        iteration.close_with(iteration.map(str))  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="takes a stream"):
        iteration.close_with(3)  # type: ignore[arg-type]
    lower = iteration.map(lambda number: number - 1)
    lower.print()
    with pytest.raises(InvalidJob, match=r"call close_with\(stream\)"):
        JobGraphBuilder(env.get_program("open").sinks).build()
    iteration.close_with(lower)
    with pytest.raises(InvalidJob, match="closed before"):
        iteration.close_with(lower)
    for mode in ("BATCH", "AUTOMATIC"):
        with pytest.raises(InvalidJob, match=f"execution.runtime-mode is {mode}"):
            JobGraphBuilder(env.get_program("batch").sinks, mode=mode).build()
