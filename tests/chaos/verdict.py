"""Read the soak's output, and compare it with an independent computation of the expected output."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import fsspec
import msgspec

from penstock.datastream.window import FieldAggregate
from tests.chaos.job import (
    AGGREGATES,
    PER_WINDOW,
    STEP_MS,
    WINDOW_MS,
    SoakPlan,
    checksum,
    last_large,
    payload,
    payload_size,
    reading,
)

_SHOWN = 5


def read(folder: str, options: dict[str, Any]) -> list[dict[str, int]]:
    """Return all records of all files under a folder. An incomplete line is an error."""
    fs, path = fsspec.core.url_to_fs(folder, skip_instance_cache=True, use_listings_cache=False, **options)
    found: list[dict[str, int]] = []
    if not fs.exists(path):
        return found
    decode = msgspec.json.Decoder(dict[str, int]).decode
    for file, data in fs.cat(fs.find(path)).items():
        if data and not data.endswith(b"\n"):
            raise AssertionError(f"{file} ends within a line: …{data[-80:]!r}")
        found += map(decode, data.splitlines())
    return found


def problems_of(plan: SoakPlan, output: str, options: dict[str, Any]) -> list[str]:
    """Return the problems of the output. It has none if every record is there exactly once, with the matching state."""
    return problems_in(plan, read(f"{output}/numbers", options), read(f"{output}/windows", options))


def problems_in(plan: SoakPlan, numbers: list[dict[str, int]], windows: list[dict[str, int]]) -> list[str]:
    """Return the problems of records that were read before."""
    floats = [record for record in windows if "floats" in record]
    sums = [record for record in windows if "floats" not in record]
    return _numbers(plan, numbers) + _windows(plan, sums) + _windows(plan, floats, "window of floats", expected_floats)


def expected_number(key: int, number: int) -> dict[str, int]:
    """Return the expected record of a number.

    >>> expected_number(1, 2)["total"], expected_number(1, 0)["last"]
    (3, -1)
    """
    return {
        "key": key,
        "number": number,
        "last": number - 1,
        "count": number + 1,
        "total": number * (number + 1) // 2,
        "crc": zlib.crc32(payload(key, number)),
        "held": _payload_checksum(key, last_large(key, number)) if number % 10 == 0 else 0,
    }


@lru_cache(1024)
def _payload_checksum(key: int, number: int) -> int:
    return zlib.crc32(b"" if number < 0 else payload(key, number))


def expected_window(plan: SoakPlan, key: int, start: int) -> dict[str, int]:
    first = start // STEP_MS
    numbers = range(first, min(first + PER_WINDOW, plan.per_key))
    size = sum(payload_size(key, number) for number in numbers)
    return {"key": key, "start": start, "sum": sum(numbers), "count": len(numbers), "bytes": size}


def expected_floats(plan: SoakPlan, key: int, start: int) -> dict[str, int]:
    """Return the checksum of the aggregates, each computed record by record."""
    first = start // STEP_MS
    aggregate = FieldAggregate.of(*AGGREGATES.values())
    accumulator = aggregate.create_accumulator()
    for number in range(first, min(first + PER_WINDOW, plan.per_key)):
        accumulator = aggregate.add({"x": reading(key, number)}, accumulator)
    results = dict(zip(AGGREGATES, aggregate.get_result(accumulator), strict=True))
    return {"key": key, "start": start, "floats": checksum(results)}


def _numbers(plan: SoakPlan, records: list[dict[str, int]]) -> list[str]:
    seen = Counter((r["key"], r["number"]) for r in records)
    expected = {(key, number) for key in range(plan.keys) for number in range(plan.per_key)}
    known = (r for r in records if (r["key"], r["number"]) in expected)
    torn = [r for r in known if r != expected_number(r["key"], r["number"])]
    return _differences("number", expected, seen) + _listed("state that does not fit its record", torn)


def _windows(
    plan: SoakPlan,
    records: list[dict[str, int]],
    description: str = "window",
    expected_record: Callable[[SoakPlan, int, int], dict[str, int]] = expected_window,
) -> list[str]:
    seen = Counter((r["key"], r["start"]) for r in records)
    starts = range(0, (plan.per_key - 1) * STEP_MS + 1, WINDOW_MS)
    expected = {(key, start) for key in range(plan.keys) for start in starts}
    known = (r for r in records if (r["key"], r["start"]) in expected)
    wrong = [r for r in known if r != expected_record(plan, r["key"], r["start"])]
    return _differences(description, expected, seen) + _listed(f"{description} with wrong sums", wrong)


def _differences(description: str, expected: set[tuple[int, int]], seen: Counter[tuple[int, int]]) -> list[str]:
    return (
        _listed(f"lost {description}", sorted(expected - seen.keys()))
        + _listed(f"unknown {description}", sorted(seen.keys() - expected))
        + _listed(f"repeated {description}", sorted(item for item, times in seen.items() if times > 1))
    )


def _listed(description: str, items: list[Any]) -> list[str]:
    return [f"{len(items)} x {description}: {items[:_SHOWN]}"] if items else []
