"""Windows of local time on the days when the clock moves forward or back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.sql.operators.rows import EventTime
from penstock.sql.operators.windows.streams import TRANSLATIONS
from penstock.sql.plan.nodes import AggregateCall, Column
from penstock.sql.plan.types import SqlType
from penstock.sql.plan.windows import WindowAggregate, WindowSpec
from penstock.sql.streams import Inputs, SqlStream
from penstock.testing import JobHarness

MINUTE = 60_000
ZONE = "America/New_York"
STAMP = SqlType("TIMESTAMP_LTZ", precision=3)
COLUMNS = (Column("k", SqlType("VARCHAR")), Column("ts", STAMP, "ROWTIME"))
COUNT = AggregateCall("COUNT", (), (), -1, distinct=False, type=SqlType("BIGINT"))


def results(backend, window, *instants):
    """Return the end of each window as text, and its number of rows. The instants are rows, as ISO texts in UTC."""
    node = WindowAggregate(1, (2,), COLUMNS, "", (0,), (COUNT,), window, ("WindowEnd",), False)
    with JobHarness(backend=backend) as harness:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime(1))
        stream = harness.source("rows").assign_timestamps_and_watermarks(strategy)
        found = TRANSLATIONS[WindowAggregate](Inputs((SqlStream(stream, False),), (COLUMNS,), ZONE), node, "windows")
        harness.collect(found.stream, "result")
        for instant in instants:
            moment = datetime.fromisoformat(instant).replace(tzinfo=UTC)
            harness.push("rows", ("a", int(moment.timestamp()) * 1_000_000))
            harness.run()
        harness.restore(harness.snapshot(), parallelism=1)
        harness.close("rows")
        return [
            (datetime.fromtimestamp(end // 1_000_000, UTC).strftime("%H:%M"), count)
            for _, count, end in harness.outputs("result")
        ]


def tumble(minutes):
    return WindowSpec("tumble", minutes * MINUTE, minutes * MINUTE, time_index=1, zone=ZONE)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (tumble(60), [("02:00", 1), ("04:00", 1)]),
        (
            WindowSpec("hop", 120 * MINUTE, 30 * MINUTE, time_index=1, zone=ZONE),
            [("02:00", 1), ("02:30", 1), ("03:00", 1), ("03:30", 2), ("04:00", 1), ("04:30", 1), ("05:00", 1)],
        ),
        (WindowSpec("session", 45 * MINUTE, 45 * MINUTE, time_index=1, zone=ZONE), [("02:15", 1), ("03:45", 1)]),
    ],
)
def test_windows_that_end_in_the_skipped_hour_have_results(backend, window, expected):
    found = results(backend, window, "2024-03-10T06:30", "2024-03-10T07:00")
    assert found == expected


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_window_gets_the_rows_of_both_passes_of_the_repeated_hour(backend):
    found = results(backend, tumble(30), "2024-11-03T05:15", "2024-11-03T05:45", "2024-11-03T06:15", "2024-11-03T07:15")
    assert found == [("01:30", 2), ("02:00", 1), ("02:30", 1)]
