"""Random programs on random histories: the outputs of a job equal those of the reference interpreter in spite of
failures.

Histories have disorder and late records. The failures and changes are crashes (also at any record), snapshots,
restores, and other parallelisms.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.testing import CRASH, JobHarness, JobSnapshot
from tests.semantics.programs import KEYS, as_job, as_read, programs
from tests.semantics.reference import END, History, Record, Watermark

SPLITS = 2
LAST = 1_000_001
"""The last event time. Watermarks are odd and event times even, because a record exactly at the watermark may be late
or not."""

pushes = st.tuples(st.just("push"), st.sampled_from(KEYS), st.integers(0, 20), st.integers(-60, 60))
watermarks = st.tuples(st.just("watermark"), st.integers(0, 50))
disturbances = st.one_of(
    st.just(("run",)),
    st.just(("snapshot",)),
    st.just(("crash",)),
    st.just(("crash mark",)),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
    st.tuples(st.just("restore"), st.integers(0, 9), st.integers(1, 4)),
)
events = st.lists(st.one_of(pushes, pushes, pushes, watermarks, disturbances), min_size=10, max_size=40)


def history_of(happenings: list[tuple[Any, ...]]) -> History:
    """Return the history of the source, from the events."""
    history: History = []
    clock = 1
    for event in happenings:
        match event:
            case ("push", key, number, ahead):
                history.append(Record((key, number), max(0, clock - 1 + 2 * ahead)))
            case ("watermark", ahead):
                clock += 2 * ahead
                history.append(Watermark(clock))
    return [*history, Watermark(LAST), Watermark(END)]


def play(program: Any, happenings: list[tuple[Any, ...]], parallelism: int, backend: str) -> dict[str, Counter[Any]]:
    """Return the outputs of the job after all events."""
    with JobHarness(parallelism, backend=backend) as harness:
        names: list[str] = []

        def collect(stream: Any, name: str) -> None:
            names.append(name)
            harness.collect(stream, name)

        as_job(harness.source("numbers", splits=SPLITS), program, collect)
        # The records after a watermark wait until all records before it are processed. So each arrives after its
        # watermark, everywhere.
        harness.collect(harness.source("fence"), "fences")
        snapshots: list[JobSnapshot] = []
        clock = 1
        for event in happenings:
            match event:
                case ("push", key, number, ahead):
                    time = max(0, clock - 1 + 2 * ahead)
                    harness.push("numbers", (key, number), timestamp=time, split=KEYS.index(key) % SPLITS)
                case ("watermark", ahead):
                    clock += 2 * ahead
                    harness.advance_watermark("numbers", clock)
                    harness.push("fence", 0)
                case ("run",):
                    harness.run()
                case ("snapshot",):
                    snapshots.append(harness.snapshot())
                case ("crash",):
                    harness.crash()
                case ("crash mark",):
                    harness.push("numbers", CRASH)
                case ("rescale", other):
                    harness.rescale(other)
                case ("restore", which, other) if snapshots:
                    harness.restore(snapshots[which % len(snapshots)], parallelism=other)
        harness.advance_watermark("numbers", LAST)
        harness.push("fence", 0)
        harness.close("numbers")
        harness.close("fence")
        harness.run()
        return {name: Counter(harness.outputs_with_timestamps(name)) for name in names}


COUNTED = (("source", "count"), "process")
AFTER_TWO_RUNS = [*[("push", "a", 0, 1)] * 12, ("run",), ("run",), ("snapshot",)]
TIME_ENDS = [("push", "b", 1, 1), ("push", "b", 7, 0), ("crash",), ("snapshot",)]


@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@example(COUNTED, AFTER_TWO_RUNS, 1, "rocksdb")
@example((("source", "count"), "all"), TIME_ENDS, 2, "rocksdb")
@given(programs(), events, st.integers(1, 4), st.sampled_from(["hashmap", "rocksdb"]))
def test_a_job_has_the_results_of_its_program_in_spite_of_failures(
    program: Any, happenings: list[tuple[Any, ...]], parallelism: int, backend: str
) -> None:
    read = as_read(history_of(happenings), program)
    expected = {name: Counter((record.value, record.time) for record in records) for name, records in read.items()}
    assert play(program, happenings, parallelism, backend) == expected
