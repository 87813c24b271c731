"""The verdict finds every kind of wrong output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.job import HUGE, LARGE, STEP_MS, WINDOW_MS, SoakPlan, last_large, payload_size
from tests.chaos.verdict import expected_floats, expected_number, expected_window, problems_in

PLAN = SoakPlan(per_key=45, orders="", keys=4)
Records = list[dict[str, int]]


def right() -> tuple[Records, Records]:
    numbers = [expected_number(key, number) for key in range(PLAN.keys) for number in range(PLAN.per_key)]
    starts = range(0, PLAN.per_key * STEP_MS, WINDOW_MS)
    made = (expected_window, expected_floats)
    return numbers, [one(PLAN, key, start) for key in range(PLAN.keys) for start in starts for one in made]


def test_correct_output_has_no_problems() -> None:
    assert problems_in(PLAN, *right()) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda numbers, windows: numbers.pop(7), "1 x lost number"),
        (lambda numbers, windows: numbers.append(numbers[7]), "1 x repeated number"),
        (lambda numbers, windows: numbers[7].update(number=1000), "unknown number"),
        (lambda numbers, windows: numbers[7].update(last=5), "state that does not fit"),
        (lambda numbers, windows: numbers[7].update(count=9), "state that does not fit"),
        (lambda numbers, windows: numbers[7].update(total=1), "state that does not fit"),
        (lambda numbers, windows: numbers[7].update(crc=1), "state that does not fit"),
        (lambda numbers, windows: numbers[30].update(held=1), "state that does not fit"),
        (lambda numbers, windows: windows.pop(2), "1 x lost window: "),
        (lambda numbers, windows: windows.append(windows[2]), "1 x repeated window: "),
        (lambda numbers, windows: windows[2].update(sum=1), "window with wrong sums"),
        (lambda numbers, windows: windows[2].update(bytes=1), "window with wrong sums"),
        (lambda numbers, windows: windows.pop(3), "1 x lost window of floats"),
        (lambda numbers, windows: windows.append(windows[3]), "1 x repeated window of floats"),
        (lambda numbers, windows: windows[3].update(floats=1), "window of floats with wrong sums"),
    ],
)
def test_wrong_output_is_named(spoil: Callable[[Records, Records], object], message: str) -> None:
    numbers, windows = right()
    spoil(numbers, windows)
    assert any(message in problem for problem in problems_in(PLAN, numbers, windows))


def test_the_end_of_the_input_may_cut_the_last_window_short() -> None:
    assert expected_window(PLAN, 0, 4 * WINDOW_MS)["count"] == 5


def test_state_holds_the_payload_of_the_last_large_record() -> None:
    for key in (0, 1):
        checksum = -1
        for number in range(600):
            assert last_large(key, number) == checksum
            if payload_size(key, number) >= LARGE:
                checksum = number
    assert payload_size(0, 507) == HUGE
