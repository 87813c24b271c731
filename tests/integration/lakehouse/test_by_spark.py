"""Spark, with the connectors of Delta Lake and Iceberg, reads the sinks' tables, and the sources read what Spark writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common.errors import SinkError, SourceError
from penstock.common.types import RowKind
from tests.integration.lakehouse.lakes import DeltaLake, Lake, RestLake, committer_of, voted, writer_of
from tests.integration.lakehouse.test_sources import read
from tests.integration.lakehouse.test_upserts import changed, committer, pairs, row
from tools.lakespark import LakeSpark
from tools.servers.iceberg_catalog import IcebergCatalog

pytestmark = pytest.mark.lakespark


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergCatalog]:
    with IcebergCatalog(tmp_path_factory.mktemp("catalog")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(catalog: IcebergCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeSpark]:
    with LakeSpark(tmp_path_factory.mktemp("spark"), catalog.url) as running:
        yield running


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, catalog: IcebergCatalog) -> Lake:
    if request.param == "delta":
        return DeltaLake(tmp_path)
    (tmp_path / "catalog.uri").write_text(catalog.url)
    found = RestLake(tmp_path)
    found.name = f"weather.t{abs(hash(tmp_path)):x}"
    return found


def named(lake: Lake) -> str:
    """Return the table's name in Spark's SQL."""
    return f"delta.`{lake.path}`" if isinstance(lake, DeltaLake) else f"lake.{lake.name}"  # type: ignore[attr-defined]


def seen(spark: LakeSpark, lake: Lake, columns: str = "id, key") -> list[dict[str, Any]]:
    return spark.sql(f"select {columns} from {named(lake)} order by id")


def test_spark_reads_the_rows_of_each_checkpoint(lake: Lake, spark: LakeSpark) -> None:
    sink = lake.sink(partition_by=["key"])
    commits, writer = committer_of(sink), writer_of(sink)
    for checkpoint in range(1, 4):
        commits.commit(voted(writer, checkpoint, *range(checkpoint * 100, checkpoint * 100 + 50)))
        assert [found["id"] for found in seen(spark, lake)] == lake.ids()
    assert spark.sql(f"select count(*) as n from {named(lake)} where key = 'k1' and id >= 250") == [
        {"n": sum(n % 3 == 1 for n in range(300, 350))}
    ]


VALUES: dict[str, tuple[pa.DataType, Any, str]] = {
    "text": (pa.string(), "ä😀", "'ä😀'"),
    "small": (pa.int32(), -(2**31), "-2147483648"),
    "large": (pa.int64(), 2**63 - 1, "9223372036854775807"),
    "real": (pa.float64(), 0.1, "0.1d"),
    "yes": (pa.bool_(), True, "true"),
    "cents": (pa.decimal128(20, 4), Decimal("-1234567.8901"), "-1234567.8901"),
    "day": (pa.date32(), date(1969, 12, 31), "date'1969-12-31'"),
    "at": (pa.timestamp("us", "UTC"), datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), "timestamp'2024-02-29 01:02:03.456789Z'"),
    "raw": (pa.binary(), b"\x00\xff", "X'00FF'"),
    "some": (pa.list_(pa.int64()), [1, 2], "array(1L, 2L)"),
}  # fmt: skip
"""Type, value and the value's SQL literal, by column."""


def test_spark_reads_every_type_as_it_was_written(lake: Lake, spark: LakeSpark) -> None:
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _, _) in VALUES.items())])
    lake.make(schema)
    sink = lake.sink(schema)
    commits, writer = committer_of(sink), writer_of(sink)
    nothing = dict.fromkeys(VALUES)
    writer.write([{"id": 1, **{name: value for name, (_, value, _) in VALUES.items()}}, {"id": 2, **nothing}], None, 0)
    commits.commit(json.loads(json.dumps(writer.prepare_commit(1))))
    for name, (_, _, literal) in VALUES.items():
        assert spark.sql(f"select id from {named(lake)} where `{name}` = {literal}") == [{"id": 1}], name
        assert spark.sql(f"select id from {named(lake)} where `{name}` is null") == [{"id": 2}], name


def test_spark_reads_each_key_once_with_its_last_row(lake: Lake, spark: LakeSpark) -> None:
    sink = lake.sink(key=["id"], deletes=True, partition_by=["key"])
    commits, writer = committer(sink), writer_of_after(sink)
    commits.commit(changed(writer, 1, *(row(n, "a") for n in range(500))))
    commits.commit(
        changed(writer, 2, *(row(n, "b" if n % 2 else None, kind=RowKind.DELETE if n % 10 == 0 else RowKind.INSERT) for n in range(250)))
    )  # fmt: skip
    there = {found["id"]: found["key"] for found in seen(spark, lake)}
    assert there == pairs(lake)
    assert len(there) == 475
    assert spark.sql(f"select count(*) as n from {named(lake)} where key = 'b'") == [{"n": 125}]


def writer_of_after(sink: Any) -> Any:
    committer_of(sink)
    return writer_of(sink)


def test_a_job_continues_after_spark_has_compacted_updated_and_deleted(lake: Lake, spark: LakeSpark) -> None:
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_after(sink)
    for checkpoint in range(1, 6):
        commits.commit(changed(writer, checkpoint, *((n, "a") for n in range(checkpoint * 10, checkpoint * 10 + 10))))
    table = named(lake)
    if isinstance(lake, DeltaLake):
        spark.sql(f"optimize {table}")
    else:
        spark.sql(
            f"call lake.system.rewrite_data_files(table => '{lake.name}', options => map('min-input-files', '2'))"  # type: ignore[attr-defined]
        )
    assert len(lake.named_files()) == 1
    spark.sql(f"update {table} set key = 'spark' where id = 11")
    spark.sql(f"delete from {table} where id = 12")
    commits.commit(changed(writer, 6, (10, "b"), (12, "again"), (60, "b")))
    expected = {**dict.fromkeys(range(10, 60), "a"), 10: "b", 11: "spark", 12: "again", 60: "b"}
    assert {found["id"]: found["key"] for found in seen(spark, lake)} == pairs(lake) == expected


def test_rows_that_spark_deleted_without_rewriting_files_are_refused_or_skipped(lake: Lake, spark: LakeSpark) -> None:
    """Deletion vectors of Delta are refused. Iceberg's deletes by position are applied."""
    sink = lake.sink(key=["id"])
    commits, writer = committer(sink), writer_of_after(sink)
    commits.commit(changed(writer, 1, *((n, "a") for n in range(20))))
    table = named(lake)
    if isinstance(lake, DeltaLake):
        spark.sql(f"alter table {table} set tblproperties ('delta.enableDeletionVectors' = 'true')")
    else:
        spark.sql(
            f"alter table {table} set tblproperties ('write.delete.mode' = 'merge-on-read', 'format-version' = '2')"
        )
    spark.sql(f"delete from {table} where id = 3")
    more = changed(writer, 2, (4, "b"))
    if isinstance(lake, DeltaLake):
        with pytest.raises(SinkError, match="deletion vectors"):
            commits.commit(more)
        with pytest.raises(SourceError, match="deletion vectors"):
            read(lake, lake.source())
        spark.sql(f"reorg table {table} apply (purge)")
    commits.commit(more)
    there = seen(spark, lake)
    assert [found["id"] for found in there] == [n for n in range(20) if n != 3]
    assert [found["id"] for found in there if found["key"] == "b"] == [4]


def test_rows_that_spark_writes_are_read(lake: Lake, spark: LakeSpark) -> None:
    lake.make(pa.schema([("id", pa.int64()), ("day", pa.date32()), ("key", pa.string())]), ["day"])
    spark.sql(
        f"insert into {named(lake)} select id, date_add(date'2020-01-01', int(id % 3)), concat('k', id) from range(90)"
    )
    found = read(lake, lake.source({"id": int, "day": date, "key": str}))
    assert sorted(found, key=lambda one: one["id"]) == [
        {"id": n, "day": date(2020, 1, 1 + n % 3), "key": f"k{n}"} for n in range(90)
    ]
