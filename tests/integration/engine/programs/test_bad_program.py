"""A job that cannot be built or started fails before it changes anything, and reports who must act and how.

These tests run in one process, because the checks come before any cluster.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from penstock.common.errors import PenstockError
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from tests.in_process import environment
from tests.integration.engine.programs.refusals import Refused, Remembers, nothing_touched, refused
from tests.integration.engine.selfcheck.job import Plan, build


class RemembersTwice(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))
        self.all = runtime_context.get_list_state(ListStateDescriptor("seen", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def test_a_program_without_a_sink_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1, 2]).map(str)
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "no sink" in refusal.message
    assert "sink_to" in refusal.remedy
    assert nothing_touched(tmp_path)


def test_a_uid_used_twice_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).map(str).name("first").uid("same").map(str).name("second").uid("same").print()
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "'same'" in refusal.message
    assert "'first'" in refusal.message
    assert refusal.operator == "second"
    assert refusal.points_to(__file__)
    assert "give each operator another uid" in refusal.remedy
    assert nothing_touched(tmp_path)


def test_keyed_state_without_key_by_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    with pytest.raises(PenstockError) as caught:
        env.from_collection([1]).process(Remembers())  # type: ignore[arg-type]
    refusal = Refused(caught.value)
    assert refusal.code == "KEYED_STATE_NOT_AVAILABLE"
    assert "Remembers" in refusal.message
    assert "key_by" in refusal.remedy
    assert refusal.points_to(__file__)
    assert nothing_touched(tmp_path)


def test_keyed_state_in_a_map_without_key_by_is_refused(tmp_path: Path) -> None:
    class Counts(MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen", int))

        def map(self, value: Any) -> Any:
            return value

    env = environment(tmp_path)
    env.from_collection([1]).map(Counts()).name("counts").print()
    refusal = refused(env)
    assert "KEYED_STATE_NOT_AVAILABLE" in refusal.text
    assert refusal.operator == "counts"
    assert refusal.points_to(__file__)
    assert "key_by" in refusal.text
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


def test_a_state_name_used_twice_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).key_by(str).process(RemembersTwice()).name("twice").print()
    refusal = refused(env)
    assert "STATE_NAME_CONFLICT" in refusal.text
    assert "'seen'" in refusal.message
    assert refusal.operator == "twice"
    assert refusal.points_to(__file__)
    assert not refusal.was_accepted
    assert nothing_touched(tmp_path)


class Opaque:
    """A class without a known encoding."""


class KeepsOpaque(KeyedProcessFunction):
    def __init__(self, declared: Any) -> None:
        self.declared = declared

    def open(self, runtime_context: Any) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", self.declared))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.kept.update(Opaque())
        yield value


@pytest.mark.parametrize("declared", [Opaque, None])
def test_a_type_without_encoding_is_refused(tmp_path: Path, declared: Any) -> None:
    env = environment(tmp_path)
    env.from_collection([1]).key_by(str).process(KeepsOpaque(declared)).name("keeps").print()
    refusal = refused(env)
    assert refusal.code == "STATE_TYPE"
    assert "'kept'" in refusal.message
    assert "Opaque" in refusal.message
    assert refusal.operator == "keeps"
    assert refusal.points_to(__file__)
    assert "dataclass" in refusal.remedy
    assert not any(tmp_path.rglob("_metadata"))
    if declared is not None:  # without a declared type, the first value is needed to detect it
        assert not refusal.was_accepted
        assert nothing_touched(tmp_path)


def test_a_function_that_cannot_be_pickled_is_refused(tmp_path: Path) -> None:
    lock = threading.Lock()
    env = environment(tmp_path)
    env.from_collection([1]).map(lambda value: (lock, value)).name("locks").print()
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "lock" in refusal.message
    assert refusal.operator == "locks"
    assert refusal.points_to(__file__)
    assert "`open`" in refusal.remedy


def test_an_error_in_user_code_ends_with_its_frames_only(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"restart-strategy.type": "none"})
    env.from_collection([1]).map(lambda value: value // 0).name("divides").print()
    refusal = refused(env)
    assert refusal.code == "USER_FUNCTION"
    assert refusal.text.count("USER_FUNCTION") == 1
    assert "record 0" in refusal.message
    assert refusal.operator == "divides"
    assert refusal.points_to(__file__)
    assert refusal.text.rstrip().endswith("ZeroDivisionError: integer division or modulo by zero")


@pytest.mark.parametrize(
    ("key", "value", "choices"),
    [
        ("state.backend.type", "redis", "hashmap, rocksdb"),
        ("high-availability.type", "zookeeper", "kubernetes"),
        ("execution.checkpointing.interval", "soon", "10s"),
    ],
)
def test_an_invalid_setting_is_refused(tmp_path: Path, key: str, value: str, choices: str) -> None:
    with pytest.raises(PenstockError) as caught:
        environment(tmp_path, **{key: value})
    refusal = Refused(caught.value)
    assert refusal.code == "INVALID_JOB"
    assert f"{key} is set to '{value}'" in refusal.message
    assert choices in refusal.message
    assert nothing_touched(tmp_path)


def test_checkpoint_storage_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path, **{"execution.checkpointing.dir": "file:///proc/nowhere"})
    env.from_collection([1]).print()
    refusal = refused(env)
    assert refusal.code == "STORAGE_REFUSED"
    assert "file:///proc/nowhere" in refusal.message
    assert "execution.checkpointing.dir" in refusal.message
    assert refusal.remedy


class ReadsThenWrites(MemoryFileSystem):
    """A store whose driver has no conditional put."""

    protocol = "looksandwrites"
    store: dict[str, Any] = {}
    pseudo_dirs: list[str] = [""]


def test_a_store_without_conditional_writes_is_refused_in_ha_mode(tmp_path: Path) -> None:
    fsspec.register_implementation("looksandwrites", ReadsThenWrites, clobber=True)
    settings = {"execution.checkpointing.dir": "looksandwrites://checkpoints", "high-availability.type": "file"}
    env = environment(tmp_path, **settings)
    env.from_collection([1]).print()
    refusal = refused(env)
    assert refusal.code == "CONDITIONAL_WRITES_UNSUPPORTED"
    assert "looksandwrites://checkpoints" in refusal.message
    assert "If-None-Match" in refusal.remedy
    assert not [path for path in ReadsThenWrites.store if "chk-" in path]


def test_a_parallelism_above_the_max_parallelism_is_refused(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.set_max_parallelism(4)
    stream = env.from_collection([1]).key_by(str).process(Remembers()).name("wide")
    stream.set_parallelism(5).print()
    refusal = refused(env)
    assert refusal.code == "INVALID_JOB"
    assert "parallelism 5" in refusal.message
    assert "4" in refusal.message
    assert refusal.operator == "wide"
    assert refusal.points_to(__file__)
    assert refusal.remedy
    assert nothing_touched(tmp_path)


def test_too_few_slots_are_reported(tmp_path: Path) -> None:
    env = environment(tmp_path)
    build(env.set_parallelism(3), Plan(), str(tmp_path / "output"))
    refusal = refused(env, slots=2, slot_timeout_s=0.3)
    assert refusal.code == "NOT_ENOUGH_SLOTS"
    assert "needs 3 slots, but the cluster has 2" in refusal.message
    assert "lower the parallelism" in refusal.remedy
    assert nothing_touched(tmp_path)
