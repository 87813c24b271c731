"""An upgrade that changes a built-in operator has the results of the new operator, or is refused by name.

Each cell changes one parameter of one operator between a snapshot and its restore. `test_every_parameter_has_a_cell`
fails for an operator, or a parameter, without a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from penstock.common.errors import RestoreRefused
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    TumblingEventTimeWindows,
)
from penstock.graph import operations
from penstock.graph.operations import Operation
from penstock.graph.state_meaning.compare import compare
from penstock.graph.state_meaning.describe import meaning_of
from penstock.testing import JobHarness
from tests.semantics.operator_changes import CELLS, SECOND, Cell, F, Shape, Watermark, listed, rolling, window
from tests.unit.taskmanager.operators.test_factory import OPERATIONS, kinds, name_of

WITHOUT_EFFECT = {
    (Operation, "key_type"): "stored keys contain their type",
    (operations.InBatchMode, "inner"): "its state is that of the operation inside",
    (operations.InBatchMode, "element_types"): "the schema of the state is compared",
    (operations.Source, "strategy"): "event time continues at the watermark of the snapshot",
    (operations.Source, "source"): "test_the_connector_of_a_source_or_sink_is_compared",
    (operations.Sink, "sink"): "test_the_connector_of_a_source_or_sink_is_compared",
    (operations.TimestampsAndWatermarks, "strategy"): "event time continues at the watermark of the snapshot",
    (operations.MapBatches, "function"): "the operator has no state of the engine",
    (operations.Project, "indexes"): "it has no state",
    (operations.Select, "columns"): "it has no state",
    (operations.Select, "keeps"): "it has no state",
    (operations.Gather, "size"): "waiting records go into lists of the new size",
    (operations.Gather, "timeout_ms"): "waiting records get the new timeout",
    (operations.AsyncWait, "timeout_ms"): "requests are made again",
    (operations.AsyncWait, "capacity"): "requests are made again",
    (operations.AsyncWait, "retry_strategy"): "requests are made again",
    (operations.AsyncWait, "output_mode"): "requests are made again",
    (operations.AsyncWait, "declared"): "the type of results is not in state",
    (operations.Window, "late_tag"): "late records are not in state",
    (operations.IntervalJoin, "late_tags"): "late records are not in state",
}
OF_THE_USER = {"function", "key_selector", "selectors"}
"""User code, which cannot be compared. The cells have the changes that can be detected."""
SCHEMAS = {"element_type", "element_types", "descriptors"}
"""Parameters whose schema is compared when the state is requested (`test_declared_state.py`)."""


def build(shape: Shape) -> Callable[[Any], None]:
    def builder(h: Any) -> None:
        h.left = h.source("in")
        h.collect(shape(h.left.key_by(lambda r: r[0]), h).uid("op"), "out")

    return builder


def push(h: Any, items: list[Any]) -> None:
    for item in items:
        if isinstance(item, Watermark):
            h.advance_watermark("in", item.at)
        else:
            h.push("in", item, timestamp=item[-1])
        h.run()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.operation.__name__}.{cell.parameter}: {cell.name}")
@pytest.mark.parametrize("backend", ["hashmap", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_a_changed_operator_has_the_results_of_the_change_or_is_refused(cell: Cell, backend: str) -> None:
    is_refused = isinstance(cell.expected, str)
    if is_refused and backend == "rocksdb":
        return  # refusals occur before a backend is used
    with JobHarness(backend=backend) as h:
        build(cell.before)(h)
        push(h, cell.first)
        snapshot = h.snapshot()
    if is_refused:
        with pytest.raises(RestoreRefused) as refused:
            JobHarness.restore_into(snapshot, build(cell.after), backend=backend)
        assert cell.expected in refused.value.message
        assert "uid 'op'" in refused.value.message
        assert "allow_non_restored_state=['op']" in refused.value.remedy
        return
    with JobHarness.restore_into(snapshot, build(cell.after), backend=backend) as h:
        reported = "; ".join(map(str, h._driver.master.checkpoints.changes))
        assert cell.reported in reported
        assert bool(cell.reported) == bool(reported)
        push(h, cell.then)
        results = h.outputs("out")
        assert [
            result[: len(want)] if isinstance(want, tuple) else result
            for result, want in zip(results, cell.expected, strict=False)
        ] == cell.expected
        assert len(results) == len(cell.expected)
        if any(isinstance(item, Watermark) and item.at >= 5000 for item in cell.then):
            h.advance_watermark("in", 1_000_000)
            assert h.state_size("op") == 0, "removed windows and values have left state"
        again = h.snapshot()
    with JobHarness.restore_into(again, build(cell.after), backend=backend) as h:
        assert h._driver.master.checkpoints.changes == []


def parameters_of(kind: type[Operation]) -> set[tuple[type[Operation], str]]:
    return {(kind, field.name) for field in fields(kind)}


def test_every_parameter_has_a_cell() -> None:
    covered = {(cell.operation, cell.parameter) for cell in CELLS} | set(WITHOUT_EFFECT)
    covered |= {(operations.IntervalJoin, "upper_ms"), (operations.IntervalJoin, "lower_ms")}
    missing = {
        (kind.__name__, name)
        for kind in kinds(Operation)
        for kind, name in parameters_of(kind)
        if (kind, name) not in covered and (Operation, name) not in WITHOUT_EFFECT and name not in OF_THE_USER | SCHEMAS
    }
    assert missing == set()


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_every_operation_has_a_description_that_is_compatible_with_itself(operation: Operation) -> None:
    meaning = meaning_of(operation)
    assert meaning["kind"]
    assert compare(meaning, meaning).refusal == ""


@pytest.mark.parametrize("old", OPERATIONS, ids=name_of)
def test_state_of_one_kind_of_operator_is_refused_by_every_other_kind(old: Operation) -> None:
    before = meaning_of(old)
    for new in OPERATIONS:
        after = meaning_of(new)
        assert bool(compare(before, after).refusal) == (
            before["kind"] != after["kind"]
            or (before["keyed"] and not after["keyed"])
            or before.get("of") != after.get("of")
            or before.get("connector") != after.get("connector")
        ), (old, new)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_new_extreme_starts_empty_for_columns(backend: str) -> None:
    """A key with counted values has no extreme until its next value, even if the value arrives in a column."""

    def columnar(*aggregates: F) -> Callable[[Any], None]:
        def builder(h: Any) -> None:
            batches = h.source("in").map_batches(lambda batch: batch)
            h.collect(batches.key_by("k").aggregate(F.of(*aggregates)).uid("op"), "out")

        return builder

    with JobHarness(backend=backend) as h:
        columnar(F.sum("n"))(h)
        h.push("in", *[{"k": key, "n": 5} for key in "ab"])
        snapshot = h.snapshot()
    with JobHarness.restore_into(snapshot, columnar(F.sum("n"), F.max("n")), backend=backend) as h:
        h.push("in", {"k": "a", "n": None}, {"k": "b", "n": 1}, {"k": "a", "n": 2})
        assert h.outputs("out") == [("a", 5, None), ("b", 6, 1), ("a", 7, 2)]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_changed_state_is_rewritten_at_another_parallelism(backend: str) -> None:
    keys = [f"key {number}" for number in range(20)]
    with JobHarness(backend=backend) as h:
        build(rolling(F.sum(1), F.sum(2)))(h)
        h.push("in", *[(key, 1, 10) for key in keys])
        snapshot = h.snapshot()
    with JobHarness.restore_into(
        snapshot, build(rolling(F.count(), F.sum(2), F.sum(1))), parallelism=3, backend=backend
    ) as h:
        h.push("in", *[(key, 1, 10) for key in keys])
        assert sorted(h.outputs("out")) == sorted((key, 2, 20, 2) for key in keys)


class Anything:
    """An object that has every attribute, like test doubles and proxies."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments: None


class SlottedWindows(TumblingEventTimeWindows):
    __slots__ = ()


def test_user_objects_are_described_only_by_their_class() -> None:
    assert meaning_of(operations.Map(Anything()))["kind"] == "function"
    assert meaning_of(operations.Sink(Anything()))["connector"] == "custom"  # type: ignore[arg-type]
    assert meaning_of(operations.Source(Anything()))["connector"] == "custom"  # type: ignore[arg-type]
    window = next(o for o in OPERATIONS if isinstance(o, operations.Window))
    described = meaning_of(replace(window, assigner=SlottedWindows(10)))
    assert described["windows"]["class"] == "SlottedWindows"


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("trigger", [None, ContinuousEventTimeTrigger.of(50_000)], ids=["grouped", "by pane"])
def test_a_longer_lateness_does_not_open_windows_without_their_former_records(backend: str, trigger: Any) -> None:
    def late(lateness: int) -> Shape:
        options = {"allowed_lateness": lateness, **({} if trigger is None else {"trigger": trigger})}
        return window(SECOND, listed, **options)

    with JobHarness(backend=backend) as h:
        build(late(100))(h)
        push(h, [("k", 1, 100), ("k", 2, 1200), ("k", 3, 2200), Watermark(2050)])
        assert h.outputs("out") == [("k", 0, 1000, [1]), ("k", 1000, 2000, [2])]
        snapshot = h.snapshot()
    for _ in range(2):
        with JobHarness.restore_into(snapshot, build(late(10_000)), backend=backend) as h:
            push(h, [("k", 4, 300), ("k", 5, 1300)])
            assert h.outputs("out") == [("k", 1000, 2000, [2, 5])], (
                "the first window was removed, and the second one is open"
            )
            h.crash()
    with JobHarness.restore_into(snapshot, build(late(10_000)), backend=backend) as h:
        again = h.snapshot()
    with JobHarness.restore_into(again, build(late(10_000)), backend=backend) as h:
        h.run()
        h.take("out")
        push(h, [("k", 4, 300), ("k", 6, 2300), Watermark(3000)])
        assert h.take("out") == [("k", 2000, 3000, [3, 6])]
        push(h, [Watermark(50_000)])
        assert h.state_size("op") == 0
