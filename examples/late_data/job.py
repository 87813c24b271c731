"""Count clicks per minute, and drop late clicks, store them apart, or update the count.

python job.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.datastream import DataStream, OutputTag, ProcessWindowFunction
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows


class Click(NamedTuple):
    page: str
    time: int  # seconds


class Count(NamedTuple):
    page: str
    minute: int
    clicks: int
    kind: str  # "first" or "update"


LATE = OutputTag("late", Click)
CLICKS = [
    Click("home", 5),
    Click("shop", 20),
    Click("home", 70),  # the watermark passes the end of minute 0
    Click("home", 50),  # late for minute 0, within the allowed lateness
    Click("home", 130),  # the watermark passes the end of the allowed lateness of minute 0
    Click("shop", 40),  # late for minute 0, too late for an update
]


class CountClicks(ProcessWindowFunction):
    """Count the clicks of a window. State of the window distinguishes the first result from updates."""

    fired = ValueStateDescriptor("fired", bool)

    def process(self, key: str, context: Any, elements: Iterable[Click]) -> Iterator[Count]:
        fired = context.window_state().get_state(self.fired)
        kind = "update" if fired.value() else "first"
        fired.update(True)
        yield Count(key, context.window().start // 60_000, len(list(elements)), kind)

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.fired).clear()


def build(clicks: DataStream[Click]) -> dict[str, DataStream[Any]]:
    """Build the job on a stream of clicks. Return its outputs by name."""
    by_page = clicks.key_by("page")
    minutes = TumblingEventTimeWindows.of(timedelta(minutes=1))
    dropped = by_page.window(minutes).process(CountClicks()).name("drop").uid("drop")
    windows = by_page.window(minutes).side_output_late_data(LATE)
    stored = windows.process(CountClicks()).name("store").uid("store")
    windows = by_page.window(minutes).allowed_lateness(timedelta(seconds=30)).side_output_late_data(LATE)
    updated = windows.process(CountClicks()).name("update").uid("update")
    return {
        "drop": dropped,
        "store": stored,
        "store, late": stored.get_side_output(LATE),
        "update": updated,
        "update, too late": updated.get_side_output(LATE),
    }


class AfterEachClick(WatermarkGenerator):
    """A watermark after each click. It makes the output of this small example the same in each run."""

    def __init__(self) -> None:
        self.newest = 0

    def on_event(self, value: Click, timestamp: int) -> int:
        self.newest = max(self.newest, timestamp)
        return self.newest - 1


def main() -> None:
    env = Environment.get_execution_environment()
    times = WatermarkStrategy.for_generator(AfterEachClick).with_timestamp_assigner(lambda click, _: click.time * 1000)
    clicks = env.from_collection(CLICKS).uid("clicks").assign_timestamps_and_watermarks(times).uid("times")
    for name, stream in build(clicks).items():
        stream.print(name).name(f"print {name}").uid(f"print-{name}")
    env.execute("late-data")


if __name__ == "__main__":
    main()
