"""Tables on a real S3 server, with the job's own object store settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common.errors import SinkError
from penstock.common.types import RowKind
from penstock.connectors.core.source import ReadBounds, ReaderContext
from penstock.connectors.delta.table import open_table as open_delta
from penstock.connectors.delta.table import storage_options_of
from penstock.connectors.iceberg.table import open_table as open_iceberg
from penstock.datastream.connectors.delta import DeltaSink, DeltaSource
from penstock.datastream.connectors.iceberg import IcebergSink, IcebergSource
from tests.integration.lakehouse.lakes import FIELDS, voted, writer_of
from tests.integration.lakehouse.test_upserts import changed, committer, row
from tools.servers.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("configured_by", ["the job", "the environment"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_on_s3_is_written_and_read(
    s3: S3Server, tmp_path: Path, kind: str, configured_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is that of the operator's pods, which have the storage Secret's variables."""
    if kind == "delta":
        path = f"s3://engine/{tmp_path.name}/table"
        sink = DeltaSink(path, FIELDS, create=True, partition_by=["key"])
        source = DeltaSource(path, FIELDS)
    else:
        warehouse = f"s3://engine/{tmp_path.name}/warehouse"
        lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
        sink = IcebergSink(lake, "weather.readings", FIELDS, create=True, partition_by=["key"])  # type: ignore[assignment]
        source = IcebergSource(lake, "weather.readings", FIELDS)  # type: ignore[assignment]
    options = s3.storage_options() if configured_by == "the job" else {}
    for name, value in s3.exports().items():
        if configured_by == "the environment":
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    sink, source = sink.with_object_store_options(options), source.with_object_store_options(options)
    sink.validate()
    committer = sink.create_committer(options, job_id="job", uid="sink")
    writer = writer_of(sink)
    pieces = voted(writer, 1, *range(9))
    committer.commit(pieces)
    committer.commit(pieces)
    lost = voted(writer, 2, 100)
    committer.abort(lost)
    source.validate()
    reader = source.create_reader(ReaderContext(0, 1, "in", options))
    rows = []
    for split in source.create_enumerator().discover():
        opened = reader.open_split(split, None)
        while not opened.finished:
            batch = opened.read(ReadBounds())
            rows += [] if batch is None else batch.rows().values
    assert sorted(row["id"] for row in rows) == list(range(9))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_of_a_table_on_s3_are_replaced_by_their_key(s3: S3Server, tmp_path: Path, kind: str) -> None:
    path, warehouse = f"s3://engine/{tmp_path.name}/keyed", f"s3://engine/{tmp_path.name}/warehouse"
    lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
    options = s3.storage_options()
    sink = {
        "delta": lambda: DeltaSink(path, FIELDS, create=True, key=["id"], deletes=True),
        "iceberg": lambda: IcebergSink(lake, "weather.readings", FIELDS, create=True, key=["id"], deletes=True),
    }[kind]().with_object_store_options(options)
    sink.validate()
    commits = committer(sink, options=options)
    writer = writer_of(sink)
    pieces = [
        changed(writer, 1, row(1, "a"), row(2, "a")),
        changed(writer, 2, row(1, "b"), row(2, None, kind=RowKind.DELETE), row(3, "b")),
    ]
    for piece in pieces * 2:
        commits.commit(piece)
    commits.abort(changed(writer, 3, row(4, "lost")))
    if kind == "delta":
        rows = open_delta(path, storage_options_of(path, options, {}), SinkError).to_pyarrow_table()
    else:
        rows = open_iceberg(lake, "weather.readings", options, SinkError).scan().to_arrow()
    assert sorted(tuple(found.values()) for found in rows.to_pylist()) == [(1, "b"), (3, "b")]


def test_wrong_keys_are_an_error_at_the_start(s3: S3Server) -> None:
    sink = DeltaSink("s3://engine/table", FIELDS).with_object_store_options({**s3.storage_options(), "secret": "wrong"})
    with pytest.raises(SinkError, match=r"cannot be opened|has no Delta table"):
        sink.validate()
