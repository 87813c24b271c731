from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import reference
from benchmarks.readings import Shape, columns, prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_equal_shapes_generate_equal_readings(tmp_path: Path) -> None:
    shape = Shape(2000, 50, 500)
    one, other = prepare(shape, tmp_path / "one"), prepare(shape, tmp_path / "other")
    assert (one / "big/part-0.jsonl").read_bytes() == (other / "big/part-0.jsonl").read_bytes()


def test_a_sensor_is_in_one_file_only_and_chunks_contain_the_same_lines(tmp_path: Path) -> None:
    folder = prepare(Shape(2000, 50, 0), tmp_path)
    sensors = [{json.loads(line)["sensor_id"] for line in (folder / f"big/part-{n}.jsonl").open()} for n in range(2)]
    assert len(sensors[0] | sensors[1]) == 50
    assert not sensors[0] & sensors[1]
    for n in range(2):
        chunks = sorted((folder / "chunks").glob(f"*-p{n}.jsonl"))
        assert b"".join(chunk.read_bytes() for chunk in chunks) == (folder / f"big/part-{n}.jsonl").read_bytes()


def test_jitter_limits_the_lateness_of_a_reading() -> None:
    calm, jittered = columns(Shape(5000, 10, 0)), columns(Shape(5000, 10, 300))
    lateness = calm.time - jittered.time
    assert lateness.min() >= 0
    assert 0 < lateness.max() <= 300


def test_summaries_equal_those_of_a_plain_loop(tmp_path: Path) -> None:
    shape = Shape(3000, 20, 100)
    data = prepare(shape, tmp_path)
    counts: dict[str, int] = {}
    total = warm = 0
    for path in (data / "big").iterdir():
        for line in path.open():
            reading = json.loads(line)
            counts[reading["sensor_id"]] = counts.get(reading["sensor_id"], 0) + 1
            total += counts[reading["sensor_id"]]
            warm += (reading["temp"] - 32) * 5 / 9 > 20
    assert reference.expected("w2", data, shape) == {"count": 3000, "sum": total}
    assert reference.expected("w1", data, shape)["count"] == warm


@pytest.mark.parametrize(
    ("workload", "spoil"),
    [("w3", lambda rows: rows[1:]), ("w3", lambda rows: [*rows, rows[0]]), ("w4", lambda rows: rows[1:])],
)
def test_a_missing_or_duplicate_result_is_detected(
    tmp_path: Path, workload: str, spoil: Callable[[list[Any]], list[Any]]
) -> None:
    shape = Shape(100_000, 20 if workload == "w3" else 1000, 0)
    data = prepare(shape, tmp_path)
    expected = reference.expected(workload, data, shape)
    rows = [(*key, *expected[key]) for key in expected] if workload == "w3" else sorted(expected)
    assert rows
    results = tmp_path / "out" / "results"
    results.mkdir(parents=True)

    def write(lines: list[tuple[object, ...]]) -> None:
        (results / "part.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in lines))

    write(rows)
    assert reference.difference(workload, expected, {}, tmp_path / "out", shape) is None
    write(spoil(rows))
    assert reference.difference(workload, expected, {}, tmp_path / "out", shape) is not None
