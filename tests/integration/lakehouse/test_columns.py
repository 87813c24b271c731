"""Partitions, types, and fields that do not fit."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, TruncateTransform

from penstock.common.errors import InvalidJob, RecordFormatError, SinkError
from penstock.common.program.extras import import_extra
from penstock.common.typeinfo import Types
from penstock.common.types import Row
from penstock.connectors.core.json_able import json_able
from penstock.records.batch import ColumnBatch
from penstock.records.columns import rows_as_dicts
from tests.integration.lakehouse.lakes import DeltaLake, IcebergLake, Lake, committer_of, voted, writer_of

DAY = datetime.date(2013, 7, 1)


def written(lake: Lake, sink: Any, values: list[Any]) -> list[dict[str, Any]]:
    committer, writer = committer_of(sink), writer_of(sink)
    writer.write(values, None, 0)
    committer.commit(json.loads(json.dumps(writer.prepare_commit(1))))
    return lake.rows()


def test_rows_go_into_their_partitions(lake: Lake) -> None:
    sink = lake.sink({"station": str | None, "day": datetime.date, "n": int}, partition_by=["day", "station"])
    stations = ["LSZH", "a/b c=ä%20", None, "LSZH"]
    rows = [{"station": s, "day": DAY + datetime.timedelta(n % 2), "n": n} for n, s in enumerate(stations * 3)]
    assert len(written(lake, sink, rows)) == 12
    assert [row["n"] for row in lake.rows() if row["station"] == "a/b c=ä%20"] == [1, 5, 9]
    assert [row["n"] for row in lake.rows() if row["station"] is None] == [10, 2, 6]
    assert len(lake.named_files()) == 4
    assert any("day=2013-07-01" in path for path in lake.named_files())


def test_iceberg_rows_go_into_hidden_partitions(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    lake.make(pa.schema({"at": pa.timestamp("us", "UTC"), "name": pa.string(), "price": pa.decimal128(9, 2)}))
    with lake.opened().update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")
        spec.add_field("name", TruncateTransform(2), "name_start")
        spec.add_identity("price")
    sink = lake.sink(pa.schema({"at": pa.timestamp("ms"), "name": pa.string(), "price": pa.decimal128(5, 2)}))
    at = datetime.datetime(2013, 7, 1, 23, 30)
    rows = [
        {"at": at + datetime.timedelta(hours=n), "name": f"x{n % 2}y", "price": decimal.Decimal("1.50")}
        for n in range(4)
    ]
    assert len(written(lake, sink, rows)) == 4
    assert len(lake.named_files()) == 3
    found = lake.opened().scan("at >= '2013-07-02T00:00:00+00:00' and name = 'x1y'").to_arrow()
    assert found.num_rows == 2


class Reading(NamedTuple):
    id: int
    celsius: float | None
    tags: list[str]
    about: dict[str, int]
    at: datetime.datetime
    raw: bytes


def test_values_of_all_types_come_back(lake: Lake) -> None:
    at = datetime.datetime(2013, 7, 1, 12, 0, 0, 123456)
    values = [Reading(1, 2.5, ["a", "b"], {"x": 1}, at, b"\x00\xff"), Reading(2, None, [], {}, at, b"")]
    sink = lake.sink(Reading)
    rows = written(lake, sink, values)
    assert [row["id"] for row in rows] == [1, 2]
    assert rows[0]["celsius"] == 2.5
    assert rows[1]["celsius"] is None
    assert rows[0]["tags"] == ["a", "b"]
    assert dict(rows[0]["about"]) == {"x": 1}
    assert rows[0]["at"] == at
    assert rows[0]["raw"] == b"\x00\xff"


def test_tuples_rows_and_columns_are_written(lake: Lake) -> None:
    sink = lake.sink(Types.ROW_NAMED(["id", "key"], [Types.LONG(), Types.STRING()]))
    committer, writer = committer_of(sink), writer_of(sink)
    writer.write([Row(id=1, key="a")], None, 0)
    writer.write([(2, "b")], None, 0)
    columns = pa.RecordBatch.from_pydict({"key": ["c"], "id": pa.array([3], pa.int32())})
    writer.write_batch(ColumnBatch(columns, None, rows_as_dicts), 0)
    committer.commit(writer.prepare_commit(1))
    assert lake.rows() == [{"id": n, "key": key} for n, key in [(1, "a"), (2, "b"), (3, "c")]]


def test_a_column_that_the_sink_does_not_declare_is_refused(lake: Lake) -> None:
    sink = lake.sink(Types.ROW_NAMED(["id", "key"], [Types.LONG(), Types.STRING()]))
    committer_of(sink)  # creates the table
    writer = writer_of(sink)
    columns = pa.RecordBatch.from_pydict({"id": [3], "key": ["c"], "more": [1.0]})
    with pytest.raises(RecordFormatError, match="unknown field 'more'"):
        writer.write_batch(ColumnBatch(columns, None, rows_as_dicts), 0)


def test_a_file_ends_at_its_size(lake: Lake) -> None:
    sink = lake.sink(file_bytes=1)
    committer, writer = committer_of(sink), writer_of(sink)
    writer.write([{"id": 1, "key": "a"}], None, 0)
    committer.commit(voted(writer, 1, 2))
    assert len(lake.named_files()) == 2
    assert lake.ids() == [1, 2]


def test_more_partitions_than_the_open_file_limit_are_written(lake: Lake) -> None:
    sink = lake.sink({"id": int, "part": int}, partition_by=["part"])
    rows = [{"id": n, "part": n % 70} for n in range(140)]
    assert len(written(lake, sink, rows)) == 140
    assert {row["part"] for row in lake.rows()} == set(range(70))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": int, "key": str, "extra": int}, "no column 'extra'"),
        ({"id": str, "key": str}, "column 'id' is int64, but the job's field is string"),
        ({"key": str}, "column 'id' is required"),
    ],
)
def test_fields_that_do_not_fit_are_refused_at_the_start(lake: Lake, fields: Any, message: str) -> None:
    lake.make(pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.string())]))
    with pytest.raises(InvalidJob, match=message):
        lake.sink(fields).validate()


def test_nulls_for_a_required_column_are_refused(lake: Lake) -> None:
    lake.make(pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.string())]))
    writer = writer_of(lake.sink({"id": int | None, "key": str}))
    with pytest.raises(RecordFormatError, match="'id' of the table allows no nulls"):
        writer.write([{"id": None, "key": "a"}], None, 0)


def test_new_fields_become_columns_if_add_columns_is_set(lake: Lake) -> None:
    sink = lake.sink()
    committer_of(sink).commit(voted(writer_of(sink), 1, 1))
    wider = lake.sink({"id": int, "key": str, "note": str}, add_columns=True)
    wider.validate()
    committer, writer = committer_of(wider), writer_of(wider)
    committer_of(wider)
    writer.write([{"id": 2, "key": "b", "note": "new"}], None, 0)
    committer.commit(writer.prepare_commit(2))
    assert [row["note"] for row in lake.rows()] == [None, "new"]


def test_extra_columns_of_the_table_are_null(lake: Lake) -> None:
    lake.make(pa.schema({"before": pa.float64(), "id": pa.int64(), "key": pa.string(), "part": pa.string()}), ["part"])
    rows = written(lake, lake.sink(), [{"id": 1, "key": "a"}])
    assert rows == [{"before": None, "id": 1, "key": "a", "part": None}]


def test_a_column_that_is_dropped_during_the_job_fails_the_commit(lake: Lake) -> None:
    sink = lake.sink()
    committer = committer_of(sink)
    pieces = voted(writer_of(sink), 1, 1)
    if isinstance(lake, DeltaLake):
        deltalake.write_deltalake(lake.path, pa.table({"id": [5]}), mode="overwrite", schema_mode="overwrite")
    else:
        with lake.opened().update_schema() as update:  # type: ignore[attr-defined]
            update.delete_column("key")
    with pytest.raises(InvalidJob, match="no column 'key'"):
        committer.commit(pieces)


def test_a_missing_table_is_an_error_at_the_start(lake: Lake) -> None:
    with pytest.raises(SinkError, match=r"(has no Delta table|Iceberg table .* does not exist)"):
        lake.sink(create=False).validate()
    lake.sink().validate()
    assert not list(lake.folder.rglob("*.json"))  # a check creates nothing


def test_partition_columns_that_are_not_fields_are_refused(lake: Lake) -> None:
    with pytest.raises(InvalidJob, match="partition_by"):
        lake.sink(partition_by=["nothing"])


def test_other_partitions_than_the_tables_are_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    lake.make(pa.schema({"id": pa.int64(), "key": pa.string()}), ["key"])
    with pytest.raises(InvalidJob, match="is partitioned by"):
        lake.sink({"id": int, "key": str}, partition_by=["id"]).validate()


def test_a_table_with_rules_for_its_rows_is_refused(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    lake.make(pa.schema({"id": pa.int64(), "key": pa.string()}))
    lake.opened().alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(InvalidJob, match="cannot be written by this sink"):
        lake.sink().validate()


def test_a_catalog_that_cannot_be_reached_is_an_error_at_the_start(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path / "nowhere")
    with pytest.raises(SinkError, match=r"cannot be opened|cannot check whether"):
        lake.sink(create=False).validate()


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(InvalidJob, match="pip install") as caught:
        import_extra("deltalake_of_nobody", "delta", "Delta Lake")
    assert "penstock-streaming[delta]" in str(caught.value)


def test_times_at_the_end_of_time_are_written(lake: Lake) -> None:
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)
    assert written(lake, lake.sink({"n": int, "until": datetime.datetime}), [{"n": 1, "until": last}]) == [
        {"n": 1, "until": last}
    ]


def test_times_that_python_cannot_represent_are_written_to_delta(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    sink = lake.sink(pa.schema({"n": pa.int64(), "until": pa.timestamp("us")}))
    committer, writer = committer_of(sink), writer_of(sink)
    columns = pa.RecordBatch.from_pydict({"n": [1], "until": pa.array([2**60]).cast(pa.timestamp("us"))})
    writer.write_batch(ColumnBatch(columns, None, rows_as_dicts), 0)
    committer.commit(writer.prepare_commit(1))
    assert lake.table()["until"].cast(pa.int64()).to_pylist() == [2**60]


def test_bytes_that_are_not_text_cannot_be_a_partition_of_a_delta_table(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    sink = lake.sink({"n": int, "key": bytes}, partition_by=["key"])
    assert written(lake, sink, [{"n": 1, "key": "ä".encode()}]) == [{"n": 1, "key": "ä".encode()}]
    with pytest.raises(RecordFormatError, match="partition value"):
        written(lake, sink, [{"n": 1, "key": b"\xff"}])


@pytest.mark.parametrize(
    "value", [b"\xff", uuid.UUID(int=5), float("inf"), decimal.Decimal("1.10"), 2**40, "a", None, True, 0.5]
)
def test_values_of_iceberg_partitions_come_back_from_a_checkpoint(value: Any) -> None:
    from penstock.connectors.iceberg.target import _as_json, _from_json

    found = _from_json(json.loads(json.dumps(json_able(_as_json(value), "a partition"))))
    assert (found, type(found)) == (value, type(value))
