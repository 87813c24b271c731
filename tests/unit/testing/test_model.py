"""Random small programs on random events: whatever happens to a job, its outputs are those of an undisturbed one.

The model is the engine itself at parallelism 1, left in peace. What makes it one: every program here gives the same
multiset at any parallelism, because whatever depends on order depends on the order of one key's records only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.records.batch import MAX_TIMESTAMP
from penstock.testing import CRASH, JobHarness, JobSnapshot
from tests.unit.testing.functions import add, first

KEYS = "abcde"
SPLITS = 2
END = 1_000_000
BUCKET = 50


class Buckets(KeyedProcessFunction):
    """Gives the running count of each key, and by timer the sum of each 50 ms of event time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums", int, int))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int]]:
        # What a count window gives has the latest of all timestamps.
        due = min((ctx.timestamp() // BUCKET + 1) * BUCKET, MAX_TIMESTAMP)
        ctx.timer_service().register_event_time_timer(due)
        self.sums.put(due, (self.sums.get(due) or 0) + value[1])
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        total = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        yield ctx.get_current_key(), total


STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda stream: stream.map(lambda v: (v[0], v[1] * 2 + 1)),
    "filter": lambda stream: stream.filter(lambda v: v[1] % 3 != 0),
    "flat_map": lambda stream: stream.flat_map(lambda v: [v, (v[0], 0)] if v[1] % 2 else []),
    "reduce": lambda stream: stream.key_by(first).reduce(add),
    "process": lambda stream: stream.key_by(first).process(Buckets()),
    "tumbling": lambda stream: stream.key_by(first).window(TumblingEventTimeWindows.of(100)).reduce(add),
    "session": lambda stream: stream.key_by(first).window(EventTimeSessionWindows.with_gap(40)).reduce(add),
    "count": lambda stream: stream.key_by(first).count_window(2).reduce(add),
    "all": lambda stream: stream.map(lambda v: ("a", v[1])).window_all(TumblingEventTimeWindows.of(100)).reduce(add),
    "sliding": lambda stream: stream.key_by(first).window(SlidingEventTimeWindows.of(100, 50)).reduce(add),
}

chains = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3)
programs = st.lists(chains, min_size=1, max_size=2)
pushes = st.tuples(st.just("push"), st.sampled_from(KEYS), st.integers(0, 20), st.integers(1, 120))
disturbances = st.one_of(
    st.just(("run",)),
    st.just(("run",)),
    st.just(("snapshot",)),
    st.just(("crash",)),
    st.just(("crash",)),
    st.just(("crash mark",)),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
    st.tuples(st.just("restore"), st.integers(0, 9), st.integers(1, 4)),
)
events = st.lists(
    st.one_of(pushes, pushes, st.tuples(st.just("watermark"), st.integers(0, 100)), disturbances),
    min_size=15,
    max_size=40,
)


def build(harness: JobHarness, program: list[list[str]]) -> None:
    source = harness.source("numbers", splits=SPLITS)
    for number, steps in enumerate(program):
        stream = source
        for position, step in enumerate(steps):
            stream = STEPS[step](stream).uid(f"{number}-{position}-{step}")
        harness.collect(stream, str(number))


def play(
    program: list[list[str]],
    happenings: list[tuple[Any, ...]],
    parallelism: int,
    backend: str,
    *,
    in_peace: bool = False,
) -> list[Counter[Any]]:
    """The outputs of the program, whatever happens."""
    with JobHarness(parallelism, backend=backend) as harness:
        build(harness, program)
        snapshots: list[JobSnapshot] = []
        watermark = 0
        for event in happenings:
            match event:
                case ("push", key, number, ahead):
                    split = KEYS.index(key) % SPLITS
                    harness.push("numbers", (key, number), timestamp=watermark + ahead, split=split)
                case ("watermark", ahead):
                    watermark += ahead
                    harness.advance_watermark("numbers", watermark)
                case _ if in_peace:
                    pass
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
        harness.advance_watermark("numbers", END)
        harness.close("numbers")
        harness.run()
        return [Counter(harness.outputs_with_timestamps(str(number))) for number in range(len(program))]


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@example([["count", "process"]], [*[("push", "a", 0, 1)] * 12, ("run",), ("run",), ("snapshot",)], 1, "rocksdb")
@given(programs, events, st.integers(1, 4), st.sampled_from(["hashmap", "rocksdb"]))
def test_whatever_happens_to_a_job_its_outputs_are_those_of_an_undisturbed_one(
    program: list[list[str]], happenings: list[tuple[Any, ...]], parallelism: int, backend: str
) -> None:
    expected = play(program, happenings, 1, "hashmap", in_peace=True)
    assert play(program, happenings, parallelism, backend) == expected
