"""Examples of watermarks between tasks, as whole jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.datastream.functions import KeyedProcessFunction
from penstock.testing import JobHarness

CLOCKS = [2, 4, 3, 6]


class Alarm(KeyedProcessFunction):
    """A function that registers one event-time timer per number, at that time."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(value)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[int, int]]:
        yield timestamp, ctx.timer_service().current_watermark()


@pytest.mark.parametrize("readers", [4, 2, 1], ids=["one partition each", "two partitions each", "all partitions"])
def test_the_clock_of_a_task_is_the_minimum_of_its_partitions(readers: int) -> None:
    """The partitions are at 2, 4, 3, 6. Then the first advances to 4, the second to 7 and the third to 6.

    The clock is at 2, 3, 3, 4, and all three outputs receive it. A timer fires at the step that reaches its time. The
    result does not depend on whether the partitions are four channels of the task or belong to one reader.
    """
    with JobHarness(parallelism=1) as harness:
        numbers = harness.source("numbers", splits=4).set_parallelism(readers)
        fired = numbers.key_by(lambda _: 0).process(Alarm())
        outputs = [f"output {n}" for n in range(3)]
        for output in outputs:
            harness.collect(fired.rebalance(), output)
        harness.push("numbers", *range(1, 8))
        for split, watermark in enumerate(CLOCKS):
            harness.advance_watermark("numbers", watermark, split=split)

        def seen() -> list[int]:
            return [harness.watermark(output) for output in outputs]

        assert seen() == [2, 2, 2]
        assert harness.take(outputs[0]) == [(1, 2), (2, 2)]
        harness.advance_watermark("numbers", 4, split=0)
        assert seen() == [3, 3, 3]
        assert harness.take(outputs[0]) == [(3, 3)]
        harness.advance_watermark("numbers", 7, split=1)
        assert seen() == [3, 3, 3]
        assert harness.take(outputs[0]) == []
        harness.advance_watermark("numbers", 6, split=2)
        assert seen() == [4, 4, 4]
        assert harness.take(outputs[0]) == [(4, 4)]
