"""File source and sink on a real S3 server."""

from __future__ import annotations

import gzip
import random
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common.errors import SinkError, SourceError
from penstock.common.serialization import Encoder
from penstock.connectors.core.source import ReadBounds
from penstock.connectors.file.sink.file_sink import FileSink
from penstock.connectors.file.sink.rolling import RollingPolicy
from penstock.connectors.file.sink.s3_store import S3Client, S3Store
from penstock.connectors.file.source.file_source import FileSource
from penstock.connectors.file.storage import Storage
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.connectors.formats.parquet import ParquetFormat
from penstock.connectors.formats.record_format import StreamFormat
from tests.unit.connectors.file.file_sink_simulation import Simulation
from tests.unit.connectors.support import (
    open_split,
    read_all,
    read_source,
    read_with_restarts,
    snapshot,
    writer_context,
)

pytestmark = pytest.mark.s3

TEXT = Encoder.simple_string_encoder()
MIB = 1 << 20
S3 = tuple[str, dict[str, Any]]


def fs_of(options: dict[str, Any]) -> Any:
    return fsspec.filesystem("s3", **options, use_listings_cache=False, skip_instance_cache=True)


def contents(s3: S3) -> dict[str, bytes]:
    url, options = s3
    fs = fs_of(options)
    return {path: fs.cat_file(path) for path in fs.find(url)} if fs.exists(url) else {}


def uploads(s3: S3) -> list[tuple[str, str]]:
    url, options = s3
    return S3Client(options).uploads_below(url)


def lines(s3: S3) -> list[str]:
    return sorted((line for data in contents(s3).values() for line in data.decode().split()), key=len)


def clock() -> Any:
    ticking = SimpleNamespace(ms=1_000)
    return SimpleNamespace(
        clock=SimpleNamespace(now_ms=lambda: ticking.ms, monotonic_ms=lambda: ticking.ms, ticking=ticking)
    )


def row_sink(s3: S3, policy: RollingPolicy | None = None) -> FileSink:
    return FileSink.for_row_format(s3[0], TEXT).with_rolling_policy(policy or RollingPolicy()).build()


def test_files_are_invisible_before_the_commit_and_the_commit_is_repeatable(s3: S3) -> None:
    sink = row_sink(s3)
    writer = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    committer = sink.create_committer(s3[1], job_id="job", uid="sink")
    big = "x" * (3 * MIB)
    for _ in range(3):
        writer.write([big], None, 0)
    writer.finish()
    committables, _ = snapshot(writer, 1)
    assert contents(s3) == {}
    assert len(uploads(s3)) == 1
    for _ in range(3):
        committer.commit(committables)
    (data,) = contents(s3).values()
    assert data == (big + "\n").encode() * 3
    assert uploads(s3) == []
    assert len(committables[0]["parts"]) == 2


def test_a_restored_part_continues_its_upload_and_its_tail(s3: S3) -> None:
    sink = row_sink(s3)
    first = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    first.write(["a" * (6 * MIB)], None, 0)
    committables, state = snapshot(first, 1)
    assert [c["kind"] for c in committables] == ["open"]
    assert state[1]["stream"]["tail_size"] == MIB + 1
    first.write(["zombie" * MIB], None, 0)
    first.prepare_commit(2)

    second = sink.create_writer(writer_context(attempt=1, object_store_options=s3[1]), state)
    second.write(["b" * (5 * MIB), "c"], None, 0)
    second.finish()
    committables, _ = snapshot(second, 2)
    committer = sink.create_committer(s3[1], job_id="job", uid="sink")
    committer.commit(committables)
    (data,) = contents(s3).values()
    assert data == b"a" * (6 * MIB) + b"\n" + b"b" * (5 * MIB) + b"\nc\n"
    first.write(["zombie" * MIB], None, 0)
    with pytest.raises(SinkError):
        first.prepare_commit(3)


def test_a_zombie_cannot_overwrite_uploads_of_its_successor(s3: S3) -> None:
    sink = row_sink(s3)
    zombie = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    zombie.write(["a" * (6 * MIB)], None, 0)
    _, state = snapshot(zombie, 1)
    successor = sink.create_writer(writer_context(attempt=1, object_store_options=s3[1]), state)
    successor.write(["b" * (6 * MIB)], None, 0)
    successor.prepare_commit(2)
    zombie.write(["z" * (30 * MIB)], None, 0)
    zombie.prepare_commit(2)
    successor.finish()
    sink.create_committer(s3[1]).commit(snapshot(successor, 3)[0])
    (data,) = contents(s3).values()
    assert data == b"a" * (6 * MIB) + b"\n" + b"b" * (6 * MIB) + b"\n"


def test_a_part_that_stays_open_over_many_failovers_is_written_and_closed(s3: S3) -> None:
    sink = row_sink(s3)
    writer = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    writer.write(["a" * (6 * MIB)], None, 0)
    for attempt in range(1, 30):
        _, state = snapshot(writer, attempt)
        writer = sink.create_writer(writer_context(attempt=attempt, object_store_options=s3[1]), state)
    writer.write(["b" * (6 * MIB)], None, 0)
    writer.finish()
    sink.create_committer(s3[1]).commit(snapshot(writer, 30)[0])
    (data,) = contents(s3).values()
    assert data == b"a" * (6 * MIB) + b"\n" + b"b" * (6 * MIB) + b"\n"


@pytest.mark.parametrize("size", [10, 6 * MIB])
def test_an_old_snapshot_is_restored_after_its_part_was_finished(s3: S3, size: int) -> None:
    sink = row_sink(s3)
    committer = sink.create_committer(s3[1])
    writer = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    writer.write(["a" * size], None, 0)
    _, state = snapshot(writer, 1)
    writer.finish()
    committer.commit(snapshot(writer, 2)[0])
    again = sink.create_writer(writer_context(attempt=1, object_store_options=s3[1]), state)
    again.write(["b"], None, 0)
    again.finish()
    committer.commit(snapshot(again, 3)[0])
    assert lines(s3) == ["b", "a" * size]


def test_an_aborted_upload_is_an_error_at_restore_and_at_commit(s3: S3) -> None:
    sink = row_sink(s3)
    writer = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    writer.write(["a" * (6 * MIB)], None, 0)
    _, state = snapshot(writer, 1)
    writer.finish()
    committables, _ = snapshot(writer, 2)
    store = S3Store(s3[1])
    store.abort(committables[0])
    store.abort(committables[0])
    with pytest.raises(SinkError, match="aborted or completed with fewer bytes"):
        sink.create_writer(writer_context(object_store_options=s3[1]), state)
    with pytest.raises(SinkError, match="cannot commit"):
        sink.create_committer(s3[1]).commit(committables)


def test_only_unreferenced_uploads_of_the_same_sink_are_aborted(s3: S3) -> None:
    sink = row_sink(s3)
    keep: list[Any] = []
    for n, job in enumerate(("job", "job", "other")):
        context = writer_context(n, object_store_options=s3[1])
        writer = sink.create_writer(context.__class__(n, 3, 0, "sink", job, s3[1]), [])
        writer.write(["a" * (6 * MIB)], None, 0)
        committables, _ = snapshot(writer, 1)
        keep = keep or committables
    assert len(uploads(s3)) == 3
    sink.create_committer(s3[1], job_id="job", uid="sink").discard_unreferenced(keep)
    left = uploads(s3)
    assert len(left) == 2
    assert keep[0]["upload"] in [upload for _, upload in left]


@pytest.mark.parametrize("seed", range(8))
def test_every_record_is_visible_once_after_any_failures(s3: S3, seed: int) -> None:
    """Records have about 700 KB, so parts have several upload parts. Crashes happen at random points."""
    chance = random.Random(seed)

    class Padded(Encoder):
        def encode(self, element: Any) -> bytes:
            return b"%d %s\n" % (element, b"x" * 700_000)

    policy = RollingPolicy(chance.choice([4, 12, 30]) * MIB, on_checkpoint=chance.random() < 0.3)
    sink = FileSink.for_row_format(s3[0], Padded()).with_rolling_policy(policy).build()
    task = clock()
    simulation = Simulation(sink, s3[1], task)
    for _ in range(14):
        step = chance.choice(["write", "write", "barrier", "abandoned", "crash", "zombie"])
        if step == "write":
            simulation.write(chance.randint(1, 12))
        elif step == "barrier":
            simulation.barrier(commit=chance.randint(0, 2))
        elif step == "abandoned":
            simulation.barrier(complete=False)
        elif step == "crash":
            simulation.crash(chance.randint(1, 3))
        elif all(writer is not None for writer in simulation.zombies):
            try:
                simulation.zombie_writes()
            except SinkError:
                pass  # its upload is completed or aborted, so the zombie cannot continue
    simulation.finish()
    found = sorted(int(line.split()[0]) for data in contents(s3).values() for line in data.decode().splitlines())
    assert found == list(range(simulation.position))
    assert uploads(s3) == []


def test_parquet_is_written_and_read(s3: S3) -> None:
    sink = FileSink.for_bulk_format(s3[0], ParquetWriterFactory({"id": str, "n": int})).build()
    writer = sink.create_writer(writer_context(object_store_options=s3[1]), [])
    rows = [(f"s{n}", n) for n in range(1000)]
    writer.write(rows, None, 0)
    committables, state = snapshot(writer, 1)
    assert [item["type"] for item in state] == ["counter"]
    sink.create_committer(s3[1]).commit(committables)
    source = FileSource(ParquetFormat({"id": str, "n": int}, record="tuple"), (s3[0],), storage_options=s3[1])
    assert read_source(source) == rows
    (split,) = source.create_enumerator().discover()
    assert read_with_restarts(source, split, ReadBounds(300))[0] == rows


def test_text_is_read_by_ranges_and_inside_gzip(s3: S3) -> None:
    url, options = s3
    fs = fs_of(options)
    text = "".join(f"{n} {'x' * (n % 97)}\n" for n in range(60_000))
    expected = text.splitlines()
    fs.pipe_file(f"{url}/a.txt", text.encode())
    fs.pipe_file(f"{url}/b.txt.gz", gzip.compress(text.encode()))
    for name in ("a.txt", "b.txt.gz"):
        source = FileSource(StreamFormat.text_line_format(), (f"{url}/{name}",), storage_options=options)
        assert read_source(source, ReadBounds(5000)) == expected
        (split,) = source.create_enumerator().discover()
        assert read_with_restarts(source, split, ReadBounds(20_000, 1 << 30))[0] == expected
    ranged = FileSource(StreamFormat.text_line_format(), (f"{url}/a.txt",), storage_options=options, split_size=MIB)
    assert len(ranged.create_enumerator().discover()) > 2
    assert read_source(ranged, ReadBounds(5000)) == expected


def test_prefixes_patterns_and_new_objects_are_found(s3: S3) -> None:
    url, options = s3
    fs = fs_of(options)
    for name in ("day=1/a", "day=1/.hidden", "day=2/b", "day=2/_tmp/c"):
        fs.pipe_file(f"{url}/{name}", f"{name}\n".encode())
    text = StreamFormat.text_line_format()
    assert sorted(read_source(FileSource(text, (url,), storage_options=options))) == ["day=1/a", "day=2/b"]
    assert read_source(FileSource(text, (f"{url}/day=2/*",), storage_options=options)) == ["day=2/b"]
    watching = FileSource(text, (url,), discovery_interval_ms=10, storage_options=options)
    enumerator = watching.create_enumerator()
    assert len(enumerator.discover()) == 2
    assert enumerator.discover() == []
    fs.pipe_file(f"{url}/day=3/d", b"d\n")
    (split,) = enumerator.discover()
    fs.pipe_file(f"{url}/day=3/d", b"other\n")
    (changed,) = enumerator.discover()
    assert read_all(open_split(watching, changed)) == ["other"]
    with pytest.raises(SourceError, match="was replaced"):
        read_all(open_split(watching, split))


def test_a_missing_prefix_and_a_missing_bucket_are_found_on_the_client(s3: S3) -> None:
    url, options = s3
    for path in (f"{url}/nothing", "s3://no-such-bucket/x"):
        with pytest.raises(SourceError, match="does not exist"):
            FileSource(StreamFormat.text_line_format(), (path,), storage_options=options).validate()
    with pytest.raises(SinkError, match="no-such-bucket"):
        FileSink.for_row_format("s3://no-such-bucket/x", TEXT).with_storage_options(options).build().validate()
    FileSink.for_row_format(url, TEXT).build().with_object_store_options(options).validate()
    wrong = {**options, "secret": "wrong"}
    with pytest.raises(SourceError) as caught:
        FileSource(StreamFormat.text_line_format(), (url,), storage_options=wrong).validate()
    assert "wrong" not in str(caught.value)


def test_parquet_of_another_writer_is_read(s3: S3) -> None:
    url, options = s3
    with fs_of(options).open(f"{url}/a.parquet", "wb") as file:
        pq.write_table(pa.table({"n": range(10)}), file, row_group_size=3)
    source = FileSource(ParquetFormat({"n": int}, record="tuple"), (url,), storage_options=options)
    assert read_source(source) == [(n,) for n in range(10)]


def test_a_directory_is_not_read_as_a_file_if_its_first_file_appears_during_the_listing(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = s3
    storage = Storage(url, options)
    assert storage._fs is not None
    list_objects = storage._fs._lsdir

    async def listed_before_the_first_file(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        before = await list_objects(*args, **kwargs)
        await storage._fs._pipe_file(f"{url}/input/a.txt", b"a")
        return before

    monkeypatch.setattr(storage._fs, "_lsdir", listed_before_the_first_file)
    assert storage.find(f"{url}/input") == []
    assert [status.size for status in storage.find(f"{url}/input")] == [1]
