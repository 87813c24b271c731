"""The input of the kept job before and after the savepoint, and the way to run the job.

The few records cover typical errors of restores:

- open and fired windows
- values of one key on both sides of the savepoint
- timers that are due later
- joins whose partners arrive later
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.datastream.data_stream import DataStream
from penstock.testing import JobHarness
from tests.golden.program import FEATURES, Streams

KEYS = "abcdefghij"


def build(harness: JobHarness, features: Iterable[str] = tuple(FEATURES)) -> None:
    """Declare the job on a harness."""
    streams = Streams(*(harness.source(name) for name in ("pairs", "others", "rules")))
    for name in features:
        result: DataStream = FEATURES[name](streams)
        harness.collect(result.uid(name), name)


def push_before(harness: JobHarness) -> None:
    """Push the records that the job reads before the savepoint."""
    for factor, key in enumerate(KEYS[:6]):
        harness.push("rules", (key, factor + 2), timestamp=0)
    harness.advance_watermark("rules", 1_000_000)
    _push_records(harness, range(40), 0)
    harness.advance_processing_time(to=3_000)
    _watermarks(harness, 1_800)


def push_after(harness: JobHarness) -> None:
    """Push the records that the job reads after the savepoint, up to the end of its sources."""
    harness.push("rules", ("a", 100), timestamp=0)
    harness.push("pairs", ("a", 77), timestamp=1_200)  # late, within the allowed lateness
    _push_records(harness, range(40, 80), 1_900)
    harness.advance_processing_time(to=11_000)
    _watermarks(harness, 4_500)
    _push_records(harness, range(80, 100), 5_000)
    harness.advance_processing_time(to=30_000)
    for source in ("pairs", "others", "rules"):
        harness.close(source)
    harness.run()


def _push_records(harness: JobHarness, numbers: range, start: int) -> None:
    for place, number in enumerate(numbers):
        key = KEYS[number * number % len(KEYS)]
        harness.push("pairs", (key, number), timestamp=start + place * 60 % 2_400)
        if number % 3 == 0:
            harness.push("others", (key, -number), timestamp=start + place * 55 % 2_400)


def _watermarks(harness: JobHarness, time: int) -> None:
    for source in ("pairs", "others"):
        harness.advance_watermark(source, time)
    harness.run()


def results(harness: JobHarness, name: str) -> list[str]:
    """Return the values of an output with their types and event times, in an order that does not depend on the
    parallelism."""
    return sorted(f"{typed(value)} @ {time}" for value, time in harness.outputs_with_timestamps(name))


def typed(value: Any) -> str:
    """Return a text with the value and its type, including nested values."""
    if isinstance(value, tuple | list) and type(value).__name__ in ("tuple", "list"):
        return f"{type(value).__name__}({', '.join(map(typed, value))})"
    if type(value) is dict:
        return f"dict({', '.join(f'{typed(k)}: {typed(v)}' for k, v in sorted(value.items()))})"
    return f"{type(value).__name__}:{value!r}"
