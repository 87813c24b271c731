"""Tables as sources: a snapshot and later appends, each row once in spite of restarts."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from penstock.common.errors import InvalidJob, RecordFormatError, SourceError
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.core.source import ReadBounds, ReaderContext, Split
from penstock.connectors.formats.bulk import ParquetWriterFactory
from penstock.datastream.connectors.file_system import FileSink
from tests.in_process import environment, run
from tests.integration.lakehouse.lakes import DeltaLake, IcebergLake, Lake, committer_of, voted, writer_of

FOLLOW = datetime.timedelta(seconds=1)
BOUNDS = ReadBounds(max_records=7, max_bytes=1 << 20)


class Reading(NamedTuple):
    id: int
    key: str


def fill(lake: Lake, checkpoint: int, *ids: int, **options: Any) -> None:
    sink = lake.sink(**options)
    committer_of(sink).commit(voted(writer_of(sink), checkpoint, *ids))


def rows_of(lake: Lake, source: Any, splits: list[Split]) -> list[Any]:
    """Read with a new reader for every few records, as if each reader ran in a separate process."""
    rows = []
    for split in splits:
        position: Any = None
        finished = False
        while not finished:
            travelled = Split(split.id, json.loads(json.dumps(split.properties)), split.size)
            reader = source.create_reader(ReaderContext(0, 1, "in")).open_split(
                travelled, json.loads(json.dumps(position))
            )
            batch = reader.read(BOUNDS)
            rows += [] if batch is None else batch.rows().values
            position, finished = reader.position, reader.finished
            reader.close()
    return rows


def read(lake: Lake, source: Any) -> list[Any]:
    source.validate()
    return rows_of(lake, source, source.create_enumerator().discover())


def test_a_snapshot_is_read_from_any_position_with_partitions_and_types(lake: Lake) -> None:
    fill(lake, 1, *range(20), partition_by=["key"])
    fill(lake, 2, *range(20, 30))
    rows = read(lake, lake.source(Reading))
    assert sorted(rows) == [Reading(n, f"k{n % 3}") for n in range(30)]
    assert sorted(read(lake, lake.source({"key": str}, record="tuple"))) == sorted((f"k{n % 3}",) for n in range(30))


def test_all_columns_are_read_if_none_are_declared(lake: Lake) -> None:
    fill(lake, 1, 1)
    assert read(lake, lake.source()) == [{"id": 1, "key": "k1"}]


def test_partition_values_of_every_type_are_read(lake: Lake) -> None:
    schema = {"n": int, "day": datetime.date, "ok": bool, "name": str | None, "x": float, "at": datetime.datetime}
    value = {"n": 1, "day": datetime.date(2013, 7, 1), "ok": True, "name": None, "x": 0.5, "at": datetime.datetime(2013, 7, 1, 1, 2, 3, 4)}  # fmt: skip
    sink = lake.sink(schema, partition_by=["day", "ok", "name", "x", "at"])
    committer, writer = committer_of(sink), writer_of(sink)
    writer.write([value], None, 0)
    committer.commit(writer.prepare_commit(1))
    assert read(lake, lake.source(schema)) == [value]
    enumerator = lake.source(schema, follow=FOLLOW, start=first_version(lake)).create_enumerator()
    assert rows_of(lake, lake.source(schema), enumerator.discover()) == ([value] if isinstance(lake, DeltaLake) else [])


def first_version(lake: Lake) -> int:
    return 0 if isinstance(lake, DeltaLake) else lake.opened().metadata.snapshots[0].snapshot_id  # type: ignore[attr-defined]


def test_an_earlier_version_is_read(lake: Lake) -> None:
    fill(lake, 1, 1)
    if isinstance(lake, DeltaLake):
        version = {"version": lake.opened().version()}
    else:
        assert isinstance(lake, IcebergLake)
        version = {"snapshot_id": lake.opened().current_snapshot().snapshot_id}
    fill(lake, 2, 2)
    assert [row.id for row in read(lake, lake.source(Reading, **version))] == [1]


def test_a_source_follows_appends_across_restarts(lake: Lake) -> None:
    fill(lake, 1, 1, 2)
    source = lake.source(Reading, follow=FOLLOW)
    assert not source.bounded
    enumerator = source.create_enumerator()
    seen = rows_of(lake, source, enumerator.discover())
    for number in range(2, 6):
        assert enumerator.discover() == []
        fill(lake, number * 2, number * 10)
        fill(lake, number * 2 + 1, number * 100)
        if number % 2:
            state = json.loads(json.dumps(enumerator.snapshot()))
            enumerator = source.create_enumerator()
            enumerator.restore(state)
        splits = enumerator.discover()
        assert len({split.id for split in splits}) == 2
        seen += rows_of(lake, source, splits)
    assert sorted(row.id for row in seen) == lake.ids()


def test_a_following_source_may_start_at_new_rows(lake: Lake) -> None:
    fill(lake, 1, 1)
    enumerator = lake.source(Reading, follow=FOLLOW, start="latest").create_enumerator()
    assert enumerator.discover() == []
    fill(lake, 2, 2)
    assert [row.id for row in rows_of(lake, lake.source(Reading), enumerator.discover())] == [2]


def test_an_empty_table_is_followed(lake: Lake) -> None:
    lake.make(pa.schema({"id": pa.int64(), "key": pa.string()}))
    enumerator = lake.source(Reading, follow=FOLLOW).create_enumerator()
    assert enumerator.discover() == []
    fill(lake, 1, 1)
    assert [row.id for row in rows_of(lake, lake.source(Reading), enumerator.discover())] == [1]


def test_deleted_or_changed_rows_are_an_error_or_skipped(lake: Lake) -> None:
    fill(lake, 1, 1, 2)
    stops, skips = (lake.source(Reading, follow=FOLLOW, on_change=how).create_enumerator() for how in ("fail", "skip"))
    stops.discover()
    skips.discover()
    lake.delete("id = 1")
    fill(lake, 2, 3)
    with pytest.raises(SourceError, match="does not only add rows"):
        stops.discover()
    assert [row.id for row in rows_of(lake, lake.source(Reading), skips.discover())] == [3]


def test_compacted_files_are_not_read_again(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    fill(lake, 1, 1)
    fill(lake, 2, 2)
    enumerator = lake.source(Reading, follow=FOLLOW).create_enumerator()
    assert len(enumerator.discover()) == 2
    lake.opened().optimize.compact()
    assert len(lake.named_files()) == 1
    assert enumerator.discover() == []


def test_a_missing_history_is_an_error(lake: Lake) -> None:
    fill(lake, 1, 1)
    enumerator = lake.source(Reading, follow=FOLLOW).create_enumerator()
    enumerator.discover()
    fill(lake, 2, 2)
    fill(lake, 3, 3)
    lake.forget_history()
    with pytest.raises(SourceError, match=r"was removed from its log|is not an ancestor"):
        enumerator.discover()


def test_columns_added_later_are_null_and_renamed_columns_are_found(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    fill(lake, 1, 1)
    with lake.opened().update_schema() as update:
        update.rename_column("key", "name")
    sink = lake.sink({"id": int, "name": str, "note": str}, add_columns=True)
    committer, writer = committer_of(sink), writer_of(sink)
    writer.write([{"id": 2, "name": "b", "note": "new"}], None, 0)
    committer.commit(writer.prepare_commit(2))
    rows = read(lake, lake.source({"id": int, "name": str, "note": str | None}, record="tuple"))
    assert sorted(rows) == [(1, "k1", None), (2, "b", "new")]
    with pytest.raises(RecordFormatError, match=r"'note' of .* holds nulls"):
        read(lake, lake.source({"id": int, "note": str}))


def test_a_missing_table_or_column_is_an_error_at_the_start(lake: Lake) -> None:
    with pytest.raises(SourceError, match=r"(has no Delta table|Iceberg table .* does not exist)"):
        lake.source().validate()
    fill(lake, 1, 1)
    with pytest.raises(SourceError, match="has no column 'celsius': it has id, key"):
        lake.source({"celsius": float}).validate()
    version = {"version": 99} if isinstance(lake, DeltaLake) else {"snapshot_id": 99}
    with pytest.raises(SourceError, match=r"99|version"):
        lake.source(Reading, **version).validate()


def test_options_that_contradict_each_other_are_refused(lake: Lake) -> None:
    for options in ({"start": "latest"}, {"on_change": "cry"}, {"start": "yesterday", "follow": FOLLOW}):
        with pytest.raises(InvalidJob):
            lake.source(Reading, **options)


PARTITIONS = [
    (pa.string(), ["a b", "ü%20/..", "x=1&y", "a+b?#"]),
    (pa.timestamp("us"), [datetime.datetime(2013, 7, 1, 1, 2, 3, 4)]),
    (pa.timestamp("us", "UTC"), [datetime.datetime(2013, 7, 1, 1, 2, 3, 4, tzinfo=datetime.UTC)]),
    (pa.binary(), [b"\x00\xff", b"ab"]),
]


@pytest.mark.parametrize(("kind", "values"), PARTITIONS, ids=[str(kind) for kind, _ in PARTITIONS])
@pytest.mark.parametrize("follows", [False, True])
def test_partitions_of_other_writers_are_found(
    tmp_path: Path, kind: pa.DataType, values: list[Any], follows: bool
) -> None:
    lake = DeltaLake(tmp_path)
    lake.make(pa.schema({"id": pa.int64(), "at": kind}), ["at"])
    lake.write(pa.table({"id": range(len(values)), "at": pa.array(values, kind)}))
    source = lake.source(follow=FOLLOW, start=0) if follows else lake.source()
    rows = read(lake, source)
    assert [row["at"] for row in sorted(rows, key=lambda row: row["id"])] == values


def test_a_delta_table_whose_files_have_other_names_for_columns_is_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    fill(lake, 1, 1)
    enumerator = lake.source(follow=FOLLOW).create_enumerator()
    enumerator.discover()
    log = Path(lake.path, "_delta_log")
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"]["delta.columnMapping.mode"] = "name"
    (log / f"{2:020d}.json").write_text(json.dumps({"metaData": metadata}))
    with pytest.raises(SourceError, match="column mapping"):
        lake.source(Reading).validate()
    with pytest.raises(SourceError, match="column mapping"):
        enumerator.discover()


def test_a_source_does_not_continue_with_a_recreated_delta_table(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    for checkpoint in (1, 2, 3):
        fill(lake, checkpoint, checkpoint)
    enumerator = lake.source(Reading, follow=FOLLOW).create_enumerator()
    assert len(enumerator.discover()) == 3
    shutil.rmtree(lake.path)
    fill(lake, 1, 10)
    with pytest.raises(SourceError, match="created again"):
        enumerator.discover()


def test_a_snapshot_is_a_bounded_input(lake: Lake, tmp_path: Path) -> None:
    sink = lake.sink()
    committer_of(sink).commit(voted(writer_of(sink), 1, *range(100)))
    env = environment(tmp_path)
    stream = env.from_source(lake.source({"id": int}), WatermarkStrategy.no_watermarks(), "in")
    files = FileSink.for_bulk_format(str(tmp_path / "out"), ParquetWriterFactory({"id": int})).build()
    stream.filter(lambda row: row["id"] % 2 == 0).sink_to(files)
    master = run(env)
    assert master.history.status.value == "FINISHED"
    assert len(list((tmp_path / "out").rglob("*.parquet"))) >= 1
