"""The file sink is exactly once. After any failures, readers see every record once and no partial files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import SinkError
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.taskmanager.worker import ManualClock
from tests.unit.connectors.file.file_sink_simulation import Simulation
from tests.unit.connectors.support import START, TEXT, hidden, numbers_in, snapshot, task, visible, writer_context

STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 30)),
    st.tuples(st.just("barrier"), st.integers(0, 2)),
    st.tuples(st.just("abandoned"), st.just(0)),
    st.tuples(st.just("crash"), st.integers(1, 3)),
    st.tuples(st.just("zombie"), st.just(0)),
    st.tuples(st.just("time"), st.integers(1, 100_000)),
)


def play(simulation: Simulation, clock: ManualClock, steps: list[tuple[str, int]]) -> None:
    for step, number in steps:
        match step:
            case "write":
                simulation.write(number)
            case "barrier":
                simulation.barrier(commit=number)
            case "abandoned":
                simulation.barrier(complete=False)
            case "crash":
                simulation.crash(number)
            case "zombie":
                simulation.zombie_writes()
            case "time":
                clock.set(clock.now_ms() + number)
                for writer in simulation.writers:
                    writer.advance_processing_time(clock.now_ms())
    simulation.finish()


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    part_size=st.integers(1, 200),
    on_checkpoint=st.booleans(),
    buckets=st.integers(1, 3),
)
def test_every_record_is_visible_once_after_any_failures(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    part_size: int,
    on_checkpoint: bool,
    buckets: int,
) -> None:
    base = tmp_path_factory.mktemp("sink")
    clock = ManualClock(START)
    policy = RollingPolicy(part_size, 60_000, 60_000, on_checkpoint=on_checkpoint)
    builder = FileSink.for_row_format(str(base), TEXT).with_rolling_policy(policy)
    if buckets > 1:
        builder = builder.with_bucket_assigner(lambda value: f"b{value % buckets}")
    simulation = Simulation(builder.build(), {}, task(clock))
    play(simulation, clock, steps)
    assert numbers_in(base) == list(range(simulation.position))
    assert hidden(base) == []
    shutil.rmtree(base)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=20))
def test_stores_without_resume_are_also_exactly_once(steps: list[tuple[str, int]]) -> None:
    fs = fsspec.filesystem("memory")
    if fs.exists("/out"):
        fs.rm("/out", recursive=True)
    clock = ManualClock(START)
    simulation = Simulation(FileSink.for_row_format("memory://out", TEXT).build(), {}, task(clock))
    play(simulation, clock, steps)
    files = fs.find("/out") if fs.exists("/out") else []
    lines = [line for path in files for line in fs.cat_file(path).split()]
    assert sorted(map(int, lines)) == list(range(simulation.position))
    assert not any("inprogress" in path for path in files)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=20))
def test_parquet_is_also_exactly_once(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    base = tmp_path_factory.mktemp("sink")
    clock = ManualClock(START)

    class Numbers(ParquetWriterFactory):
        def create(self, sink: Any) -> Any:
            writer = super().create(sink)
            add = writer.add
            writer.add = lambda values: add([(value,) for value in values])  # type: ignore[method-assign]
            return writer

    simulation = Simulation(FileSink.for_bulk_format(str(base), Numbers({"n": int})).build(), {}, task(clock))
    play(simulation, clock, steps)
    found = [n for path in visible(base) for n in pq.read_table(path)["n"].to_pylist()]
    assert sorted(found) == list(range(simulation.position))
    assert hidden(base) == []
    shutil.rmtree(base)


def test_nothing_is_visible_before_the_commit(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    writer = sink.create_writer(writer_context(), [])
    committer = sink.create_committer({}, job_id="job", uid="sink")
    writer.write([1, 2], None, 0)
    assert visible(tmp_path) == []
    committables, _ = snapshot(writer, 1)
    assert visible(tmp_path) == []
    committer.commit(committables)
    (path,) = visible(tmp_path)
    assert path.read_text() == "1\n2\n"
    assert path.name.startswith("part-0-0-")
    committer.commit(committables)
    assert visible(tmp_path) == [path]


def test_an_open_part_continues_after_a_restore_without_later_records(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).build()
    first = sink.create_writer(writer_context(), [])
    first.write([1, 2], None, 0)
    _, state = snapshot(first, 1)
    first.write([3], None, 0)
    first.prepare_commit(2)
    (part,) = hidden(tmp_path)
    assert part.read_text() == "1\n2\n3\n"

    second = sink.create_writer(writer_context(attempt=1), state)
    assert part.read_text() == "1\n2\n"
    second.write([4], None, 0)
    second.finish()
    committables, _ = snapshot(second, 3)
    sink.create_committer({}).commit(committables)
    assert visible(tmp_path)[0].read_text() == "1\n2\n4\n"


def test_a_zombie_cannot_write_into_the_part_of_its_successor(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).build()
    zombie = sink.create_writer(writer_context(), [])
    zombie.write([1], None, 0)
    _, state = snapshot(zombie, 1)
    successor = sink.create_writer(writer_context(attempt=1), state)
    successor.write([2], None, 0)
    zombie.write([666] * 100_000, None, 0)
    zombie.prepare_commit(2)
    successor.finish()
    committables, _ = snapshot(successor, 2)
    sink.create_committer({}).commit(committables)
    assert numbers_in(tmp_path) == [1, 2]


def test_an_old_snapshot_is_restored_after_its_part_was_finished(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).build()
    committer = sink.create_committer({})
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    committables, state = snapshot(writer, 1)
    committer.commit(committables)
    writer.finish()
    committer.commit(snapshot(writer, 2)[0])
    assert numbers_in(tmp_path) == [1]

    again = sink.create_writer(writer_context(attempt=1), state)
    again.write([2], None, 0)
    again.finish()
    committer.commit(snapshot(again, 3)[0])
    assert numbers_in(tmp_path) == [1, 2]


def test_a_lost_part_is_an_error_and_creates_no_new_file(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    _, state = snapshot(writer, 1)
    (part,) = hidden(tmp_path)
    part.write_text("X\n")
    with pytest.raises(SinkError, match="not those of the checkpoint"):
        sink.create_writer(writer_context(), state)
    part.write_text("")
    with pytest.raises(SinkError, match="has 0 bytes, the checkpoint has 2"):
        sink.create_writer(writer_context(), state)
    part.unlink()
    with pytest.raises(SinkError, match="cannot be restored"):
        sink.create_writer(writer_context(), state)


def test_a_commit_never_replaces_a_file(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    committables, _ = snapshot(writer, 1)
    Path(committables[0]["path"]).write_text("of somebody else")
    with pytest.raises(SinkError, match="it has 16 bytes, but the job wrote 2"):
        sink.create_committer({}).commit(committables)
    assert Path(committables[0]["path"]).read_text() == "of somebody else"


def test_a_commit_without_hard_links_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    committables, _ = snapshot(writer, 1)
    for _ in range(2):
        sink.create_committer({}).commit(committables)
    assert numbers_in(tmp_path) == [1]
    assert hidden(tmp_path) == []


def test_a_commit_that_crashed_between_link_and_unlink_is_completed(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    committables, _ = snapshot(writer, 1)
    os.link(committables[0]["temp"], committables[0]["path"])
    sink.create_committer({}).commit(committables)
    assert numbers_in(tmp_path) == [1]
    assert hidden(tmp_path) == []


def test_only_unreferenced_parts_of_the_same_sink_are_removed(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).build()
    kept = sink.create_writer(writer_context(0), [])
    lost = sink.create_writer(writer_context(1), [])
    other = sink.create_writer(writer_context(0).__class__(0, 1, 0, "sink", "another job"), [])
    for writer in (kept, lost, other):
        writer.write([1], None, 0)
    keep, _ = snapshot(kept, 1)
    lost.prepare_commit(1)
    other.prepare_commit(1)
    assert len(hidden(tmp_path)) == 3
    sink.create_committer({}).discard_unreferenced(keep)
    assert len(hidden(tmp_path)) == 3, "without a job id nothing may be removed"
    sink.create_committer({}, job_id="job", uid="sink").discard_unreferenced(keep)
    assert len(hidden(tmp_path)) == 2
    assert Path(keep[0]["temp"]).exists()


def test_an_abandoned_checkpoint_keeps_open_parts_of_earlier_checkpoints(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_bucket_assigner(lambda value: f"b{value}").build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    _, state = snapshot(writer, 1)
    writer.write([2], None, 0)
    writer.finish()
    committables, _ = snapshot(writer, 2)
    committer = sink.create_committer({})
    for _ in range(2):
        committer.abort(committables)
    assert [path.parent.name for path in hidden(tmp_path)] == ["b1"]
    again = sink.create_writer(writer_context(attempt=1), state)
    again.finish()
    committer.commit(snapshot(again, 3)[0])
    assert numbers_in(tmp_path) == [1]
