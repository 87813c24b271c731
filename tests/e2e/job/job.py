"""The self-verifying job as a FlinkJob. See `checked`, which the image has in the same folder.

Every number has the time of its processing, so that the output shows how long it paused.
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
    """Add the time in ms."""
    return {**value, "at": time.time_ns() // 1_000_000}


def refuse(value: dict[str, int]) -> dict[str, int]:
    raise ValueError(f"number {value['number']} is refused")


def refuse_if_requested(value: dict[str, int]) -> dict[str, int]:
    """Refuse the number while the file exists."""
    if os.path.exists(REFUSE):
        raise ValueError(f"number {value['number']} is refused, as {REFUSE} is there")
    return stamp(value)


REFUSE = "/tmp/refuse"


def use_up_memory(value: dict[str, int]) -> dict[str, int]:
    """Keep more memory with every number, in steps so large that the limit is reached before anything else fails."""
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
    """The same states. The new type of one of them cannot read the stored state."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", str))
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))


def build(env: StreamExecutionEnvironment, plan: checked.Plan, output: str, arguments: argparse.Namespace) -> None:
    if arguments.retyped:
        checked.CheckSequence = Retyped
    numbers = checked.checked(env, plan)
    if arguments.more:
        numbers = numbers.key_by(checked.key_of_checked).process(More()).name("more").uid("more")
    function = refuse if arguments.refuse else use_up_memory if arguments.hoard else refuse_if_requested
    stamped = numbers.map(function).name("stamp").uid("stamp")
    stamped.sink_to(files(f"{output}/numbers")).uid("numbers-sink")
    if arguments.without_windows:
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
    """Return a sink whose output readers see at every checkpoint."""
    sink = FileSink.for_row_format(url, JsonLinesEncoder())
    return sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="folder or URL of the results")
    parser.add_argument("--per-key", type=int, required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--splits", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--revision", default="", help="any text, which makes the command line different")
    parser.add_argument("--refuse", action="store_true", help="a revision that never becomes stable")
    parser.add_argument("--hoard", action="store_true", help="a revision whose functions use up all memory")
    parser.add_argument("--more", action="store_true", help="a revision with one more operator with state")
    parser.add_argument("--retyped", action="store_true", help="a revision that cannot read the state")
    parser.add_argument("--without-windows", action="store_true", help="a revision that lacks an operator with state")
    arguments = parser.parse_args()
    plan = checked.Plan(per_key=arguments.per_key, keys=arguments.keys, splits=arguments.splits, rate=arguments.rate)
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, plan, arguments.output, arguments)
    env.execute("self-verifying")


if __name__ == "__main__":
    main()
