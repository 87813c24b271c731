"""The times of scheduled snapshots: cron expressions and intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.api.cron import CronError, due, parse_cron, upcoming

moments = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(lambda d: d.replace(microsecond=0))
expressions = st.sampled_from(
    [
        "* * * * *",
        "*/15 * * * *",
        "0 3 * * *",
        "30 4 1,15 * *",
        "0 0 * * 0",
        "0 0 29 2 *",
        "5-10/2 8-18 * 6 1-5",
        "0 12 1 * 1",
    ]
)


@pytest.mark.parametrize(
    ("expression", "moment", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00"),
        ("0 3 * * *", "2026-01-01T03:00:00", "2026-01-02T03:00:00"),
        ("*/20 * * * *", "2026-01-01T00:41:00", "2026-01-01T01:00:00"),
        ("0 0 * * 7", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 13 * 5", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("5/20 * * * *", "2026-01-01T00:06:00", "2026-01-01T00:25:00"),
    ],
)
def test_next_times_are_computed(expression: str, moment: str, expected: str) -> None:
    assert parse_cron(expression).after(datetime.fromisoformat(moment)).isoformat() == expected


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "0 0 31 2 *"],
)
def test_invalid_expressions_are_refused(expression: str) -> None:
    with pytest.raises(CronError):
        parse_cron(expression)


@given(expressions, moments)
def test_the_next_time_is_later_and_matches(expression: str, moment: datetime) -> None:
    cron = parse_cron(expression)
    found = cron.after(moment)
    assert found > moment
    assert found.minute in cron.minutes
    assert found.hour in cron.hours
    assert cron.matches_day(found)


@given(expressions, moments, st.integers(0, 10_000_000))
def test_due_times_are_between_the_last_time_and_now(expression: str, last: datetime, seconds: int) -> None:
    now = last + timedelta(seconds=seconds)
    found = due(now, last, interval=None, cron=expression)
    if found is not None:
        assert last < found <= now
        following = due(now, found, interval=None, cron=expression)
        assert following is None, "missed times count once"


@given(moments, st.integers(0, 10_000), st.integers(1, 500))
def test_intervals_are_parsed(last: datetime, seconds: int, interval: int) -> None:
    now, step = last + timedelta(seconds=seconds), timedelta(seconds=interval)
    found = due(now, last, interval=step, cron=None)
    if seconds < interval:
        assert found is None
    else:
        assert found is not None
        assert now - step < found <= now
        assert (found - last) % step == timedelta(0)


schedules = st.tuples(st.none(), expressions) | st.tuples(
    st.integers(1, 500).map(lambda s: timedelta(seconds=s)), st.none()
)


@given(schedules, moments, st.integers(0, 100_000))
def test_a_schedule_is_due_at_its_upcoming_time_and_not_before(
    schedule: tuple[timedelta | None, str | None], last: datetime, seconds: int
) -> None:
    interval, cron = schedule
    now = last + timedelta(seconds=seconds)
    found = upcoming(now, last, interval=interval, cron=cron)
    assert found is not None
    assert found > now
    assert due(found, last, interval=interval, cron=cron) == found
    just_before = found - timedelta(seconds=1)
    assert due(just_before, last, interval=interval, cron=cron) == due(now, last, interval=interval, cron=cron)


def test_a_missing_schedule_has_no_upcoming_time() -> None:
    assert upcoming(datetime(2026, 1, 1), datetime(2026, 1, 1), interval=None, cron=None) is None


def test_a_schedule_of_every_minute_is_not_iterated_for_years() -> None:
    start = datetime(2000, 1, 1, tzinfo=UTC)
    assert due(datetime(2026, 1, 1, tzinfo=UTC), start, interval=None, cron="* * * * *") == datetime(
        2026, 1, 1, tzinfo=UTC
    )
