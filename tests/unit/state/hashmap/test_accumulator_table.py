"""Accumulators that alternate between objects and columns: random programs with confirmed and aborted snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.datastream.state import ValueStateDescriptor
from penstock.state.encoding.packed_keys import PackedKeys
from penstock.state.hashmap import accumulator_table
from penstock.state.hashmap import segment_chain as chain
from penstock.state.key_groups import key_group
from tests.unit.state.support import MAX_PARALLELISM, Backends, at, content

TOTALS = ValueStateDescriptor("totals")
KEYS = [f"t{i}" for i in range(8)] + ["a longer key"]


@dataclass(frozen=True)
class Pairs:
    """Accumulators of the form (n, 2 * n)."""

    name: str = ""
    fresh: ClassVar[tuple[int]] = (0,)
    is_flat: ClassVar[bool] = True

    def columns(self, accumulators: Sequence[Any]) -> list[Any] | None:
        fits = all(-(2**63) <= n < 2**63 for n, _ in accumulators)
        return [np.array([n for n, _ in accumulators])] if fits else None

    def accumulators(self, columns: Sequence[Any]) -> list[Any]:
        return [(n, 2 * n) for n in columns[0].tolist()]


SHAPE = Pairs()


class Program:
    """One state of one backend, and its expected content."""

    def __init__(self, backends: Backends) -> None:
        self.backends = backends
        self.backend = backends.create()
        self.model: dict[Any, Any] = {}
        self.under_way: list[tuple[int, dict[str, Any], dict[Any, Any]]] = []
        self.confirmed: tuple[list[dict[str, Any]], dict[Any, Any]] = ([], {})
        self.checkpoint = 0
        self.times_in_columns = 0

    def add_in_columns(self, keys: list[Any], more: int, shape: Pairs = SHAPE) -> None:
        table = self.backend.raw_table(TOTALS).columns(shape, len(keys))
        places = None if table is None else table.find(PackedKeys.of_list(keys))
        if places is None:
            self.add_in_objects(keys, more)
            return
        self.times_in_columns += 1
        (before,) = table.read(places)
        assert before.tolist() == [self.model.get(key, (0, 0))[0] for key in keys]
        table.write(places, [before + more])
        self._add(keys, more)

    def add_in_objects(self, keys: list[Any], more: int) -> None:
        self._add(keys, more)
        table = self.backend.raw_table(TOTALS)
        live = table.mapping()
        live.update({key: self.model[key] for key in keys})
        table.touch(keys)

    def _add(self, keys: list[Any], more: int) -> None:
        for key in keys:
            n = self.model.get(key, (0, 0))[0] + more
            self.model[key] = n, 2 * n

    def remove(self, key: Any) -> None:
        self.backend.raw_table(TOTALS).remove(key)
        self.model.pop(key, None)

    def snapshot(self) -> None:
        self.checkpoint += 1
        handle = self.backends.snapshot(self.backend, self.checkpoint, confirm=False)
        self.under_way.append((self.checkpoint, handle, dict(self.model)))

    def confirm(self) -> None:
        self.snapshot()
        checkpoint, handle, model = self.under_way[-1]
        self.backend.notify_checkpoint_complete(checkpoint)
        self.under_way = []
        self.confirmed = ([handle], model)

    def abort(self) -> None:
        if self.under_way:
            self.backend.notify_checkpoint_aborted(self.under_way.pop()[0])

    def restart(self, *, registered: bool) -> None:
        handles, model = self.confirmed
        (self.backend,) = self.backends.restored(handles, owned=True)
        self.model, self.under_way = dict(model), []
        if registered:
            self.backend.raw_table(TOTALS)

    def check(self, parallelism: int, kind: str) -> None:
        """Check the confirmed content in a new run."""
        handles, model = self.confirmed
        restored = self.backends.restored(handles, parallelism, kind=kind)
        assert content(restored, TOTALS) == {(None, key): value for key, value in model.items()}


texts = st.lists(st.sampled_from(KEYS), unique=True, min_size=1)
more = st.integers(1, 9)
steps = st.one_of(
    st.tuples(st.just("add_in_columns"), texts, more),
    st.tuples(st.just("add_in_columns"), texts, more),
    st.tuples(st.just("add_in_columns"), texts, more, st.sampled_from([SHAPE, Pairs("another shape")])),
    st.tuples(st.just("add_in_objects"), texts, more | st.just(2**63)),
    st.tuples(st.just("add_in_objects"), st.sampled_from([[7], [(1, "a")]]), more),
    st.tuples(st.just("remove"), st.sampled_from([*KEYS, 7])),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("confirm")),
    st.tuples(st.just("confirm")),
    st.tuples(st.just("abort")),
)


@pytest.fixture(autouse=True)
def columns_at_once(small_sizes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small sizes, so that rounds occur with few keys and objects become columns again immediately."""
    monkeypatch.setattr(chain, "FAST_SHARE", 0.9)
    monkeypatch.setattr(accumulator_table, "_PATIENCE", 0)
    monkeypatch.setattr(accumulator_table, "_FEW", 1)


@given(
    program=st.lists(steps, max_size=25),
    kind=st.sampled_from(["hashmap", "hashmap", "hashmap", "rocksdb"]),
    parallelism=st.sampled_from([1, 3]),
    restart=st.none() | st.tuples(st.integers(0, 20), st.booleans()),
)
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_and_objects_are_one_state(
    tmp_path_factory: pytest.TempPathFactory, program: Any, kind: str, parallelism: int, restart: Any
) -> None:
    backends = Backends("hashmap", tmp_path_factory.mktemp("state") if kind == "rocksdb" else Path())
    run = Program(backends)
    run.add_in_columns(KEYS, 1)
    run.confirm()
    for number, (step, *arguments) in enumerate(program):
        getattr(run, step)(*arguments)
        assert run.backend.entry_count() == len(run.model)
        if restart is not None and number == restart[0]:
            run.restart(registered=restart[1])
            run.add_in_columns(KEYS[:2], 1)
    run.confirm()
    run.check(parallelism, kind)
    assert run.times_in_columns
    live = run.backend.raw_table(TOTALS).mapping()
    assert live == run.model
    backends.close()


def changed_run(tmp_path: Path) -> Program:
    run = Program(Backends("hashmap", tmp_path))
    run.add_in_columns(KEYS, 1)
    run.confirm()
    return run


def test_a_table_in_columns_writes_only_changes(tmp_path: Path) -> None:
    run = changed_run(tmp_path)
    run.add_in_columns(KEYS[:1], 1)
    run.confirm()
    assert run.confirmed[0][0]["files"][-1]["entries"] == 1
    run.check(1, "hashmap")


def test_a_dictionary_that_is_still_referenced_remains_objects(tmp_path: Path) -> None:
    run = changed_run(tmp_path)
    state = run.backend.get_state(TOTALS)
    run.add_in_columns(KEYS[:1], 1)
    at(run.backend, KEYS[0])
    assert state.value() == (2, 4)
    assert run.times_in_columns == 1


def test_a_table_that_became_objects_waits_before_it_becomes_columns_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator_table, "_PATIENCE", 4)
    run = changed_run(tmp_path)
    spells = []
    for _ in range(3):
        run.add_in_objects(KEYS[:1], 1)
        before, tries = run.times_in_columns, 0
        while run.times_in_columns == before:
            run.add_in_columns(KEYS, 1)
            tries += 1
        spells.append(tries)
    assert spells == [4, 8, 16]


def test_a_batch_of_few_keys_remains_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulator_table, "_FEW", len(KEYS) + 1)
    assert not changed_run(tmp_path).times_in_columns


def test_key_groups_move_from_columns_to_any_parallelism(tmp_path: Path) -> None:
    run = changed_run(tmp_path)
    restored = run.backends.restored(run.confirmed[0], 3)
    for backend in restored:
        mine = [key for key in KEYS if key_group(key, MAX_PARALLELISM) in backend.key_group_range]
        table = backend.raw_table(TOTALS).columns(SHAPE, 1)
        assert sorted(table.keys()) == sorted(mine)
