"""Read a self-verifying job's output, and return its problems."""

from __future__ import annotations

from collections import Counter
from typing import Any

import fsspec
import msgspec

from tests.integration.engine.selfcheck.job import PER_WINDOW, STEP_MS, WINDOW_MS, Plan

_SHOWN = 5


def read(folder: str, options: dict[str, Any] | None = None) -> list[dict[str, int]]:
    """Return all records of all visible files under a folder. An incomplete line is an error.

    The name of a file that the sink has not committed begins with a dot. No reader looks at it, and it may go at any time.
    """
    fs, path = fsspec.core.url_to_fs(folder, **(options or {}))
    fs.invalidate_cache()
    decode = msgspec.json.Decoder(dict[str, int]).decode
    if not fs.exists(path):
        return []
    found: list[dict[str, int]] = []
    for file in fs.find(path):
        if file.rpartition("/")[2].startswith("."):
            continue
        data = fs.cat_file(file)
        if data and not data.endswith(b"\n"):
            raise AssertionError(f"{file} ends within a line: …{data[-80:]!r}")
        found += map(decode, data.splitlines())
    return found


def problems_of(plan: Plan, output: str, options: dict[str, Any] | None = None, *, complete: bool = True) -> list[str]:
    """Return the problems of the output, or nothing if it is exactly once.

    Args:
        complete: whether the job has read everything. If not, the output must be a beginning without gaps.
    """
    numbers = read(f"{output}/numbers", options)
    windows = read(f"{output}/windows", options)
    return problems_in(plan, numbers, windows, complete=complete)


def problems_in(
    plan: Plan, numbers: list[dict[str, int]], windows: list[dict[str, int]], *, complete: bool
) -> list[str]:
    """Return the problems of records that were read before."""
    return _numbers(plan, numbers, complete=complete) + _windows(plan, windows, complete=complete)


def verify(plan: Plan, output: str, options: dict[str, Any] | None = None, *, complete: bool = True) -> None:
    """Raise AssertionError with the first problems of each kind."""
    found = problems_of(plan, output, options, complete=complete)
    assert not found, "\n".join(found)


def verify_at_least_once(plan: Plan, output: str) -> None:
    """Raise AssertionError if a record is missing, also in state. State may count too many records, but never too few."""
    numbers, windows = read(f"{output}/numbers"), read(f"{output}/windows")
    seen = {(r["key"], r["number"]) for r in numbers}
    assert seen == {(key, number) for key in range(plan.keys) for number in range(plan.per_key)}
    assert not [r for r in numbers if r["count"] <= r["number"]]
    whole = {(r["key"], r["start"]) for r in windows if r["count"] >= PER_WINDOW}
    starts = range(0, plan.per_key * STEP_MS, WINDOW_MS)
    assert whole == {(key, start) for key in range(plan.keys) for start in starts}


def _numbers(plan: Plan, records: list[dict[str, int]], *, complete: bool) -> list[str]:
    seen = Counter((r["key"], r["number"]) for r in records)
    highest = {key: max((n for k, n in seen if k == key), default=-1) for key in range(plan.keys)}
    expected = {
        (key, number) for key in range(plan.keys) for number in range(plan.per_key if complete else highest[key] + 1)
    }
    torn = [r for r in records if r["last"] != r["number"] - 1 or r["count"] != r["number"] + 1]
    return _differences("number", expected, seen) + _listed("state that does not fit its record", torn)


def _windows(plan: Plan, records: list[dict[str, int]], *, complete: bool) -> list[str]:
    seen = Counter((r["key"], r["start"]) for r in records)
    starts = range(0, (plan.per_key - 1) * STEP_MS + 1, WINDOW_MS)
    expected = {(key, start) for key in range(plan.keys) for start in starts} if complete else set(seen)
    wrong = []
    for record in records:
        first = record["start"] // STEP_MS
        numbers = range(first, min(first + PER_WINDOW, plan.per_key))
        if record["sum"] != sum(numbers) or record["count"] != len(numbers):
            wrong.append(record)
    return _differences("window", expected, seen) + _listed("window with a wrong sum", wrong)


def _differences(description: str, expected: set[tuple[int, int]], seen: Counter[tuple[int, int]]) -> list[str]:
    return (
        _listed(f"lost {description}", sorted(expected - seen.keys()))
        + _listed(f"unknown {description}", sorted(seen.keys() - expected))
        + _listed(f"repeated {description}", sorted(item for item, times in seen.items() if times > 1))
    )


def _listed(description: str, items: list[Any]) -> list[str]:
    return [f"{len(items)} x {description}: {items[:_SHOWN]}"] if items else []
