from __future__ import annotations

import gc
import gzip
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError, UserFunctionError
from penstock.common.serialization import Encoder
from penstock.common.types import Row
from penstock.connectors.file.bucket import BucketAssigner, BucketContext
from penstock.connectors.file.part_file import OutputFileConfig
from penstock.connectors.file.rolling import RollingPolicy
from penstock.connectors.file.sink import FileSink
from penstock.connectors.file.source import FileSource
from penstock.connectors.formats.bulk import CsvWriterFactory, ParquetWriterFactory
from penstock.connectors.formats.csv import CsvDialect
from penstock.connectors.formats.encode import CsvEncoder, JsonLinesEncoder
from penstock.connectors.formats.json_lines import JsonLinesFormat
from penstock.taskmanager.batch import ColumnBatch
from penstock.taskmanager.operators.columns import rows_as_tuples
from tests.unit.connectors.file_sink_simulation import Simulation
from tests.unit.connectors.support import hidden, read_source, snapshot, visible, writer_context

TEXT = Encoder.simple_string_encoder()


class ManualClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


def task(clock: ManualClock) -> Any:
    """The part of an OperatorContext that a file writer uses."""
    return SimpleNamespace(clock=clock)


def numbers_in(directory: Path) -> list[int]:
    return sorted(int(line) for path in visible(directory) for line in path.read_text().split())


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
                clock.ms += number
                for writer in simulation.writers:
                    writer.advance_processing_time(clock.ms)
    simulation.finish()


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(STEPS, max_size=25),
    part_size=st.integers(1, 200),
    on_checkpoint=st.booleans(),
    buckets=st.integers(1, 3),
)
def test_whatever_happens_every_record_is_visible_once(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    part_size: int,
    on_checkpoint: bool,
    buckets: int,
) -> None:
    base = tmp_path_factory.mktemp("sink")
    clock = ManualClock()
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
def test_stores_without_resume_are_exactly_once_too(steps: list[tuple[str, int]]) -> None:
    fs = fsspec.filesystem("memory")
    if fs.exists("/out"):
        fs.rm("/out", recursive=True)
    clock = ManualClock()
    simulation = Simulation(FileSink.for_row_format("memory://out", TEXT).build(), {}, task(clock))
    play(simulation, clock, steps)
    files = fs.find("/out") if fs.exists("/out") else []
    lines = [line for path in files for line in fs.cat_file(path).split()]
    assert sorted(map(int, lines)) == list(range(simulation.position))
    assert not any("inprogress" in path for path in files)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEPS, max_size=20))
def test_parquet_is_exactly_once_too(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    base = tmp_path_factory.mktemp("sink")
    clock = ManualClock()

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


def test_an_open_part_goes_on_after_a_restore_without_what_came_later(tmp_path: Path) -> None:
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


def test_an_old_snapshot_whose_part_was_finished_later_is_restored(tmp_path: Path) -> None:
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


def test_a_lost_part_is_an_error_and_never_a_new_file(tmp_path: Path) -> None:
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
    with pytest.raises(SinkError, match="it has 16 bytes, written were 2"):
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


def test_a_commit_that_died_between_link_and_unlink_is_finished(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([1], None, 0)
    committables, _ = snapshot(writer, 1)
    os.link(committables[0]["temp"], committables[0]["path"])
    sink.create_committer({}).commit(committables)
    assert numbers_in(tmp_path) == [1]
    assert hidden(tmp_path) == []


def test_only_the_own_unreferenced_pieces_are_removed(tmp_path: Path) -> None:
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


def test_an_abandoned_checkpoint_leaves_what_an_earlier_one_holds_open(tmp_path: Path) -> None:
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


def test_parts_end_by_size_age_and_inactivity(tmp_path: Path) -> None:
    clock = ManualClock()
    policy = RollingPolicy.default_rolling_policy(10, 5000, 2000)
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(policy).build()
    writer = sink.create_writer(writer_context(operator=task(clock)), [])
    committer = sink.create_committer({})
    writer.write([1] * 12, None, 0)
    committables, _ = snapshot(writer, 1)
    assert [c["size"] for c in committables if c["kind"] == "finished"] == [10, 10]
    committer.commit(committables)
    assert [p.stat().st_size for p in visible(tmp_path)] == [10, 10]

    def tick(ms: int) -> int:
        clock.ms += ms
        writer.advance_processing_time(clock.ms)
        committer.commit(snapshot(writer, 2)[0])
        return len(visible(tmp_path))

    assert tick(1900) == 2
    assert tick(1000) == 3
    for _ in range(4):
        writer.write([1], None, 0)
        assert tick(1000) == 3
    writer.write([1], None, 0)
    assert tick(1000) == 4


def test_counters_go_on_after_a_restore(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_rolling_policy(RollingPolicy(on_checkpoint=True)).build()
    committer = sink.create_committer({})
    state: list[Any] = []
    for attempt in range(3):
        writer = sink.create_writer(writer_context(attempt=attempt), state)
        writer.write([attempt], None, 0)
        committables, state = snapshot(writer, attempt)
        committer.commit(committables)
    assert [path.name.split("-")[:3] for path in visible(tmp_path)] == [["part", "0", str(n)] for n in range(3)]


def test_columns_are_written_without_rows(tmp_path: Path) -> None:
    def no_rows(columns: pa.RecordBatch) -> list[Any]:
        raise AssertionError("rows were made")

    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory({"id": str, "n": int})).build()
    writer = sink.create_writer(writer_context(), [])
    columns = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "id": ["a", "b"], "extra": [0, 0]})
    writer.write_batch(ColumnBatch(columns, None, no_rows), 0)
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    (path,) = visible(tmp_path)
    assert path.suffix == ".parquet"
    assert pq.read_table(path).to_pylist() == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


class Reading(NamedTuple):
    id: str
    n: int


@pytest.mark.parametrize(
    "values",
    [
        [("a", 1), ("b", None)],
        [Row("a", 1), Row("b", None)],
        [{"id": "a", "n": 1}, {"id": "b"}],
        [SimpleNamespace(id="a", n=1), SimpleNamespace(id="b", n=None)],
        [["a", 1], ["b", None]],
    ],
)
def test_parquet_and_csv_take_rows_of_any_form(tmp_path: Path, values: list[Any]) -> None:
    for name, factory in (
        ("parquet", ParquetWriterFactory({"id": str, "n": int | None})),
        ("csv", CsvWriterFactory({"id": str, "n": int | None}, CsvDialect(header="names"))),
    ):
        sink = FileSink.for_bulk_format(str(tmp_path / name), factory).build()
        writer = sink.create_writer(writer_context(), [])
        writer.write(values, None, 0)
        sink.create_committer({}).commit(snapshot(writer, 1)[0])
        (path,) = visible(tmp_path / name)
        found = duckdb.sql(f"select id, n from '{path}' order by id").fetchall()
        assert found == [("a", 1), ("b", None)]


def test_a_value_that_does_not_fit_its_field_is_named(tmp_path: Path) -> None:
    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory({"id": str, "n": int})).build()
    writer = sink.create_writer(writer_context(), [])
    with pytest.raises(RecordFormatError, match="'n' cannot be written as int64"):
        writer.write([("a", "many")], None, 0)
    with pytest.raises(RecordFormatError, match="with the fields id, n"):
        writer.write([("a", 1, 2)], None, 0)


@pytest.mark.parametrize(("compression", "suffix"), [("gzip", ".gz"), ("zstd", ".zst")])
def test_compressed_parts_can_be_continued_and_read(tmp_path: Path, compression: str, suffix: str) -> None:
    sink = FileSink.for_row_format(str(tmp_path), JsonLinesEncoder()).with_compression(compression).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([{"n": 1}], None, 0)
    _, state = snapshot(writer, 1)
    writer.write([{"n": 99}], None, 0)
    writer = sink.create_writer(writer_context(), state)
    writer.write([{"n": 2}], None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 2)[0])
    (path,) = visible(tmp_path)
    assert path.name.endswith(f".jsonl{suffix}")
    source = FileSource.for_record_stream_format(JsonLinesFormat({"n": int}, record="tuple"), str(tmp_path)).build()
    assert read_source(source) == [(1,), (2,)]


def test_a_csv_header_begins_every_part(tmp_path: Path) -> None:
    encoder = CsvEncoder(["id", "n"], CsvDialect(header="names"))
    builder = FileSink.for_row_format(str(tmp_path), encoder)
    sink = builder.with_rolling_policy(RollingPolicy(12)).with_compression("gzip").build()
    writer = sink.create_writer(writer_context(), [])
    for n in range(3):
        writer.write([("a", n)], None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    assert [gzip.decompress(path.read_bytes()) for path in visible(tmp_path)] == [b"id,n\na,%d\n" % n for n in range(3)]


def test_buckets_are_directories(tmp_path: Path) -> None:
    builder = FileSink.for_row_format(str(tmp_path), lambda value: f"<{value[1]}>")
    config = OutputFileConfig.builder().with_part_prefix("n").with_part_suffix(".txt").build()
    sink = builder.with_bucket_assigner(lambda value: f"id={value[0]}/x").with_output_file_config(config).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([("a", 1), ("b", 2), ("a", 3)], None, 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    found = {str(path.relative_to(tmp_path).parent): path.read_text() for path in visible(tmp_path)}
    assert found == {"id=a/x": "<1>\n<3>\n", "id=b/x": "<2>\n"}
    assert all(path.name.startswith("n-0-") and path.name.endswith(".txt") for path in visible(tmp_path))


@pytest.mark.parametrize("bucket", ["../up", "/abs", "a//b", ".hidden", "a/.b", 5, "a/"])
def test_a_bucket_outside_the_base_path_is_refused(tmp_path: Path, bucket: Any) -> None:
    sink = FileSink.for_row_format(str(tmp_path), TEXT).with_bucket_assigner(lambda value: bucket).build()
    with pytest.raises(UserFunctionError, match="is no bucket"):
        sink.create_writer(writer_context(), []).write([1], None, 0)


def test_date_buckets_go_by_processing_or_event_time(tmp_path: Path) -> None:
    hour = 3_600_000
    by_processing = BucketAssigner.date_time_bucket_assigner()
    assert by_processing.assign([1, 2], [0, 0], BucketContext(processing_time=30 * hour)) == "1970-01-02--06"
    by_event = BucketAssigner.date_time_bucket_assigner("yyyy/MM/dd", "America/New_York", event_time=True)
    assert by_event.assign([1, 2], [4 * hour, 6 * hour], BucketContext()) == ["1969/12/31", "1970/01/01"]
    with pytest.raises(UserFunctionError, match="no timestamp"):
        by_event.assign([1], None, BucketContext())
    for pattern, zone in (("QQQ", None), ("yyyy", "Mars/North")):
        with pytest.raises(InvalidJob):
            BucketAssigner.date_time_bucket_assigner(pattern, zone)


def test_json_lines_of_every_kind_of_record(tmp_path: Path) -> None:
    encoder = JsonLinesEncoder()
    assert encoder.encode_batch([Reading("a", 1)]) == b'{"id":"a","n":1}\n'
    assert encoder.encode_batch([Row(id="a", inner=Row(1, 2))]) == b'{"id":"a","inner":[1,2]}\n'
    assert encoder.encode_batch([("a", 1)]) == b'["a",1]\n'
    assert JsonLinesEncoder(["id", "n"]).encode_batch([Row("a", 1)]) == b'{"id":"a","n":1}\n'
    assert encoder.encode_batch([]) == b""
    with pytest.raises(RecordFormatError, match="cannot be written as JSON"):
        encoder.encode_batch([object()])
    assert json.loads(encoder.encode(pa.scalar(1).as_py())) == 1


def test_csv_needs_names_for_objects_and_joins_lists() -> None:
    with pytest.raises(InvalidJob, match="needs names"):
        CsvEncoder().encode_batch([{"id": "a"}])
    encoder = CsvEncoder(["id", "tags"], CsvDialect(array_separators={"tags": "|"}, null_value="-"))
    assert encoder.encode_batch([{"id": None, "tags": [1, 2]}]) == b"-,1|2\n"


def test_what_cannot_be_written_is_found_on_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot create"):
        FileSink.for_row_format(str(tmp_path / "file" / "below"), TEXT).build().validate()
    sink = FileSink.for_row_format(str(tmp_path / "new"), TEXT).build()
    sink.validate()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SinkError, match="permission denied"):
        sink.validate()
    with pytest.raises(InvalidJob, match="does not merge files"):
        FileSink.for_row_format(str(tmp_path), TEXT).enable_compact(None, None)


def test_rows_of_a_column_batch_are_written_by_row_formats(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), JsonLinesEncoder(["n"])).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write_batch(ColumnBatch(pa.record_batch({"n": [1, 2]}), None, rows_as_tuples), 0)
    writer.finish()
    sink.create_committer({}).commit(snapshot(writer, 1)[0])
    assert visible(tmp_path)[0].read_text() == '{"n":1}\n{"n":2}\n'


def test_a_parquet_part_that_is_given_up_goes_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a failover Arrow would write a footer into the part that is gone when its writer is collected."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    sink = FileSink.for_bulk_format(str(tmp_path), ParquetWriterFactory({"n": int}, row_group_rows=10)).build()
    writer = sink.create_writer(writer_context(), [])
    writer.write([(n,) for n in range(25)], None, 0)
    writer.close()
    del writer
    gc.collect()
    assert ignored == []
    assert capfd.readouterr().err == ""
    assert visible(tmp_path) == []
