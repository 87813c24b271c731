"""The memory model: how a container's limit is divided, and when it is too small."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.config.memory import (
    FRAMEWORK,
    MIB,
    effective,
    job_manager_memory,
    jvm_heap,
    min_job_manager_memory,
    min_task_manager_memory,
    shortages,
    task_manager_memory,
)
from penstock.common.configuration import Configuration
from penstock.common.errors import InvalidJob

SIZE, SLOTS = "taskmanager.memory.process.size", "taskmanager.numberOfTaskSlots"
ROCKSDB = {"state.backend.type": "rocksdb"}

TABLE = [
    # settings, heap, RocksDB and Python of a slot (MiB)
    ({}, 512, None, None),
    ({"penstock.executor.memory-mb": 300}, 300, None, None),
    ({"penstock.executor.memory-mb": 64}, 128, None, None),
    ({SIZE: "1gb"}, 319, None, 497),
    ({SIZE: "1gb", SLOTS: 2}, 319, None, 240),
    ({SIZE: "2gb"}, 512, None, 1328),
    ({SIZE: "2gb", SLOTS: 4}, 677, None, 279),
    ({SIZE: "16gb"}, 512, None, 15664),
    ({SIZE: "2gb", "penstock.memory.heap.fraction": 0.2}, 387, None, 1453),
    ({SIZE: "2gb", "penstock.memory.jvm-overhead": "200mb"}, 512, None, 1224),
    ({SIZE: "2gb", "penstock.executor.memory-mb": 1000}, 1000, None, 840),
    ({SIZE: "300mb"}, 128, None, -36),
    (ROCKSDB, 512, None, None),
    (ROCKSDB | {SIZE: "2gb"}, 512, 531, 797),
    (ROCKSDB | {SIZE: "2gb", SLOTS: 2}, 677, 229, 344),
    (ROCKSDB | {SIZE: "2gb", "taskmanager.memory.managed.fraction": 0.1}, 512, 133, 1195),
    (ROCKSDB | {SIZE: "2gb", SLOTS: 2, "taskmanager.memory.managed.size": "256mb"}, 677, 128, 446),
    (ROCKSDB | {SIZE: "2gb", SLOTS: 2, "state.backend.rocksdb.memory.fixed-per-slot": "64mb"}, 677, 64, 510),
    (ROCKSDB | {"taskmanager.memory.managed.size": "256mb", SLOTS: 2}, 724, 128, None),
    (ROCKSDB | {SIZE: "300mb"}, 128, 0, -36),
]


def mib(size: int | None) -> int | None:
    return None if size is None else round(size / MIB)


@pytest.mark.parametrize(("settings", "heap", "rocksdb", "python"), TABLE, ids=lambda value: str(value))
def test_the_limit_of_a_worker_is_divided(
    settings: dict[str, Any], heap: int, rocksdb: int | None, python: int | None
) -> None:
    memory = task_manager_memory(Configuration(settings))
    found = mib(memory.heap), mib(memory.managed_per_slot), mib(memory.python_per_slot)
    assert found == (heap, rocksdb, python)
    if memory.process is not None and memory.python_per_slot is not None:
        once, of_slot = (
            FRAMEWORK + memory.heap + memory.overhead,
            (memory.managed_per_slot or 0) + memory.python_per_slot,
        )
        assert 0 <= memory.process - once - of_slot * memory.slots < memory.slots, (
            "the parts do not add up to the limit"
        )


@pytest.mark.parametrize(
    ("settings", "heap", "python"),
    [
        ({}, 640, None),
        ({"jobmanager.memory.process.size": "512mb"}, 144, 272),
        ({"jobmanager.memory.process.size": "1gb"}, 400, 528),
        ({"jobmanager.memory.process.size": "4gb"}, 640, 3360),
        ({"jobmanager.memory.process.size": "1gb", "jobmanager.memory.heap.size": "300mb"}, 300, 628),
        ({"jobmanager.memory.heap.size": "1gb"}, 1024, None),
    ],
)
def test_the_limit_of_a_master_is_divided(settings: dict[str, Any], heap: int, python: int | None) -> None:
    memory = job_manager_memory(Configuration(settings))
    assert (mib(memory.heap), mib(memory.python)) == (heap, python)


def short(levels: int = 3, state: int = 0, **settings: object) -> list[str]:
    found = shortages(Configuration({k.replace("__", "."): v for k, v in settings.items()}), levels, state)
    return [f"{one.message}. {one.remedy}" for one in found]


def test_four_slots_in_one_gibibyte_are_refused_with_the_sufficient_size() -> None:
    settings: dict[str, Any] = {SIZE: "1gb", SLOTS: 4}
    (text,) = short(**settings)
    assert (
        "4 slots need 1055Mi (112Mi for the worker itself, JVM heap 319Mi, JVM overhead 144Mi, and for each slot Python 120Mi"
        in text
    )
    assert f"{SIZE} is 1024Mi. raise {SIZE} to 1088Mi, or lower {SLOTS} to 3" in text
    assert short(**settings | {SIZE: "1088Mi"}) == []
    assert short(**settings | {SLOTS: 3}) == []


def test_the_memory_is_unknown_without_a_limit() -> None:
    assert short(**{SLOTS: 64}) == []


@pytest.mark.parametrize("levels", [1, 3, 8])
@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_size_in_a_remedy_is_sufficient(levels: int, slots: int, backend: str) -> None:
    settings: dict[str, Any] = {SIZE: "600mb", SLOTS: slots, "state.backend.type": backend}
    for text in short(levels, **settings):
        named = text.partition(f"raise {SIZE} to ")[2].partition("Mi")[0]
        assert short(levels, **settings | {SIZE: f"{named}mb"}) == []
        assert short(levels, **settings | {SIZE: f"{int(named) - 65}mb"}) != []


def test_state_in_python_is_included() -> None:
    settings: dict[str, Any] = {SIZE: "1gb"}
    assert short(state=200 * MIB, **settings) == []
    (text,) = short(state=400 * MIB, **settings)
    assert "Python 520Mi for 3 levels (including 400Mi for the state of the newest checkpoint)" in text
    assert short(state=400 * MIB, **settings | ROCKSDB) == []


def test_a_master_without_enough_memory_is_reported() -> None:
    (text,) = short(**{"jobmanager.memory.process.size": "256mb"})  # type: ignore[arg-type]
    assert "Linux would kill the master for its memory: it needs 352Mi" in text
    assert "raise jobmanager.memory.process.size to 384Mi" in text


def test_the_parent_of_a_jobmanager_counts() -> None:
    settings = {"jobmanager.memory.process.size": f"{min_job_manager_memory()}b"}
    (text,) = short(**settings, **{"penstock.jobmanager.keep-executors": "true"})  # type: ignore[arg-type]
    assert "it needs 424Mi (JVM heap 128Mi, JVM overhead 96Mi, Python 200Mi)" in text


def test_the_default_memory_request_is_sufficient() -> None:
    for slots in (1, 2, 4):
        assert (
            short(**{SIZE: f"{min_task_manager_memory(slots)}b", SLOTS: slots, "penstock.executor.memory-mb": 1}) == []  # type: ignore[arg-type]
        )
    assert short(**{"jobmanager.memory.process.size": f"{min_job_manager_memory()}b"}) == []  # type: ignore[arg-type]


def test_no_heap_is_smaller_than_the_minimum_of_spark() -> None:
    """Spark uses the size that the JVM reports. It is smaller than `-Xmx` by one survivor space of the serial
    collector."""
    assert jvm_heap(0) * 29 // 30 >= 1.5 * 300 * MIB
    assert jvm_heap(700 * MIB) == 700 * MIB


def test_the_effective_settings_can_be_read() -> None:
    found = effective(Configuration(ROCKSDB | {SIZE: "1gb", SLOTS: 2, "jobmanager.memory.process.size": "1gb"}))
    assert found["penstock.executor.memory-mb"] == "480"
    assert found["jobmanager.memory.heap.size"] == "480mb"
    assert int(found["taskmanager.memory.managed.size"][:-1]) // MIB == 192
    assert effective(Configuration(ROCKSDB | found)) == found, "the effective settings change when they are set"


@pytest.mark.parametrize("value", ["0", "1", "-0.1", "half"])
def test_an_invalid_share_is_refused(value: str) -> None:
    with pytest.raises(InvalidJob, match=r"penstock\.memory\.heap\.fraction.*between 0 and 1"):
        task_manager_memory(Configuration({SIZE: "1gb", "penstock.memory.heap.fraction": value}))
