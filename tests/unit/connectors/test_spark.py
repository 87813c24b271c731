"""`from_spark` and `to_spark` without Spark: splits, positions, the query's log, staged files.

The integration tests use real clusters.
"""

from __future__ import annotations

import base64
import pickle
import threading
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from penstock.checkpoint.files.storage import CheckpointStorage
from penstock.common.errors import ClusterError, EpochFailed, InvalidJob, SinkError, SourceError
from penstock.connectors.core.sink import CommitEnvironment, StagedCommittable
from penstock.connectors.core.source import EnumeratorContext, ReadBounds, ReaderContext, Split
from penstock.connectors.file.source.open_files import OpenFiles
from penstock.connectors.spark import SparkCommitter, SparkEnumerator, SparkSink, SparkSource, query_log, sink
from penstock.connectors.spark.feed import Feed, StagedBatch, TableFeed, stateful_operators
from penstock.connectors.spark.staged import FILE_BYTES, StagedReader, StageRows, from_ipc, to_ipc
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_tuples
from tests.unit.connectors.support import writer_context


class Spark:
    """A fake Spark session that runs nothing."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.interrupted: list[str] = []
        self.left = threading.Event()

    def session(self) -> Any:
        return SimpleNamespace(
            addTag=self.tags.append, removeTag=self.tags.remove, interruptTag=self.interrupted.append
        )

    def exclusive(self) -> Any:
        return nullcontext(self.left.set)


class Holds:
    def __init__(self) -> None:
        self.paths_held: dict[str, list[str]] = {}
        self.expected: list[str] = []

    def expect_files(self, prefix: str) -> None:
        self.expected.append(prefix)

    def hold_files(self, holder: str, paths: Any) -> None:
        self.paths_held[holder] = list(paths)

    def release_files(self, holder: str) -> None:
        self.paths_held.pop(holder, None)


class Batches(Feed):
    """A fake feed with prepared batches."""

    def __init__(self, batches: list[StagedBatch]) -> None:
        super().__init__()
        self.batches = batches

    def take(self) -> StagedBatch | None:
        return self.batches.pop(0) if self.batches else None

    @property
    def is_ended(self) -> bool:
        return not self.batches


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    return CheckpointStorage(f"file://{tmp_path}", "job")


def enumerator_with(feed: Feed, storage: CheckpointStorage, holds: Holds) -> SparkEnumerator:
    enumerator = SparkSource(lambda session: None).create_enumerator()
    enumerator.start(EnumeratorContext("in", storage, holds, Spark()))
    enumerator._feed = feed
    return enumerator


def file(name: str, rows: int = 3) -> dict[str, Any]:
    return {"path": f"shared/{name}", "size": 10, "checksum": "crc32:00000000", "rows": rows}


def test_the_next_batch_waits_until_the_previous_one_is_read(storage: CheckpointStorage) -> None:
    holds = Holds()
    feed = Batches([StagedBatch(4, [file("a"), file("b")]), StagedBatch(5, []), StagedBatch(6, [file("c")])])
    enumerator = enumerator_with(feed, storage, holds)
    first = enumerator.discover()
    assert [(split.id, split.size, split.files[0]["path"]) for split in first] == [
        ("4-0", 3, "shared/a"),
        ("4-1", 3, "shared/b"),
    ]
    assert holds.paths_held == {"batch-in-4": ["shared/a", "shared/b"]}
    enumerator.on_split_finished("4-1")
    assert enumerator.discover() == []
    enumerator.on_split_finished("4-0")
    assert holds.paths_held == {}
    assert enumerator.discover() == []
    assert [split.id for split in enumerator.discover()] == ["6-0"]
    enumerator.on_split_finished("6-0")
    assert not enumerator.is_finished()
    assert enumerator.discover() == []
    assert enumerator.is_finished()


def test_a_restored_enumerator_waits_for_the_batch_that_was_being_read(storage: CheckpointStorage) -> None:
    first = enumerator_with(Batches([StagedBatch(4, [file("a"), file("b")])]), storage, Holds())
    first.discover()
    first.on_split_finished("4-0")
    second = enumerator_with(Batches([StagedBatch(5, [file("c")])]), storage, Holds())
    second.restore(first.snapshot())
    assert second.discover() == []
    second.on_split_finished("4-1")
    assert [split.id for split in second.discover()] == ["5-0"]


def test_a_table_is_staged_once(storage: CheckpointStorage) -> None:
    enumerator = SparkSource(lambda session: None).create_enumerator()
    enumerator.start(EnumeratorContext("in", storage, Holds(), Spark()))
    enumerator._feed = TableFeed(None, lambda frame, batch: [file("a")])
    while not (splits := enumerator.discover()):
        pass
    assert enumerator.is_finished()
    again = SparkSource(lambda session: 1 / 0).create_enumerator()
    again.restore(enumerator.snapshot())
    assert again.is_finished()
    assert again.discover() == []
    assert len(splits) == 1
    enumerator.close()


def test_an_error_of_the_query_is_raised_by_the_source() -> None:
    def fails(frame: Any, batch: int) -> Any:
        raise OSError("the broker is away")

    feed = TableFeed(None, fails)
    feed._thread.join()
    with pytest.raises(SourceError, match="broker is away"):
        feed.take()


def test_the_error_without_spark_names_the_remedy(storage: CheckpointStorage) -> None:
    enumerator = SparkSource(lambda session: None).create_enumerator()
    enumerator.start(EnumeratorContext("in", storage, Holds()))
    with pytest.raises(InvalidJob, match="needs a Spark cluster"):
        enumerator.discover()


def test_the_factory_must_give_a_data_frame() -> None:
    frame = SimpleNamespace(isStreaming=True)
    assert SparkSource(lambda session: frame).data_frame(None) is frame
    with pytest.raises(InvalidJob, match="not a DataFrame"):
        SparkSource(lambda session: 5).data_frame(None)
    with pytest.raises(InvalidJob, match="from_spark raised ZeroDivisionError"):
        SparkSource(lambda session: 1 / 0).data_frame(None)


class Children:
    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes

    def size(self) -> int:
        return len(self.nodes)

    def apply(self, index: int) -> Any:
        return self.nodes[index]


def node(name: str, *children: Any, streams: bool = True) -> Any:
    return SimpleNamespace(nodeName=lambda: name, isStreaming=lambda: streams, children=lambda: Children([*children]))


def frame_of(plan: Any) -> Any:
    return SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: SimpleNamespace(analyzed=lambda: plan)))


def test_stateful_operators_of_the_query_are_found() -> None:
    table = node("Aggregate", node("Relation", streams=False), streams=False)
    stream = node("StreamingRelation")
    assert stateful_operators(frame_of(node("Project", node("Join", stream, table)))) == []
    assert stateful_operators(frame_of(node("Project", node("Aggregate", stream)))) == ["Aggregate"]
    assert stateful_operators(frame_of(node("Join", stream, stream))) == ["Join"]


def test_the_log_of_the_query_is_restored_in_a_new_folder(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    content = {"metadata": '{"id":"q"}', "sources/0/9.compact": "all before", "sources/0/10": "f10", "commits/9": "v1"}
    content |= {f"offsets/{n}": f"v1\n{n}" for n in (8, 9, 10)}
    ignored = {"offsets/.10.crc": "x", "sources/0/8": "f8", "commits/.9.crc": "y"}
    for name, text in (content | ignored).items():
        (old / name).parent.mkdir(parents=True, exist_ok=True)
        (old / name).write_text(text)
    captured = query_log.capture(old)
    query_log.lay(captured, new)
    found = {path.relative_to(new).as_posix(): path.read_text() for path in new.rglob("*") if path.is_file()}
    assert found == {name: text for name, text in content.items() if name != "offsets/8"}
    assert query_log.offsets(captured) == "v1\n10"


def test_staged_rows_are_read_from_any_position(storage: CheckpointStorage) -> None:
    batches = [
        pa.record_batch({"n": [1, 2]}),
        pa.record_batch({"n": pa.array([], pa.int64())}),
        pa.record_batch({"n": [3]}),
    ]
    stage = pickle.loads(pickle.dumps(StageRows(storage, "shared/x-")))
    (made,) = [batch.to_pylist()[0] for batch in stage(iter(batches))]
    assert (made["path"], made["rows"]) == ("shared/x-0-0", 3)
    split = Split("0-0", size=3, files=[made], root=storage.url)
    reader = SparkSource(lambda session: None).create_reader(ReaderContext(0, 1, "in")).open_split(split, None)
    batch = reader.read(ReadBounds(max_records=2))
    assert batch is not None
    assert [row.n for row in batch.rows().values] == [1, 2]
    assert (reader.position, reader.finished, reader.lag()) == (2, False, 1)
    again = StagedReader(storage.reader(), made, 3, OpenFiles(), reader.position)
    rest = again.read(ReadBounds())
    assert rest is not None
    assert [row.n for row in rest.rows().values] == [3]
    assert again.finished
    assert again.read(ReadBounds()) is None


def test_a_large_partition_becomes_several_files(storage: CheckpointStorage) -> None:
    large = pa.record_batch({"text": ["x" * (FILE_BYTES // 2)]})
    made = [batch.to_pylist()[0] for batch in StageRows(storage, "shared/y-")(iter([large, large, large]))]
    assert [(file["path"], file["rows"]) for file in made] == [("shared/y-0-0", 2), ("shared/y-0-1", 1)]


def test_tables_are_stored_compressed() -> None:
    table = pa.table({"text": ["x" * 1000] * 1000})
    assert len(to_ipc(table)) < 20_000
    assert from_ipc(to_ipc(table)).equals(table)


# --- to_spark -------------------------------------------------------------------------------------------------------


def staged(writer: Any, checkpoint_id: int, storage: CheckpointStorage, *, inline: bool = False) -> list[Any]:
    """Return a writer's committables, with their content in files or inline."""
    pieces = []
    for piece in writer.prepare_commit(checkpoint_id):
        assert isinstance(piece, StagedCommittable)
        content = piece.content()
        if inline:
            pieces.append(piece.about | {"content": base64.b64encode(content).decode()})
        else:
            ref = storage.writer().write(content)
            file = {"path": ref.path, "size": ref.size, "checksum": ref.checksum}
            pieces.append(piece.about | {"staged_file": file})
    return pieces


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace DataFrames by the rows that the executors would create."""

    def data_frame(session: Any, pieces: list[dict[str, Any]], files: Any) -> list[Any]:
        schema = sink._unified([pa.ipc.read_schema(pa.py_buffer(base64.b64decode(p["schema"]))) for p in pieces])
        rows = [
            {"path": "", "size": 0, "checksum": "", "content": None} | (p.get("staged_file") or {})
            | ({"content": base64.b64decode(p["content"])} if "content" in p else {})
            for p in pieces
        ]  # fmt: skip
        read = pickle.loads(pickle.dumps(sink.ReadPieces(files, schema)))
        return [row for batch in read(iter([pa.RecordBatch.from_pylist(rows)])) for row in batch.to_pylist()]

    monkeypatch.setattr(sink, "data_frame", data_frame)


def test_the_spark_jobs_of_a_hanging_function_can_be_cancelled(storage: CheckpointStorage, frames: None) -> None:
    writer = SparkSink(print).create_writer(writer_context(0, 1), [])
    writer.write([(1,)], None, 0)
    during: list[list[str]] = []
    spark = Spark()
    committer = committer_of(lambda frame, checkpoint_id: during.append(list(spark.tags)), storage)
    committer.environment = CommitEnvironment(storage.reader(), spark)
    committer.commit(staged(writer, 1, storage))
    committer.interrupt()
    assert [spark.interrupted] == during
    assert spark.tags == []
    assert spark.left.is_set(), "others may have the cluster"


def test_an_abandoned_function_is_not_called_for_other_checkpoints(storage: CheckpointStorage, frames: None) -> None:
    writer = SparkSink(print).create_writer(writer_context(0, 1), [])
    pieces = []
    for checkpoint_id in (1, 2):
        writer.write([(checkpoint_id,)], None, 0)
        pieces += staged(writer, checkpoint_id, storage)
    called: list[int] = []

    def hangs(frame: Any, checkpoint_id: int) -> None:
        called.append(checkpoint_id)
        committer.give_up()

    committer = committer_of(hangs, storage)
    with pytest.raises(EpochFailed, match="given up"):
        committer.commit(pieces)
    assert called == [1]


def committer_of(function: Any, storage: CheckpointStorage) -> SparkCommitter:
    committer = SparkSink(function).create_committer({})
    assert isinstance(committer, SparkCommitter)
    committer.environment = CommitEnvironment(storage.reader(), Spark())
    return committer


def test_rows_for_spark_are_passed_once_per_checkpoint(storage: CheckpointStorage, frames: None) -> None:
    taken: list[Any] = []
    committer = committer_of(lambda frame, checkpoint_id: taken.append((checkpoint_id, frame)), storage)
    writers = [SparkSink(print).create_writer(writer_context(n, 2), []) for n in range(2)]
    writers[0].write([{"id": "a", "n": 1}], None, 0)
    writers[1].write([{"id": "b", "n": None}], None, 0)
    writers[1].write_batch(ColumnBatch(pa.record_batch({"id": ["c"], "n": [3]}), None, rows_as_tuples), 0)
    pieces = [*staged(writers[0], 4, storage), *staged(writers[1], 4, storage, inline=True)]
    assert writers[0].prepare_commit(5) == []
    committer.commit(pieces)
    assert taken == [(4, [{"id": "a", "n": 1}, {"id": "b", "n": None}, {"id": "c", "n": 3}])]
    committer.commit(pieces)
    assert len(taken) == 1


def test_an_error_of_the_function_for_spark_is_a_sink_error(storage: CheckpointStorage, frames: None) -> None:
    writer = SparkSink(print).create_writer(writer_context(), [])
    writer.write([(1,)], None, 0)
    pieces = staged(writer, 1, storage)
    with pytest.raises(ClusterError, match="no Spark cluster"):
        SparkCommitter(lambda frame, checkpoint_id: None).commit(pieces)
    calls: list[int] = []

    def fails_once(frame: Any, checkpoint_id: int) -> None:
        calls.append(checkpoint_id)
        if len(calls) == 1:
            raise OSError("disk full")

    committer = committer_of(fails_once, storage)
    with pytest.raises(SinkError, match="checkpoint 1: disk full"):
        committer.commit(pieces)
    committer.commit(pieces)
    assert calls == [1, 1]


def test_rows_without_a_common_schema_are_refused() -> None:
    writer = SparkSink(print).create_writer(writer_context(), [])
    writer.write([{"n": 1}], None, 0)
    writer.write([{"n": "a"}], None, 0)
    with pytest.raises(SinkError, match="no common schema"):
        writer.prepare_commit(1)


def test_mixed_time_zones_and_numpy_types_become_one_spark_schema(storage: CheckpointStorage, frames: None) -> None:
    taken: list[Any] = []
    writer = SparkSink(print).create_writer(writer_context(), [])
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    for zone, kind in ((UTC, np.int8), (timezone(timedelta(hours=2)), np.int64), (ZoneInfo("Europe/Berlin"), int)):
        writer.write([{"at": noon.astimezone(zone), "n": kind(1)}], None, 0)
    committer = committer_of(lambda frame, checkpoint_id: taken.extend(frame), storage)
    committer.commit(staged(writer, 1, storage))
    assert [(row["at"], row["n"]) for row in taken] == [(noon, 1)] * 3
