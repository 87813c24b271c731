"""The self-verifying job as a FlinkJob: see `checked`, which the image holds beside it.

Every number carries when it was processed, so that the output tells how long it stood still.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import checked

from penstock.connectors.formats.encode import JsonLinesEncoder
from penstock.datastream.connectors.file_system import FileSink, RollingPolicy
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows


def stamp(value: dict[str, int]) -> dict[str, int]:
    """With the wall clock's ms."""
    return {**value, "at": time.time_ns() // 1_000_000}


def refuse(value: dict[str, int]) -> dict[str, int]:
    raise ValueError(f"number {value['number']} is refused")


def refuse_when_told(value: dict[str, int]) -> dict[str, int]:
    """While the file is there."""
    if os.path.exists(REFUSE):
        raise ValueError(f"number {value['number']} is refused, as {REFUSE} is there")
    return stamp(value)


REFUSE = "/tmp/refuse"


def hoard(value: dict[str, int]) -> dict[str, int]:
    """Keeps more with every number, in steps so large that the limit is reached before anything else has to go."""
    HOARD.append(b"x" * (256 << 20))
    return value


HOARD: list[bytes] = []


class More(KeyedProcessFunction):
    """State that other revisions have no operator for."""

    def open(self, runtime_context: Any) -> None:
        self.more = runtime_context.get_state(ValueStateDescriptor("more", int))

    def process_element(self, value: dict[str, int], ctx: Any) -> Iterator[dict[str, int]]:
        self.more.update((self.more.value() or 0) + 1)
        yield value


class Retyped(checked.CheckSequence):
    """The same states, one of them with a type that the stored one cannot become."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))


def build(env: StreamExecutionEnvironment, plan: checked.Plan, output: str, asked: argparse.Namespace) -> None:
    if asked.retyped:
        checked.CheckSequence = Retyped
    numbers = checked.checked(env, plan)
    if asked.more:
        numbers = numbers.key_by(checked.key_of_checked).process(More()).name("more").uid("more")
    wish = refuse if asked.refuse else hoard if asked.hoard else refuse_when_told
    stamped = numbers.map(wish).name("stamp").uid("stamp")
    stamped.sink_to(files(f"{output}/numbers")).uid("numbers-sink")
    if asked.without_windows:
        return
    windows = (
        numbers.key_by(checked.key_of_checked)
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=checked.WINDOW_MS)))
        .aggregate(checked.Sum(), checked.WithWindow())
        .name("sums")
        .uid("sums")
    )
    windows.sink_to(files(f"{output}/windows")).uid("windows-sink")


def files(url: str) -> FileSink:
    """Readers see what is new with every checkpoint."""
    sink = FileSink.for_row_format(url, JsonLinesEncoder())
    return sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--output", required=True, help="folder or URL of the results")
    arguments.add_argument("--per-key", type=int, required=True)
    arguments.add_argument("--keys", type=int, required=True)
    arguments.add_argument("--splits", type=int, required=True)
    arguments.add_argument("--rate", type=float, required=True)
    arguments.add_argument("--revision", default="", help="makes one command line different from another")
    arguments.add_argument("--refuse", action="store_true", help="a revision that never becomes stable")
    arguments.add_argument("--hoard", action="store_true", help="a revision whose functions use up all memory")
    arguments.add_argument("--more", action="store_true", help="a revision with one more operator with state")
    arguments.add_argument("--retyped", action="store_true", help="a revision that cannot read the state")
    arguments.add_argument(
        "--without-windows", action="store_true", help="a revision that lacks an operator with state"
    )
    asked = arguments.parse_args()
    plan = checked.Plan(per_key=asked.per_key, keys=asked.keys, splits=asked.splits, rate=asked.rate)
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, plan, asked.output, asked)
    env.execute("self-verifying")


if __name__ == "__main__":
    main()
