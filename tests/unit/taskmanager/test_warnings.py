"""Mistakes of a program that do not fail: a warning names each of them once."""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.common.program import one_time_warning
from penstock.common.program.one_time_warning import ShortTimeWarning
from penstock.common.time import Time, TimeLike
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.records.batch import RowBatch
from penstock.taskmanager.chain import ChainedOutput
from tests.in_process import environment, run


@pytest.fixture(autouse=True)
def _first_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_time_warning, "_given", set())


def test_an_unread_side_output_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    output = ChainedOutput()
    output._add("read", lambda batch: None)
    for tag in ("late", "read", "late"):
        output.emit_side(tag, RowBatch([1], None))
    [record] = caplog.records
    assert record.getMessage().startswith("records for the side output 'late' are dropped")


@pytest.mark.parametrize(
    ("function", "warns"),
    [
        (lambda value: ("a", value), True),
        (lambda value: [("a", value)], False),
        (lambda value: (value, value), False),
    ],
    ids=["a record", "a list of records", "values of one type"],
)
def test_a_returned_tuple_that_flat_map_splits_is_named_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, function: Any, warns: bool
) -> None:
    env = environment(tmp_path)
    env.from_collection([1, 2]).flat_map(function).print()
    run(env)
    messages = [record.getMessage() for record in caplog.records if "flat_map emits each" in record.getMessage()]
    assert len(messages) == warns, messages
    if warns:
        assert __file__ in messages[0]


def test_a_window_of_a_few_milliseconds_that_is_a_number_causes_a_warning() -> None:
    with pytest.warns(
        ShortTimeWarning, match=r"size of TumblingEventTimeWindows is 60 ms.*timedelta\(seconds=60\)"
    ) as caught:
        TumblingEventTimeWindows.of(60)
    assert __file__ in str(caught[0].message)
    with pytest.warns(ShortTimeWarning, match="gap of"):
        EventTimeSessionWindows.with_gap(30)
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.warns(ShortTimeWarning, match=r"execution\.checkpointing\.interval is 5 ms"):
        env.enable_checkpointing(5)


@pytest.mark.parametrize("size", [timedelta(milliseconds=60), Time.milliseconds(60), 100, 60_000])
def test_an_explicit_unit_and_a_longer_time_cause_no_warning(size: TimeLike) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TumblingEventTimeWindows.of(size)
