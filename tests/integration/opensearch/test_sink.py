"""The writes of a sink to a real OpenSearch. The server rejects writes, or is locked."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.common.errors import SinkError
from penstock.connectors.core.sink import WriterContext
from penstock.datastream.connectors.elasticsearch import (
    Elasticsearch7SinkBuilder,
    ElasticsearchEmitter,
    FlushBackoffType,
)
from penstock.datastream.connectors.opensearch import OpenSearchSink
from tools.servers.opensearch import OpenSearchServer

pytestmark = pytest.mark.opensearch
CONTEXT = WriterContext(0, 1, 0, "out", "job")


@pytest.fixture
def index() -> str:
    return f"i{uuid.uuid4().hex[:10]}"


def put(sink: Any, *values: Any) -> None:
    sink.validate()
    writer = sink.create_writer(CONTEXT, [])
    try:
        writer.write(list(values), None, 0)
        writer.prepare_commit(1)
    finally:
        writer.close()


def test_documents_have_the_state_of_their_last_actions(opensearch: OpenSearchServer, index: str) -> None:
    actions = [
        {"_id": 1, "n": 1},
        {"_id": 2, "n": 2},
        {"_id": 1, "n": 3},
        {"_op_type": "update", "_id": 1, "doc": {"m": 4}},
        {"_op_type": "update", "_id": 3, "doc": {"m": 5}, "doc_as_upsert": True},
        {"_op_type": "delete", "_id": 2},
        {"_op_type": "delete", "_id": "never there"},
        {"_op_type": "create", "_id": 4, "n": 6},
        {"_op_type": "create", "_id": 4, "n": 7},
        {"_id": 5, "_version": 9, "_version_type": "external", "n": 9},
        {"_id": 5, "_version": 8, "_version_type": "external", "n": 8},
        {"_index": f"{index}-other", "_id": "ö/ü", "text": "a\nb"},
    ]
    put(OpenSearchSink(opensearch.url, lambda action: action, index=index), *actions)
    assert opensearch.documents(index) == {"1": {"n": 3, "m": 4}, "3": {"m": 5}, "4": {"n": 6}, "5": {"n": 9}}
    assert opensearch.documents(f"{index}-other") == {"ö/ü": {"text": "a\nb"}}


def test_programs_for_pyflink_write_the_same(opensearch: OpenSearchServer, index: str) -> None:
    sink = (
        Elasticsearch7SinkBuilder()
        .set_emitter(ElasticsearchEmitter.static_index(index, "name"))
        .set_hosts([opensearch.url.removeprefix("http://")])
        .set_bulk_flush_max_actions(2)
        .set_bulk_flush_max_size_mb(1)
        .set_bulk_flush_interval(1000)
        .set_bulk_flush_backoff_strategy(FlushBackoffType.CONSTANT, 3, 100)
        .build()
    )
    put(sink, {"name": "ada", "id": "1"}, {"name": "luna", "id": "2"}, {"name": "ada", "id": "3"})
    assert opensearch.documents(index) == {"ada": {"name": "ada", "id": "3"}, "luna": {"name": "luna", "id": "2"}}
    dynamic = Elasticsearch7SinkBuilder().set_emitter(ElasticsearchEmitter.dynamic_index("name", "id"))
    put(dynamic.set_hosts([opensearch.url]).build(), {"name": f"{index}-x", "id": "1"})
    assert opensearch.documents(f"{index}-x") == {"1": {"name": f"{index}-x", "id": "1"}}
    with pytest.raises(SinkError, match="a record without 'name'"):
        put(sink, {"id": "1"})


def test_the_error_for_a_rejected_document_has_index_id_and_reason(opensearch: OpenSearchServer, index: str) -> None:
    opensearch.ask("PUT", f"/{index}", {"mappings": {"properties": {"n": {"type": "integer"}}, "dynamic": "strict"}})
    sink = OpenSearchSink(opensearch.url, lambda action: action, index=index)
    with pytest.raises(SinkError, match=f"document 'b' of index '{index}' is rejected: mapper_parsing.*'x'") as error:
        put(sink, {"_id": "a", "n": 1}, {"_id": "b", "n": "x"})
    assert "mapping" in error.value.remedy
    with pytest.raises(SinkError, match="strict_dynamic_mapping"):
        put(sink, {"_id": "c", "other": 1})
    with pytest.raises(SinkError, match="invalid_index_name"):
        put(OpenSearchSink(opensearch.url, lambda action: action, index="UPPER"), {"_id": 1, "n": 1})


def test_a_too_large_document_is_an_error_and_a_too_large_bulk_is_split(tmp_path: Path) -> None:
    with OpenSearchServer(tmp_path, {"http.max_content_length": "1mb"}) as server:
        text = "x" * 300_000
        sink = OpenSearchSink(server.url, lambda n: {"_id": n, "text": text}, index="i", batch_bytes=64 << 20)
        put(sink, *range(10))
        assert len(server.documents("i")) == 10
        sink = OpenSearchSink(server.url, lambda n: {"_id": n, "text": text * 5}, index="i")
        with pytest.raises(SinkError, match=r"document '11' of index 'i' has 1,500,\d+ bytes"):
            put(sink, 11)


def test_the_sink_waits_for_an_index_that_is_locked_for_lack_of_disk(opensearch: OpenSearchServer, index: str) -> None:
    opensearch.ask("PUT", f"/{index}")

    def lock(value: bool | None) -> None:
        opensearch.ask("PUT", f"/{index}/_settings", {"index.blocks.read_only_allow_delete": value})

    lock(True)
    with pytest.raises(SinkError, match="cluster_block_exception"):
        put(OpenSearchSink(opensearch.url, lambda n: {"_id": n}, index=index, patience=500), 1)
    unlocking = threading.Timer(1.0, lock, [None])
    unlocking.start()
    put(OpenSearchSink(opensearch.url, lambda n: {"_id": n, "n": n}, index=index, patience=60_000), 1, 2)
    unlocking.join()
    assert opensearch.documents(index) == {"1": {"n": 1}, "2": {"n": 2}}


def test_an_unavailable_server_is_an_error_before_the_job_starts(opensearch: OpenSearchServer) -> None:
    sink = OpenSearchSink("http://127.0.0.1:1", lambda n: {"_id": n}, index="i")
    with pytest.raises(SinkError, match=r"OpenSearch 127\.0\.0\.1:1") as error:
        sink.validate()
    assert "check that the servers run" in error.value.remedy
    OpenSearchSink(["http://127.0.0.1:1", opensearch.url], lambda n: {"_id": n}, index="i").validate()
