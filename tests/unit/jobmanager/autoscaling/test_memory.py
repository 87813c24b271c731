"""The advice on the memory of slots."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.common.config.memory import MIB, TaskManagerMemory, task_manager_memory
from penstock.common.configuration import Configuration
from penstock.jobmanager.autoscaling.memory import advise
from penstock.jobmanager.autoscaling.samples import MemorySample, Sample
from tests.unit.jobmanager.autoscaling.measurements import sample

MEMORY = TaskManagerMemory(
    slots=2,
    process=2048 * MIB,
    heap=512 * MIB,
    overhead=64 * MIB,
    managed_per_slot=256 * MIB,
    python_per_slot=512 * MIB,
)


def advice(python: int = 300, state: int = 100, hits: int | None = None, misses: int | None = None) -> dict[str, Any]:
    first = MemorySample(python * MIB, state * MIB, None if hits is None else 0, None if misses is None else 0)
    last = MemorySample(python * MIB, state * MIB, hits, misses)
    return advise(MEMORY, [first, last], uses_rocksdb=True)


def test_python_gets_more_memory_if_it_is_near_its_limit() -> None:
    found = advice(python=460)
    assert (found["python"]["advice"], found["python"]["recommended"]) == ("MORE", 704 * MIB)
    assert "use 460 MiB of 512 MiB. Give them 704 MiB." in found["python"]["message"]
    assert found["recommendedProcessSize"] == (2048 + 2 * 192) * MIB


def test_python_gets_less_memory_if_it_uses_little_of_it() -> None:
    found = advice(python=100)
    assert (found["python"]["advice"], found["python"]["recommended"]) == ("LESS", 192 * MIB)
    assert found["recommendedProcessSize"] == (2048 - 2 * 320) * MIB
    usual = advice(python=300)
    assert (usual["python"]["advice"], usual["recommendedProcessSize"]) == ("ENOUGH", 2048 * MIB)


@pytest.mark.parametrize(
    ("state", "misses", "expected", "recommended"),
    [
        (4000, 20_000, "MORE", 512),  # at most twice the present size at once
        (200, 20_000, "MORE", 448),  # the whole state fits
        (20, 20_000, "MORE", 320),  # many misses show that the size of the state on disk is no measure
        (4000, 5_000, "ENOUGH", 256),
        (4000, 500, "ENOUGH", 256),
        (30, 500, "LESS", 64),
    ],
)
def test_cache_misses_decide_about_the_memory_of_rocksdb(
    state: int, misses: int, expected: str, recommended: int
) -> None:
    found = advice(state=state, hits=100_000 - misses, misses=misses)["rocksdb"]
    assert (found["advice"], found["recommended"] // MIB) == (expected, recommended)
    assert f"{misses / 1000:.1f} % of its blocks" in found["message"]


def test_without_counted_misses_only_state_that_fits_into_the_cache_is_judged() -> None:
    fits, large = advice(state=100)["rocksdb"], advice(state=1000)["rocksdb"]
    assert (fits["advice"], large["advice"]) == ("ENOUGH", "UNKNOWN")
    assert "state.backend.rocksdb.metrics.block-cache-miss" in large["message"]
    few = advice(state=1000, hits=20, misses=80)["rocksdb"]
    assert (few["advice"], few["recommended"]) == ("UNKNOWN", 256 * MIB)


def test_counters_of_a_restarted_database_are_not_used() -> None:
    samples = [MemorySample(1, 1000 * MIB, 500_000, 500_000), MemorySample(1, 1000 * MIB, 10_000, 100)]
    assert advise(MEMORY, samples, uses_rocksdb=True)["rocksdb"]["advice"] == "UNKNOWN"


def test_without_limits_there_is_no_recommended_size_of_the_process() -> None:
    memory = task_manager_memory(Configuration({"state.backend.type": "rocksdb"}))
    samples = [MemorySample(100 * MIB, 400 * MIB, 0, 0), MemorySample(100 * MIB, 400 * MIB, 50_000, 50_000)]
    found = advise(memory, samples, uses_rocksdb=True)
    assert (found["python"]["advice"], found["processSize"], found["recommendedProcessSize"]) == ("UNKNOWN", None, None)
    assert (found["rocksdb"]["advice"], found["rocksdb"]["recommended"]) == ("MORE", 832 * MIB)


def test_a_job_without_samples_or_without_rocksdb_has_no_advice() -> None:
    found = advise(MEMORY, [], uses_rocksdb=False)
    assert (found["python"]["advice"], found["rocksdb"]) == ("UNKNOWN", None)
    assert found["recommendedProcessSize"] == MEMORY.process


def test_a_recording_contains_the_memory() -> None:
    one = sample(5, memory=MemorySample(1, 2, 3, None))
    assert Sample.from_json(json.loads(json.dumps(one.to_json()))) == one
