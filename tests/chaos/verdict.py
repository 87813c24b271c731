"""Reads the soak's output back and says what is wrong with it, against an independent computation of what must be there."""

from __future__ import annotations

import zlib
from collections import Counter
from functools import lru_cache
from typing import Any

import fsspec
import msgspec

from tests.chaos.job import PER_WINDOW, STEP_MS, WINDOW_MS, SoakPlan, last_large, payload, payload_size

_SHOWN = 5


def read(folder: str, options: dict[str, Any]) -> list[dict[str, int]]:
    """All records of all files under a folder; a line that is not whole fails."""
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
    """What is wrong; empty: every record is there exactly once, and with it the state that belongs to it."""
    return problems_in(plan, read(f"{output}/numbers", options), read(f"{output}/windows", options))


def problems_in(plan: SoakPlan, numbers: list[dict[str, int]], windows: list[dict[str, int]]) -> list[str]:
    """The same for records that were read already."""
    return _numbers(plan, numbers) + _windows(plan, windows)


def expected_number(key: int, number: int) -> dict[str, int]:
    """
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
        "held": _held(key, last_large(key, number)) if number % 10 == 0 else 0,
    }


@lru_cache(1024)
def _held(key: int, number: int) -> int:
    return zlib.crc32(b"" if number < 0 else payload(key, number))


def expected_window(plan: SoakPlan, key: int, start: int) -> dict[str, int]:
    first = start // STEP_MS
    held = range(first, min(first + PER_WINDOW, plan.per_key))
    size = sum(payload_size(key, number) for number in held)
    return {"key": key, "start": start, "sum": sum(held), "count": len(held), "bytes": size}


def _numbers(plan: SoakPlan, records: list[dict[str, int]]) -> list[str]:
    seen = Counter((r["key"], r["number"]) for r in records)
    expected = {(key, number) for key in range(plan.keys) for number in range(plan.per_key)}
    known = (r for r in records if (r["key"], r["number"]) in expected)
    torn = [r for r in known if r != expected_number(r["key"], r["number"])]
    return _differences("number", expected, seen) + _told("state that does not fit its record", torn)


def _windows(plan: SoakPlan, records: list[dict[str, int]]) -> list[str]:
    seen = Counter((r["key"], r["start"]) for r in records)
    starts = range(0, (plan.per_key - 1) * STEP_MS + 1, WINDOW_MS)
    expected = {(key, start) for key in range(plan.keys) for start in starts}
    known = (r for r in records if (r["key"], r["start"]) in expected)
    wrong = [r for r in known if r != expected_window(plan, r["key"], r["start"])]
    return _differences("window", expected, seen) + _told("window with wrong sums", wrong)


def _differences(what: str, expected: set[tuple[int, int]], seen: Counter[tuple[int, int]]) -> list[str]:
    return (
        _told(f"lost {what}", sorted(expected - seen.keys()))
        + _told(f"unknown {what}", sorted(seen.keys() - expected))
        + _told(f"repeated {what}", sorted(item for item, times in seen.items() if times > 1))
    )


def _told(what: str, items: list[Any]) -> list[str]:
    return [f"{len(items)} x {what}: {items[:_SHOWN]}"] if items else []
