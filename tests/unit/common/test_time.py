"""Durations and points of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Duration, Instant, Time
from penstock.common.errors import InvalidJob
from penstock.common.time import as_millis, format_duration, parse_duration


@pytest.mark.parametrize(
    "length",
    [
        timedelta(hours=1),
        Duration.of_hours(1),
        Duration.of_minutes(60),
        Time.hours(1),
        Time.milliseconds(3_600_000),
        3_600_000,
    ],
)
def test_every_form_of_an_hour_is_an_hour(length: Any) -> None:
    assert as_millis(length) == 3_600_000


def test_units_have_their_length() -> None:
    assert [d.total_seconds() for d in (Duration.of_days(1), Duration.of_seconds(2), Duration.of_millis(3))] == [
        86400,
        2,
        0.003,
    ]
    assert Duration.of_nanos(2_500) == timedelta(microseconds=2)
    assert [t.to_milliseconds() for t in (Time.days(1), Time.minutes(1), Time.seconds(1))] == [86_400_000, 60_000, 1000]
    assert Time.seconds(1) < Time.seconds(2)


@pytest.mark.parametrize("wrong", ["10s", None, 1.5, True])
def test_an_invalid_duration_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(InvalidJob, match=r"^\[INVALID_JOB\] gap must be a timedelta"):
        as_millis(wrong, "gap")


@given(st.integers(-(2**53), 2**53))
def test_instants_are_milliseconds(millis: int) -> None:
    assert Instant.of_epoch_milli(millis).to_epoch_milli() == millis


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("500ms", 0.5),
        ("500", 0.5),
        ("1.5 h", 5400),
        ("2 days", 172_800),
        ("7us", 7e-6),
        ("PT1H30M", 5400),
        ("P1D", 86400),
    ],
)
def test_texts_of_configuration_files_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "s", "ten seconds", "P", "PT", "10 x"])
def test_wrong_texts_are_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(ValueError, match="for example 500ms"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1000000000 d", "99999999999999d", "9" * 400 + "s", "P99999999999999D"])
def test_a_duration_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="too long; the maximum is 999999999d"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_the_shortest_text_is_parsed_to_the_same_duration(microseconds: int) -> None:
    length = timedelta(microseconds=microseconds)
    assert parse_duration(format_duration(length)) == length
