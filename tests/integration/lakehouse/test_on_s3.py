"""Tables on a real S3 server, with the job's own object store settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common.errors import SinkError
from penstock.connectors.source import ReadBounds, ReaderContext
from penstock.datastream.connectors.delta import DeltaSink, DeltaSource
from penstock.datastream.connectors.iceberg import IcebergSink, IcebergSource
from tests.integration.lakehouse.lakes import FIELDS, voted, writer_of
from tools.s3server import S3Server

pytestmark = pytest.mark.s3


@pytest.mark.parametrize("said_by", ["the job", "the environment"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_on_s3_is_written_and_read(
    s3: S3Server, tmp_path: Path, kind: str, said_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is what the operator's pods have from the Secret of the storage."""
    if kind == "delta":
        path = f"s3://engine/{tmp_path.name}/table"
        sink = DeltaSink(path, FIELDS, create=True, partition_by=["key"])
        source = DeltaSource(path, FIELDS)
    else:
        warehouse = f"s3://engine/{tmp_path.name}/warehouse"
        lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
        sink = IcebergSink(lake, "weather.readings", FIELDS, create=True, partition_by=["key"])  # type: ignore[assignment]
        source = IcebergSource(lake, "weather.readings", FIELDS)  # type: ignore[assignment]
    options = s3.storage_options() if said_by == "the job" else {}
    for name, value in s3.env().items():
        if said_by == "the environment":
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


def test_wrong_keys_are_an_error_at_the_start(s3: S3Server) -> None:
    sink = DeltaSink("s3://engine/table", FIELDS).with_object_store_options({**s3.storage_options(), "secret": "wrong"})
    with pytest.raises(SinkError, match=r"cannot be opened|there is no Delta table"):
        sink.validate()
