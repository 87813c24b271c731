"""Group each user's clicks into sessions, and rank the three with the most clicks of each hour.

python job.py
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.simple.datagen import DataGeneratorSource
from penstock.datastream import DataStream, ProcessAllWindowFunction, ProcessWindowFunction
from penstock.datastream import StreamExecutionEnvironment as Environment
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

GAP = timedelta(minutes=5)
PAGES = ("home", "search", "product", "basket")


class Click(NamedTuple):
    user: str
    time: int  # ms since the epoch
    page: str


class Session(NamedTuple):
    user: str
    start: int  # ms since the epoch
    clicks: int
    pages: str  # in the order of the first visit


class Place(NamedTuple):
    hour: int
    place: int
    user: str
    clicks: int


class ToSession(ProcessWindowFunction):
    """Make a session from its clicks."""

    def process(self, key: str, context: Any, elements: Iterable[Click]) -> Iterator[Session]:
        clicks = sorted(elements, key=lambda click: click.time)
        pages = dict.fromkeys(click.page for click in clicks)
        yield Session(key, context.window().start, len(clicks), " > ".join(pages))


class TopThree(ProcessAllWindowFunction):
    """Rank the sessions of an hour by their clicks. The user decides between equal numbers."""

    def process(self, context: Any, elements: Iterable[Session]) -> Iterator[Place]:
        ranked = sorted(elements, key=lambda session: (-session.clicks, session.user, session.start))
        for place, session in enumerate(ranked[:3], 1):
            yield Place(context.window().start // 3_600_000, place, session.user, session.clicks)


def build(clicks: DataStream[Click]) -> dict[str, DataStream[Any]]:
    """Build the job on a stream of clicks. Return its outputs by name.

    A session belongs to the hour in which it ends. The timestamp of a window's result is the last ms of the window.
    """
    windows = clicks.key_by("user").window(EventTimeSessionWindows.with_gap(GAP))
    sessions = windows.process(ToSession(), output_type=Session).name("sessions").uid("sessions")
    hours = sessions.window_all(TumblingEventTimeWindows.of(timedelta(hours=1)))
    return {"session": sessions, "top": hours.process(TopThree()).name("top three").uid("top")}


def example_click(index: int) -> Click:
    """Return click number `index`: one click per minute, and the user stays the same for about eight clicks."""
    chance = random.Random(index)
    user = random.Random(index // 8).choice(["ann", "bob", "eve", "joe", "kim"])
    return Click(user, index * 60_000 + chance.randrange(60_000), chance.choice(PAGES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=120, help="number of clicks (default: 120); 0 means without end")
    arguments, _ = parser.parse_known_args()  # the remaining arguments are Penstock's
    env = Environment.get_execution_environment()
    source = DataGeneratorSource(example_click, arguments.count or None, None if arguments.count else 10, splits=1)
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    for name, stream in build(env.from_source(source, times, "clicks").uid("clicks")).items():
        stream.print(name).name(f"print {name}").uid(f"print-{name}")
    env.execute("session-clicks")


if __name__ == "__main__":
    main()
